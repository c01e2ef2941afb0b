"""Compiles the machine code for gangs before it is needed, in parallel with the deciding loop.

`scheduling_loop` calls it after each cycle. If the machine code is not on disk yet, compilation takes some ten seconds
of processor time. Without this module the first gang that waits long enough would delay the loop by that. The time from
the first pod of a gang until room may be reserved for it suffices. Invariant: without a gang nothing is loaded or
compiled.
"""

from __future__ import annotations

from threading import Thread

from cotide_core.cycle import Scheduler
from cotide_core.kernels.machine_gangs import compile_gangs


class GangKernels:
    """Compiles the kernels once in a process, as soon as there is a gang that may get reserved room."""

    def __init__(self) -> None:
        self.thread: Thread | None = None

    def follow(self, scheduler: Scheduler) -> None:
        """Start the compilation if the engine has a gang by now; returns at once."""
        if self.thread is None and scheduler.gangs.members and scheduler.config.gang_reserve_seconds is not None:
            self.thread = Thread(target=compile_gangs, name="gang kernels", daemon=True)
            self.thread.start()
