"""The online plan by smallest volume first (Naghshnejad 2019, section 4.2.1, online-SVF).

All waiting pods are planned again after every change, smallest demand x run time first, each at its earliest feasible
start behind those before it.
"""

from __future__ import annotations

from cotide_core.config import SchedulerConfig
from cotide_core.placement.placer import Policy
from cotide_core.placement.plan_rule import PlanRule
from cotide_core.placement.scoring import LeastAllocated
from cotide_core.queueing.ordering import SmallestVolumeFirst


def svf(config: SchedulerConfig) -> Policy:
    """Smallest volume first, all planned, each plan from scratch."""
    del config
    return Policy("svf", SmallestVolumeFirst(), LeastAllocated(), plan=PlanRule())
