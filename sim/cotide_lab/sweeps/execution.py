"""Runs cells in parallel, on processes of this machine or on a Dask cluster, outcomes as they come.

Called by `sweep`. Invariant: exactly one outcome for every cell, whatever happens to a worker (`pool`).
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import logging
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from cotide_core.errors import ClusterError, InputError
from cotide_lab.sweeps.cell_run import failed, run_cell
from cotide_lab.sweeps.cells import Cell, Columns, LogSource, Outcome, Source
from cotide_lab.sweeps.pool import Call, Pool
from cotide_lab.trace_replay.user_policy import PolicySource

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
        """Yield the outcome of each task, in order of completion.

        Raises
        ------
        ClusterError
            When the Dask cluster fails.
        """
        return Pool(self.count, self.client).run(list(self._calls(tasks)))

    def close(self) -> None:
        """Leave the cluster, if there is one."""
        if self.client is not None:
            self.client.close()

    def _calls(self, tasks: Sequence[Task]) -> Iterator[Call[Outcome]]:
        bare: dict[int, Source] = {}
        for cell, source in tasks:
            policy = None if cell.policy_sha256 is None else self.policies[cell.policy_sha256]
            arguments: tuple[Any, ...] = (cell, source, None, policy)
            if isinstance(source, LogSource):
                light = bare.setdefault(id(source), replace(source, columns=_NO_COLUMNS))
                arguments = (cell, light, source.columns, policy)
            here = partial(run_cell, cell, source, None, policy, interruptible=True)
            yield Call(cell.key, run_cell, arguments, here, partial(failed, cell))


def dask_workers(address: str) -> Workers:
    """Connect to a Dask scheduler with workers of this version of Cotide.

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
    # Their logs hold tracebacks where one line of ours is enough; tornado's, of answers after a stopped sweep.
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    if not ADDRESS.fullmatch(address):
        raise InputError(
            f"{address!r} is no address of a scheduler; write for example tcp://10.0.0.1:8786", field="--dask"
        )
    try:
        # First the handshake alone: a client of another protocol takes 20 s to end, with a traceback.
        asyncio.run(_shake_hands(address))
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except Exception as error:  # the bytes of another peer are read as lengths: MemoryError, ValueError and others
        raise ClusterError(f"no Dask scheduler answers at {address}") from error
    try:
        _check_workers(client, address)
    except BaseException:
        client.close()
        raise
    return Workers(sum(client.ncores().values()), client)


async def _shake_hands(address: str) -> None:
    comm = await importlib.import_module("distributed.comm").connect(address, timeout=CONNECT_SECONDS)
    await comm.close()


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
