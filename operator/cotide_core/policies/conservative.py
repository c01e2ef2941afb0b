"""Conservative backfilling: every waiting pod is promised a node and a start (Naghshnejad 2019, section 4.2.1).

A pod starts only where it delays no promise, by the p90 of run times. Promises move forward when pods end early.
"""

from __future__ import annotations

from cotide_core.config import SchedulerConfig
from cotide_core.placement.placer import Policy
from cotide_core.placement.plan_rule import PlanRule
from cotide_core.placement.scoring import LeastAllocated
from cotide_core.queueing.ordering import ArrivalOrder


def conservative(config: SchedulerConfig) -> Policy:
    """Oldest first, all reserved, reservations kept."""
    del config
    return Policy("conservative", ArrivalOrder(), LeastAllocated(), plan=PlanRule(kept=True))
