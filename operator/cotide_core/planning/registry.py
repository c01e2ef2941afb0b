"""The method of each plan rule."""

from __future__ import annotations

from cotide_core.placement.plan_rule import Machines, Sharing
from cotide_core.planning.earliest_start import PlanContext, PlanMethod
from cotide_core.planning.high_demand_partition import HighDemandPartition
from cotide_core.planning.preassigned import GivenMachines
from cotide_core.planning.reliable_share import ReliableShare
from cotide_core.planning.slack_reservations import SlackPromises


def method_of(context: PlanContext) -> PlanMethod:
    """Return the method of one engine."""
    rule = context.rule
    if rule.slack:
        return SlackPromises(context)
    if rule.sharing is Sharing.RELIABLE:
        return ReliableShare(context)
    if rule.sharing is Sharing.HIGH_DEMAND:
        return HighDemandPartition(context)
    if rule.machines is not Machines.EARLIEST:
        return GivenMachines(context)
    return PlanMethod(context)
