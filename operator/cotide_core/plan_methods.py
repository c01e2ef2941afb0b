"""Which method a plan rule calls for."""

from __future__ import annotations

from cotide_core.plan_given import GivenMachines
from cotide_core.plan_method import PlanMethod, Surroundings
from cotide_core.plan_parts import Parts
from cotide_core.plan_platform import Platform
from cotide_core.plan_rule import Machines, Sharing
from cotide_core.plan_slack import SlackPromises


def method_of(around: Surroundings) -> PlanMethod:
    """Return the method of one engine."""
    rule = around.rule
    if rule.slack:
        return SlackPromises(around)
    if rule.sharing is Sharing.RELIABLE:
        return Platform(around)
    if rule.sharing is Sharing.HIGH_DEMAND:
        return Parts(around)
    if rule.machines is not Machines.EARLIEST:
        return GivenMachines(around)
    return PlanMethod(around)
