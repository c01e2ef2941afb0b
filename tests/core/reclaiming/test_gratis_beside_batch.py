"""What gratis pods find beside what batch pods may come to hold, and whether these evict them, by the knobs.

A node of 1,000m whose online pods use 100m and will use 200m; batch and gratis pods together will hold 600m.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_objects import node_upserted, pod_upserted

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig, slack_knobs
from cotide_core.cycle import Scheduler
from cotide_core.events import NodeForecasted, NodeUsageSampled, PodPhase, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Evict, Instruction

FORECAST = NodeForecasted("a", 300.0, 200.0, 0.0, 600.0, 0.0)


def engine(policy: str, knobs: HierarchicalConfig) -> Scheduler:
    knobs = replace(knobs, capacity_share=1.0, usage_stale_seconds=3600.0)
    scheduler = Scheduler(SchedulerConfig(policy=policy, hierarchical=knobs), HeuristicCatalogue())
    scheduler.handle([node_upserted("a", 1000), NodeUsageSampled("a", 0.0, 100.0, 0.0), FORECAST], 0.0)
    return scheduler


def asked(scheduler: Scheduler, name: str, cls: WorkloadClass, cpu: int, at: float) -> list[Instruction]:
    event = pod_upserted(name, cpu, cls=cls, requested_seconds=10.0)
    return [one for one in scheduler.handle([event], at) if isinstance(one, Bind | Evict)]


@pytest.mark.parametrize(("subtracts", "most"), [("highest", 200), ("held", 800)])
def test_gratis_pods_find_what_batch_pods_will_hold_or_what_they_hold(subtracts: str, most: int) -> None:
    """800m beside the online pods, of which the forecast of 600m leaves 200m; nothing is held yet."""
    knobs = HierarchicalConfig(gratis_subtracts=subtracts)
    assert asked(engine("hierarchical", knobs), "fits", WorkloadClass.GRATIS, most - 10, 1.0)
    assert not asked(engine("hierarchical", knobs), "larger", WorkloadClass.GRATIS, most + 10, 1.0)


def test_without_victims_a_batch_pod_waits_for_a_gratis_pod() -> None:
    for victims, evicts in (("cheapest", True), ("none", False)):
        scheduler = engine("hierarchical", HierarchicalConfig(victims=victims, gratis_subtracts="held"))
        free = pod_upserted("free", 700, cls=WorkloadClass.GRATIS, requested_seconds=10.0).pod
        scheduler.handle([PodUpserted(free)], 1.0)
        scheduler.handle([PodUpserted(free._replace(node="a", phase=PodPhase.RUNNING, started_seconds=1.0))], 1.5)
        out = asked(scheduler, "paid", WorkloadClass.BATCH, 700, 2.0)
        assert [isinstance(one, Evict) for one in out] == [True] * evicts


def test_predictive_neither_evicts_for_batch_nor_keeps_room_free_for_it_unless_told() -> None:
    assert (slack_knobs("predictive").victims, slack_knobs("predictive").gratis_subtracts) == ("none", "held")
    assert slack_knobs("hierarchical") == HierarchicalConfig()
    assert SchedulerConfig(policy="predictive").hierarchical == slack_knobs("predictive")
