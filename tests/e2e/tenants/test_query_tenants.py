"""Two namespaces at one Prometheus: nothing that a's Workload says changes b's rate, latency or status."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from manifests import service_manifest
from prometheus_server import needs_prometheus, running_prometheus
from prometheus_stand_in import query_of, stand_in, vector
from servers import Server

from cotide_core.errors import InputError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.assembly import Operator, Options
from cotide_operator.config.promql import LabelMatcher, PromQuery, selectors
from cotide_operator.config.settings import parse_settings
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import FleetSettings, running_fleet
from cotide_sim.kubelets.node_objects import NodeShape

RATE, LATENCY = "cotide_sim_service_requests_per_second", "cotide_sim_service_latency_p95_milliseconds"
LIE = f'label_replace(label_replace(vector(%s), "namespace", "b", "", ""), "pod", "web-0", "", "") or {RATE} * %s'
HOSTILE: dict[str, dict[str, str]] = {
    "zero rate and endless latency, in b's name": {"rpsQuery": LIE % ("0", "0"), "latencyQuery": LIE % ("1e9", "1e9")},
    "b's own series, without an aggregation": {"rpsQuery": f'{RATE}{{namespace="b"}} * 0'},
    "no label at all": {"rpsQuery": "vector(0)", "latencyQuery": "vector(1e9)"},
    "what is no number": {"rpsQuery": LIE % ("NaN", "Inf"), "latencyQuery": LIE % ("-1", "1e308")},
    "no PromQL": {"rpsQuery": "sum by (", "latencyQuery": "}" * 4000},
    "too deep": {"rpsQuery": "(" * 2000 + "x" + ")" * 2000},
}


@contextlib.asynccontextmanager
async def running_operator(server: Server, url: str, freedom: str) -> AsyncIterator[Operator]:
    text = (
        "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\nleaderElection: {enabled: false}\n"
        f"metricsSource: {{prometheus: {{url: '{url}', workloadQueries: {{rps: {RATE}, latency: {LATENCY},"
        f" secondsPerNamespace: 1, free: {{{freedom}}}}}}}, intervalSeconds: 0.1, staleAfterSeconds: 20}}\n"
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


def path(namespace: str) -> str:
    return f"/apis/cotide.dev/v1alpha1/namespaces/{namespace}/workloads"


async def status_of(client: KubeClient, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(f"{path(namespace)}/web")).get("status", {})
    return found


def condition(status: dict[str, Any]) -> dict[str, Any]:
    return next((one for one in status.get("conditions", ()) if one["type"] == "Misconfigured"), {})


def taken(operator: Operator) -> float:
    """Return how many samples of services were taken so far."""
    return operator.metrics.registry.get_sample_value("cotide_service_samples_total", {"outcome": "taken"}) or 0.0


async def hold_b_while_a_lies(server: Server, client: KubeClient, operator: Operator, *, latency_holds: bool) -> None:
    """Have a say everything hostile in turn; b's numbers stay what they are, in its status and for the engine."""
    await server.until_open(client)
    for namespace in ("a", "b"):
        try:
            await client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        except ApiError as error:  # there already, of an earlier test on the same server
            if error.status != 409:
                raise
    await server.until_accounts(client, "a", "b")
    await client.create(path("b"), service_manifest(namespace="b"))
    await client.create(path("a"), service_manifest(namespace="a"))

    async def measured(namespace: str) -> bool:
        status = await status_of(client, namespace)
        return status.get("rps") == 2400.0 and status.get("ready") == "2/2"  # 2 pods x 1200, both started

    await server.until("b is measured", lambda: measured("b"))
    before = await status_of(client, "b")
    for what, qos in HOSTILE.items():
        await client.patch(f"{path('a')}/web", {"spec": {"qos": {"rpsQuery": None, "latencyQuery": None, **qos}}})
        generation = (await client.get(f"{path('a')}/web"))["metadata"]["generation"]

        async def is_said(generation: int = generation) -> bool:
            found = await status_of(client, "a")
            return found.get("observedGeneration") == generation

        await server.until(f"a's status is of: {what}", is_said)
        samples = taken(operator)
        await server.until(f"b was read again beside: {what}", lambda samples=samples: taken(operator) > samples + 8)
        now = await status_of(client, "b")
        keys = ["rps", "ready", "nodes", "violations", *(["latencyP95Milliseconds"] if latency_holds else [])]
        assert {key: now.get(key) for key in keys} == {key: before.get(key) for key in keys}, what
        assert not condition(now), what
        assert (
            operator.metrics.registry.get_sample_value("cotide_qos_violations_total", {"workload": "b/web"}) is None
        ), what


