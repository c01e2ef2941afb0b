"""Which pods that wait are looked at, where more do than one look takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from engine_objects import pod
from hand_clock import HandClock
from manifests import node_manifest, our_pod_manifest

from cotide_core.consolidation.removal.watching import Mark
from cotide_core.errors import InputError
from cotide_core.events import NodeUpserted, Pod
from cotide_core.state.cluster_state import ClusterState
from cotide_kube.objects import NodeObject, PodObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.consolidation_settings import ConsolidationSettings
from cotide_operator.consolidation import controller
from cotide_operator.consolidation.carrier import MARK
from cotide_operator.consolidation.controller import ConsolidationDependencies, Consolidator
from cotide_operator.consolidation.node_record import RECORD
from cotide_operator.observability.metrics import Metrics
from cotide_operator.translation.pods_and_nodes import translate_node

NOWHERE = (("disk", "none"),)
"""A selector that no node has."""


class Scene:
    """One freed node, and pods that kube-scheduler called unschedulable."""

    def __init__(self) -> None:
        self.cache, self.state, self.pods = ObjectCache(), ClusterState(), dict[str, Pod]()
        self.opened: list[str] = []
        self.plans = 0
        made = node_manifest("freed", "4")
        made["metadata"] |= {"annotations": {MARK: Mark.FREED.value, RECORD: '{"since": 1000000000.0}'}, "uid": "freed"}
        made["spec"] = {"unschedulable": True}
        freed = msgspec.convert(made, NodeObject)
        self.cache.apply("nodes", "ADDED", freed)
        self.state.apply(NodeUpserted(translate_node(freed)))
        scene: Any = self
        none: Any = None
        around = ConsolidationDependencies(
            client=scene, cache=self.cache, decisions=none, clock=HandClock(1_000_000_000.0), recorder=scene,
            metrics=Metrics(), engine=lambda: SimpleNamespace(state=self.state),  # type: ignore[arg-type,return-value]  # all that is read
            pods=self.pods, forecaster=lambda: none, note=lambda _: None, scheduler_names=("cotide",),
            risk_threshold=0.1, slot_seconds=300.0,
        )  # fmt: skip
        self.consolidator = Consolidator(around, ConsolidationSettings(enabled=True))

    def wait(self, key: str, **asks: Any) -> None:
        namespace, _, name = key.partition("/")
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        body = our_pod_manifest(name, namespace=namespace, uid=f"u-{key}", status={"conditions": [refused]})
        body["spec"]["schedulerName"] = "another"
        self.cache.apply("pods", "ADDED", msgspec.convert(body, PodObject))
        self.pods[key] = pod(key, **asks)

    async def patch(self, path: str, _: Any) -> dict[str, Any]:
        self.opened.append(path.rpartition("/")[2])
        return {"metadata": {}}

    def node(self, *said: Any) -> None: ...


async def test_pods_that_no_node_helps_keep_no_node_from_those_whom_it_would_help() -> None:
    """The first 500 were looked at and nobody else: one Job with a selector that no node has held up all tenants."""
    scene = Scene()
    scene.consolidator._next_plan = float("inf")
    for number in range(controller.MAX_WAITING + 50):
        scene.wait(f"crowd/p{number}", node_selector=NOWHERE)
    scene.wait("other/fits", cpu=1000)
    await scene.consolidator.look()
    assert scene.opened == ["freed"], "namespaces take turns"


async def test_of_one_namespace_too_each_pod_is_looked_at_before_any_is_again() -> None:
    scene = Scene()
    scene.consolidator._next_plan = float("inf")
    for number in range(2 * controller.MAX_WAITING):
        scene.wait(f"crowd/p{number}", node_selector=NOWHERE)
    scene.wait("crowd/fits", cpu=1000)
    for _ in range(3):
        assert scene.opened == []
        await scene.consolidator.look()
    assert scene.opened == ["freed"]


async def test_a_pod_with_many_demands_leaves_the_others_to_later_looks() -> None:
    scene = Scene()
    long = tuple((f"key{number}", "x") for number in range(controller.MAX_DEMANDS))
    for number in range(3):
        scene.wait(f"crowd/p{number}", node_selector=long)
    assert [len(scene.consolidator._waiting()) for _ in range(3)] == [1, 1, 1]


async def test_nothing_is_planned_before_all_that_wait_were_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()

    async def plan(_: float) -> None:
        scene.plans += 1

    monkeypatch.setattr(scene.consolidator, "_plan", plan)
    for number in range(controller.MAX_WAITING + 1):
        scene.wait(f"crowd/p{number}", node_selector=NOWHERE)
    await scene.consolidator.look()
    assert scene.plans == 0
    await scene.consolidator.look()
    assert scene.plans == 1


async def test_one_that_a_node_could_take_holds_up_plans_for_the_whole_round(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()

    async def plan(_: float) -> None:
        scene.plans += 1

    monkeypatch.setattr(scene.consolidator, "_plan", plan)
    scene.wait("crowd/first", cpu=1000)
    for number in range(controller.MAX_WAITING):
        scene.wait(f"crowd/p{number}", node_selector=NOWHERE)
    for _ in range(4):
        await scene.consolidator.look()
    assert scene.plans == 0


async def test_where_nothing_can_be_planned_nodes_are_given_back_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()

    async def plan(_: float) -> None:
        raise InputError("more than 4096 different host ports", field="ports")

    monkeypatch.setattr(scene.consolidator, "_plan", plan)
    assert isinstance(scene.consolidator._dependencies.clock, HandClock)
    scene.consolidator._dependencies.clock.wall += 3601.0  # nobody took the freed node for an hour
    await scene.consolidator.look()
    assert scene.opened == ["freed"]
    assert "consolidation continues later: ports: more than 4096 different host ports" in caplog.text
