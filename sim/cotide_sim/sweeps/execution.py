"""Runs cells in parallel through joblib, on processes of this machine or on a Dask cluster, outcomes as they come.

Called by `sweep`. Invariant: exactly one outcome for every cell, whatever happens to a worker: when one dies, the cells
that were with workers at the time are run one by one, and the one that kills its worker again is the one that failed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
import re
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from cotide_core.errors import ClusterError, InputError
from cotide_sim.sweeps.cell_run import failed, run_cell
from cotide_sim.sweeps.cells import Cell, Columns, LogSource, Outcome, Source
from cotide_sim.trace_replay.user_policy import PolicySource

PARENT_LOOK_SECONDS: Final = 0.5
"""How often a worker looks whether the sweep is still there; chosen."""
CONNECT_SECONDS: Final = 10
"""How long a Dask scheduler may take to answer; chosen."""
ADDRESS: Final = re.compile(r"((tcp|tls|ws|wss|ucx)://)?[^\s/]+:\d+")
"""Of a Dask scheduler; checked first, since a client of a wrong one takes long to give up."""
_NO_COLUMNS: Final[Columns] = np.empty((5, 0), dtype=np.int64)

Task = tuple[Cell, Source]


@dataclass(frozen=True, slots=True)
class Workers:
    """Where cells run: ``count`` processes here, or the workers of a Dask ``client``.

    ``policies`` are those from files, by the sha256 that cells know them by; their text travels to the workers.
    """

    count: int
    client: Any = None
    policies: Mapping[str, PolicySource] = field(default_factory=dict)

    def run(self, tasks: Sequence[Task]) -> Generator[Outcome]:
        """Yield the outcome of each task, in the order in which they finish.

        Raises
        ------
        ClusterError
            When the Dask cluster fails.
        """
        waiting = {cell.key: (cell, source) for cell, source in tasks}
        while waiting:
            try:
                for outcome in self._pool(list(waiting.values())):
                    del waiting[outcome.cell.key]
                    yield outcome
            except Exception as error:  # noqa: BLE001  raised again unless a worker died, of which loky and Dask differ
                self._check_death(error)
                for task in list(waiting.values())[: 2 * self.count]:
                    del waiting[task[0].key]
                    yield self._alone(task)

    def close(self) -> None:
        """Leave the cluster, if there is one."""
        if self.client is not None:
            self.client.close()

    def _alone(self, task: Task) -> Outcome:
        """Run one cell where its death harms no other."""
        try:
            return next(self._pool([task], spare=1))
        except Exception as error:  # noqa: BLE001  as above; a death is now this cell's own
            self._check_death(error)
            return failed(task[0], f"its worker process died, out of memory perhaps ({type(error).__name__})")

    def _pool(self, tasks: Sequence[Task], *, spare: int = 0) -> Generator[Outcome]:
        if self.client is None and self.count + spare == 1:
            for cell, source in tasks:
                yield run_cell(cell, source, None, self._policy(cell), interruptible=True)
            return
        import joblib  # type: ignore[import-untyped]  # it ships no types

        how: dict[str, Any] = {"backend": "dask", "client": self.client}
        if self.client is None:
            how = {"backend": "loky", "initializer": leave_with, "initargs": (os.getpid(),)}
        # One cell a batch: what is finished is kept at once. The columns travel as an array of their own, which loky
        # puts into shared memory and Dask sends to a worker once.
        with joblib.parallel_config(**how):
            parallel = joblib.Parallel(
                n_jobs=self.count + spare, return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs"
            )
            outcomes = parallel(self._calls(joblib.delayed(run_cell), tasks))
        try:
            for outcome in outcomes:  # noqa: UP028  `yield from` would close them outside the lines below
                yield outcome
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # joblib warns that the rest is lost; it is run again when resumed
                outcomes.close()

    def _policy(self, cell: Cell) -> PolicySource | None:
        return None if cell.policy_sha256 is None else self.policies[cell.policy_sha256]

    def _calls(self, call: Any, tasks: Sequence[Task]) -> Iterator[Any]:
        bare: dict[int, Source] = {}
        for cell, source in tasks:
            if isinstance(source, LogSource):
                light = bare.setdefault(id(source), replace(source, columns=_NO_COLUMNS))
                yield call(cell, light, source.columns, self._policy(cell))
            else:
                yield call(cell, source, None, self._policy(cell))

    def _check_death(self, error: Exception) -> None:
        """Let pass the death of a worker; raise what ends the whole sweep."""
        if isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker":
            return
        if self.client is not None:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise ClusterError(f"the Dask cluster failed, finished cells are kept ({said})") from error
        raise error


def leave_with(parent: int) -> None:
    """Start of a worker process: end soon after the sweep ends, whatever ended it, and leave Ctrl-C to the sweep."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def dask_workers(address: str) -> Workers:
    """Connect to a Dask scheduler whose workers have this version of Cotide.

    Raises
    ------
    InputError
        When distributed is not installed here, or the address is none.
    ClusterError
        When the scheduler does not answer, has no worker, or a worker has no Cotide or another version.
    """
    try:
        # By name: an optional dependency that the type checker may or may not find.
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        raise InputError(
            "needs dask.distributed, which is not installed; install it or leave the option out", field="--dask"
        ) from error
    # Their logs hold tracebacks of what we say in one line; tornado's, of answers that a stopped sweep awaits no more.
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    if not ADDRESS.fullmatch(address):
        raise InputError(
            f"{address!r} is no address of a scheduler; write for example tcp://10.0.0.1:8786", field="--dask"
        )
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ClusterError(f"no Dask scheduler answers at {address}") from error
    try:
        _check_workers(client, address)
    except BaseException:
        client.close()
        raise
    return Workers(sum(client.ncores().values()), client)


def _check_workers(client: Any, address: str) -> None:
    ours = importlib.metadata.version("cotide")
    if not client.ncores():
        raise ClusterError(f"the Dask scheduler at {address} has no workers")
    try:
        found = client.run(importlib.metadata.version, "cotide")
    except importlib.metadata.PackageNotFoundError as error:
        raise ClusterError(f"a Dask worker at {address} has no cotide installed; each needs version {ours}") from error
    for worker, theirs in found.items():
        if theirs != ours:
            raise ClusterError(f"the Dask worker {worker} has cotide {theirs}, this is {ours}: results could differ")
