"""The hybrid platform (Naghshnejad 2019, section 4.4): pods whose run time can be relied on are planned on a share of
the capacity, all others backfilled beside them; whoever has waited for long has a start reserved.
"""

from __future__ import annotations

from cotide_core.config import SchedulerConfig
from cotide_core.kernels.machine_platform import RESERVED
from cotide_core.placement.placer import Policy
from cotide_core.placement.plan_rule import PlanRule, Sharing
from cotide_core.placement.scoring import LeastAllocated
from cotide_core.queueing.ordering import ArrivalOrder


def hybrid(config: SchedulerConfig) -> Policy:
    """Oldest first for reservations, smallest volume first for the rest."""
    del config
    rule = PlanRule(reservations=2 * RESERVED, sharing=Sharing.RELIABLE)
    return Policy("hybrid", ArrivalOrder(), LeastAllocated(), plan=rule)
