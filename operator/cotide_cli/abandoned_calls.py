"""`AbandonedCalls`: an event loop's executor for calls that may never return.

Used by `stopping.run_until_told`. Each call has its own daemon thread. A closing loop and an ending interpreter would
wait for the threads of the usual executor, but do not wait for these. While such a call still runs, the process is
ended by `stopping.leave`. Invariant: a call that hangs holds up no other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from cotide_cli.stopping import ABANDONED


class AbandonedCalls(ThreadPoolExecutor):
    """Threads that end with their call, or with the process; a pool by name only, since a loop accepts only a pool."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin a call."""
        future: Future[Any] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                outcome = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - whoever asked is told, as by the usual executor
                future.set_exception(error)
            else:
                future.set_result(outcome)

        threading.Thread(target=call, name=ABANDONED, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Return without waiting."""
