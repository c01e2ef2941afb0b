"""Policies that plan, with QPSM's check of the online services' limits.

The order and the plan are those of the plain policy. The guard decides about starts now, and plans leave a refused node
out until something there improves (see `qos_exclusions`). Online pods go where QPSM puts them. Lists with a node that
is chosen once have no guarded variant: a guard picks nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from cotide_core.config import SchedulerConfig
from cotide_core.placement.placer import Policy
from cotide_core.placement.plan_rule import Machines
from cotide_core.policies.conservative import conservative
from cotide_core.policies.easy import easy, easy_sjbf
from cotide_core.policies.hybrid import hybrid
from cotide_core.policies.list_scheduling import hybrid_machines, list_policy
from cotide_core.policies.qpsm import qpsm
from cotide_core.policies.slack import slack
from cotide_core.policies.svf import svf

Builder = Callable[[SchedulerConfig], Policy]


def guarded_plan(plain: Builder, config: SchedulerConfig) -> Policy:
    """Give a planning policy QPSM's rank and guard."""
    policy = plain(config)
    return replace(qpsm(config), name=f"{policy.name}-guarded", order=policy.order, plan=policy.plan)


GUARDED_PLANS: Final[dict[str, Builder]] = {
    "easy-guarded": partial(guarded_plan, easy),
    "easy-sjbf-guarded": partial(guarded_plan, easy_sjbf),
    "conservative-guarded": partial(guarded_plan, conservative),
    "svf-guarded": partial(guarded_plan, svf),
    "slack-guarded": partial(guarded_plan, slack),
    "sjf-guarded": partial(guarded_plan, partial(list_policy, "sjf", Machines.EARLIEST)),
    "sdf-guarded": partial(guarded_plan, partial(list_policy, "sdf", Machines.EARLIEST)),
    "hybrid-guarded": partial(guarded_plan, hybrid),
    "hybrid-machines-guarded": partial(guarded_plan, hybrid_machines),
}
