"""Runs calls in parallel through joblib, on processes of this machine or on a Dask cluster, answers as they come.

Called by `execution` and by the lab. Invariant: exactly one answer for every call, whatever happens to a worker. When
one dies, the calls of all workers at that time run one by one; the call that kills its worker again has failed.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from cotide_core.errors import ClusterError
from cotide_lab.sweeps.stopping import held_while_starting

PARENT_POLL_SECONDS: Final = 0.5
"""How often a worker looks whether its parent is still there; chosen."""
MANAGER_THREAD: Final = "ExecutorManagerThread"
"""Name of loky's thread that hands calls to workers and kills them."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One call.

    Attributes
    ----------
    key : identifies the answer; no two calls share one. function : of a module, so that a worker can find it. arguments
    : travel to the worker; large arrays stand alone, which loky puts into shared memory. here : does the same in this
    process, where the only worker is. died : makes the answer from the reason in words, when the worker died of the
    call.
    """

    key: str
    function: Callable[..., Answer]
    arguments: tuple[Any, ...]
    here: Callable[[], Answer]
    died: Callable[[str], Answer]


@dataclass(frozen=True, slots=True)
class Pool:
    """Where calls run: ``count`` processes here, or the workers of a Dask ``client``."""

    count: int
    client: Any = None

    def run(self, calls: Sequence[Call[Answer]]) -> Generator[Answer]:
        """Yield the answer of each call, in order of completion.

        Raises
        ------
        ClusterError
            When the Dask cluster fails.
        """
        waiting = {call.key: call for call in calls}
        while waiting:
            try:
                for key, answer in self._answers(list(waiting.values())):
                    del waiting[key]
                    yield answer
            except Exception as error:  # noqa: BLE001 raised again unless a worker died, where loky and Dask differ
                self._check_death(error)
                for call in list(waiting.values())[: 2 * self.count]:
                    del waiting[call.key]
                    yield self._alone(call)

    def _alone(self, call: Call[Answer]) -> Answer:
        """Run one call where its death harms no other."""
        try:
            return next(self._answers([call], spare=1))[1]
        except Exception as error:  # noqa: BLE001  as above; a death is now this call's own
            self._check_death(error)
            return call.died(f"its worker process died, out of memory perhaps ({type(error).__name__})")

    def _answers(self, calls: Sequence[Call[Answer]], *, spare: int = 0) -> Generator[tuple[str, Answer]]:
        if self.client is None and self.count + spare == 1:
            for call in calls:
                yield call.key, call.here()
            return
        import joblib  # type: ignore[import-untyped]  # it ships no types

        how: dict[str, Any] = {"backend": "dask", "client": self.client}
        if self.client is None:
            how = {"backend": "loky", "initializer": leave_with, "initargs": (os.getpid(),)}
        # One call a batch: what is finished is kept at once. Arrays travel as arguments of their own, which loky
        # puts into shared memory and Dask sends to a worker once.
        answers: Any = None
        with _end_of_manager_unsaid():
            try:
                with held_while_starting(), joblib.parallel_config(**how):
                    parallel = joblib.Parallel(
                        n_jobs=self.count + spare,
                        return_as="generator_unordered",
                        batch_size=1,
                        pre_dispatch="2*n_jobs",
                    )
                    answers = parallel(
                        joblib.delayed(_keyed)(call.key, call.function, *call.arguments) for call in calls
                    )
                for answer in answers:  # noqa: UP028  `yield from` would close them outside the lines below
                    yield answer
            finally:
                if answers is not None:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # joblib warns that the rest is lost; a resumed sweep runs it
                        answers.close()

    def _check_death(self, error: Exception) -> None:
        """Let pass the death of a worker; raise what ends everything."""
        if isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker":
            return
        if self.client is not None:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise ClusterError(f"the Dask cluster failed, finished cells are kept ({said})") from error
        raise error


@contextmanager
def _end_of_manager_unsaid() -> Iterator[None]:
    """Keep a traceback of loky to ourselves, which comes where calls are given up.

    Its manager thread first kills the workers on request. It fails with a KeyError where it had not yet taken over all
    calls (loky 3.5, `add_call_item_to_queue`).
    """
    before = threading.excepthook

    def hear(failure: threading.ExceptHookArgs) -> None:
        managing = failure.thread is not None and failure.thread.name == MANAGER_THREAD
        if not (managing and failure.exc_type is KeyError):
            before(failure)

    threading.excepthook = hear
    try:
        yield
    finally:
        threading.excepthook = before


def leave_with(parent: int) -> None:
    """Start of a worker process: end soon after its parent ends, whatever ended it, and leave Ctrl-C to the parent."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def _keyed(key: str, function: Callable[..., Answer], *arguments: Any) -> tuple[str, Answer]:
    return key, function(*arguments)
