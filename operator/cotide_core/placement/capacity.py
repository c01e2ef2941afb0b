"""The amount of a node that batch and gratis pods may have: a part of each policy, and the questions of plans to it.

`Policy.capacity` names it; the strategies are in `reclaiming` (`requested_capacity`, `slack_scheduler`). Plans cover
hours to come. They therefore receive an amount for each node that batch and gratis pods may hold together, as far as
forecasts reach, and the pods that a node excludes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from cotide_core.kernels.array_types import Booleans, Integers
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.state.shapes import Shape


class Capacity(StrEnum):
    """The free amount of a node for batch and gratis pods; online pods always go by requests."""

    REQUESTS = "requests"
    """Allocatable less all requests, as in kube-scheduler."""
    SLACK = "slack"
    """The amount that the predicted peak of the online pods leaves (Jiang et al., Algorithm 1)."""


class PlannedCapacity(Protocol):
    """The interface for plans."""

    @property
    def by_requests(self) -> bool:
        """Whether requests alone bound batch and gratis pods; `ceiling` then bounds only pods of reclaimed capacity."""
        ...

    def ceiling(self) -> Integers:
        """Return (2, N) millicores and bytes that batch and gratis pods may hold together; negative if too much is
        promised.
        """
        ...

    def leave_out(self, shape: Shape, may: Booleans) -> None:
        """Set (N,) ``may`` to False where pods of a shape get nothing now, even after pods end."""
        ...

    def admits(self, entry: QueuedPod, row: int) -> bool:
        """Whether a row has room for a pod at this moment."""
        ...

    def take_eased(self) -> bool:
        """Whether some node has more room than at the last call, by a forecast or a cordon that ended."""
        ...
