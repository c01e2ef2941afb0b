"""Slack-based backfilling (Talby and Feitelson 1999): a promise lies some slack behind its reservation.

Slack is spent where moving reservations brings the others forward by more.
"""

from __future__ import annotations

from cotide_core.config import SchedulerConfig
from cotide_core.placement.placer import Policy
from cotide_core.placement.plan_rule import PlanRule
from cotide_core.placement.scoring import LeastAllocated
from cotide_core.queueing.ordering import ArrivalOrder


def slack(config: SchedulerConfig) -> Policy:
    """Oldest first, all reserved, reservations kept within their slack."""
    del config
    return Policy("slack", ArrivalOrder(), LeastAllocated(), plan=PlanRule(kept=True, slack=True))
