"""Usage by class from the metrics API: sums, and one line when it does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from cotide_core.classes import WorkloadClass
from cotide_core.errors import ClusterError
from cotide_core.events import Pod
from cotide_operator.cluster_usage import ClusterUsage
from cotide_operator.telemetry import Telemetry


class Api:
    def __init__(self) -> None:
        self.items: list[dict[str, Any]] | None = []

    async def list(self, path: str) -> list[dict[str, Any]]:
        if self.items is None:
            raise ClusterError("no metrics API")
        return self.items


def item(name: str, *usages: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name}, "containers": [{"usage": usage} for usage in usages]}


async def test_usage_is_summed_by_class_and_unknown_pods_are_passed_over() -> None:
    pods = {
        f"ns/{name}": Pod(f"ns/{name}", name, cls, (), 0.0)
        for name, cls in (("web", WorkloadClass.ONLINE), ("a", WorkloadClass.BATCH), ("b", WorkloadClass.BATCH))
    }
    api, telemetry = Api(), Telemetry()
    client: Any = api
    usage = ClusterUsage(client, 5.0, pods.get, telemetry)
    api.items = [
        item("web", {"cpu": "250m", "memory": "1Gi"}, {"cpu": "1"}),
        item("a", {"cpu": "100m", "memory": "1Mi"}),
        item("b", {"cpu": "much", "memory": "1Mi"}),
        item("other", {"cpu": "5"}),
    ]
    await usage.read_once()

    def value(name: str, cls: str) -> float | None:
        return telemetry.registry.get_sample_value(name, {"class": cls})

    assert value("cotide_usage_cpu_millicores", "online") == 1250
    assert value("cotide_usage_cpu_millicores", "batch") == 100
    assert value("cotide_usage_memory_bytes", "batch") == 2 * 1024**2


async def test_a_metrics_api_that_is_missing_costs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    api, telemetry = Api(), Telemetry()
    client: Any = api
    usage = ClusterUsage(client, 5.0, {}.get, telemetry)
    api.items = None
    for _ in range(3):
        await usage.read_once()
    assert len(caplog.records) == 1
    assert telemetry.registry.get_sample_value("cotide_metrics_source_up") == 0
