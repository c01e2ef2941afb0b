"""The usage feed: what is measured becomes samples; what is missing, stale or nonsense becomes nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from cotide_core.classes import WorkloadClass
from cotide_core.events import Event, Pod, ServiceSampled
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.config.metric_settings import MetricsSourceSettings, UrlSource, WorkloadQueriesSettings
from cotide_operator.config.metric_settings import PrometheusSourceSettings as Settings
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics
from cotide_operator.usage import usage_feed as feed_module
from cotide_operator.usage.decaying_peak import RecentPeak
from cotide_operator.usage.prometheus import PrometheusSource, longest_range
from cotide_operator.usage.service_readings import QueryFault
from cotide_operator.usage.sources import (
    CPU,
    MEMORY,
    Measured,
    Reading,
    Source,
    SourceDown,
    TextSource,
    UsageReading,
    parse_text,
    parse_usage,
    usable,
)
from cotide_operator.usage.usage_feed import UsageFeed

NOTHING = {"status": "success", "data": {"resultType": "vector", "result": []}}


class Scripted:
    """A source that says what the test wants."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.usage: list[UsageReading] = []
        self.down = ""
        self.settling_seconds = 0.0
        self.refused: dict[str, str] = {}

    async def read(self) -> Measured:
        if self.down:
            raise SourceDown(self.down)
        return Measured(self.readings, self.usage)


class Scene:
    def __init__(self, source: Source | None = None, slot_seconds: float = 300.0) -> None:
        self.source = Scripted()
        self.events: list[Event] = []
        self.metrics = Metrics()
        self.pods = {f"ns/{name}": service_pod(name) for name in ("a", "b")}
        self.pods["ns/job"] = Pod("ns/job", "j", WorkloadClass.BATCH, (), 0.0)
        self.forecast_scores = ForecastScores(self.metrics, lambda key: 10.0, slot_seconds)
        self.clock = ScaledClock()
        self.feed = UsageFeed(
            source or self.source,
            MetricsSourceSettings(scrape=UrlSource(url="http://x"), stale_after_seconds=60.0),
            clock=self.clock,
            pod_of=self.pods.get,
            emit=self.events.append,
            forecast_scores=self.forecast_scores,
            metrics=self.metrics,
        )

    async def read(self, *readings: Reading) -> list[Event]:
        self.source.readings, self.events[:] = list(readings), []
        await self.feed.read_once()
        return list(self.events)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


def service_pod(name: str) -> Pod:
    return Pod(f"ns/{name}", name, WorkloadClass.ONLINE, (), 0.0, node="n", workload="ns/web")


def reading(pod: str, rate: float | None, latency: float | None, age_seconds: float = 0.0) -> Reading:
    return Reading(f"ns/{pod}", rate, latency, *2 * (time.time() - age_seconds,))


async def test_a_fresh_reading_is_a_sample_and_an_unchanged_one_is_not_repeated() -> None:
    scene = Scene()
    assert await scene.read(reading("a", 1000.0, 4.0)) == [ServiceSampled("ns/a", 1000.0, 4.0)]
    assert await scene.read(reading("a", 1000.0, 4.0)) == []
    assert await scene.read(reading("a", 1000.0, 5.0)) == [ServiceSampled("ns/a", 1000.0, 5.0)]


async def test_what_one_workloads_query_gave_counts_for_its_own_pods_only() -> None:
    scene = Scene()
    assert await scene.read(replace(reading("a", 0.0, 1e6), workload="ns/other")) == []
    assert scene.feed.get("ns/web") is None
    assert len(await scene.read(replace(reading("a", 9.0, 4.0), workload="ns/web"))) == 1


async def test_a_stale_reading_is_dropped_and_never_zero() -> None:
    scene = Scene()
    assert await scene.read(reading("a", 1000.0, 4.0, age_seconds=61.0)) == []
    assert scene.feed.get("ns/web") is None
    assert scene.metric("cotide_service_samples_total", outcome="stale") == 1


