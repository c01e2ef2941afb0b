"""What is over is not shown: a pod that was replaced is told of again, and a stale value takes no fresh one with it."""

from __future__ import annotations

import time

import pytest
from engine_objects import pod

from cotide_core.classes import WorkloadClass
from cotide_core.events import Event, ServiceSampled
from cotide_operator.clock import ScaledClock
from cotide_operator.config.metric_settings import MetricsSourceSettings, UrlSource
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics
from cotide_operator.usage import usage_feed
from cotide_operator.usage.sources import Measured, Reading
from cotide_operator.usage.usage_feed import UsageFeed


class Scene:
    """One service pod, and a source that says what the test wants of it."""

    def __init__(self) -> None:
        self.pod = pod("ns/a", workload="ns/web", workload_class=WorkloadClass.ONLINE, uid="first")
        self.events: list[Event] = []
        self.measured = Measured()
        self.settling_seconds = 0.0
        self.refused: dict[str, str] = {}
        self.metrics = metrics = Metrics()
        self.feed = UsageFeed(
            self,
            MetricsSourceSettings(scrape=UrlSource(url="http://x"), stale_after_seconds=60.0),
            clock=ScaledClock(),
            pod_of=lambda _: self.pod,
            emit=self.events.append,
            forecast_scores=ForecastScores(metrics, lambda _: None, 300.0),
            metrics=metrics,
        )

    async def read(self) -> Measured:
        return self.measured

    async def told(
        self, rate: float | None, latency: float | None, *, rate_age: float = 0.0, latency_age: float = 0.0
    ) -> list[Event]:
        self.events.clear()
        now = time.time()
        self.measured = Measured([Reading("ns/a", rate, latency, now - rate_age, now - latency_age)])
        await self.feed.read_once()
        return list(self.events)


@pytest.mark.parametrize("rate", [0.0, 250.0])
async def test_a_pod_that_was_replaced_under_its_name_is_told_of_though_its_rate_is_the_same(rate: float) -> None:
    scene = Scene()
    await scene.told(rate, 4.0)
    assert await scene.told(rate, 4.0) == []
    scene.pod = scene.pod._replace(uid="second")
    assert await scene.told(rate, 4.0) == [ServiceSampled("ns/a", rate, 4.0)]


async def test_a_pod_has_nothing_of_who_had_its_name_before() -> None:
    scene = Scene()
    await scene.told(900.0, 4.0)
    scene.pod = scene.pod._replace(uid="second")
    assert await scene.told(None, 5.0) == [], "its own rate is not known yet"


async def test_what_is_translated_anew_for_a_new_engine_is_told_of_again() -> None:
    scene = Scene()
    await scene.told(0.0, None)
    scene.pod = scene.pod._replace()
    assert await scene.told(0.0, None) == [ServiceSampled("ns/a", 0.0)]


async def test_a_rate_that_stopped_coming_is_not_shown_for_as_long_as_latencies_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, moment = Scene(), [1000.0]
    monkeypatch.setattr(usage_feed.time, "monotonic", lambda: moment[0])
    await scene.told(900.0, 4.0)
    for _ in range(3):
        moment[0] += 30.0
        await scene.told(None, 5.0)
    found = scene.feed.get("ns/web")
    assert found is not None
    assert (found.requests_per_second, found.latency_p95_milliseconds) == (None, 5.0)


async def test_a_stale_rate_takes_no_fresh_latency_with_it_nor_the_other_way_round() -> None:
    scene = Scene()
    assert await scene.told(1000.0, 4.0, latency_age=1000.0) == [ServiceSampled("ns/a", 1000.0, None)]
    assert await scene.told(7.0, 5.0, rate_age=1000.0) == [ServiceSampled("ns/a", 1000.0, 5.0)]
    stale = scene.metrics.registry.get_sample_value("cotide_service_samples_total", {"outcome": "stale"})
    assert stale == 2
    assert await scene.told(7.0, 6.0, rate_age=1000.0, latency_age=1000.0) == []
    found = scene.feed.get("ns/web")
    assert found is not None
    assert (found.requests_per_second, found.latency_p95_milliseconds) == (1000.0, 5.0)
