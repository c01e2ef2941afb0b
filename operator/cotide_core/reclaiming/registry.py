"""Which capacity a policy calls for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cotide_core.config import SchedulerConfig
from cotide_core.events import Pod
from cotide_core.placement.capacity import Capacity
from cotide_core.placement.placer import Placer
from cotide_core.reclaiming.requested_capacity import RequestedCapacity
from cotide_core.reclaiming.slack_scheduler import SlackScheduler
from cotide_core.state.cluster_state import ClusterState, PodRecord


def capacity_of(
    config: SchedulerConfig,
    state: ClusterState,
    placer: Placer,
    expected: Mapping[str, float],
    mates: Callable[[Pod], Sequence[PodRecord]] = lambda _: (),
) -> RequestedCapacity:
    """Return the capacity of one engine; the parameters are those of `RequestedCapacity`."""
    by_slack = placer.policy.capacity is Capacity.SLACK
    made = SlackScheduler if by_slack else RequestedCapacity
    return made(config, state, placer, expected, mates)
