"""What the operator reads from a real Prometheus, and from a stand-in for one that misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from prometheus_server import Prometheus, needs_prometheus, running_prometheus, until

from cotide_core.classes import WorkloadClass
from cotide_core.events import Event, Pod, ServiceSampled
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.config.metric_settings import PrometheusSourceSettings, WorkloadQueriesSettings
from cotide_operator.config.settings import MetricsSourceSettings
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics
from cotide_operator.usage.prometheus import PrometheusSource
from cotide_operator.usage.service_readings import ServiceReading
from cotide_operator.usage.sources import Reading, SourceDown
from cotide_operator.usage.usage_feed import UsageFeed


@pytest.fixture
async def prometheus(tmp_path: Path) -> AsyncIterator[Prometheus]:
    async with running_prometheus(tmp_path) as server:
        yield server


def changes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the feed said of its source: 'up' or 'down', a word a line."""
    said = [record.getMessage() for record in caplog.records if record.name == "cotide_operator.usage.usage_feed"]
    return ["down" if "is down" in line else "up" for line in said if "metrics source" in line]


@needs_prometheus
async def test_a_sample_with_an_old_time_of_its_own_is_not_taken_for_a_new_one(prometheus: Prometheus) -> None:
    """Prometheus stamps an answer with the time of the query: the sample's own time is asked for."""
    age = {"seconds": 30.0}

    async def page(request: web.Request) -> web.Response:
        stamp = int((time.time() - age["seconds"]) * 1000)
        return web.Response(text=f'rate{{namespace="ns",pod="a"}} 7 {stamp}\n')

    async with stand_in(page) as target, aiohttp.ClientSession() as session:
        prometheus.targets(int(target.rsplit(":", 1)[1]))
        await until("it is scraped", lambda: _some(prometheus, "rate"))  # by default Prometheus looks back 5 minutes
        query = 'rate{namespace="ns"}'
        source = PrometheusSource(session, open_to_all(prometheus.url), mirror_with(rpsQuery=query))
        (old,) = await services(source)
        assert (old.pod, old.requests_per_second) == ("ns/a", 7.0)
        assert 25.0 < time.time() - old.rate_wall_seconds < 45.0  # what is older than staleAfterSeconds the feed drops
        age["seconds"] = 0.0

        async def fresh() -> bool:
            (new,) = await services(source)
            return time.time() - new.rate_wall_seconds < 5.0

        await until("a fresh sample is seen as one", fresh)


async def _some(prometheus: Prometheus, query: str) -> bool:
    return bool(await prometheus.values(query))


@needs_prometheus
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("rate(", "parse error"),
        ("vector(3)", "none of its series has a label pod and this namespace"),
        ("scalar(vector(3))", "no instant vector"),
        ("up[1m]", "no instant vector"),
    ],
)
async def test_a_query_of_no_use_says_why_and_the_others_go_on(prometheus: Prometheus, query: str, words: str) -> None:
    latency = 'label_replace(vector(4), "pod", "a", "", "")'
    async with aiohttp.ClientSession() as session:
        source = PrometheusSource(
            session, open_to_all(prometheus.url), mirror_with(rpsQuery=query, latencyQuery=latency)
        )
        found = await services(source)
    assert [(one.pod, one.requests_per_second, one.latency_p95_milliseconds) for one in found] == [("ns/a", None, 4.0)]
    assert list(source.refused) == ["ns/web rpsQuery"]
    assert words in source.refused["ns/web rpsQuery"]


@needs_prometheus
@pytest.mark.parametrize("value", ["0/0", "1/0", "-1"])
async def test_a_number_that_is_no_rate_is_none_and_not_zero(prometheus: Prometheus, value: str) -> None:
    query = f'label_replace(vector({value}), "pod", "a", "", "")'
    async with aiohttp.ClientSession() as session:
        source = PrometheusSource(session, open_to_all(prometheus.url), mirror_with(rpsQuery=query))
        (found,) = await services(source)
    assert found.requests_per_second is None
    assert math.isclose(found.rate_wall_seconds, time.time(), abs_tol=5.0)


def open_to_all(url: str) -> PrometheusSourceSettings:
    """A Prometheus of which Workloads of the namespace ns may ask what they want."""
    return PrometheusSourceSettings(url=url, workload_queries=WorkloadQueriesSettings(free={"ns": "unrestricted"}))


async def services(source: PrometheusSource) -> list[Reading]:
    return (await source.read()).services


def mirror_with(**qos: str) -> ObjectCache:
    cache = ObjectCache()
    body = {"metadata": {"name": "web", "namespace": "ns"}, "spec": {"qos": qos}}
    cache.apply("workloads", "ADDED", msgspec.convert(body, CustomObject))
    return cache


