"""Machine code that gangs need, made before it is needed and beside the deciding loop.

Called by `scheduling_loop` after each cycle. Where the machine code is not on disk yet, compiling it takes some ten
seconds of processor time, and the first gang that waits long enough would have the loop wait for that. From when the
first pod of a gang is there until room may be kept for it there is time enough. Invariant: without a gang nothing is
loaded or compiled.
"""

from __future__ import annotations

from threading import Thread

from cotide_core.cycle import Scheduler
from cotide_core.kernels.machine_gangs import compile_gangs


class GangKernels:
    """Has the kernels compiled once in a process, as soon as there is a gang that room may be kept for."""

    def __init__(self) -> None:
        self.thread: Thread | None = None

    def follow(self, scheduler: Scheduler) -> None:
        """Begin where the engine knows a gang by now; returns at once."""
        if self.thread is None and scheduler.gangs.members and scheduler.config.gang_reserve_seconds is not None:
            self.thread = Thread(target=compile_gangs, name="gang kernels", daemon=True)
            self.thread.start()
