"""The operator's own plan: nodes of pools that the configuration leaves out are not freed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from manifests import pod_manifest

from cotide_core.forecasting.heuristics import HeuristicQos
from cotide_kube.objects import NodeObject, PodObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.consolidation_settings import ConsolidationSettings
from cotide_operator.consolidation.live_plan import EngineView, plan_of

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
