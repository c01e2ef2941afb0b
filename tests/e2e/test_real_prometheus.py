"""A real Prometheus between fake nodes and the operator, and a stand-in for one that misbehaves.

Needs the ``prometheus`` binary (Debian's package of that name). The server listens on a loopback port of the system's
choosing, keeps its data in the test's directory and is ended by the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from aiohttp import web

from cotide_core.classes import WorkloadClass
from cotide_core.events import Event, Pod, ServiceSampled
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_operator.assembly import Operator, Options
from cotide_operator.calibration import Calibration
from cotide_operator.clock import ScaledClock
from cotide_operator.feed import UsageFeed
from cotide_operator.metric_settings import PrometheusSourceSettings
from cotide_operator.metric_sources import Reading, SourceDown
from cotide_operator.mirror import CustomObject, Mirror
from cotide_operator.outlook import NodeOutlook
from cotide_operator.prometheus_source import PrometheusSource
from cotide_operator.readings import ServiceReading
from cotide_operator.settings import MetricsSourceSettings, parse_settings
from cotide_operator.telemetry import Telemetry
from cotide_sim.apiserver.testing import running_server
from cotide_sim.interference import GeneratedInterference
from cotide_sim.kubelets.fleet import FleetSettings, running_fleet
from cotide_sim.kubelets.node_objects import NodeShape

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = shutil.which("prometheus")
DEADLINE_SECONDS = 30.0
STALE_SECONDS = 2.0
WORKLOADS = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"
RPS = 'cotide_sim_service_requests_per_second{namespace="default",pod=~"web-.*"}'
LATENCY = 'max by (namespace, pod) (cotide_sim_service_latency_p95_milliseconds{namespace="default"})'

real = pytest.mark.skipif(PROMETHEUS is None, reason="needs the prometheus binary (Debian's package prometheus)")


async def until(what: str, check: Callable[[], Any]) -> None:
    """Wait on a condition with a deadline."""
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                found = check()
                if asyncio.iscoroutine(found):
                    found = await found
                if found:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"never came true: {what}")


class Prometheus:
    """A Prometheus server of our own; its targets are whatever ``targets`` was last given."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        rules = yaml.safe_load((ROOT / "deploy" / "monitoring" / "rules.yaml").read_text(encoding="utf-8"))["spec"]
        (directory / "rules.yaml").write_text(yaml.safe_dump(rules))
        self.targets()
        jobs = [
            {
                "job_name": "cotide",
                "honor_timestamps": True,
                "file_sd_configs": [{"files": [str(directory / "targets.json")]}],
            }
        ]
        pace = {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"}
        config = {"global": pace, "rule_files": [str(directory / "rules.yaml")], "scrape_configs": jobs}
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def targets(self, *ports: int) -> None:
        """Scrape these loopback ports from now on."""
        written = self.directory / "targets.new"
        written.write_text(json.dumps([{"targets": [f"127.0.0.1:{port}" for port in ports]}]))
        written.rename(self.directory / "targets.json")

    async def start(self) -> None:
        """Start at the port of the last time, at first at any."""
        assert PROMETHEUS is not None
        self._process = await asyncio.create_subprocess_exec(
            PROMETHEUS,
            f"--config.file={self.directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            stderr=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._follow(self._process))
        await until("Prometheus listens", lambda: self.port)
        await until("Prometheus is ready", self._ready)

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            found = re.search(rb'msg="Listening on" address=127\.0\.0\.1:(\d+)', line)
            if found:
                self.port = int(found[1])

    async def _ready(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/-/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def stop(self) -> None:
        """End it and wait for its end."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def get(self, path: str, **params: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}{path}", params=params) as answer:
            body = await answer.json()
            assert body["status"] == "success", body
            return body["data"]

    async def values(self, query: str) -> list[float]:
        return [float(one["value"][1]) for one in (await self.get("/api/v1/query", query=query))["result"]]


@pytest.fixture
async def prometheus(tmp_path: Path) -> AsyncIterator[Prometheus]:
    server = Prometheus(tmp_path)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


def workload(rates: str = "1200") -> dict[str, Any]:
    container = {"name": "web", "image": "x", "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}}}
    return {
        "apiVersion": "cotide.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 2,
            "qos": {"latencyP95Milliseconds": 50, "rpsQuery": RPS, "latencyQuery": LATENCY},
            "template": {
                "metadata": {"annotations": {"sim.cotide.dev/rates": rates}},
                "spec": {"containers": [container]},
            },
        },
    }


@contextlib.asynccontextmanager
async def running_operator(api_url: str, source_url: str, text: str = "") -> AsyncIterator[Operator]:
    text = text or (
        "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\nleaderElection: {enabled: false}\n"
        f"metricsSource: {{prometheus: {{url: '{source_url}'}}, intervalSeconds: 0.2,"
        f" staleAfterSeconds: {STALE_SECONDS}}}\n"
    )
    operator = Operator(parse_settings(text), Options(metrics_port=0, install_crds=True), Credentials(api_url))
    stop = asyncio.Event()
    task = asyncio.create_task(operator.run(stop))
    try:
        await until("the operator decides", lambda: not operator._missing() or task.done())
        yield operator
    finally:
        stop.set()
        await task


def changes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the feed said of its source: 'up' or 'down', a word a line."""
    said = [record.getMessage() for record in caplog.records if record.name == "cotide_operator.feed"]
    return ["down" if "is down" in line else "up" for line in said if "metrics source" in line]


@real
async def test_rates_and_latencies_of_fake_nodes_reach_the_workloads_status_through_prometheus(
    prometheus: Prometheus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="cotide_operator.feed")
    fleet_settings = FleetSettings(
        interference=GeneratedInterference(), count=2, shape=NodeShape(millicores=4000), metrics_port=0
    )
    async with (
        running_server() as api,
        KubeClient(Credentials(api.url)) as client,
        running_fleet(client, fleet_settings) as fleet,
        running_operator(api.url, prometheus.url) as operator,
    ):
        assert fleet.metrics_port is not None
        prometheus.targets(fleet.metrics_port, operator.health.port)
        await client.create(WORKLOADS, workload())

        async def status() -> dict[str, Any]:
            found: dict[str, Any] = (await client.get(f"{WORKLOADS}/web")).get("status", {})
            return found

        async def filled() -> bool:
            seen = await status()
            return seen.get("rps") == 2400.0 and seen.get("latencyP95Milliseconds", 0) > 0  # 2 pods x 1200

        await until("the status shows rate and latency", filled)
        pods = [f"default/{one['metadata']['name']}" for one in await client.list("/api/v1/namespaces/default/pods")]
        rates = [(found := operator.loop.scheduler.state.record(pod)) and found.pod.workload for pod in pods]
        assert rates == ["default/web", "default/web"]

        # The operator's own numbers are in Prometheus, and both targets answer.
        assert await prometheus.values("up") == [1.0, 1.0]
        await until(
            "bindings are scraped", lambda: _all(prometheus, 'cotide_schedule_attempts_total{result="scheduled"}')
        )
        assert await prometheus.values("cotide_metrics_source_up") == [1.0]

        # Our rules evaluate without a fault, and every panel's query is one that Prometheus takes.
        async def evaluated() -> bool:
            groups = (await prometheus.get("/api/v1/rules"))["groups"]
            return all(rule["health"] == "ok" for group in groups for rule in group["rules"])

        await until("all alert rules evaluate", evaluated)
        for query in dashboard_queries():
            await prometheus.get("/api/v1/query", query=query)
        assert changes(caplog) == ["up"]

        # Down: one line, nothing becomes zero, and what is too old leaves the status.
        await prometheus.stop()
        await until(
            "the feed sees it go",
            lambda: operator.telemetry.registry.get_sample_value("cotide_metrics_source_up") == 0,
        )

        async def emptied() -> bool:
            seen = await status()
            assert seen.get("rps", 2400.0) == 2400.0
            return "rps" not in seen and "latencyP95Milliseconds" not in seen

        await until("stale numbers leave the status", emptied)
        assert changes(caplog) == ["up", "down"]

        await prometheus.start()
        await until("the numbers are back", filled)
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


@real
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
        source = PrometheusSource(session, PrometheusSourceSettings(url=prometheus.url), mirror_with(rpsQuery=query))
        (old,) = await services(source)
        assert (old.pod, old.requests_per_second) == ("ns/a", 7.0)
        assert 25.0 < time.time() - old.wall_seconds < 45.0  # what is older than staleAfterSeconds the feed drops
        age["seconds"] = 0.0

        async def fresh() -> bool:
            (new,) = await services(source)
            return time.time() - new.wall_seconds < 5.0

        await until("a fresh sample is seen as one", fresh)


async def _some(prometheus: Prometheus, query: str) -> bool:
    return bool(await prometheus.values(query))


@real
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("rate(", "parse error"),
        ("vector(3)", "none of its series has a label pod"),
        ("scalar(vector(3))", "no instant vector"),
        ("up[1m]", "no instant vector"),
    ],
)
async def test_a_query_of_no_use_says_why_and_the_others_go_on(prometheus: Prometheus, query: str, words: str) -> None:
    latency = 'label_replace(vector(4), "pod", "a", "", "")'
    async with aiohttp.ClientSession() as session:
        source = PrometheusSource(
            session, PrometheusSourceSettings(url=prometheus.url), mirror_with(rpsQuery=query, latencyQuery=latency)
        )
        found = await services(source)
    assert [(one.pod, one.requests_per_second, one.latency_p95_milliseconds) for one in found] == [("ns/a", None, 4.0)]
    assert list(source.refused) == ["ns/web rpsQuery"]
    assert words in source.refused["ns/web rpsQuery"]


@real
@pytest.mark.parametrize("value", ["0/0", "1/0", "-1"])
async def test_a_number_that_is_no_rate_is_none_and_not_zero(prometheus: Prometheus, value: str) -> None:
    query = f'label_replace(vector({value}), "pod", "a", "", "")'
    async with aiohttp.ClientSession() as session:
        source = PrometheusSource(session, PrometheusSourceSettings(url=prometheus.url), mirror_with(rpsQuery=query))
        (found,) = await services(source)
    assert found.requests_per_second is None
    assert math.isclose(found.wall_seconds, time.time(), abs_tol=5.0)


async def services(source: PrometheusSource) -> list[Reading]:
    return (await source.read()).services


def mirror_with(**qos: str) -> Mirror:
    mirror = Mirror()
    body = {"metadata": {"name": "web", "namespace": "ns"}, "spec": {"qos": qos}}
    mirror.apply("workloads", "ADDED", msgspec.convert(body, CustomObject))
    return mirror


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
async def misbehaving(mirror: Mirror) -> AsyncIterator[tuple[Misbehaving, PrometheusSource]]:
    behaviour = Misbehaving()
    async with stand_in(behaviour.answer) as url:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.3)) as session:
            yield behaviour, PrometheusSource(session, PrometheusSourceSettings(url=url), mirror)
        behaviour.released.set()


