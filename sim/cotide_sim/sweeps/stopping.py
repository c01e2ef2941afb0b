"""Ctrl-C and SIGTERM during a sweep: one exception at a moment where nothing is half done.

Called by `sweep`. Invariant: while `StopSignals.held` is open no signal interrupts; the first signal is told once by
`Stopped`, and from then on signals do what they did before, so that a second one always ends the process.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


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
