"""Evictions for a pod of the same class and higher priority: what is written on the victim, and how it goes."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from eviction_bench import Bench, evict

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.objects import PodObject

TARGET = (
    "DisruptionTarget True PreemptionByScheduler default-scheduler: preempting to accommodate a higher priority pod"
)


def shows(bench: Bench, name: str, priority: int, cls: str = "online", node: str = "n", **metadata: object) -> None:
    """Have the cache show a pod of a class and priority."""
    labels = {"cotide.dev/class": cls, "app": name}
    body = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"u-{name}", "labels": labels, **metadata},
        "spec": {"nodeName": node, "schedulerName": "default-scheduler", "priority": priority},
        "status": {
            "phase": "Running" if node else "Pending",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    bench.cache.apply("pods", "MODIFIED", msgspec.convert(body, PodObject))


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    shows(made, "x", 100, node="")
    return made


async def test_the_claim_is_written_then_the_condition_and_then_the_pod_is_deleted(bench: Bench) -> None:
    shows(bench, "low", 1)
    assert await bench.carry_out(replace(evict("low"), by_priority=True)) == {"low": (200, False)}
    assert bench.said == ["nominate x n", f"strategic low u-low {TARGET}", "delete low u-low"]


async def test_neither_a_budget_nor_an_owner_keeps_it(bench: Bench) -> None:
    shows(bench, "low", 1, annotations={"karpenter.sh/do-not-disrupt": "true"})
    bench.budget("none", {"matchLabels": {"app": "low"}}, allowed=0)
    assert await bench.carry_out(replace(evict("low"), by_priority=True)) == {"low": (200, False)}


async def test_a_budget_keeps_a_pod_of_a_lower_class_and_spares_those_that_would_go_beside_it(bench: Bench) -> None:
    shows(bench, "low", 1)
    shows(bench, "job", 1, "batch")
    bench.budget("none", {"matchLabels": {"app": "job"}}, allowed=0)
    out = await bench.carry_out(replace(evict("low"), by_priority=True), evict("job"))
    assert out == {"low": (424, True), "job": (429, False)}
    assert bench.said == []


@pytest.mark.parametrize(("priority", "cls"), [(100, "online"), (101, "online"), (1, "batch")])
async def test_a_pod_that_is_not_below_it_in_its_class_is_refused(bench: Bench, priority: int, cls: str) -> None:
    shows(bench, "v", priority, cls)
    assert await bench.carry_out(replace(evict("v"), by_priority=True)) == {"v": (403, False)}
    assert bench.said == []


async def test_a_static_pod_is_refused(bench: Bench) -> None:
    shows(bench, "v", 1, annotations={"kubernetes.io/config.mirror": "1f2e"})
    assert await bench.carry_out(replace(evict("v"), by_priority=True)) == {"v": (403, False)}


@pytest.mark.parametrize(
    ("error", "code"),
    [(ApiError(404, "NotFound", "gone"), 404), (ApiError(500, "InternalError", "x"), 500), (ClusterError("x"), 0)],
)
async def test_what_the_server_answers_is_reported(bench: Bench, error: ClusterError, code: int) -> None:
    async def fails(path: str, *, uid: str) -> None:
        raise error

    bench.delete = fails  # type: ignore[method-assign]
    shows(bench, "low", 1)
    assert await bench.carry_out(replace(evict("low"), by_priority=True)) == {"low": (code, False)}
