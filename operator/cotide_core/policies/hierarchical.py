"""Hierarchical prediction based scheduling (Jiang et al., Algorithm 1): batch and gratis pods by predicted slack.

Batch and gratis pods go where the predicted load leaves most room; batch may evict gratis, gratis waits.
`slack_scheduler` describes how. The order is that of arrival, batch before gratis; online pods are placed by their
requests, as in fifo.
"""

from __future__ import annotations

from cotide_core.config import SchedulerConfig
from cotide_core.placement.capacity import Capacity
from cotide_core.placement.placer import Policy
from cotide_core.placement.scoring import LeastAllocated
from cotide_core.queueing.ordering import ArrivalOrder


def hierarchical(config: SchedulerConfig) -> Policy:
    """Oldest first; batch and gratis to the node with the most predicted slack."""
    del config
    return Policy("hierarchical", ArrivalOrder(), LeastAllocated(), capacity=Capacity.SLACK, monitor=True)
