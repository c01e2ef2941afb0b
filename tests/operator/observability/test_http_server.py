"""What the operator's own port answers to anybody."""

from __future__ import annotations

import aiohttp
import pytest

from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.observability.http_server import HealthServer
from cotide_operator.observability.metrics import Metrics


@pytest.mark.parametrize(
    ("query", "series"),
    [
        ("?name[]=cotide_pending_pods", {"cotide_pending_pods"}),
        (
            "?name[]=cotide_pending_pods&name[]=cotide_binding_duration_seconds_count",
            {"cotide_pending_pods", "cotide_binding_duration_seconds_count"},
        ),
        ("?name[]=nobody_has_this", set()),
    ],
)
async def test_metrics_are_those_that_are_asked_for_by_name(query: str, series: set[str]) -> None:
    telemetry = Metrics()
    telemetry.pending.labels("active").set(3)
    telemetry.binding_duration.observe(0.01)
    server = HealthServer(telemetry, DecisionStore(), list)
    await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{server.port}/metrics{query}") as answer:
                asked = await answer.text()
            async with session.get(f"http://127.0.0.1:{server.port}/metrics") as answer:
                everything = await answer.text()
    finally:
        await server.stop()
    lines = [line for line in asked.splitlines() if not line.startswith("#")]
    assert {line.partition("{")[0].partition(" ")[0] for line in lines} == series
    assert set(lines) <= set(everything.splitlines())