@contextlib.asynccontextmanager
async def stand_in(handler: Callable[[web.Request], Any]) -> AsyncIterator[str]:
    """A server that answers every GET as the handler says."""
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Misbehaving:
    """Answers the queries for pod a until told to do something else."""

    def __init__(self) -> None:
        self.mood = "well"
        self.released = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        if self.mood == "hangs" or (self.mood == "rate hangs" and request.query["query"] == "rate"):
            await self.released.wait()
        if request.query["query"] == "vector(1)" and self.mood in ("well", "rate hangs", "odd"):
            return web.json_response({"status": "success", "data": {"resultType": "vector", "result": []}})
        if self.mood == "fails":
            return web.Response(status=500, text="out of memory")
        if self.mood == "odd":
            return web.json_response(
                {"status": "success", "data": {"resultType": "vector", "result": [7, {"value": 1}]}}
            )
        value = {"rate": "1000", "latency": "4"}.get(request.query["query"], str(time.time()))
        series = [{"metric": {"pod": "a"}, "value": [time.time(), value]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": series}})


@contextlib.asynccontextmanager
async def misbehaving(cache: ObjectCache) -> AsyncIterator[tuple[Misbehaving, PrometheusSource]]:
    behaviour = Misbehaving()
    async with stand_in(behaviour.answer) as url:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.3)) as session:
            yield behaviour, PrometheusSource(session, open_to_all(url), cache)
        behaviour.released.set()


@pytest.mark.parametrize(("mood", "words"), [("hangs", "does not answer in time"), ("fails", "answers 500")])
async def test_a_prometheus_that_hangs_or_fails_is_down(mood: str, words: str) -> None:
    async with misbehaving(mirror_with(rpsQuery="rate", latencyQuery="latency")) as (behaviour, source):
        assert [service.requests_per_second for service in await services(source)] == [1000.0]
        behaviour.mood = mood
        with pytest.raises(SourceDown, match=words):
            await source.read()


async def test_one_query_that_hangs_does_not_take_the_others_with_it() -> None:
    async with misbehaving(mirror_with(rpsQuery="rate", latencyQuery="latency")) as (behaviour, source):
        behaviour.mood = "rate hangs"
        (found,) = await services(source)
        assert (found.requests_per_second, found.latency_p95_milliseconds) == (None, 4.0)
        assert "it was not answered in time" in source.refused["ns/web rpsQuery"]
        behaviour.mood = "well"
        behaviour.released.set()
        await source.read()
        assert source.refused == {}


async def test_series_of_the_wrong_shape_are_passed_over_with_a_word() -> None:
    async with misbehaving(mirror_with(rpsQuery="rate")) as (behaviour, source):
        behaviour.mood = "odd"
        assert await services(source) == []
        assert "label pod" in source.refused["ns/web rpsQuery"]


async def test_without_a_workload_a_prometheus_that_fails_is_seen_all_the_same() -> None:
    async with misbehaving(ObjectCache()) as (behaviour, source):
        assert await services(source) == []
        behaviour.mood = "fails"
        with pytest.raises(SourceDown):
            await source.read()


@pytest.mark.parametrize("mood", ["hangs", "fails"])
async def test_a_feed_whose_prometheus_goes_and_comes_tells_no_zero_and_two_lines(
    mood: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="cotide_operator.usage.usage_feed")
    pod = Pod("ns/a", "a", WorkloadClass.ONLINE, (), 0.0, node="n", workload="ns/web")
    events: list[Event] = []
    metrics = Metrics()
    async with misbehaving(mirror_with(rpsQuery="rate", latencyQuery="latency")) as (behaviour, source):
        feed = UsageFeed(
            source,
            MetricsSourceSettings(
                prometheus=PrometheusSourceSettings(url="http://x"), interval_seconds=0.5, stale_after_seconds=1.0
            ),
            clock=ScaledClock(),
            pod_of={"ns/a": pod}.get,
            emit=events.append,
            forecast_scores=ForecastScores(metrics, lambda key: 10.0, 300.0),
            metrics=metrics,
        )
        assert math.isnan(metrics.registry.get_sample_value("cotide_metrics_source_up") or 0.0)
        await feed.read_once()
        assert feed.get("ns/web") == ServiceReading(1000.0, 4.0)
        behaviour.mood = mood

        async def silent() -> bool:
            await feed.read_once()
            return feed.get("ns/web") is None

        await until("the reading is too old", silent)
        assert metrics.registry.get_sample_value("cotide_metrics_source_up") == 0
        behaviour.mood = "well"
        behaviour.released.set()
        await feed.read_once()
        assert feed.get("ns/web") == ServiceReading(1000.0, 4.0)
    assert events == [ServiceSampled("ns/a", 1000.0, 4.0)]  # never a zero, and the same again is no news
    assert changes(caplog) == ["up", "down", "up"]


async def test_native_histograms_are_named_and_not_a_label_that_they_have() -> None:
    """As Prometheus answers ``rate()`` of a native histogram: ``histogram`` stands in place of ``value``."""

    async def answer(request: web.Request) -> web.Response:
        labels = {"namespace": "ns", "pod": "a"}
        sample = [1000.0, {"count": "5", "sum": "2.5", "buckets": [[0, "0.1", "0.2", "5"]]}]
        histogram = {"metric": labels, "histogram": sample}
        number = {"metric": {}, "value": [1000.0, "1"]}
        series = [number] if request.query["query"] == "vector(1)" else [histogram]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": series}})

    async with stand_in(answer) as url, aiohttp.ClientSession() as session:
        cache = mirror_with(latencyQuery="latency")
        source = PrometheusSource(session, open_to_all(url), cache, needs_usage=lambda: True)
        assert await services(source) == []
    words = "its series are native histograms, not numbers (write: histogram_quantile(0.95, ...) for a latency"
    assert source.refused["ns/web latencyQuery"].startswith(f"spec.qos.latencyQuery: {words}")
    assert source.refused["metricsSource.prometheus podCpuQuery"].startswith(words)
