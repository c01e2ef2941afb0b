"""What an agent shows: its gauges name the node, so that queries by node find them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from cotide_node_agent.agent import Reading
from cotide_node_agent.contention import Contention
from cotide_node_agent.group_files import GroupsUnreadable
from cotide_node_agent.metrics import AgentMetrics
from cotide_node_agent.service import _tick_on


def test_each_gauge_names_the_node_and_what_nobody_tells_is_no_number() -> None:
    metrics = AgentMetrics("n1")
    metrics.show(Reading(1.5, 0.5, 2.0, 1.0, Contention(0.25, 3), 4, 5))
    lines = metrics.text().decode().splitlines()
    assert 'cotide_node_agent_services_waiting_share{node="n1"} 0.25' in lines
    assert 'cotide_node_agent_services_throttled{node="n1"} 3.0' in lines
    metrics.show(Reading(1.5, 0.5, 2.0, 1.0, Contention(None, 0), 4, 5))
    assert 'cotide_node_agent_services_waiting_share{node="n1"} NaN' in metrics.text().decode().splitlines()


class Failing:
    """An agent whose first tick finds contention, and whose next ones can't read the groups; one file stays changed."""

    changed_files = 1

    def __init__(self) -> None:
        self.ticks = 0

    def tick(self, *_: Any) -> Reading:
        self.ticks += 1
        if self.ticks > 1:
            raise GroupsUnreadable("cpu.stat: gone")
        return Reading(1.5, 0.5, 2.0, 1.0, Contention(0.9, 3), 4, 5)

    def undo(self) -> int:
        return 4


async def test_a_tick_that_fails_leaves_no_contention_behind_that_was_before() -> None:
    """The operator would relieve that node of its batch pods for as long as its groups can't be read."""
    agent, metrics, feed = Failing(), AgentMetrics("n1"), SimpleNamespace(capacity_cpus=4.0, batch={}, published_cpus=0)
    ticking = asyncio.create_task(_tick_on(cast(Any, agent), cast(Any, feed), metrics, 0.0, [0.0]))
    while agent.ticks < 3:
        await asyncio.sleep(0)
    ticking.cancel()
    found = dict(line.rsplit(" ", 1) for line in metrics.text().decode().splitlines() if "node=" in line)
    changed = found.pop('cotide_node_agent_changed_files{node="n1"}')
    assert (set(found.values()), changed) == ({"NaN"}, "1.0")
