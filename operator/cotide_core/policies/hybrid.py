"""The hybrid platform (Naghshnejad 2019, section 4.4). Pods of predictable run time are planned on a share of the
capacity, and all others are backfilled around them. The pods that have waited longest get reserved starts.
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
