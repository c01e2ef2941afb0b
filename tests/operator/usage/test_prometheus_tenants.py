"""What one tenant's queries may do to the readings of others, and to the operator's memory: nothing."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_server import needs_prometheus, running_prometheus, until
from prometheus_stand_in import put_workload, query_of, stand_in, stream_series, vector

from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.metric_settings import PrometheusSourceSettings
from cotide_operator.usage.prometheus import PrometheusSource
from cotide_operator.usage.sources import Measured, Reading

TEMPLATES = {"rps": "rate", "latency": "latency"}
B_RATE = '{__name__="rate",namespace="b",pod=~"web-0"}'
B_LATENCY = '{__name__="latency",namespace="b",pod=~"web-0"}'


class Tenants:
    """Namespaces a and b with a Workload ``web`` each; b's is asked for with the templates and has one pod."""

    def __init__(self, **settings: Any) -> None:
        self.settings = {**TEMPLATES, "free": {"a": "unrestricted"}, **settings}
        self.cache = ObjectCache()
        put_workload(self.cache, "b/web")
        self.asked: list[str] = []
        self.released = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        query = await query_of(request)
        self.asked.append(query)
        own = {"namespace": "b", "pod": "web-0"}
        if query == "slow":
            await self.released.wait()
        if query == "huge":
            return await stream_series(request, 600_000)
        answers = {
            "vector(1)": vector(({}, 1)),
            B_RATE: vector((own, 1200)),
            B_LATENCY: vector((own, 4)),
            "forged": vector((own, 0), ({"namespace": "b", "pod": "web-0", "x": "y"}, 1e9), ({"pod": "web-0"}, 7)),
            "stolen": vector(({"pod": "web-0", "namespace": "a"}, 0), ({"pod": "b/web-0"}, 9)),
            "odd": vector(*(({"pod": "web-0"}, value) for value in ("NaN", "-5", "1e308", "Inf"))),
            "beyond": vector(({"pod": "web-0"}, 1.1e9)),
            "twice": vector(({"pod": "web-0"}, 3), ({"pod": "web-0", "x": "y"}, 8), ({"pod": "web-0", "x": "z"}, 5)),
        }
        # A plain selector is asked for the times of its samples, too: they are of now.
        times = vector((own, time.time()), ({"pod": "web-0"}, time.time()))
        return web.json_response(times if query.startswith("timestamp(") else answers.get(query, vector()))

    async def read(self, readings: int = 1, stale_seconds: float = 60.0) -> tuple[Measured, PrometheusSource]:
        async with stand_in(self.answer) as url, aiohttp.ClientSession() as session:
            settings = PrometheusSourceSettings.model_validate({"url": url, "workload_queries": self.settings})
            source = PrometheusSource(session, settings, self.cache, stale_seconds=stale_seconds)
            for _ in range(readings):
                found = await source.read()
            self.released.set()
            return found, source


def of(found: Measured, workload: str) -> list[tuple[str, float | None, float | None]]:
    readings: list[Reading] = [service for service in found.services if service.workload == workload]
    return [(reading.pod, reading.requests_per_second, reading.latency_p95_milliseconds) for reading in readings]


@pytest.mark.parametrize(
    ("query", "own"),
    [
        ("forged", [("a/web-0", 7.0, None)]),
        ("stolen", [("a/web-0", 0.0, None), ("a/b/web-0", 9.0, None)]),
        ("odd", [("a/web-0", None, None)]),
        ("beyond", [("a/web-0", None, None)]),
        ("twice", [("a/web-0", 8.0, None)]),
    ],
)
async def test_labels_of_an_answer_give_nobody_elses_reading(query: str, own: list[Any]) -> None:
    tenants = Tenants()
    put_workload(tenants.cache, "a/web", rpsQuery=query)
    found, _ = await tenants.read()
    assert of(found, "b/web") == [("b/web-0", 1200.0, 4.0)]
    assert of(found, "a/web") == own
    assert {service.pod.split("/")[0] for service in found.services if service.workload == "a/web"} == {"a"}


async def test_one_workloads_query_changes_no_other_workload_of_its_namespace() -> None:
    tenants = Tenants(free={"b": "unrestricted"})
    put_workload(tenants.cache, "b/other", pods=0, rpsQuery="twice")
    found, _ = await tenants.read()
    assert of(found, "b/web") == [("b/web-0", 1200.0, 4.0)]
    assert of(found, "b/other") == [("b/web-0", 8.0, None)], "the feed takes it for pods of b/other only"


async def test_without_the_administrators_word_a_query_is_never_sent() -> None:
    tenants = Tenants(free={})
    put_workload(tenants.cache, "a/web", rpsQuery="forged")
    found, _ = await tenants.read()
    assert "forged" not in tenants.asked
    assert found.faults["a/web"].reason == "QueryRefused"
    assert list(found.faults) == ["a/web"]


