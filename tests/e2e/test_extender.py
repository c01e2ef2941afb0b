"""kube-scheduler's questions, asked of a whole operator: answers, assumptions, bindings, notes, ledger, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from control_plane import free_port
from identities import Authority
from manifests import our_pod_manifest
from operator_world import ALONE, PODS, World

from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_kube.answers import ApiError
from cotide_lab.commands.ledger_replay import replay
from cotide_operator.assembly import Operator
from cotide_operator.webhooks.extender.extender import BINDINGS_AT_ONCE

ASSISTED = "cotide-assisted"


class KubeScheduler:
    """Asks as kube-scheduler does."""

    def __init__(self, world: World, session: aiohttp.ClientSession) -> None:
        self._world, self._session = world, session

    async def ask(self, verb: str, body: Any) -> Any:
        async with self._session.post(f"/{verb}", data=json.dumps(body)) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def filter(self, name: str, nodes: list[str]) -> Any:
        pod = await self._world.client.get(f"{PODS}/{name}")
        return await self.ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes})

    async def bind(self, name: str, node: str, namespace: str = "default") -> str:
        pod = await self._world.client.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        body = {"PodName": name, "PodNamespace": namespace, "PodUID": pod["metadata"]["uid"], "Node": node}
        found: str = (await self.ask("bind", body))["Error"]
        return found


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """Write what the server needs into a folder; return the authority, and a client's certificate and key."""
    authority = Authority(folder)
    certificate, key = authority.server("localhost")
    (folder / "tls.crt").write_bytes(certificate.read_bytes())
    (folder / "tls.key").write_bytes(key.read_bytes())
    return authority.path, *authority.client("kube-scheduler")


async def batch(world: World, count: int, cpu: str = "1", prefix: str = "p", scheduler: str = ASSISTED) -> None:
    for index in range(count):
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        metadata = {"name": f"{prefix}{index}", "labels": {"cotide.dev/class": "batch"}}
        spec = {"schedulerName": scheduler, "containers": [container]}
        await world.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


@asynccontextmanager
async def asking(
    world: World, folder: Path, more: str = "", crash: bool = False
) -> AsyncIterator[tuple[Operator, KubeScheduler]]:
    authority, certificate, key = certificates(folder)
    port = free_port()
    text = (
        f"extender: {{enabled: true, port: {port}, certificateDirectory: {folder}, binds: true, "
        f"clientAuthority: {authority}}}\n{more}"
    )
    trusting = ssl.create_default_context(cafile=str(authority))
    trusting.load_cert_chain(certificate, key)
    connector = aiohttp.TCPConnector(ssl=trusting)
    async with (
        world.operator(ALONE + text, crash=crash) as operator,
        aiohttp.ClientSession(f"https://localhost:{port}", connector=connector) as session,
    ):
        yield operator, KubeScheduler(world, session)


async def test_a_burst_is_answered_without_overfilling_a_node_and_bound_with_its_reason(
    world: World,
    tmp_path: Path,
) -> None:
    ledger = tmp_path / "ledger"
    async with asking(world, tmp_path, f"ledger: {{directory: {ledger}}}\n") as (operator, scheduler):
        await world.nodes(2, cpu="4")
        await batch(world, 10)
        await world.until("the operator saw the pods", lambda: len(operator.event_source.pods) == 10)
        answers = [await scheduler.filter(f"p{index}", ["n0", "n1"]) for index in range(10)]
        nodes = [answer["NodeNames"] for answer in answers]
        assert [len(node) for node in nodes] == [1] * 8 + [0] * 2  # 4 + 4 of one cpu each
        assert answers[-1]["FailedNodes"] == {"n0": "Insufficient cpu", "n1": "Insufficient cpu"}
        bound = await asyncio.gather(*(scheduler.bind(f"p{index}", node[0]) for index, node in enumerate(nodes[:8])))
        assert bound == [""] * 8
        placed = await world.placed()
        assert placed == {f"p{index}": node[0] for index, node in enumerate(nodes[:8])}
        pod = await world.client.get(f"{PODS}/p0")
        note = json.loads(pod["metadata"]["annotations"]["cotide.dev/decision"])
        assert "qpsm: no online service is put at risk there" in json.dumps(note)
        refused = {}

        async def noted() -> bool:
            refused.update(await world.client.get(f"{PODS}/p9"))
            return "Insufficient cpu" in refused["metadata"].get("annotations", {}).get("cotide.dev/decision", "")

        await world.until("the refusal is written on the pod", noted)
        await world.until("all are confirmed", lambda: operator.extender.follower.advisor.assumed == 0)  # type: ignore[union-attr]  # it is there
        sample = operator.metrics.registry.get_sample_value
        assert sample("cotide_extender_requests_total", {"verb": "filter", "outcome": "chosen"}) == 8
        assert sample("cotide_extender_requests_total", {"verb": "bind", "outcome": "bound"}) == 8
    [file] = ledger.glob("*.jsonl")
    assert sum(line.count(b'"PodAssumed"') for line in file.open("rb")) >= 8
    assert replay(file.open("rb"), HeuristicCatalogue()).difference is None


