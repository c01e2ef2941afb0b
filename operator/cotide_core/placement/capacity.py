"""How much of a node batch and gratis pods may have: a part of each policy, and what plans ask of it.

`Policy.capacity` names it; the strategies are in `reclaiming` (`requested_capacity`, `slack_scheduler`). Plans look
hours ahead, so they are told an amount for each node that batch and gratis pods may hold together as far as anybody
knows, and who is kept off a node altogether.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from cotide_core.kernels.array_types import Booleans, Integers
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.state.shapes import Shape


class Capacity(StrEnum):
    """What batch and gratis pods find free on a node; online pods always go by requests."""

    REQUESTS = "requests"
    """Allocatable less all requests, as kube-scheduler does."""
    SLACK = "slack"
    """What the predicted peak of the online pods leaves (Jiang et al., Algorithm 1)."""


class PlannedCapacity(Protocol):
    """What plans ask."""

    @property
    def by_requests(self) -> bool:
        """Whether requests alone bound batch and gratis pods; `ceiling` then bounds only pods of reclaimed capacity."""
        ...

    def ceiling(self) -> Integers:
        """Return (2, N) millicores and bytes that batch and gratis pods may hold together; negative where too much is
        promised already."""
        ...

    def leave_out(self, shape: Shape, may: Booleans) -> None:
        """Set (N,) ``may`` to False where pods of a shape get nothing now, whatever ends."""
        ...

    def admits(self, entry: QueuedPod, row: int) -> bool:
        """Whether a row has room for a pod at this moment."""
        ...

    def take_eased(self) -> bool:
        """Whether some node has more room than when this was asked last, by a forecast or a cordon that ended."""
        ...