async def test_sixty_slow_queries_of_one_tenant_leave_the_others_readings_fresh() -> None:
    tenants = Tenants(seconds_per_namespace=0.3)
    for index in range(30):
        put_workload(tenants.cache, f"a/slow{index}", rpsQuery="slow", latencyQuery="slow")
    started = time.monotonic()
    found, source = await tenants.read(readings=2)
    assert time.monotonic() - started < 10.0, "twice 0.3 s, not sixty times 10 s by 8"
    assert of(found, "b/web") == [("b/web-0", 1200.0, 4.0)]
    assert time.time() - found.services[0].rate_wall_seconds < 10.0
    assert {fault.reason for fault in found.faults.values()} == {"QueryTooSlow"}
    assert "b/web" not in found.faults
    assert sum(query == "slow" for query in tenants.asked) == 4, "two in flight, in each of two readings"
    assert all(name.startswith("a/") for name in source.refused)


async def test_who_is_never_reached_is_told_so_once_it_is_stale() -> None:
    tenants = Tenants(concurrent_per_namespace=1)
    for index in range(9):
        put_workload(tenants.cache, f"a/slow{index}", rpsQuery="slow")
    found, _ = await tenants.read(stale_seconds=2.0)
    assert list(found.faults) == ["a/slow0"], "it took the second that a reading has; the others may still come"
    # A reading takes half of 0.02 s: after four of them one slow query each was asked, the other five are stale.
    tenants.released.clear()
    found, _ = await tenants.read(readings=4, stale_seconds=0.02)
    assert len([key for key in found.faults if key.startswith("a/")]) == 9
    assert "more queries than its time" in found.faults["a/slow8"].message


async def test_an_answer_of_600_000_series_is_cut_off_and_costs_little_memory() -> None:
    tenants = Tenants(seconds_per_namespace=60.0)
    put_workload(tenants.cache, "a/web", rpsQuery="huge")
    await tenants.read()  # what is loaded at the first use is no part of it
    tracemalloc.start()
    found, _ = await tenants.read()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20, "the caps are 4 MiB and 10,000 series; server and client together"
    assert found.faults["a/web"].reason == "AnswerTooLarge"
    assert "more than 10000 series" in found.faults["a/web"].message
    assert of(found, "b/web") == [("b/web-0", 1200.0, 4.0)]


@pytest.mark.parametrize(
    ("limit", "query", "what"),
    [
        ({"maximum_answer_bytes": 100_000}, "huge", "more than 100000 bytes"),
        ({"maximum_series": 2}, "twice", "more than 2 series"),  # three of them, in far less than 4 MiB
    ],
)
async def test_either_limit_of_an_answer_suffices(limit: dict[str, int], query: str, what: str) -> None:
    tenants = Tenants(**limit)
    put_workload(tenants.cache, "a/web", rpsQuery=query)
    found, _ = await tenants.read()
    assert what in found.faults["a/web"].message
    assert of(found, "b/web") == [("b/web-0", 1200.0, 4.0)]


@needs_prometheus
async def test_a_real_prometheus_is_kept_busy_by_one_tenant_and_answers_the_other(tmp_path: Path) -> None:
    """Sixty queries of 3.6 million steps each and one answer beyond its cap, beside a template that takes a moment."""
    lines = [f'many{{namespace="a",pod="web-{number}"}} 1' for number in range(1000)]
    lines += ['rate{namespace="b",pod="web-0"} 1200', 'latency{namespace="b",pod="web-0"} 4']

    async def page(request: web.Request) -> web.Response:
        return web.Response(text="\n".join([*lines, ""]))

    tenants = Tenants(seconds_per_namespace=0.5, maximum_series=900)
    for index in range(60):
        put_workload(tenants.cache, f"a/slow{index}", rpsQuery="max_over_time((sum(many) > 0)[1h:1ms])")
    put_workload(tenants.cache, "c/web", rpsQuery="many")
    free = {"a": "unrestricted", "c": "unrestricted"}
    async with (
        stand_in(page) as target,
        running_prometheus(tmp_path) as prometheus,
        aiohttp.ClientSession() as session,
    ):
        prometheus.targets(int(target.rsplit(":", 1)[1]))
        await until("it is scraped", lambda: prometheus.values("latency"))
        settings = {"url": prometheus.url, "workload_queries": {**tenants.settings, "free": free}}
        source = PrometheusSource(session, PrometheusSourceSettings.model_validate(settings), tenants.cache)
        for _ in range(3):
            found = await source.read()
            assert of(found, "b/web") == [("b/web-0", 1200.0, 4.0)]
            assert (
                time.time()
                - next(service for service in found.services if service.workload == "b/web").rate_wall_seconds
                < 5.0
            )
        assert found.faults["a/slow0"].reason == "QueryTooSlow"
        assert found.faults["c/web"].reason == "AnswerTooLarge"
        assert "b/web" not in found.faults
