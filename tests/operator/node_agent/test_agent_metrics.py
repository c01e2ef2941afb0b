"""What an agent shows: its gauges name the node, so that queries by node find them."""

from __future__ import annotations

from cotide_node_agent.agent import Reading
from cotide_node_agent.contention import Contention
from cotide_node_agent.metrics import AgentMetrics


def test_each_gauge_names_the_node_and_what_nobody_tells_is_no_number() -> None:
    metrics = AgentMetrics("n1")
    metrics.show(Reading(1.5, 0.5, 2.0, 1.0, Contention(0.25, 3), 4, 5))
    lines = metrics.text().decode().splitlines()
    assert 'cotide_node_agent_services_waiting_share{node="n1"} 0.25' in lines
    assert 'cotide_node_agent_services_throttled{node="n1"} 3.0' in lines
    metrics.show(Reading(1.5, 0.5, 2.0, 1.0, Contention(None, 0), 4, 5))
    assert 'cotide_node_agent_services_waiting_share{node="n1"} NaN' in metrics.text().decode().splitlines()
