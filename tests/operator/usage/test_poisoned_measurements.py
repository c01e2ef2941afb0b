"""One poisoned value, answer or query spoils only itself: the others are taken, and nothing ends the feed."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import Any

import engine_objects
import pytest

from cotide_core.classes import WorkloadClass
from cotide_core.events import Event, Pod, ServiceSampled
from cotide_kube.objects import Metadata
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.config.metric_settings import MetricsSourceSettings, PrometheusSourceSettings, UrlSource
from cotide_operator.host_load.pod_usage import PodUsages
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics
from cotide_operator.usage.measurement_faults import LINE_SECONDS, MeasurementFaults
from cotide_operator.usage.metrics_api import MetricsApiSource
from cotide_operator.usage.prometheus import PrometheusSource
from cotide_operator.usage.sources import CPU, MEMORY, RPS_NAME, Measured, Reading, UsageReading, parse_text
from cotide_operator.usage.usage_feed import UsageFeed

NOT_A_POD: Any = ["a list is no key of a pod"]


class Taken:
    """Who makes something of usage, and fails when it is told to."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.fails = False

    async def take(self, readings: list[UsageReading]) -> None:
        self.counts.append(len(readings))
        if self.fails:
            raise TypeError("usage trips us")


class Source:
    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.error: Exception | None = None
        self.settling_seconds = 0.0
        self.refused: dict[str, str] = {}

    async def read(self) -> Measured:
        if self.error is not None:
            raise self.error
        return Measured(self.readings, [UsageReading("ns/a", CPU, 1.0, time.time())])


class Scene:
    def __init__(self) -> None:
        self.source, self.sink, self.metrics = Source(), Taken(), Metrics()
        self.events: list[Event] = []
        self.pods = {f"ns/{name}": pod(name) for name in "ab"}
        self.feed = UsageFeed(
            self.source,
            MetricsSourceSettings(scrape=UrlSource(url="http://x"), stale_after_seconds=60.0),
            clock=ScaledClock(),
            pod_of=self.pods.get,
            emit=self.events.append,
            forecast_scores=ForecastScores(self.metrics, lambda key: 10.0, 300.0),
            metrics=self.metrics,
            usage=self.sink,
        )


def pod(name: str) -> Pod:
    """A pod of the service, on the one node."""
    return engine_objects.pod(f"ns/{name}", cls=WorkloadClass.ONLINE, uid=name, node="n", workload="ns/web")


def reading(key: str, rate: float = 5.0) -> Reading:
    return Reading(key, rate, None, time.time(), time.time())


def left_out(metrics: Metrics, part: str) -> float | None:
    return metrics.registry.get_sample_value("cotide_measurement_faults_total", {"place": part})


async def test_a_reading_that_trips_the_feed_is_left_out_and_counted_and_the_next_ones_are_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.source.readings = [reading("ns/a"), reading(NOT_A_POD), reading("ns/b")]
    await scene.feed.read_once()
    assert scene.events == [ServiceSampled("ns/a", 5.0), ServiceSampled("ns/b", 5.0)]
    assert left_out(scene.metrics, "service reading") == 1
    assert "usage_feed.py" in caplog.text, "the log names the place"


async def test_an_answer_that_trips_its_source_counts_as_none_and_the_next_one_is_read() -> None:
    scene = Scene()
    scene.source.error = TypeError("an answer from elsewhere")
    await scene.feed.read_once()
    assert scene.metrics.registry.get_sample_value("cotide_metrics_source_up") == 0
    assert left_out(scene.metrics, "source") == 1
    assert scene.sink.counts == [0], "host load hears that nothing was read"
    scene.source.error, scene.source.readings = None, [reading("ns/a")]
    await scene.feed.read_once()
    assert scene.events == [ServiceSampled("ns/a", 5.0)]
    assert scene.metrics.registry.get_sample_value("cotide_metrics_source_up") == 1


async def test_usage_that_trips_host_load_leaves_rates_alone() -> None:
    scene = Scene()
    scene.sink.fails = True
    scene.source.readings = [reading("ns/a")]
    await scene.feed.read_once()
    assert scene.events == [ServiceSampled("ns/a", 5.0)]
    assert left_out(scene.metrics, "usage") == 1
    scene.source.error = ValueError("and while the source is down, too")
    await scene.feed.read_once()
    assert left_out(scene.metrics, "usage") == 2


async def test_a_silent_service_that_trips_us_leaves_the_peak_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    for rate in (9.0, 5.0):
        scene.source.readings = [reading("ns/a", rate), reading("ns/b", rate)]
        await scene.feed.read_once()
    silent = time.monotonic() + 61.0  # a rate holds for 60 s
    monkeypatch.setattr("cotide_operator.usage.usage_feed.time.monotonic", lambda: silent)
    of = scene.pods.get
    scene.feed._pod_of = lambda key: of(key) if key == "ns/b" else 5  # type: ignore[assignment,return-value]  # poison
    scene.source.readings, scene.events[:] = [], []
    await scene.feed.read_once()
    assert scene.events == [ServiceSampled("ns/b", 9.0)]
    assert left_out(scene.metrics, "recent peak") == 1


async def test_a_usage_reading_that_trips_us_leaves_those_of_other_pods() -> None:
    metrics, now = Metrics(), time.time()
    usages = PodUsages({"ns/a": pod("a"), "ns/b": pod("b")}.get, 60.0, metrics)
    poisoned = [UsageReading(NOT_A_POD, CPU, 1.0, now), UsageReading("ns/a", 7, 1.0, now)]  # no such pod, no resource 7
    readings = [UsageReading("ns/a", CPU, 100.0, now), *poisoned, UsageReading("ns/b", CPU, 200.0, now)]
    assert await usages.take(readings, now) == 2
    assert usages.fresh(pod("b"), now)[0] == 200.0
    assert left_out(metrics, "usage reading") == 2


