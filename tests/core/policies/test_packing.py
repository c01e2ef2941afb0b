"""`packs`: pods go to the fullest node that takes them, under every policy; guard and taints are heeded as ever."""

from __future__ import annotations

import pytest
from engine_objects import node, node_upserted, pod_upserted, running_pod

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import Event, NodeUpserted, PodUpserted, Taint, Workload, WorkloadUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind
from cotide_core.policies import POLICIES

SPREADING = sorted(name for name in POLICIES if name not in ("random", "random-guarded"))
"""Those that have no drawn rank: unpacked, each takes the emptiest node for an online pod."""


def bound(policy: str, *events: Event, packs: bool = True) -> dict[str, str]:
    """The node that each pod gets which waits."""
    engine = Scheduler(SchedulerConfig(policy=policy, packs=packs), HeuristicCatalogue())
    instructions = engine.handle(events, 0.0)
    return {instruction.key: instruction.node for instruction in instructions if isinstance(instruction, Bind)}


def three(*, full: int = 2000) -> list[Event]:
    """Nodes of four cores: one is empty, one holds `full`, one a single core."""
    nodes: list[Event] = [node_upserted(name, 4000) for name in "abc"]
    return [*nodes, PodUpserted(running_pod("1", "b", full)), PodUpserted(running_pod("2", "c", 1000))]


@pytest.mark.parametrize("policy", SPREADING)
def test_an_online_pod_goes_to_the_fullest_node_and_not_to_the_emptiest(policy: str) -> None:
    waits = pod_upserted("w", 1000, WorkloadClass.ONLINE)
    assert bound(policy, *three(), waits) == {"d/w": "b"}
    assert bound(policy, *three(), waits, packs=False) == {"d/w": "a"}


@pytest.mark.parametrize("policy", ["fifo", "fifo-guarded", "qpsm", "random"])
def test_so_does_a_batch_pod_where_neither_slack_nor_a_plan_puts_it_elsewhere(policy: str) -> None:
    assert bound(policy, *three(), pod_upserted("w", 1000)) == {"d/w": "b"}


def test_what_does_not_fit_on_the_fullest_goes_to_the_next() -> None:
    assert bound("fifo", *three(full=3500), pod_upserted("w", 1000)) == {"d/w": "c"}


def test_an_online_pod_opens_no_node_without_a_service() -> None:
    # QPSM's own rank takes a node without a service first, whatever is on the others.
    web = {"workload": "d/web", "cls": WorkloadClass.ONLINE}
    events: list[Event] = [
        WorkloadUpserted(Workload("d/web", 10.0)),
        node_upserted("a", 4000),
        node_upserted("b", 4000),
    ]
    events += [PodUpserted(running_pod("1", "b", 2000, **web)), pod_upserted("w", 1000, **web)]
    assert bound("qpsm", *events) == {"d/w": "b"}
    assert bound("qpsm", *events, packs=False) == {"d/w": "a"}


def test_a_preferred_taint_still_makes_a_node_the_last_resort() -> None:
    full = NodeUpserted(node("b", 4000, taints=(Taint("old", "", "PreferNoSchedule"),)))
    held = PodUpserted(running_pod("1", "b", 2000))
    assert bound("fifo", node_upserted("a", 4000), full, held, pod_upserted("w", 1000)) == {"d/w": "a"}


def test_between_equally_full_nodes_the_policys_rank_decides() -> None:
    # Both hold two of four cores; QPSM likes b, which has no batch work on it.
    held = [running_pod("1", "a", 2000), running_pod("2", "b", 2000, WorkloadClass.ONLINE)]
    events = [node_upserted("a", 4000), node_upserted("b", 4000), *map(PodUpserted, held)]
    assert bound("qpsm", *events, pod_upserted("w", 1000)) == {"d/w": "b"}
