"""Ctrl-C and SIGTERM for long commands: work stops at once, is undone in seconds, and the process ends.

Used by `consolidate_command`, `watch`, `capacity_command`, `place_command` and `profile_command`. At the first signal
the work is interrupted wherever it waits, and has `UNDO_SECONDS` to undo its changes. Then, or at a second signal, the
process ends even if calls still wait for an answer: a hanging API server must not hold up the terminal. Python's own
handler of Ctrl-C would do neither: an event loop waits for each blocked thread, and the undoing blocks on the same
server. A signal that the process was started to ignore stays ignored. Invariant: the time from the first signal to the
end is at most `UNDO_SECONDS`, as far as Python runs at all.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NoReturn, TypeVar

UNDO_SECONDS: Final = 5.0
"""Chosen: a few requests of a server that answers."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
RETURNING_SECONDS: Final = 0.1
"""Chosen: a thread needs microseconds from its call's outcome to its end."""
ABANDONED: Final = "abandoned call"
"""Name of the threads of `abandoned_calls`."""
_ENDED: Final = 128
"""What shells add to the number of the signal that ended a process."""

T = TypeVar("T")


class StoppedError(Exception):
    """A signal ended the command after it had undone its changes; raised where the work would have returned.

    Attributes
    ----------
    exit_code : by the convention of shells.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = _ENDED + number


class _Interruption(BaseException):
    """Raised in the middle of work that does not wait in an event loop."""


def run_until_told(work: Coroutine[Any, Any, T], left: str = "", undo_seconds: float = UNDO_SECONDS) -> T:
    """Run work in an event loop to its end, or until a signal cancels it.

    Its calls in threads (`asyncio.to_thread`) continue then, as they can't be stopped.

    Parameters
    ----------
    left : work that may be left undone when the time to undo is over; a sentence without its period.

    Raises
    ------
    StoppedError
        When a signal came.
    """
    import asyncio

    from cotide_cli.abandoned_calls import AbandonedCalls

    signals: list[int] = []
    cancel: list[Callable[[], object]] = []

    def hear(number: int) -> None:
        signals.append(number)
        for one in cancel:
            one()

    async def whole() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        loop.set_default_executor(AbandonedCalls())
        if task is not None:
            cancel.append(lambda: loop.call_soon_threadsafe(task.cancel))
        if signals:
            work.close()
            raise asyncio.CancelledError
        return await work

    try:
        with _hearing(hear, left, undo_seconds):
            return asyncio.run(whole())
    except asyncio.CancelledError:
        if not signals:
            raise
        raise StoppedError(signals[0]) from None


@contextmanager
def interrupted_when_told(left: str = "", undo_seconds: float = UNDO_SECONDS) -> Iterator[None]:
    """Interrupt blocking work inside the context at a signal, so that it is unwound.

    Parameters
    ----------
    left : see `run_until_told`.

    Raises
    ------
    StoppedError
        When a signal came.
    """
    signals: list[int] = []

    def hear(number: int) -> NoReturn:
        signals.append(number)
        raise _Interruption

    try:
        with _hearing(hear, left, undo_seconds):
            yield
    except _Interruption:
        raise StoppedError(signals[0]) from None


@contextmanager
def _hearing(hear: Callable[[int], object], left: str, undo_seconds: float) -> Iterator[None]:
    """Call ``hear`` at the first signal, and end the process at the second, or when the time to undo is over."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    timers: list[threading.Timer] = []

    def heard(number: int, _frame: object) -> None:
        if timers:
            _end(number, left)
        timer = threading.Timer(undo_seconds, _end, (number, left))
        timer.daemon = True
        timers.append(timer)
        timer.start()
        hear(number)

    before = {signals: signal.getsignal(signals) for signals in SIGNALS}
    heeded = [signals for signals in SIGNALS if before[signals] is not signal.SIG_IGN]
    for signals in heeded:
        signal.signal(signals, heard)
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        for signals in heeded:
            signal.signal(signals, before[signals])


def leave(code: int) -> NoReturn:
    """End the process with an exit code; when no call in a thread hangs, in order, by raising SystemExit.

    A thread that wakes up during the interpreter's shutdown occasionally ends it with SIGABRT.
    """
    calls = [thread for thread in threading.enumerate() if thread.name == ABANDONED]
    for call in calls:
        call.join(RETURNING_SECONDS)  # a call with an outcome is still in its last lines
    if any(call.is_alive() for call in calls):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # closed, or its reader is gone
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _end(number: int, left: str) -> NoReturn:
    """End the process without waiting; the buffers are empty, since each line is flushed."""
    words = "cotide: ended without waiting for calls that do not answer"
    os.write(2, f"{words}; {left}\n".encode() if left else f"{words}\n".encode())
    os._exit(_ENDED + number)