async def test_a_latency_alone_goes_with_the_last_known_rate() -> None:
    scene = Scene()
    assert await scene.read(reading("a", None, 4.0)) == []  # no rate is known: none is made up
    await scene.read(reading("a", 500.0, 4.0))
    assert await scene.read(reading("a", None, 6.0)) == [ServiceSampled("ns/a", 500.0, 6.0)]


async def test_a_rate_that_stops_coming_counts_with_its_recent_peak_until_it_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    moment = [1000.0]
    monkeypatch.setattr(feed_module.time, "monotonic", lambda: moment[0])
    await scene.read(reading("a", 900.0, 4.0))
    await scene.read(reading("a", 200.0, 4.0))
    moment[0] += 59.0
    assert await scene.read() == [], "missing, but not for long"
    moment[0] += 2.0
    assert await scene.read() == [ServiceSampled("ns/a", 900.0)], "61 s of silence are more than 60 s"
    assert await scene.read() == [], "told once"
    assert scene.metric("cotide_service_samples_total", outcome="assumed") == 1
    assert scene.feed.get("ns/web") is None, "a Workload's status shows no assumption"
    assert await scene.read(reading("a", None, 6.0)) == [ServiceSampled("ns/a", 900.0, 6.0)], "a latency is no rate"
    assert await scene.read(reading("a", 200.0, 6.0)) == [ServiceSampled("ns/a", 200.0, 6.0)], "back to what it was"


async def test_a_source_that_is_down_assumes_peaks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    moment = [1000.0]
    monkeypatch.setattr(feed_module.time, "monotonic", lambda: moment[0])
    scene.pods["ns/c"] = service_pod("c")
    for rate in (900.0, 100.0):
        await scene.read(reading("a", rate, 4.0), reading("b", rate, 4.0), reading("c", 100.0, 4.0))
    del scene.pods["ns/b"]
    moment[0] += 61.0
    scene.source.down = "no route"
    assert await scene.read() == [ServiceSampled("ns/a", 900.0)], (
        "nothing of a pod that is gone, nor of one at its peak"
    )


def test_a_recent_peak_counts_for_half_the_window_at_least_and_all_of_it_at_most() -> None:
    peak = RecentPeak(100.0)
    assert peak.highest == 0.0
    peak.add(9.0, 0.0)
    for now in range(10, 60, 10):
        peak.add(1.0, float(now))
        assert peak.highest == 9.0
    peak.add(2.0, 60.0)
    assert peak.highest == 9.0, "the half window before"
    peak.add(1.0, 110.0)
    assert peak.highest == 2.0
    peak.add(0.5, 1000.0)
    assert peak.highest == 0.5, "after a gap nothing of before counts"


async def test_pods_that_are_no_service_of_ours_are_passed_over() -> None:
    scene = Scene()
    assert await scene.read(reading("job", 1.0, 1.0), reading("unknown", 1.0, 1.0)) == []


async def test_a_workload_shows_the_sum_of_rates_and_the_worst_latency() -> None:
    scene = Scene()
    await scene.read(reading("a", 1000.0, 4.0), reading("b", 500.0, 7.0))
    found = scene.feed.get("ns/web")
    assert found is not None
    assert (found.requests_per_second, found.latency_p95_milliseconds, found.violations) == (1500.0, 7.0, 0)


async def test_a_slot_over_the_limit_counts_once() -> None:
    scene = Scene(slot_seconds=1e12)  # the whole test lies in one slot
    for latency in (11.0, 12.0, 4.0, 13.0):
        await scene.read(reading("a", 1000.0, latency))
    await scene.read(reading("b", 1000.0, 11.0))
    assert scene.metric("cotide_qos_violations_total", workload="ns/web") == 2  # one slot of each pod
    found = scene.feed.get("ns/web")
    assert found is not None
    assert found.violations == 2


