"""EASY backfilling: oldest first, and no pod delays the first waiting one (Naghshnejad 2019, section 4.2.1; Lifka
1995).

The first pod without a node is reserved its earliest feasible start by the p90 of run times; pods behind it start if
they do not delay it. `easy-sjbf` tries those behind shortest first (by p50).
"""

from __future__ import annotations

from cotide_core.config import SchedulerConfig
from cotide_core.placement.placer import Policy
from cotide_core.placement.plan_rule import PlanRule
from cotide_core.placement.scoring import LeastAllocated
from cotide_core.queueing.ordering import ArrivalOrder, ShortestFirst


def easy(config: SchedulerConfig) -> Policy:
    """Oldest first, one reservation."""
    del config
    return Policy("easy", ArrivalOrder(), LeastAllocated(), plan=PlanRule(reservations=1))


def easy_sjbf(config: SchedulerConfig) -> Policy:
    """Oldest first, one reservation, shortest first behind it."""
    del config
    rule = PlanRule(reservations=1, backfill=ShortestFirst())
    return Policy("easy-sjbf", ArrivalOrder(), LeastAllocated(), plan=rule)
