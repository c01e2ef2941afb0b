"""A real Prometheus between fake nodes and the operator: what they use and serve, in statuses and in forecasts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from manifests import service_manifest
from prometheus_server import ROOT, Prometheus, needs_prometheus, running_prometheus
from servers import Server

from cotide_kube.client import KubeClient
from cotide_operator.assembly import Operator, Options
from cotide_operator.config.settings import parse_settings
from cotide_operator.reclaimed.node_outlook import NodeOutlook
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import FleetSettings, running_fleet
from cotide_sim.kubelets.node_objects import NodeShape

pytestmark = pytest.mark.fake_nodes("rates, latencies and usage that the nodes make up, at a speed of their own")
STALE_SECONDS = 2.0
WORKLOADS = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"
RPS = 'cotide_sim_service_requests_per_second{namespace="default",pod=~"web-.*"}'
LATENCY = 'max by (namespace, pod) (cotide_sim_service_latency_p95_milliseconds{namespace="default"})'


@pytest.fixture
async def prometheus(tmp_path: Path) -> AsyncIterator[Prometheus]:
    async with running_prometheus(tmp_path) as server:
        yield server


@contextlib.asynccontextmanager
async def running_operator(server: Server, source_url: str, text: str = "") -> AsyncIterator[Operator]:
    text = text or (
        "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\nleaderElection: {enabled: false}\n"
        f"metricsSource: {{prometheus: {{url: '{source_url}', workloadQueries: {{free: {{default: enforced}}}}}},"
        f" intervalSeconds: 0.2,"
        f" staleAfterSeconds: {STALE_SECONDS}}}\n"
    )
    operator = Operator(parse_settings(text), Options(metrics_port=0, install_crds=True), server.credentials)
    stop = asyncio.Event()
    task = asyncio.create_task(operator.run(stop))
    try:
        await server.until("the operator decides", lambda: not operator._missing() or task.done())
        yield operator
    finally:
        stop.set()
        await task


def changes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the feed said of its source: 'up' or 'down', a word a line.

    What it said of single queries is left out: a source that goes between two of them leaves those without an answer.
    """
    said = [record.getMessage() for record in caplog.records if record.name == "cotide_operator.usage.usage_feed"]
    words = {"the metrics source answers": "up", "the metrics source is down": "down"}
    return [words[start] for line in said for start in words if line.startswith(start)]


@needs_prometheus
async def test_rates_and_latencies_of_fake_nodes_reach_the_workloads_status_through_prometheus(
    server: Server, prometheus: Prometheus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="cotide_operator.usage.usage_feed")
    fleet_settings = FleetSettings(
        interference=GeneratedInterference(), count=2, shape=NodeShape(millicores=4000), metrics_port=0
    )
    async with (
        KubeClient(server.credentials) as client,
        running_fleet(client, fleet_settings) as fleet,
        running_operator(server, prometheus.url) as operator,
    ):
        assert fleet.metrics_port is not None
        await server.until_open(client)
        prometheus.targets(fleet.metrics_port, operator.health.port)
        await client.create(WORKLOADS, service_manifest(rpsQuery=RPS, latencyQuery=LATENCY))

        async def status() -> dict[str, Any]:
            found: dict[str, Any] = (await client.get(f"{WORKLOADS}/web")).get("status", {})
            return found

        async def filled() -> bool:
            seen = await status()
            return seen.get("rps") == 2400.0 and seen.get("latencyP95Milliseconds", 0) > 0  # 2 pods x 1200

        await server.until("the status shows rate and latency", filled)
        pods = [f"default/{one['metadata']['name']}" for one in await client.list("/api/v1/namespaces/default/pods")]
        rates = [(found := operator.loop.scheduler.state.record(pod)) and found.pod.workload for pod in pods]
        assert rates == ["default/web", "default/web"]

        # The operator's own numbers are in Prometheus, and both targets answer.
        assert await prometheus.values("up") == [1.0, 1.0]
        await server.until(
            "bindings are scraped", lambda: _all(prometheus, 'cotide_schedule_attempts_total{result="scheduled"}')
        )
        assert await prometheus.values("cotide_metrics_source_up") == [1.0]

        # Our rules evaluate without a fault, and every panel's query is one that Prometheus takes.
        async def evaluated() -> bool:
            groups = (await prometheus.get("/api/v1/rules"))["groups"]
            return all(rule["health"] == "ok" for group in groups for rule in group["rules"])

        await server.until("all alert rules evaluate", evaluated)
        for query in dashboard_queries():
            await prometheus.get("/api/v1/query", query=query)
        assert changes(caplog) == ["up"]

        # Down: one line, nothing becomes zero, and what is too old leaves the status.
        await prometheus.stop()
        await server.until(
            "the feed sees it go",
            lambda: operator.metrics.registry.get_sample_value("cotide_metrics_source_up") == 0,
        )

        async def emptied() -> bool:
            seen = await status()
            assert seen.get("rps", 2400.0) == 2400.0
            return "rps" not in seen and "latencyP95Milliseconds" not in seen

        await server.until("stale numbers leave the status", emptied)
        assert changes(caplog) == ["up", "down"]

        await prometheus.start()
        await server.until("the numbers are back", filled)
        assert changes(caplog) == ["up", "down", "up"]