async def test_a_source_that_is_down_costs_one_line_each_way(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="cotide_operator.usage.usage_feed")
    scene = Scene()
    for down in ("", "no route", "no route", "still none", "", ""):
        scene.source.down = down
        await scene.feed.read_once()
    lines = [record.getMessage() for record in caplog.records]
    assert [("is down" in line, "answers" in line) for line in lines] == [(False, True), (True, False), (False, True)]
    assert scene.metric("cotide_metrics_source_up") == 1


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-1", "1e308", "9007199254740994", "", None, "many", [1]])
def test_a_value_that_is_no_rate_is_none(text: object) -> None:
    assert usable(text) is None


def test_the_text_format_is_read_with_labels_in_any_order_and_timestamps() -> None:
    text = """
# HELP cotide_sim_service_requests_per_second Rate.
cotide_sim_service_requests_per_second{namespace="ns",pod="a",node="n"} 1200.5
cotide_sim_service_latency_p95_milliseconds{pod="a",namespace="ns"} 3.5 1000000
cotide_sim_service_requests_per_second{namespace="ns",pod="b",node="n"} NaN
cotide_sim_node_cpu_usage_millicores{node="n"} 7
cotide_sim_service_requests_per_second{node="no pod"} 1
cotide_sim_pod_cpu_usage_millicores{namespace="ns",pod="a",node="n"} 250.5
cotide_sim_pod_memory_usage_bytes{pod="a",namespace="ns"} 1e6 1000000
cotide_sim_pod_cpu_usage_millicores{namespace="ns",pod="b",node="n"} -1
"""
    assert list(parse_text(text, 5.0)) == [
        ("ns/a", False, 1200.5, 5.0),
        ("ns/a", True, 3.5, 1000.0),
        ("ns/b", False, None, 5.0),
    ]
    assert list(parse_usage(text, 5.0)) == [
        UsageReading("ns/a", CPU, 250.5, 5.0),
        UsageReading("ns/a", MEMORY, 1e6, 1000.0),
        UsageReading("ns/b", CPU, None, 5.0),
    ]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2.0)) as opened:
        yield opened


async def serve(handler: Any) -> tuple[web.AppRunner, str]:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def test_prometheus_is_asked_for_each_query_of_each_workload(session: aiohttp.ClientSession) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.path == "/api/v1/query"
        query = request.query["query"]
        asked.append(query)
        if query == "vector(1)":
            return web.json_response(NOTHING)
        if query == "bad(":
            return web.json_response({"status": "error", "errorType": "bad_data", "error": "parse error"}, status=400)
        value = {"rps": "1200", "latency": "NaN", "timestamp(rps)": "990.5", "timestamp(latency)": "1000"}[query]
        series = [
            {"metric": {"pod": "a"}, "value": [1000.5, value]},
            {"metric": {"job": "no pod"}, "value": [1000.5, "1"]},
        ]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": series}})

    runner, url = await serve(answer)
    cache = ObjectCache()
    for name, qos in (
        ("web", {"rpsQuery": "rps", "latencyQuery": "latency"}),
        ("odd", {"rpsQuery": "bad("}),
        ("none", {}),
    ):
        body = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"qos": qos}}
        cache.apply("workloads", "ADDED", msgspec.convert(body, CustomObject))
    free = WorkloadQueriesSettings(free={"ns": "unrestricted"})
    source = PrometheusSource(session, Settings(url=url, workload_queries=free), cache)
    found = await source.read()
    assert found.services == [Reading("ns/a", 1200.0, None, 990.5, 1000.0, "ns/web")]  # the sample's own time
    assert sorted(asked) == ["bad(", "latency", "rps", "timestamp(latency)", "timestamp(rps)", "vector(1)"]
    assert source.refused == {"ns/odd rpsQuery": "spec.qos.rpsQuery: parse error"}
    assert found.faults == {"ns/odd": QueryFault("QueryFailed", "spec.qos.rpsQuery: parse error")}
    await runner.cleanup()


@pytest.mark.parametrize("status", [500, 404])
async def test_a_source_that_fails_says_so_in_one_sentence(session: aiohttp.ClientSession, status: int) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status)

    runner, url = await serve(answer)
    with pytest.raises(SourceDown, match=f"answers {status}"):
        await TextSource(session, f"{url}/metrics").read()
    await runner.cleanup()
    with pytest.raises(SourceDown, match="can't be reached: nothing listens there"):
        await TextSource(session, f"{url}/metrics").read()


