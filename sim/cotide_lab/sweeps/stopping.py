"""Ctrl-C and SIGTERM during a sweep: one exception at a moment where nothing is half done.

Called by `sweep` and `pool`. Invariants: while `StopSignals.held` or `held_while_starting` is open, no signal
interrupts. `Stopped` reports the first signal once. From then on signals have their former effect, so that a second one
always ends the process.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType, TracebackType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def held_while_starting() -> Iterator[None]:
    """Keep signals back while worker processes start; one that came is heard at the end, by whoever hears it now.

    An exception in the middle would leave workers that never end. The processes inherit that Ctrl-C does not reach
    them: a terminal sends it to them, too, and one that still imports its modules would die of it with a traceback.
    Does nothing outside the main thread, which alone hears signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if sys.platform != "win32":
        # Its start unblocks SIGINT for the thread in Python 3.11, and joblib would start it in the middle.
        resource_tracker.ensure_running()
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}
    heard = [number for number in SIGNALS if before[number] not in (signal.SIG_IGN, None)]
    for number in heard:
        signal.signal(number, lambda number, _frame: came.append(number))
    mask = None if sys.platform == "win32" else signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in heard:
            signal.signal(number, before[number])
        for first in came[:1]:
            signal.raise_signal(first)


class Stopped(BaseException):  # not an Exception: what catches the faults of a cell must let it pass
    """The user, or the system, wants the sweep to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class StopSignals:
    """Turns signals into `Stopped` while it is entered; does nothing outside the main thread."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._held = False
        self._wanted: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heard) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._restore()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep signals back for a moment; one that came is raised at the end."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._wanted is not None:
            raise Stopped(self._wanted)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._restore()
        self._wanted = number
        if not self._held:
            raise Stopped(number)

    def _restore(self) -> None:
        while self._before:
            number, before = self._before.popitem()
            signal.signal(number, before)
