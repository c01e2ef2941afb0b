"""Readings of the largest clusters: they are taken in beside decisions, and hold none of them up."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from cotide_core.classes import WorkloadClass
from cotide_core.events import Event, Pod
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.config.metric_settings import MetricsSourceSettings, UrlSource
from cotide_operator.config.metric_settings import PrometheusSourceSettings as Settings
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics
from cotide_operator.usage import prometheus as prometheus_module
from cotide_operator.usage.prometheus import PrometheusSource
from cotide_operator.usage.sources import CPU, MEMORY, Measured, Reading
from cotide_operator.usage.usage_feed import UsageFeed

PODS = 20_000


async def test_thousands_of_readings_hold_nobody_up() -> None:
    """20,000 take some 80 ms; a turn has five."""
    names = [f"ns/p{number}" for number in range(PODS)]
    pods = {name: Pod(name, name, WorkloadClass.ONLINE, (), 0.0, node="n", workload="ns/web") for name in names}
    events: list[Event] = []
    metrics, turns = Metrics(), [0]

    async def read() -> Measured:
        return Measured([Reading(name, 100.0, 4.0, time.time(), time.time()) for name in names])

    feed = UsageFeed(
        SimpleNamespace(read=read, refused={}, settling_seconds=0.0),
        MetricsSourceSettings(scrape=UrlSource(url="http://x"), stale_after_seconds=60.0),
        clock=ScaledClock(),
        pod_of=pods.get,
        emit=events.append,
        forecast_scores=ForecastScores(metrics, lambda _: 10.0, 300.0),
        metrics=metrics,
    )

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            turns[0] += 1

    beside = asyncio.ensure_future(others())
    await feed.read_once()
    beside.cancel()
    assert turns[0] >= 3
    assert len(events) == PODS


async def test_an_answer_about_every_pod_is_taken_apart_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """150,000 pods have 300,000 series, which are a second's work."""
    taken_apart_in, value = set(), prometheus_module._value

    def noting(pod: str, series: object) -> Any:
        taken_apart_in.add(threading.get_ident())
        return value(pod, series)

    labels = {"namespace": "ns", "pod": "a"}
    answered = {
        "status": "success",
        "data": {"resultType": "vector", "result": [{"metric": labels, "value": [1, "2"]}]},
    }

    async def answer(*_: object) -> dict[str, Any]:
        return answered

    monkeypatch.setattr(prometheus_module, "_value", noting)
    settings = Settings(url="http://x", pod_cpu_query="pod_cpu", pod_memory_query="pod_memory")
    async with aiohttp.ClientSession() as session:
        source = PrometheusSource(session, settings, ObjectCache(), needs_usage=lambda: True)
        monkeypatch.setattr(source._client, "answer", answer)
        found = (await source.read()).usage
    assert [(one.pod, one.resource, one.value) for one in found] == [("ns/a", CPU, 2.0), ("ns/a", MEMORY, 2.0)]
    assert threading.get_ident() not in taken_apart_in