async def test_a_page_that_is_no_prometheus_is_refused(session: aiohttp.ClientSession) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="<html>")

    runner, url = await serve(answer)
    cache = ObjectCache()
    body = {"metadata": {"name": "w", "namespace": "ns"}, "spec": {"qos": {"rpsQuery": "x"}}}
    cache.apply("workloads", "ADDED", msgspec.convert(body, CustomObject))
    with pytest.raises(SourceDown, match="not JSON"):
        await PrometheusSource(session, Settings(url=url), cache).read()
    await asyncio.sleep(0)
    await runner.cleanup()


async def test_the_recorded_queries_of_the_configuration_give_what_pods_use(session: aiohttp.ClientSession) -> None:
    answers = {"cpu": ("250.5", "ns"), "mem": ("NaN", "ns")}

    async def answer(request: web.Request) -> web.Response:
        query = request.query["query"]
        if query == "vector(1)":
            return web.json_response(NOTHING)
        value, namespace = answers[query.removeprefix("timestamp(").removesuffix(")")]
        value = "990" if query.startswith("timestamp") else value
        series = [{"metric": {"namespace": namespace, "pod": "a"}, "value": [1000.0, value]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": series}})

    runner, url = await serve(answer)
    settings = Settings(url=url, pod_cpu_query="cpu", pod_memory_query="mem")
    source = PrometheusSource(session, settings, ObjectCache(), needs_usage=lambda: True)
    assert (await source.read()).usage == [
        UsageReading("ns/a", CPU, 250.5, 990.0),
        UsageReading("ns/a", MEMORY, None, 990.0),
    ]
    await runner.cleanup()


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("pod:cpu:millicores", 0.0),
        ('sum by (pod) (rate(x{y="[5m]"}[2m])) * 1000', 300.0),  # too long is safe
        ("max_over_time(rate(x[90s])[1h:1m])", 3600.0),
        ("rate(x[1m30s])", 90.0),
    ],
)
def test_a_source_settles_for_as_long_as_its_queries_look_back(query: str, seconds: float) -> None:
    assert longest_range(query) == seconds


async def test_a_recorded_query_without_any_series_is_named(session: aiohttp.ClientSession) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": []}})

    runner, url = await serve(answer)
    source = PrometheusSource(session, Settings(url=url), ObjectCache(), needs_usage=lambda: True)
    assert await source.read() == Measured()
    assert list(source.refused) == ["metricsSource.prometheus podCpuQuery", "metricsSource.prometheus podMemoryQuery"]
    assert "cAdvisor" in source.refused["metricsSource.prometheus podCpuQuery"]
    await runner.cleanup()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"status": "error", "error": "exceeded maximum resolution"}, "podCpuQuery: exceeded maximum resolution"),
        ({"status": "success", "data": {"resultType": "vector", "result": []}}, "podCpuQuery gives no range"),
    ],
)
async def test_a_range_that_is_refused_says_why(
    session: aiohttp.ClientSession, body: dict[str, Any], words: str
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body)

    runner, url = await serve(answer)
    source = PrometheusSource(session, Settings(url=url), ObjectCache(), needs_usage=lambda: True)
    with pytest.raises(SourceDown, match=words):
        await source.usage_range(CPU, 0.0, 10.0, 1.0)
    await runner.cleanup()


async def test_what_pods_use_is_handed_on_and_nothing_of_it_while_the_source_is_down() -> None:
    scene, handed = Scene(), []

    class Sink:
        async def take(self, readings: list[UsageReading]) -> None:
            handed.append(readings)

    scene.feed._usage = Sink()
    scene.source.usage = [UsageReading("ns/a", CPU, 1.0, 5.0)]
    await scene.feed.read_once()
    scene.source.down = "gone"
    await scene.feed.read_once()
    assert handed == [[UsageReading("ns/a", CPU, 1.0, 5.0)], []]
