"""First come, first served, by resources only: the behaviour of a cluster without predictions."""

from __future__ import annotations

from cotide_core.config import SchedulerConfig
from cotide_core.placement.placer import Policy
from cotide_core.placement.scoring import LeastAllocated
from cotide_core.queueing.ordering import ArrivalOrder


def fifo(config: SchedulerConfig) -> Policy:
    """Oldest pod first, to the node with the largest free share (kube-scheduler's default score)."""
    del config
    return Policy("fifo", ArrivalOrder(), LeastAllocated())
