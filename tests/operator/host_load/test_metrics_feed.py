"""Which parts measure, by what is configured: a source or none, host load forecast or not."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest
from aiohttp import web
from manifests import job_manifest

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import Event, Node, NodeUpserted, Pod, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_kube.timestamps import format_timestamp
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.config.settings import parse_settings
from cotide_operator.host_load.metrics_feed import metrics_feed
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reclaimed.node_outlook import Outlooks
from cotide_operator.task_supervisor import TaskSupervisor
from cotide_operator.usage.dependencies import Dependencies

WEB = Pod("ns/web", "u", WorkloadClass.ONLINE, (("cpu", 1000), ("memory", 1024)), 0.0, node="a")


class Loop:
    """Has the engine handle events as they are told."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(SchedulerConfig(policy="hierarchical"), HeuristicCatalogue())
        self.emit(NodeUpserted(Node("a", (("cpu", 4000), ("memory", 2**30), ("pods", 9)))))

    def emit(self, event: Event) -> None:
        self.scheduler.handle([event], time.time())

    async def caught_up(self) -> None:
        await asyncio.sleep(0)


class MetricsApi:
    async def list(self, path: str) -> list[dict[str, Any]]:
        usage = {"cpu": "250m", "memory": "1Ki"}
        metadata = {"namespace": "ns", "name": "web"}
        return [{"metadata": metadata, "timestamp": format_timestamp(time.time()), "containers": [{"usage": usage}]}]


class EventSource:
    def __init__(self) -> None:
        self.pods = {"ns/web": WEB}


def dependencies_of(text: str) -> Dependencies:
    parts: Any = {"client": MetricsApi(), "event_source": EventSource(), "loop": Loop()}
    metrics = Metrics()
    return Dependencies(
        settings=parse_settings(f"apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n{text}"),
        cache=ObjectCache(),
        clock=ScaledClock(),
        forecast_scores=ForecastScores(metrics, lambda key: None, 300.0),
        metrics=metrics,
        outlooks=Outlooks(),
        **parts,
    )


async def until(check: Any) -> None:
    async with asyncio.timeout(10.0):
        while not check():
            await asyncio.sleep(0.01)


async def test_without_a_source_nodes_offer_what_is_not_requested(caplog: pytest.LogCaptureFixture) -> None:
    dependencies = dependencies_of("policy: hierarchical")
    async with TaskSupervisor() as supervisor, metrics_feed(dependencies, supervisor) as feed:
        assert feed is None
        await until(lambda: dependencies.outlooks.get("a"))
        found = dependencies.outlooks.get("a")
        assert found is not None
        assert (found.reason, found.offered_millicores) == ("NoForecast", 4000)  # the engine knows of no pod
    assert "no metricsSource is configured" in caplog.text


async def test_without_forecasts_the_metrics_api_still_shows_usage_by_class() -> None:
    dependencies = dependencies_of("policy: qpsm\nmetricsSource: {kubernetes: {}, intervalSeconds: 0.01}")

    def used() -> float | None:
        return dependencies.metrics.registry.get_sample_value("cotide_usage_cpu_millicores", {"class": "online"})

    async with TaskSupervisor() as supervisor, metrics_feed(dependencies, supervisor) as feed:
        assert feed is not None
        await until(used)
        assert used() == 250
        assert len(dependencies.outlooks) == 0


async def test_with_forecasts_what_the_metrics_api_says_reaches_the_engine() -> None:
    dependencies = dependencies_of("policy: hierarchical\nmetricsSource: {kubernetes: {}, intervalSeconds: 0.01}")
    dependencies.loop.emit(PodUpserted(WEB))
    load = dependencies.loop.scheduler.state.host_load
    async with TaskSupervisor() as supervisor, metrics_feed(dependencies, supervisor):
        await until(lambda: load.used(time.time(), 60.0)[0].sum() > 0)
        assert load.used(time.time(), 60.0)[0][:, 0].tolist() == [250.0, 1024.0]


async def test_without_a_source_and_without_forecasts_nothing_runs() -> None:
    dependencies = dependencies_of("policy: qpsm")
    async with TaskSupervisor() as supervisor, metrics_feed(dependencies, supervisor) as feed:
        assert feed is None
        assert supervisor._tasks == []


async def test_prometheus_is_asked_what_pods_use_once_a_job_states_phases_and_not_before() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query["query"])
        series = [{"metric": {"namespace": "ns", "pod": "web"}, "value": [time.time(), "250"]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": series}})

    app = web.Application()
    app.router.add_get("/api/v1/query", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    dependencies = dependencies_of(
        f"policy: qpsm\nmetricsSource: {{prometheus: {{url: '{url}', podCpuQuery: cpu}}, intervalSeconds: 0.01}}"
    )
    async with TaskSupervisor() as supervisor, metrics_feed(dependencies, supervisor) as feed:
        assert feed is not None
        await until(lambda: len(asked) > 2)
        assert set(asked) == {"vector(1)"}
        phase = {"name": "read", "resources": {"cpu": "1"}, "seconds": 5}
        job = job_manifest("count", namespace="ns", template={}, phases=[phase])
        dependencies.cache.apply("jobs", "ADDED", msgspec.convert(job, CustomObject))
        await until(lambda: feed.usage_of("ns/web"))
    await runner.cleanup()
