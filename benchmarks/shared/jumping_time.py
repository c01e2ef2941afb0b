"""Time of one process that jumps: where all its event loops wait, the next timer is due at once.

Used by `phased_hour_jumping`. What programs of one process wait for from one another (the emulated API server, fake
nodes, an operator with kopf in its thread) costs no time then, however slow the machine is; what they wait for by the
clock costs as much as it says. Only for programs whose sockets all end in this process: what is written is readable at
once. `install` must come before anything is imported that keeps ``time.monotonic`` or ``time.time``; until `begin` time
is the machine's. Invariant: time never goes back, and jumps only where no loop has anything to do.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import threading
import time
from typing import Any, Final

STEP_SECONDS: Final = 0.05
"""Jumps end at multiples of this; chosen: timers that are this close to each other fire together."""
POLL_SECONDS: Final = 0.002
"""Of the machine: after which a loop that waits looks whether time has passed. Chosen: one thread in two has timers."""
UNTIL_BEGUN_SECONDS: Final = 0.05
"""Of the machine: the longest wait before `begin`, which a loop in its wait would miss. Chosen."""


class _Time:
    """Seconds, and who waits for which."""

    def __init__(self) -> None:
        self.machine = (time.monotonic, time.time)
        self.lock = threading.Lock()
        self.begun: tuple[float, float] | None = None
        self.passed = 0.0
        self.loops: dict[int, _Selector] = {}
        self.waits: dict[int, float] = {}

    def monotonic(self) -> float:
        return self.machine[0]() if self.begun is None else self.begun[0] + self.passed

    def wall(self) -> float:
        return self.machine[1]() if self.begun is None else self.begun[1] + self.passed

    def jump(self) -> None:
        """Let time pass until somebody's wait is over, where all wait and nobody has been written to."""
        assert self.begun is not None
        if len(self.waits) < len(self.loops) or any(loop.has_news() for loop in self.loops.values()):
            return
        until = min(self.waits.values())
        if until < math.inf:
            later = max(self.passed, until - self.begun[0])
            self.passed = max(self.passed, math.ceil(later / STEP_SECONDS - 1e-6) * STEP_SECONDS)


_TIME = _Time()


class _Selector(selectors.EpollSelector):
    """Waits for sockets as long as time stands still."""

    def __init__(self) -> None:
        super().__init__()
        with _TIME.lock:
            _TIME.loops[id(self)] = self

    def close(self) -> None:
        with _TIME.lock:
            _TIME.loops.pop(id(self), None)
            _TIME.waits.pop(id(self), None)
        super().close()

    def has_news(self) -> bool:
        """Whether any socket is ready; asked by other threads."""
        polled: Any = getattr(self, "_selector")  # noqa: B009 - the epoll object, which the standard library hides
        return bool(polled.poll(0))

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if _TIME.begun is None or (timeout is not None and timeout <= 0):
            return super().select(UNTIL_BEGUN_SECONDS if timeout is None else min(timeout, UNTIL_BEGUN_SECONDS))
        until = math.inf if timeout is None else _TIME.monotonic() + timeout
        found = super().select(0)
        if found:
            return found
        with _TIME.lock:
            _TIME.waits[id(self)] = until
        try:
            while not found:
                with _TIME.lock:
                    if _TIME.monotonic() < until - 1e-9:
                        _TIME.jump()
                    if _TIME.monotonic() >= until - 1e-9:
                        return []
                found = super().select(POLL_SECONDS)
            return found
        finally:
            with _TIME.lock:
                _TIME.waits.pop(id(self), None)


class _Policy(asyncio.DefaultEventLoopPolicy):
    """Makes loops that wait by a `_Selector`, in every thread."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(_Selector())


def install() -> None:
    """Put this time in the place of the machine's, for all that is imported from now on."""
    time.monotonic, time.time = _TIME.monotonic, _TIME.wall
    asyncio.set_event_loop_policy(_Policy())


def begin() -> None:
    """Let time stand still from now on, but for its jumps."""
    with _TIME.lock:
        _TIME.begun = (_TIME.machine[0](), _TIME.machine[1]())
