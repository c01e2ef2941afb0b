"""Policies that plan, with QPSM's check of the online services' limits.

The order and the plan are those of the plain policy; the guard is asked where a pod would start now, and a node that it
refuses is left out of plans until something there got better (see `qos_exclusions`). Online pods go where QPSM puts
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from cotide_core.config import SchedulerConfig
from cotide_core.placement.placer import Policy
from cotide_core.policies.conservative import conservative
from cotide_core.policies.easy import easy, easy_sjbf
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
}