@pytest.mark.parametrize(("mood", "words"), [("hangs", "does not answer in time"), ("fails", "answers 500")])
async def test_a_prometheus_that_hangs_or_fails_is_down(mood: str, words: str) -> None:
    async with misbehaving(mirror_with(rpsQuery="rate", latencyQuery="latency")) as (behaviour, source):
        assert [one.requests_per_second for one in await services(source)] == [1000.0]
        behaviour.mood = mood
        with pytest.raises(SourceDown, match=words):
            await source.read()


async def test_one_query_that_hangs_does_not_take_the_others_with_it() -> None:
    async with misbehaving(mirror_with(rpsQuery="rate", latencyQuery="latency")) as (behaviour, source):
        behaviour.mood = "rate hangs"
        (found,) = await services(source)
        assert (found.requests_per_second, found.latency_p95_milliseconds) == (None, 4.0)
        assert "does not answer in time" in source.refused["ns/web rpsQuery"]
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
    async with misbehaving(Mirror()) as (behaviour, source):
        assert await services(source) == []
        behaviour.mood = "fails"
        with pytest.raises(SourceDown):
            await source.read()


@pytest.mark.parametrize("mood", ["hangs", "fails"])
async def test_a_feed_whose_prometheus_goes_and_comes_tells_no_zero_and_two_lines(
    mood: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="cotide_operator.feed")
    pod = Pod("ns/a", "a", WorkloadClass.ONLINE, (), 0.0, node="n", workload="ns/web")
    told: list[Event] = []
    telemetry = Telemetry()
    async with misbehaving(mirror_with(rpsQuery="rate", latencyQuery="latency")) as (behaviour, source):
        feed = UsageFeed(
            source,
            MetricsSourceSettings(
                prometheus=PrometheusSourceSettings(url="http://x"), interval_seconds=0.5, stale_after_seconds=1.0
            ),
            clock=ScaledClock(),
            pod_of={"ns/a": pod}.get,
            tell=told.append,
            calibration=Calibration(telemetry, lambda key: 10.0, 300.0),
            telemetry=telemetry,
        )
        assert math.isnan(telemetry.registry.get_sample_value("cotide_metrics_source_up") or 0.0)
        await feed.read_once()
        assert feed.get("ns/web") == ServiceReading(1000.0, 4.0)
        behaviour.mood = mood

        async def silent() -> bool:
            await feed.read_once()
            return feed.get("ns/web") is None

        await until("the reading is too old", silent)
        assert telemetry.registry.get_sample_value("cotide_metrics_source_up") == 0
        behaviour.mood = "well"
        behaviour.released.set()
        await feed.read_once()
        assert feed.get("ns/web") == ServiceReading(1000.0, 4.0)
    assert told == [ServiceSampled("ns/a", 1000.0, 4.0)]  # never a zero, and the same again is no news
    assert changes(caplog) == ["up", "down", "up"]


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


