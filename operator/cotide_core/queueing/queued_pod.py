"""One waiting pod, as the queue and the orders see it.

Written by `queueing.SchedulingQueue` and `cycle.Scheduler` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from cotide_core.events import Pod
from cotide_core.instructions import WaitReason
from cotide_core.state.shapes import Shape


class QueueState(StrEnum):
    """State of a waiting pod; see the drawing in `queueing`."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    PARKED = "unschedulable"
    PLANNED = "planned"
    GATED = "gated"
    ASIDE = "aside"
    CAPPED = "capped"
    GANG = "gang"
    HELD = "held"
    IN_HAND = "in hand"


class Together(NamedTuple):
    """The total request of pods that start together or not at all."""

    pods: int
    millicores: int
    memory_bytes: int


@dataclass(eq=False, slots=True)
class QueuedPod:
    """A pod that this scheduler must place."""

    pod: Pod
    shape: Shape
    sequence: int
    """Number of its arrival: the last tie-break of every order."""
    attempts: int = 0
    demotions: int = 0
    demoted_seconds: float | None = None
    """Time of its demotion; None once it has aged back, or if it was never demoted."""
    seconds_p50: float = 0.0
    """Predicted isolated run time; 0 for online pods."""
    seconds_p90: float = 0.0
    from_habits: bool = False
    """Whether the driver reported that run time; False if the completion model predicted it."""
    queue_state: QueueState = QueueState.IN_HAND
    ticket: int = -1
    """Only the heap entry with this number is valid."""
    announced: int = -1
    """Number of the valid heap entry for the time when its key changes."""
    ready_seconds: float = 0.0
    """End of its back-off."""
    last_reason: tuple[WaitReason, str, str] | None = None
    """The last Wait that was emitted: reason, sentence, nominated node."""
    together: Together | None = None
    """Request of the pods that its gang lacks; set while the pod is capped because its namespace may not hold them all.
    """
    quiet_reason: tuple[WaitReason, str, str] | None = None
    """The last Wait that refers to another pod of its gang."""
    gang_since_seconds: float | None = None
    """Arrival of its gang, for a member that the gang lacks: it has the gang's place among pods by age."""

    @property
    def since_seconds(self) -> float:
        """Start of its waiting, for orders by age: its creation, or the arrival of its gang."""
        since = self.gang_since_seconds
        return self.pod.created_seconds if since is None else since