async def _all(prometheus: Prometheus, query: str) -> bool:
    values = await prometheus.values(query)
    return bool(values) and sum(values) >= 2


def dashboard_queries() -> list[str]:
    """Every query of the dashboard, with Grafana's variables filled in as Grafana would."""
    dashboard = json.loads((ROOT / "deploy" / "monitoring" / "cotide.json").read_text(encoding="utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert found
    return [query.replace("$__rate_interval", "1m").replace("$namespace", ".*") for query in found]


CPU_QUERY = "1000 * sum by (namespace, pod) (rate(container_cpu_usage_seconds_total[2s]))"
MEMORY_QUERY = "cotide_sim_pod_memory_usage_bytes"


def slack_text(source_url: str, ledger: Path | None = None) -> str:
    kept = "" if ledger is None else f"ledger: {{directory: '{ledger}'}}\n"
    return (
        "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\nleaderElection: {enabled: false}\n"
        f"policy: hierarchical\nslotSeconds: 1\n{kept}"
        f"metricsSource: {{prometheus: {{url: '{source_url}', podCpuQuery: '{CPU_QUERY}',"
        f" podMemoryQuery: '{MEMORY_QUERY}'}}, intervalSeconds: 0.2, staleAfterSeconds: {STALE_SECONDS}}}\n"
        "hostLoad: {historySeconds: 30}\n"
    )


@needs_prometheus
async def test_predicted_slack_from_a_real_prometheus_through_a_restart_and_its_death(
    server: Server, prometheus: Prometheus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What fake nodes use becomes forecasts; a restart knows the past; without Prometheus requests count, not zero."""
    caplog.set_level(logging.INFO)
    fleet_settings = FleetSettings(
        interference=GeneratedInterference(), count=1, shape=NodeShape(millicores=4000), metrics_port=0
    )
    body = service_manifest(rpsQuery=RPS, latencyQuery=LATENCY)
    template = body["spec"]["template"]
    template["metadata"]["annotations"] = {"sim.cotide.dev/used-millicores": "400"}
    template["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1500m", "memory": "1Gi"}
    async with (
        KubeClient(server.credentials) as client,
        running_fleet(client, fleet_settings) as fleet,
    ):
        assert fleet.metrics_port is not None
        await server.until_open(client)
        prometheus.targets(fleet.metrics_port)
        text = slack_text(prometheus.url, tmp_path / "ledger")
        async with running_operator(server, prometheus.url, text) as operator:
            await client.create(WORKLOADS, body)

            def outlook() -> NodeOutlook | None:
                return operator.outlooks.get("fake-0")

            # Two pods that ask for 1500m each and use 400m: requests leave 1000m, the forecast far more.
            def forecast_from_usage() -> bool:
                found = outlook()
                used, fresh = operator.loop.scheduler.state.host_load.used(time.time(), STALE_SECONDS)
                # The page changes every 250 ms and is scraped every 200: a rate over 2 s is an eighth off at times.
                known = bool(fresh.any()) and abs(float(used[0, 0]) - 800.0) < 200.0
                return known and found is not None and found.trusted and found.offered_millicores > 2000

            await server.until("usage reaches the engine and a forecast stands on it", forecast_from_usage)
        lines = (tmp_path / "ledger" / "ledger.jsonl").read_text()
        assert '"kind":"NodeUsageSampled"' in lines
        assert '"kind":"ForecastScored"' in lines
        caplog.clear()

        async with running_operator(server, prometheus.url, slack_text(prometheus.url)) as operator:
            await server.until("the past is rebuilt", lambda: "were rebuilt from Prometheus" in caplog.text)
            await server.until(
                "a forecast stands on it at once", lambda: (found := outlook()) is not None and found.trusted
            )
            assert operator.loop.scheduler.state.host_load.in_force(time.time()).any()

            await prometheus.stop()
            offers = []

            def fallen_back() -> bool:
                found = outlook()
                assert found is not None
                offers.append(found.offered_millicores)
                return not found.trusted

            await server.until("the stale feed ends the forecasts", fallen_back)
            found = outlook()
            assert found is not None
            # 2 x 1500 are asked for; a rate over 2 s that came out higher on a busy machine stays the lower bound.
            assert found.reason == "StaleFeed"
            assert 3000 <= found.online_millicores <= 4000
            assert found.offered_millicores == int(4000 - found.online_millicores)
            # A rate that was once too high makes a forecast offer less than requests leave; its death closes no node.
            assert min(offers) > 0
