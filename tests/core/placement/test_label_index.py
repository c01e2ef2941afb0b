"""Matching all nodes at once goes on as a cluster grows."""

from __future__ import annotations

import engine_objects
import pytest

from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import NodeUpserted, PodRules, PodTerm, PodUpserted, Requirement, Spread
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind
from cotide_core.state.node_columns import FIRST_CAPACITY

ZONE = (("zone", "a"),)
WEB = (Requirement("app", "In", ("web",)),)


def nodes(name: str, count: int, labels: tuple[tuple[str, str], ...] = ()) -> list[NodeUpserted]:
    return [engine_objects.node_upserted(f"{name}{number}", labels=labels) for number in range(count)]


@pytest.mark.parametrize(
    "wish",
    [
        {"node_selector": ZONE},
        {"rules": PodRules(spreads=(Spread("zone", 1, WEB),))},
        {"rules": PodRules(anti_affinity=(PodTerm("zone", WEB),))},
    ],
)
def test_pods_that_name_a_label_are_placed_when_a_cluster_outgrew_its_table_by_nodes_without_it(wish: dict) -> None:
    scheduler = Scheduler(SchedulerConfig(policy="fifo"), HeuristicCatalogue())
    scheduler.handle(nodes("n", FIRST_CAPACITY, ZONE), 0.0)

    def names_bound(name: str, now: float) -> list[str]:
        pod = engine_objects.pod(name, 100, labels=(("app", name),), **wish)
        return [one.key for one in scheduler.handle([PodUpserted(pod)], now) if isinstance(one, Bind)]

    assert names_bound("before", 1.0) == ["d/before"]
    scheduler.handle(nodes("m", FIRST_CAPACITY // 2), 2.0)  # so many that they are not matched one by one
    assert names_bound("after", 3.0) == ["d/after"]
