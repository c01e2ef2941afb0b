"""The metrics API as a source: what each pod uses, and nothing where one of its containers is not known."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cotide_core.classes import WorkloadClass
from cotide_core.errors import ClusterError
from cotide_core.events import Pod
from cotide_operator.host_load.pod_usage import PodUsages
from cotide_operator.observability.metrics import Metrics
from cotide_operator.usage.metrics_api import MetricsApiSource
from cotide_operator.usage.sources import CPU, MEMORY, SourceDown, UsageReading


class Api:
    def __init__(self, *items: dict[str, Any]) -> None:
        self.items: list[dict[str, Any]] | None = list(items)

    async def list(self, path: str) -> list[dict[str, Any]]:
        if self.items is None:
            raise ClusterError("no metrics API")
        return self.items


def item(name: str, *usages: dict[str, str], at: str = "1970-01-01T00:16:40Z") -> dict[str, Any]:
    containers = [{"usage": usage} for usage in usages]
    return {"metadata": {"namespace": "ns", "name": name}, "timestamp": at, "containers": containers}


async def read(*items: dict[str, Any]) -> list[UsageReading]:
    api: Any = Api(*items)
    return (await MetricsApiSource(api, Metrics()).read()).usage


async def test_containers_are_summed_and_the_apis_own_time_counts() -> None:
    usages = ({"cpu": "250m", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"})
    assert await read(item("web", *usages)) == [
        UsageReading("ns/web", CPU, 1250.0, 1000.0),
        UsageReading("ns/web", MEMORY, 2.0 * 1024**3, 1000.0),
    ]


@pytest.mark.parametrize("cpu", [None, "much", "-1", "NaN"])
async def test_a_container_without_a_number_leaves_its_pod_without_one(cpu: str | None) -> None:
    odd = {"memory": "1Mi"} | ({} if cpu is None else {"cpu": cpu})
    found = await read(item("a", {"cpu": "100m", "memory": "1Mi"}, odd))
    assert [(one.resource, one.value) for one in found] == [(CPU, None), (MEMORY, 2.0 * 1024**2)]


async def test_a_pod_without_containers_has_no_number() -> None:
    assert [one.value for one in await read(item("a"))] == [None, None]


async def test_a_time_that_is_none_is_taken_for_now() -> None:
    (found, _) = await read(item("a", {"cpu": "1", "memory": "1"}, at="yesterday"))
    assert abs(found.wall_seconds - time.time()) < 60


async def test_a_metrics_api_that_is_missing_is_down() -> None:
    api: Any = Api()
    api.items = None
    with pytest.raises(SourceDown, match="the metrics API does not answer: no metrics API"):
        await MetricsApiSource(api, Metrics()).read()


async def test_usage_is_shown_by_class_and_unknown_pods_are_passed_over() -> None:
    pods = {
        f"ns/{name}": Pod(f"ns/{name}", name, cls, (), 0.0)
        for name, cls in (("web", WorkloadClass.ONLINE), ("a", WorkloadClass.BATCH), ("b", WorkloadClass.BATCH))
    }
    metrics = Metrics()
    usages = PodUsages(pods.get, 60.0, metrics)
    found = await read(
        item("web", {"cpu": "1250m"}),
        item("a", {"cpu": "100m", "memory": "1Mi"}),
        item("b", {"cpu": "much", "memory": "1Mi"}),
        item("other", {"cpu": "5"}),
    )
    await usages.take(found, 1000.0)

    def value(name: str, cls: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"class": cls})

    assert value("cotide_usage_cpu_millicores", "online") == 1250
    assert value("cotide_usage_cpu_millicores", "batch") == 100
    assert value("cotide_usage_memory_bytes", "batch") == 2 * 1024**2