POISONED_ITEMS: list[Any] = [
    None,
    "text",
    {"metadata": 5},
    {"metadata": {"name": "a"}, "containers": [5]},
    {"metadata": {"name": "a"}, "containers": 5},
    {"metadata": {"name": "a"}, "containers": [{"usage": ["cpu"]}]},
]


@pytest.mark.parametrize("item", POISONED_ITEMS, ids=range(len(POISONED_ITEMS)))
async def test_a_poisoned_item_of_the_metrics_api_leaves_the_items_of_other_pods(item: Any) -> None:
    async def items(path: str) -> list[Any]:
        good = {"metadata": {"namespace": "ns", "name": "b"}, "containers": [{"usage": {"cpu": "1", "memory": "1"}}]}
        return [item, good]

    metrics, client = Metrics(), SimpleNamespace(list=items)
    measured = await MetricsApiSource(client, metrics).read()  # type: ignore[arg-type]  # a stub
    assert [(one.pod, one.value) for one in measured.usage] == [("ns/b", 1000.0), ("ns/b", 1.0)]
    assert left_out(metrics, "metrics API") == 1


@pytest.mark.parametrize("digits", [19, 400, 5000])  # more than an int64; than a float; than Python reads
def test_a_line_with_an_impossible_stamp_is_none_and_the_next_line_counts(digits: int) -> None:
    name = "cotide_sim_service_requests_per_second"
    text = f'{name}{{pod="a"}} 1 {"9" * digits}\n{name}{{pod="b"}} 2 1000\n'
    assert list(parse_text(text, 0.0)) == [("default/b", False, 2.0, 1.0)]


async def test_a_workload_whose_query_trips_us_is_told_and_the_others_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache, metrics = ObjectCache(), Metrics()
    for name in ("bad", "good"):
        spec = {"qos": {"rpsQuery": f"rate_of_{name}"}, "selector": {"matchLabels": {"app": name}}}
        cache.apply("workloads", "ADDED", CustomObject(Metadata(name=name, namespace="ns"), spec=spec))
    settings = PrometheusSourceSettings.model_validate(
        {"url": "http://nobody", "workloadQueries": {"free": {"ns": "unrestricted"}}}
    )
    source = PrometheusSource(None, settings, cache, faults=MeasurementFaults(metrics))  # type: ignore[arg-type]  # nobody is asked

    async def answer(path: str, parameters: dict[str, str], limits: Any) -> dict[str, Any]:
        if parameters["query"] == "rate_of_bad":
            raise TypeError("hostile labels")
        result = [{"metric": {"namespace": "ns", "pod": "p"}, "value": [1000.0, "7"]}]
        return {"status": "success", "data": {"resultType": "vector", "result": result}}

    monkeypatch.setattr(source._client, "answer", answer)
    measured = await source.read()
    assert [(service.workload, service.requests_per_second) for service in measured.services] == [("ns/good", 7.0)]
    assert list(measured.faults) == ["ns/bad"]
    assert "TypeError" in measured.faults["ns/bad"].message
    assert "hostile" not in measured.faults["ns/bad"].message, "an owner reads nothing of what it was"
    assert left_out(metrics, "query") == 1


async def test_a_configured_query_that_trips_us_leaves_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    settings = PrometheusSourceSettings.model_validate({"url": "http://nobody"})
    faults = MeasurementFaults(metrics)
    source = PrometheusSource(None, settings, ObjectCache(), needs_usage=lambda: True, faults=faults)  # type: ignore[arg-type]  # nobody is asked

    async def answer(path: str, parameters: dict[str, str], limits: Any) -> dict[str, Any]:
        if parameters["query"] == settings.pod_cpu_query:
            raise TypeError("hostile labels")
        result = [{"metric": {"namespace": "ns", "pod": "p"}, "value": [1000.0, "7"]}]
        return {"status": "success", "data": {"resultType": "vector", "result": result}}

    monkeypatch.setattr(source._client, "answer", answer)
    measured = await source.read()
    assert [(one.pod, one.resource, one.value) for one in measured.usage] == [("ns/p", MEMORY, 7.0)]
    assert "TypeError" in source.refused["metricsSource.prometheus podCpuQuery"]
    assert left_out(metrics, "query") == 1


def test_many_faults_of_one_place_are_one_line_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    metrics = Metrics()
    faults = MeasurementFaults(metrics, lambda: now[0])
    caplog.set_level(logging.ERROR)
    for _ in range(1000):
        faults.leave_out("service reading", "x" * 10_000, ValueError("y" * 10_000))
    assert left_out(metrics, "service reading") == 1000
    assert len(caplog.records) == 1
    assert len(caplog.records[0].getMessage()) < 600
    now[0] = LINE_SECONDS
    faults.leave_out("service reading", "x", ValueError("y"))
    assert "and 999 more" in caplog.records[1].getMessage()


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"{RPS_NAME}{{" for _ in range(40_000)),
        f"{RPS_NAME}{{{'a' * 200_000}}} 1",
        f'{RPS_NAME}{{pod="p"}} {" " * 200_000}x y',
        f'{RPS_NAME}{{pod="{chr(92) * 200_001}"}} 1',
    ],
    ids=["braces that are never closed", "a label without a value", "blanks", "backslashes"],
)
def test_an_exposition_takes_linear_time(text: str) -> None:
    """A second is fifty times what it takes; what looks anew from each line or letter takes minutes."""
    started = time.perf_counter()
    assert list(parse_text(text, 0.0)) == []
    assert time.perf_counter() - started < 1.0
