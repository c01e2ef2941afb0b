"""Replays side by side in threads: kernels hold no interpreter lock, so cores are used without copies of the log.

Called by the backfilling experiments. Invariant: answers keep the order of the calls, whatever the number of workers.
An event that ends the wait (Ctrl-C, a failed replay) also ends the running replays within a fraction of a second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")
Watch = Callable[[int], None]


class Stopped(Exception):
    """The replay is no longer wanted."""


def side_by_side(
    calls: Sequence[Callable[[Watch], T]],
    workers: int,
    names: Sequence[str] = (),
    progress: Callable[[str, float], object] | None = None,
) -> list[T]:
    """Return the results of the calls.

    Parameters
    ----------
    calls : each receives the ``watch`` argument of `trace_replay.runner.run_policy`.
    names : of the calls, for ``progress``, which receives the name of each finished call and the finished share.
    """
    stop = threading.Event()

    def watch(_submitted: int) -> None:
        if stop.is_set():
            raise Stopped

    answers: dict[int, T] = {}
    with ThreadPoolExecutor(workers) as pool:
        waiting = {pool.submit(call, watch): index for index, call in enumerate(calls)}
        try:
            for done in as_completed(waiting):
                answers[waiting[done]] = done.result()
                if progress is not None:
                    progress(names[waiting[done]], len(answers) / len(calls))
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [answers[index] for index in range(len(calls))]
