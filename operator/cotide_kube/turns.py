"""Turns in an event loop: work on 10,000 objects yields to all other work after a few milliseconds.

Used wherever one piece of work may be as large as the largest object or the longest list. Its users are the reflector,
the cache's informers, the scheduling loop and the controllers. Invariant: between two turns all shared data are
consistent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeVar

TURN_SECONDS: Final = 0.005
"""Chosen: a tenth of the allowed time of one piece of work, since others may follow in the same turn of the loop."""

T = TypeVar("T")
R = TypeVar("R")


class Turn:
    """One turn: begins when it is made, and again after each pause.

    Parameters
    ----------
    seconds : float, optional
        How long; `TURN_SECONDS` by default.
    clock : callable
        Of the wall by default; ``time.thread_time`` if a busy machine must not shorten it.
    """

    def __init__(self, seconds: float | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._seconds = TURN_SECONDS if seconds is None else seconds
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._until = self._clock() + self._seconds
        is_known = self._clock in (time.perf_counter, time.thread_time)
        self._earliest = time.perf_counter() + self._seconds if is_known else float("-inf")

    @property
    def is_over(self) -> bool:
        """Whether others should have their turn now."""
        # A thread works for no longer than the wall time. Its own clock is a system call (1 to 3 us on virtual
        # machines), and work of 10 us asks for it each time.
        return time.perf_counter() >= self._earliest and self._clock() >= self._until

    async def give_way(self) -> None:
        """Give all other work its turn, if this one is over."""
        if self.is_over:
            await asyncio.sleep(0)
            self._begin()


async def in_turns(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return what the work makes of each item."""
    done: list[R] = []
    turn = Turn()
    for item in items:
        if turn.is_over:  # Asked here, too: a call that awaits nothing would double the time of short work.
            await turn.give_way()
        done.append(work(item))
    return done


async def in_steps(steps: Generator[None, None, R]) -> R:
    """Return what work in steps returns; see `cotide_core.queueing.stepwise`."""
    turn = Turn()
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: R = ended.value
            await turn.give_way()
            return result
        await turn.give_way()
