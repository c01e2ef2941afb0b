"""Machines go only after they were unwanted for a while: a new wave soon after finds them still on.

Called by the code that carries plans out, in the experiment and in the operator, after `first_step`; beyond the paper.
It works like the stabilization window of a HorizontalPodAutoscaler's scale-down, for each type of machine. Invariants:
no fewer machines than the plan wants, and no machine is started for an earlier plan. A new process that has no record
of earlier plans begins with the present machines (`beginning`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cotide_core.provisioning.programs import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Stabilization:
    """The recently wanted machines.

    Attributes
    ----------
    seconds : length of the window, >= 0; 0 lets machines go at once.
    lately : time of each plan of the window and the (M,) machines that it wanted, the oldest first.
    """

    seconds: float
    lately: tuple[tuple[float, Floats], ...] = ()

    @classmethod
    def beginning(cls, seconds: float, now: float, there: Floats) -> Stabilization:
        """Return a window that counts the present (M,) machines as wanted ``now``, for lack of a record."""
        return cls(seconds, ((now, there),))

    def after(self, now: float, wanted: Floats, on: Floats) -> tuple[Stabilization, Floats]:
        """Return the window with a plan made ``now``, in seconds, and the (M,) machines to have.

        ``wanted``, ``on`` : (M,) machines by the plan, and those that are on or on their way.
        """
        lately = (*(pair for pair in self.lately if now - pair[0] < self.seconds), (now, wanted))
        most = np.max([counts for _, counts in lately], axis=0)
        return replace(self, lately=lately), np.maximum(wanted, np.minimum(on, most))
