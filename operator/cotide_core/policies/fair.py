"""The namespace with the smallest share of its due comes next, by resources only."""

from __future__ import annotations

from cotide_core.config import FAIR_HALF_LIFE_SECONDS, SchedulerConfig
from cotide_core.placement.placer import Policy
from cotide_core.placement.scoring import LeastAllocated
from cotide_core.queueing.ordering import FairOrder


def fair(config: SchedulerConfig) -> Policy:
    """Smallest weighted, decaying dominant share first (Ghodsi et al. 2011); to the node with most of it free."""
    return Policy("fair", FairOrder(config.fair_half_life_seconds or FAIR_HALF_LIFE_SECONDS), LeastAllocated())
