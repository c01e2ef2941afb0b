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
    """Where a waiting pod stands; see the drawing in `queueing`."""

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
    """What pods ask for that start together or not at all."""

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
    """When it was demoted; None once it has aged back, or never."""
    seconds_p50: float = 0.0
    """Predicted lone run time; 0 for online pods."""
    seconds_p90: float = 0.0
    from_habits: bool = False
    """Whether the driver told that run time, and not the completion model."""
    queue_state: QueueState = QueueState.IN_HAND
    ticket: int = -1
    """Only the heap entry that carries this number is valid."""
    announced: int = -1
    """The same of when its key changes by itself."""
    ready_seconds: float = 0.0
    """When its back-off is over."""
    last_reason: tuple[WaitReason, str, str] | None = None
    """What the last Wait said: reason, sentence, nominated node."""
    together: Together | None = None
    """What the pods ask for that its gang lacks, where it stands capped since their namespace may not hold them all."""
    quiet_reason: tuple[WaitReason, str, str] | None = None
    """The same of the last one that said that another of its gang says more."""
    gang_since_seconds: float | None = None
    """When its gang came, for a member that its gang lacks: it has the gang's place among pods by age."""

    @property
    def since_seconds(self) -> float:
        """Since when it waits, as orders by age have it: since its creation, or since its gang came."""
        since = self.gang_since_seconds
        return self.pod.created_seconds if since is None else since