class Fabricating:
    """Gives the templates of b's and a's pods their true answer, and to anything else what a would like it to be."""

    async def answer(self, request: web.Request) -> web.Response:
        query = await query_of(request)
        if query == "vector(1)":
            return web.json_response(vector(({}, 1)))
        forged = [({"namespace": "b", "pod": f"web-{index}"}, value) for index in (0, 1) for value in (0, 1e9)]
        text = query.removeprefix("timestamp(").removesuffix(")") if query.startswith("timestamp(") else query
        try:
            matchers = next(iter(selectors(text)), [])
        except InputError:  # no PromQL, or too deep
            matchers = []
        found = {label: value for label, operator, value in matchers}
        if "pod" not in found:
            return web.json_response(vector(*forged))
        value = 1200.0 if found["__name__"] == RATE else 4.0
        if text != query:
            return web.json_response(vector())
        return web.json_response(
            vector(*(({"namespace": found["namespace"], "pod": pod}, value) for pod in found["pod"].split("|")))
        )


@contextlib.asynccontextmanager
async def fleet_and_client(server: Server) -> AsyncIterator[tuple[KubeClient, int]]:
    settings = FleetSettings(
        interference=GeneratedInterference(), count=4, shape=NodeShape(millicores=4000), metrics_port=0
    )
    async with KubeClient(server.credentials) as client, running_fleet(client, settings) as fleet:
        assert fleet.metrics_port is not None
        yield client, fleet.metrics_port


@pytest.mark.fake_nodes("rates and latencies that the nodes make up")
@pytest.mark.parametrize("freedom", ["", "a: enforced", "a: unrestricted"])
async def test_beside_a_prometheus_that_answers_as_a_likes_b_keeps_its_readings(server: Server, freedom: str) -> None:
    async with (
        stand_in(Fabricating().answer) as url,
        fleet_and_client(server) as (client, _),
        running_operator(server, url, freedom) as operator,
    ):
        await hold_b_while_a_lies(server, client, operator, latency_holds=True)
        found = condition(await status_of(client, "a"))
        if freedom != "a: unrestricted":
            assert (found["status"], found["reason"]) == ("True", "QueryRefused")
        await client.delete(f"{path('a')}/web")


@pytest.mark.fake_nodes("rates and latencies that the nodes make up")
@needs_prometheus
@pytest.mark.parametrize("freedom", ["a: enforced", "a: unrestricted"])
async def test_on_a_real_prometheus_b_keeps_its_readings(server: Server, freedom: str, tmp_path: Path) -> None:
    async with (
        running_prometheus(tmp_path) as prometheus,
        fleet_and_client(server) as (client, port),
        running_operator(server, prometheus.url, freedom) as operator,
    ):
        prometheus.targets(port)
        await hold_b_while_a_lies(server, client, operator, latency_holds=False)  # the sim's latency moves by itself
        if freedom == "a: unrestricted":
            return
        # What a asks in b's name with a matcher that is no equality gives a nothing, and tells it nothing.
        await client.patch(
            f"{path('a')}/web",
            {"spec": {"qos": {"rpsQuery": f'sum by (pod) ({RATE}{{namespace=~"b|"}}) or vector(5)'}}},
        )

        async def unusable() -> bool:
            found = await status_of(client, "a")
            assert found.get("rps") in (None, 2400.0)
            return condition(found).get("reason") == "AnswerUnusable"

        await server.until("a's query gives nothing", unusable)


@needs_prometheus
async def test_prometheus_understands_what_was_limited_as_we_do(tmp_path: Path) -> None:
    """Its own parser, printing what it read, shows the matcher in every selector."""
    texts = [
        f"sum by (pod) (rate({RATE}[1m])) / on (pod) group_left count by (pod) ({LATENCY} > bool 3)",
        r"""x{a="\\\"} or y{",b=~'.*\\d"\'',c!~`"|\.`} or on () -y ^ 2 unless z{a="\n\t"}""",
        'label_replace(max_over_time(rate(x[1m])[10m:30s]), "namespace", "b", "pod", "(.*)") # } or y',
        'count_values("namespace", topk(3, sum)) and absent({__name__=~".+"})',
    ]
    async with running_prometheus(tmp_path) as prometheus:
        for text in texts:
            limited = PromQuery.parse(text).enforced((LabelMatcher("namespace", "=", "shop"),))
            printed = await prometheus.get("/api/v1/format_query", query=limited)
            found = selectors(printed)
            assert len(found) == len(selectors(text))
            assert all(("namespace", "=", "shop") in matchers for matchers in found)
            await prometheus.get("/api/v1/query", query=limited)
