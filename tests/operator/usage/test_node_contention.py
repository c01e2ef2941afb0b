"""How cpus of nodes are fought for: from a Prometheus by the configuration's queries to the engine."""

from __future__ import annotations

import math
import time
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from prometheus_stand_in import query_of, stand_in, vector

from cotide_core.errors import InputError
from cotide_core.events import Event, NodeContended
from cotide_kube.objects import NodeObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.config.metric_settings import MetricsSourceSettings, PrometheusSourceSettings, UrlSource
from cotide_operator.config.settings import engine_config, parse_settings
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics
from cotide_operator.usage.prometheus import PrometheusSource
from cotide_operator.usage.sources import Measured, NodeReading
from cotide_operator.usage.usage_feed import UsageFeed

HEAD = "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n"


async def read_nodes(
    answers: dict[str, Any], **queries: str
) -> tuple[dict[str, tuple[float | None, bool]], dict[str, str]]:
    """What a source says of the nodes n1 and n2, and what gave nothing; answers by query."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(answers.get(await query_of(request), vector()))

    cache = ObjectCache()
    for name in ("n1", "n2"):
        cache.apply("nodes", "ADDED", msgspec.convert({"metadata": {"name": name}}, NodeObject))
    async with stand_in(answer) as url, aiohttp.ClientSession() as session:
        source = PrometheusSource(session, PrometheusSourceSettings(url=url, **queries), cache)
        measured = await source.read()
    assert all(abs(node.wall_seconds - time.time()) < 60 for node in measured.nodes)
    return {node.node: (node.waiting_share, node.throttled) for node in measured.nodes}, source.refused


async def test_both_queries_together_say_how_it_is_on_nodes_that_are_there() -> None:
    answers = {
        "w": vector(({"node": "n1"}, 0.3), ({"node": "gone"}, 0.9), ({"pod": "n2"}, 0.9), ({"node": "n2"}, math.nan)),
        "t": vector(({"node": "n1"}, 0), ({"node": "n2"}, 2)),
    }
    read, refused = await read_nodes(answers, node_waiting_query="w", node_throttled_query="t")
    assert (read, refused) == ({"n1": (0.3, False), "n2": (None, True)}, {})
    assert (await read_nodes(answers, node_waiting_query="w"))[0] == {"n1": (0.3, False)}
    assert (await read_nodes(answers))[0] == {}


async def test_a_query_that_is_refused_says_so_and_takes_no_other_with_it() -> None:
    answers = {"w": {"status": "error", "error": "parse error"}, "t": vector(({"node": "n1"}, 1))}
    read, refused = await read_nodes(answers, node_waiting_query="w", node_throttled_query="t")
    assert read == {"n1": (None, True)}
    assert list(refused) == ["metricsSource.prometheus nodeWaitingQuery"]


class Source:
    """Says what the test wants of nodes."""

    def __init__(self) -> None:
        self.nodes: list[NodeReading] = []
        self.settling_seconds = 0.0
        self.refused: dict[str, str] = {}

    async def read(self) -> Measured:
        return Measured(nodes=self.nodes)


async def test_the_engine_is_told_of_nodes_that_are_fought_for_and_once_when_that_is_over() -> None:
    source, events, metrics = Source(), list[Event](), Metrics()
    feed = UsageFeed(
        source,
        MetricsSourceSettings(scrape=UrlSource(url="http://x"), stale_after_seconds=60.0),
        clock=ScaledClock(),
        pod_of=lambda _: None,
        emit=events.append,
        forecast_scores=ForecastScores(metrics, lambda _: 10.0, 300.0),
        metrics=metrics,
    )

    async def hears(share: float | None, *, throttled: bool = False, age: float = 0.0) -> list[Any]:
        events.clear()
        source.nodes = [NodeReading("n1", share, throttled, time.time() - age)]
        await feed.read_once()
        assert all(isinstance(event, NodeContended) and abs(event.at_seconds - time.time()) < 60 for event in events)
        return [(event.waiting_share, event.throttled) for event in events if isinstance(event, NodeContended)]

    assert await hears(0.0) == []
    assert await hears(0.3) == [(0.3, False)]
    assert await hears(0.3) == [(0.3, False)], "told anew, or it would be believed no longer"
    assert await hears(0.0) == [(0.0, False)]
    assert await hears(None) == []
    assert await hears(None, throttled=True) == [(None, True)]
    assert await hears(0.9, age=61.0) == []
    assert await hears(None) == [(None, False)]


@pytest.mark.parametrize("source", ["", "metricsSource: {prometheus: {url: 'http://p'}}\n"])
def test_a_share_that_nobody_measures_is_a_mistake(source: str) -> None:
    with pytest.raises(
        InputError, match=r"overload\.contendedShare: needs metricsSource\.prometheus\.nodeWaitingQuery"
    ):
        parse_settings(f"{HEAD}{source}overload: {{contendedShare: 0.2}}\n", "c.yaml")


def test_the_share_reaches_the_engine() -> None:
    asked = "metricsSource: {prometheus: {url: 'http://p', nodeWaitingQuery: w}}\noverload: {contendedShare: 0.2}\n"
    config = engine_config(parse_settings(f"{HEAD}policy: predictive\n{asked}", "c.yaml"))
    assert config.hierarchical is not None
    assert config.hierarchical.overload_contended_share == 0.2
