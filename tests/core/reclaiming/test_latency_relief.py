"""A service over its limit is relieved of batch work, the cheapest first; nobody else goes, and nobody for nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from engine_objects import running_pod

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    Event,
    Node,
    NodeUpserted,
    Pod,
    PodDeleted,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Evict, EvictCause

NODE = NodeUpserted(Node("n", (("cotide.dev/reclaimed-cpu", 8000), ("cpu", 8000), ("memory", 2**35), ("pods", 110))))
KNOBS = HierarchicalConfig(overload_observation_seconds=15.0, overload_pause_seconds=30.0)


def pod(name: str, cls: WorkloadClass, started: float = 0.0, **fields: Any) -> Pod:
    """A pod on the one node; online ones are the service's."""
    owner = "d/web" if cls is WorkloadClass.ONLINE else None
    return running_pod(name, "n", cls=cls, **{"workload": owner, "started_seconds": started, "ours": False, **fields})


class Scene:
    """A service beside a batch pod that has run for long and one that has just begun, on one node."""

    def __init__(self, policy: str = "predictive", **fields: object) -> None:
        self.scheduler = Scheduler(SchedulerConfig(policy=policy, hierarchical=KNOBS), HeuristicCatalogue())
        pods = [
            pod("web", WorkloadClass.ONLINE),
            pod("old", WorkloadClass.BATCH),
            pod("new", WorkloadClass.BATCH, started=90.0, **fields),
        ]
        self.handle(100.0, NODE, WorkloadUpserted(Workload("d/web", 10.0)), *map(PodUpserted, pods))

    def handle(self, now: float, *events: Event) -> list[str]:
        out = [one for one in self.scheduler.handle(events, now) if isinstance(one, Evict)]
        assert all(one.cause is EvictCause.LATENCY for one in out)
        return [one.key for one in out]

    def measured(self, now: float, milliseconds: float) -> list[str]:
        return self.handle(now, ServiceSampled("d/web", 100.0, milliseconds))


def test_the_pod_with_the_least_work_done_goes_once_the_limit_was_broken_for_long_enough() -> None:
    scene = Scene()
    assert scene.measured(110.0, 12.0) == []
    assert scene.measured(124.0, 12.0) == []
    assert scene.measured(125.0, 12.0) == ["d/new"]


def test_one_goes_at_a_time_and_the_next_only_after_a_pause_and_another_measurement() -> None:
    scene = Scene()
    scene.measured(110.0, 12.0)
    assert scene.measured(125.0, 12.0) == ["d/new"]
    assert scene.measured(140.0, 12.0) == []  # still on its way out
    scene.handle(141.0, PodDeleted("d/new", "u-new"))
    assert scene.measured(150.0, 12.0) == []  # 30 s have not passed
    assert scene.handle(156.0) == []  # nothing was measured since
    assert scene.measured(157.0, 12.0) == ["d/old"]


def test_a_limit_that_holds_again_ends_the_episode() -> None:
    scene = Scene()
    scene.measured(110.0, 12.0)
    assert scene.measured(120.0, 9.0) == []
    assert scene.measured(126.0, 12.0) == []
    assert scene.measured(140.0, 12.0) == []
    assert scene.measured(141.0, 12.0) == ["d/new"]


def test_gratis_goes_before_batch_however_long_it_ran() -> None:
    scene = Scene()
    scene.handle(101.0, PodUpserted(pod("free", WorkloadClass.GRATIS)))
    scene.measured(110.0, 12.0)
    assert scene.measured(125.0, 12.0) == ["d/free"]


def test_who_must_not_be_disrupted_stays() -> None:
    scene = Scene(do_not_disrupt=True)
    scene.measured(110.0, 12.0)
    assert scene.measured(125.0, 12.0) == ["d/old"]


@pytest.mark.parametrize("policy", ["qpsm", "hierarchical"])
def test_other_policies_leave_it_be(policy: str) -> None:
    scene = Scene(policy)
    scene.measured(110.0, 12.0)
    assert scene.measured(130.0, 12.0) == []


def test_a_service_alone_on_its_node_is_left_alone() -> None:
    scene = Scene()
    scene.handle(101.0, PodDeleted("d/old", "u-old"), PodDeleted("d/new", "u-new"))
    scene.measured(110.0, 12.0)
    assert scene.measured(130.0, 12.0) == []


def test_an_old_measurement_moves_nobody() -> None:
    scene = Scene()
    scene.measured(110.0, 12.0)
    assert scene.handle(110.0 + replace(KNOBS).usage_stale_seconds + 1.0) == []
