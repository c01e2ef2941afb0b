"""The policies by name; one algorithm per module, each a composition of an order, a rank and perhaps a guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from cotide_core.config import SchedulerConfig
from cotide_core.placement.placer import Policy
from cotide_core.placement.plan_rule import Machines
from cotide_core.placement.scoring import packed
from cotide_core.policies.catalogue import Runner, entry_of
from cotide_core.policies.conservative import conservative
from cotide_core.policies.easy import easy, easy_sjbf
from cotide_core.policies.fair import fair
from cotide_core.policies.fifo import fifo
from cotide_core.policies.guarded import fifo_guarded, random_guarded
from cotide_core.policies.guarded_plans import GUARDED_PLANS
from cotide_core.policies.hierarchical import hierarchical
from cotide_core.policies.hybrid import hybrid
from cotide_core.policies.list_scheduling import LIST_POLICIES, hybrid_machines, list_policy
from cotide_core.policies.predictive import predictive
from cotide_core.policies.qpsm import qpsm
from cotide_core.policies.random_order import random_order
from cotide_core.policies.slack import slack
from cotide_core.policies.svf import svf

POLICIES: Final[dict[str, Callable[[SchedulerConfig], Policy]]] = {
    "qpsm": qpsm,
    "fifo": fifo,
    "fair": fair,
    "random": random_order,
    "fifo-guarded": fifo_guarded,
    "random-guarded": random_guarded,
    "hierarchical": hierarchical,
    "predictive": predictive,
    "easy": easy,
    "easy-sjbf": easy_sjbf,
    "conservative": conservative,
    "sjf": partial(list_policy, "sjf", Machines.EARLIEST),
    "sdf": partial(list_policy, "sdf", Machines.EARLIEST),
    "svf": svf,
    "slack": slack,
    **GUARDED_PLANS,
    **LIST_POLICIES,
    "hybrid": hybrid,
    "hybrid-machines": hybrid_machines,
}
"""Name to builder, for each entry of the catalogue that runs live."""


def build_policy(config: SchedulerConfig) -> Policy:
    """Return the policy that a configuration names, by name or alias.

    Raises
    ------
    InputError
        When there is none, or none that runs live.
    """
    policy = POLICIES[entry_of(config.policy, Runner.LIVE).name](config)
    return replace(policy, rank=packed(policy.rank)) if config.packs else policy