@real
async def test_predicted_slack_from_a_real_prometheus_through_a_restart_and_its_death(
    prometheus: Prometheus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What fake nodes use becomes forecasts; a restart knows the past; without Prometheus requests count, not zero."""
    caplog.set_level(logging.INFO)
    fleet_settings = FleetSettings(
        interference=GeneratedInterference(), count=1, shape=NodeShape(millicores=4000), metrics_port=0
    )
    body = workload()
    template = body["spec"]["template"]
    template["metadata"]["annotations"] = {"sim.cotide.dev/used-millicores": "400"}
    template["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1500m", "memory": "1Gi"}
    async with (
        running_server() as api,
        KubeClient(Credentials(api.url)) as client,
        running_fleet(client, fleet_settings) as fleet,
    ):
        assert fleet.metrics_port is not None
        prometheus.targets(fleet.metrics_port)
        text = slack_text(prometheus.url, tmp_path / "ledger")
        async with running_operator(api.url, prometheus.url, text) as operator:
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

            await until("usage reaches the engine and a forecast stands on it", forecast_from_usage)
        lines = (tmp_path / "ledger" / "ledger.jsonl").read_text()
        assert '"kind":"NodeUsageSampled"' in lines
        assert '"kind":"ForecastScored"' in lines
        caplog.clear()

        async with running_operator(api.url, prometheus.url, slack_text(prometheus.url)) as operator:
            await until("the past is rebuilt", lambda: "were rebuilt from Prometheus" in caplog.text)
            await until("a forecast stands on it at once", lambda: (found := outlook()) is not None and found.trusted)
            assert operator.loop.scheduler.state.host_load.in_force(time.time()).any()

            await prometheus.stop()
            offers = []

            def fallen_back() -> bool:
                found = outlook()
                assert found is not None
                offers.append(found.offered_millicores)
                return not found.trusted

            await until("the stale feed ends the forecasts", fallen_back)
            found = outlook()
            assert found is not None
            assert (found.reason, found.offered_millicores) == ("StaleFeed", 1000)  # 4000 - 2 x 1500
            assert min(offers) == 1000
