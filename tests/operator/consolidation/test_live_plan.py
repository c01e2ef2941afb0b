"""The operator's own plan: pools that the configuration leaves out, and drains that go on meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hand_clock import HandClock
from manifests import pod_manifest

from cotide_core.forecasting.heuristics import HeuristicQos
from cotide_core.forecasts import QosForecaster
from cotide_core.state.cluster_state import ClusterState
from cotide_kube.objects import NodeObject, PodObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.consolidation_settings import ConsolidationSettings
from cotide_operator.consolidation import controller
from cotide_operator.consolidation.controller import ConsolidationDependencies, Consolidator
from cotide_operator.consolidation.live_plan import EngineView, LivePlan, plan_of
from cotide_operator.observability.metrics import Metrics

BLIND = EngineView({}, {}, HeuristicQos(), 0.5)
"""Of an engine that was told no use, no rates."""


def two_nodes() -> ObjectCache:
    """A node of the pool gpu and one without a label, each with a pod of an owner that started long ago."""
    cache = ObjectCache()
    for name, cpu, labels in (("n0", "100m", {"pool": "gpu"}), ("n1", "200m", {})):
        amounts = {"cpu": "1", "memory": "1Gi", "pods": "10"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        node = {"metadata": {"name": name, "labels": labels}, "status": status}
        cache.apply("nodes", "ADDED", msgspec.convert(node, NodeObject))
        body: dict[str, Any] = pod_manifest(f"p{name}", namespace="d", status={"phase": "Running"})
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
        body["metadata"] |= {"ownerReferences": [owner], "creationTimestamp": "2026-01-01T00:00:00Z"}
        body["spec"] |= {"nodeName": name}
        body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
        cache.apply("pods", "ADDED", msgspec.convert(body, PodObject))
    return cache


@pytest.mark.parametrize(
    ("pools", "freed"),
    [({}, ["n0"]), ({"pool": ("ingress",)}, ["n0"]), ({"pool": ("in", "gpu")}, ["n1"]), ({"gpu": ("pool",)}, ["n0"])],
)  # fmt: skip
def test_a_node_of_a_pool_that_is_left_out_takes_pods_and_is_not_freed(
    pools: dict[str, tuple[str, ...]], freed: list[str]
) -> None:
    settings = ConsolidationSettings(enabled=True, excluded_nodes=pools)
    planned = plan_of(two_nodes(), {}, BLIND, settings, now=2_000_000_000.0)
    assert [one.node for one in planned.plan.freed if one.moves] == freed


def test_room_is_kept_for_what_is_still_on_a_node_that_is_being_drained() -> None:
    settings = ConsolidationSettings(enabled=True)
    planned = plan_of(two_nodes(), {}, BLIND, settings, 2_000_000_000.0, ("n1",))
    assert planned.plan.freed == (), "n0 takes what is on n1"


class Scene:
    """The two nodes as an operator sees them that drains some already; nothing is written."""

    def __init__(self, *draining: str) -> None:
        none: Any = None
        scene: Any = self
        around = ConsolidationDependencies(
            client=none, mirror=two_nodes(), board=none, clock=HandClock(2_000_000_000.0), recorder=scene,
            telemetry=Metrics(), engine=lambda: SimpleNamespace(state=ClusterState()),  # type: ignore[arg-type,return-value]  # all that is read
            pods={}, forecaster=lambda: self.forecaster, note=lambda _: None, scheduler_names=("cotide",),
            risk_threshold=0.5, slot_seconds=300.0,
        )  # fmt: skip
        settings = ConsolidationSettings(enabled=True, stable_seconds=0.0, moves_at_once=5)
        self.forecaster: QosForecaster = HeuristicQos()
        self.consolidator = Consolidator(around, settings)
        self.consolidator._drains = {name: asyncio.create_task(asyncio.sleep(60.0)) for name in draining}

    async def drains(self) -> set[str]:
        """Return what is being drained after one look."""
        await self.consolidator.look()
        found = set(self.consolidator._drains)
        for drain in self.consolidator._drains.values():
            drain.cancel()
        return found

    def node(self, *said: Any) -> None: ...


async def test_nothing_is_drained_for_room_that_a_drain_that_goes_on_needs() -> None:
    assert await Scene().drains() == {"n0"}
    assert await Scene("n1").drains() == {"n1"}


async def test_a_plan_in_its_thread_asks_no_forecaster_that_the_engine_asks_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[QosForecaster] = []

    def plan(cache: ObjectCache, known: Any, engine_view: EngineView, *rest: Any) -> LivePlan:
        asked.append(engine_view.forecaster)
        return plan_of(cache, known, engine_view, *rest)

    monkeypatch.setattr(controller, "plan_of", plan)
    scene = Scene()
    for _ in range(2):
        await scene.consolidator._plan(2_000_000_000.0)
    assert asked[0] is asked[1] is not scene.forecaster
    before, scene.forecaster = scene.forecaster, HeuristicQos()
    await scene.consolidator._plan(2_000_000_000.0)
    assert asked[2] not in (asked[0], before, scene.forecaster), "of another model another copy"