async def test_bindings_that_hang_in_one_namespace_delay_no_binding_of_another(world: World, tmp_path: Path) -> None:
    other = "team-other"
    async with asking(world, tmp_path) as (operator, scheduler):
        await world.nodes(1, cpu="64")
        with contextlib.suppress(ApiError):  # there already, of an earlier test
            await world.client.create("/api/v1/namespaces", {"metadata": {"name": other}})
        await world.server.until_accounts(world.client, other)
        await batch(world, 2 * BINDINGS_AT_ONCE, "10m")
        one = our_pod_manifest("one", "10m", spec={"schedulerName": ASSISTED})
        await world.client.create(f"/api/v1/namespaces/{other}/pods", one)
        await world.until("the operator saw them", lambda: len(operator.event_source.pods) == 2 * BINDINGS_AT_ONCE + 1)
        hangs = world.server.strike(delay_seconds=3.0, method="POST", path="/default/pods/.*/binding$", count=-1)
        crowd = [asyncio.ensure_future(scheduler.bind(f"p{number}", "n0")) for number in range(2 * BINDINGS_AT_ONCE)]
        await world.until("bindings hang", lambda: hangs.met >= BINDINGS_AT_ONCE)
        begin = time.monotonic()
        assert await scheduler.bind("one", "n0", other) == ""
        assert time.monotonic() - begin < 2.0
        assert not any(one.done() for one in crowd)
        await asyncio.gather(*crowd)


async def test_pods_of_either_path_see_each_other(world: World, tmp_path: Path) -> None:
    async with asking(world, tmp_path) as (operator, scheduler):
        await world.nodes(1, cpu="4")
        await batch(world, 1, "3", "assisted")
        await world.until("the operator saw it", lambda: len(operator.event_source.pods) == 1)
        assert (await scheduler.filter("assisted0", ["n0"]))["NodeNames"] == ["n0"]
        await world.pods(1, cpu="2", prefix="own")
        decisions = operator.decisions
        waits = "0/1 nodes are available: 1 Insufficient cpu"
        await world.until(
            "our own pod finds no room",
            lambda: (one := decisions.get("default/own0")) is not None and one.message == waits,
        )
        await world.pods(1, cpu="1", prefix="small")
        await world.until_placed(1)
        await batch(world, 1, "1", "late")
        await world.until("the operator saw it", lambda: "default/late0" in operator.event_source.pods)
        assert (await scheduler.filter("late0", ["n0"]))["FailedNodes"] == {"n0": "Insufficient cpu"}


async def test_pods_of_other_profiles_keep_their_nodes(world: World, tmp_path: Path) -> None:
    async with asking(world, tmp_path) as (_, scheduler):
        await batch(world, 1, scheduler="default-scheduler")
        assert await scheduler.filter("p0", ["n0", "n7"]) == {"NodeNames": ["n0", "n7"]}


async def test_who_shows_no_certificate_is_not_answered(world: World, tmp_path: Path) -> None:
    async with asking(world, tmp_path) as (operator, _):
        assert operator.extender is not None
        trusting = ssl.create_default_context(cafile=str(Authority(tmp_path).path))
        url = f"https://localhost:{operator.extender.server.port}/filter"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session:
            with pytest.raises(aiohttp.ClientError):
                await session.post(url, data=b"{}")


async def test_a_pod_is_never_bound_twice_nor_elsewhere_after_it_was(world: World, tmp_path: Path) -> None:
    async with asking(world, tmp_path) as (operator, scheduler):
        await world.nodes(2)
        await batch(world, 1)
        await world.until("the operator saw it", lambda: len(operator.event_source.pods) == 1)
        assert await scheduler.bind("p0", "n0") == ""
        assert "409" in await scheduler.bind("p0", "n1")
        assert await world.placed() == {"p0": "n0"}
