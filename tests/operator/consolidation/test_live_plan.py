"""The operator's own plan: pools that the configuration leaves out, and drains that go on meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import pytest
from hand_clock import HandClock
from manifests import pod_manifest

from cotide_core.forecasting.heuristics import HeuristicQos
from cotide_core.forecasts import QosForecaster
from cotide_core.state.cluster_state import ClusterState
from cotide_kube.objects import Condition, NodeObject, PodDisruptionBudgetObject, PodObject
from cotide_kube.timestamps import format_timestamp
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


KARPENTER = "karpenter.sh/do-not-disrupt"


def annotated(cache: ObjectCache, kind: Literal["nodes", "pods"], key: str, name: str, text: str) -> ObjectCache:
    """Write an annotation on an object of the two nodes."""
    one: Any = cache.nodes[key] if kind == "nodes" else cache.pods[key]
    metadata = msgspec.structs.replace(one.metadata, annotations={name: text})
    cache.apply(kind, "MODIFIED", msgspec.structs.replace(one, metadata=metadata))
    return cache


def freed_of(cache: ObjectCache) -> tuple[list[str], tuple[str, ...]]:
    planned = plan_of(cache, {}, BLIND, ConsolidationSettings(enabled=True), now=2_000_000_000.0)
    return [one.node for one in planned.plan.freed if one.moves], planned.warnings


@pytest.mark.parametrize("name", [KARPENTER, "cluster-autoscaler.kubernetes.io/scale-down-disabled"])
def test_a_node_whose_owner_protects_it_takes_pods_and_is_not_freed(name: str) -> None:
    assert freed_of(two_nodes()) == (["n0"], ())
    assert freed_of(annotated(two_nodes(), "nodes", "n0", name, "true")) == (["n1"], ())
    assert freed_of(annotated(two_nodes(), "nodes", "n0", name, "false")) == (["n0"], ())


def test_a_node_of_the_control_plane_is_not_freed() -> None:
    cache = two_nodes()
    node = cache.nodes["n0"]
    metadata = msgspec.structs.replace(node.metadata, labels={"node-role.kubernetes.io/control-plane": ""})
    cache.apply("nodes", "MODIFIED", msgspec.structs.replace(node, metadata=metadata))
    assert freed_of(cache) == (["n1"], ())


def test_a_protection_that_is_unreadable_keeps_pod_and_node_and_has_a_warning() -> None:
    freed, warnings = freed_of(annotated(two_nodes(), "pods", "d/pn0", KARPENTER, "a day"))
    assert freed == ["n1"]
    assert warnings == (
        f"pod d/pn0: annotation {KARPENTER}: 'a day' is neither true nor false nor a duration above 0, and protects",
    )
    freed, warnings = freed_of(annotated(two_nodes(), "nodes", "n0", KARPENTER, "24h"))
    assert (freed, len(warnings)) == (["n1"], 1)


def test_many_unreadable_protections_have_one_warning() -> None:
    cache = annotated(two_nodes(), "pods", "d/pn0", KARPENTER, "a day")
    _, (warning,) = freed_of(annotated(cache, "pods", "d/pn1", KARPENTER, "two days"))
    assert warning.endswith("and protects; the same on 1 more pod")


def test_a_pod_that_its_owner_protects_for_a_day_keeps_its_node_for_a_day() -> None:
    def started(seconds_ago: float) -> list[str]:
        cache = annotated(two_nodes(), "pods", "d/pn0", KARPENTER, "24h")
        pod = cache.pods["d/pn0"]
        status = msgspec.structs.replace(pod.status, start_time=format_timestamp(2_000_000_000.0 - seconds_ago))
        cache.apply("pods", "MODIFIED", msgspec.structs.replace(pod, status=status))
        return freed_of(cache)[0]

    assert started(86_399.0) == ["n1"]
    assert started(86_400.0) == ["n0"]


@pytest.mark.parametrize(
    ("annotation", "freed"),
    [(KARPENTER, ["n1"]), ("cluster-autoscaler.kubernetes.io/safe-to-evict", ["n0"])],
)
def test_a_daemon_sets_pod_keeps_its_node_by_karpenters_annotation_alone(annotation: str, freed: list[str]) -> None:
    cache = annotated(two_nodes(), "pods", "d/pn0", annotation, "true" if annotation == KARPENTER else "false")
    pod = cache.pods["d/pn0"]
    owner = msgspec.structs.replace(pod.metadata.owner_references[0], kind="DaemonSet")
    metadata = msgspec.structs.replace(pod.metadata, owner_references=(owner,))
    cache.apply("pods", "MODIFIED", msgspec.structs.replace(pod, metadata=metadata))
    web = msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, name="web", uid="w", annotations={})
    )
    cache.apply("pods", "ADDED", web)
    assert freed_of(cache)[0] == freed


@pytest.mark.parametrize(
    ("policy", "ready", "freed"),
    [("AlwaysAllow", False, ["n0"]), ("AlwaysAllow", True, ["n1"]), ("", False, ["n1"])],
)
def test_a_budget_keeps_a_pod_that_is_not_ready_as_its_policy_states(
    policy: str, ready: bool, freed: list[str]
) -> None:
    """The budget over the pod on n0 wants one healthy pod, and lets no pod go."""
    cache = two_nodes()
    pod = cache.pods["d/pn0"]
    conditions = (Condition("Ready", "True" if ready else "False"),)
    cache.apply("pods", "MODIFIED", msgspec.structs.replace(
        pod, status=msgspec.structs.replace(pod.status, conditions=conditions),
        metadata=msgspec.structs.replace(pod.metadata, labels={"app": "crash"}),
    ))  # fmt: skip
    body = {
        "metadata": {"name": "b", "namespace": "d"},
        "spec": {"selector": {"matchLabels": {"app": "crash"}}, "unhealthyPodEvictionPolicy": policy},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 1},
    }
    cache.apply("poddisruptionbudgets", "ADDED", msgspec.convert(body, PodDisruptionBudgetObject))
    assert freed_of(cache)[0] == freed


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
            client=none, cache=two_nodes(), decisions=none, clock=HandClock(2_000_000_000.0), recorder=scene,
            metrics=Metrics(), engine=lambda: SimpleNamespace(state=ClusterState()),  # type: ignore[arg-type,return-value]  # all that is read
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
