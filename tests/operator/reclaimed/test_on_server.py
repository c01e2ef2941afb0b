"""Reclaimed capacity on nodes of the embedded API server, as its users see it."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

from cotide_core.state.reclaimed import Holdings
from cotide_kube.backoff import Backoff
from cotide_kube.client import KubeClient, PatchKind
from cotide_kube.credentials import Credentials
from cotide_kube.objects import NodeObject
from cotide_kube.reflector import Reflector
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.config.host_load_settings import ReclaimedSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reclaimed import publisher as reclaimed_publisher
from cotide_operator.reclaimed.node_outlook import NodeOutlook, Outlooks
from cotide_operator.reclaimed.publisher import Publication, ReclaimedPublisher
from cotide_operator.reporting.event_recorder import EventRecorder
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher
from cotide_sim.apiserver.http.faults import Fault
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.apiserver.testing import running_server

NODE = "/api/v1/nodes/n1"
DEADLINE_SECONDS = 15.0
GUIDE = ROOT / "docs" / "features" / "reclaimed-capacity.md"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fine"}
TRUSTED = NodeOutlook(
    node="n1",
    until_seconds=1e12,
    online_millicores=3600.0,
    online_memory_bytes=float(2**30),
    offered_millicores=4000,
    offered_memory_bytes=4 * 2**30,
    trusted=True,
    reason="Calibrated",
    message="p99 covered 98.9 % of 200 slots",
    coverage_p99=0.989,
)


class World:
    def __init__(self, server: ApiServer, client: KubeClient, home: Path) -> None:
        self.server, self.client, self.home = server, client, home
        self.outlooks, self.metrics = Outlooks(), Metrics()

    @asynccontextmanager
    async def publisher(self, *, publish: bool = True) -> AsyncIterator[None]:
        """Run a publisher that remembers nothing, with all that it needs around it."""
        cache, dispatcher = ObjectCache(), ApiDispatcher(lambda: False)
        self.outlooks = Outlooks()
        publisher = ReclaimedPublisher(
            self.client,
            cache,
            self.outlooks,
            ScaledClock(),
            holdings_of=lambda name: Holdings((8000, 8 * 2**30), (0, 0), (0, 0), (0, 0)),
            how=Publication(
                ReclaimedSettings(minimum_interval_seconds=0.0, patches_per_second=1000.0), publish, slot_seconds=300.0
            ),
            recorder=EventRecorder(self.client, dispatcher, self.metrics),
            metrics=self.metrics,
        )

        async def reflect() -> None:
            async for change in Reflector(self.client, "/api/v1/nodes", NodeObject):
                if change.object is not None:
                    cache.apply("nodes", change.kind, change.object)

        tasks = [asyncio.create_task(work) for work in (reflect(), dispatcher.run(), publisher.run())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def until(self, holds: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Wait until something is true of the node."""
        node: dict[str, Any] = {}
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not holds(node := await self.client.get(NODE)):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"never came true; the node: {node}")
        return node

    async def shell(self, command: str) -> str:
        """Run a line of a guide with kubectl for this server."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "KUBECONFIG": str(self.home / "config")}
        (self.home / "config").write_text(self.server.kubeconfig())
        process = await asyncio.create_subprocess_shell(
            command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
        return out.decode()


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(reclaimed_publisher, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(reclaimed_publisher, "AT_ONCE_SECONDS", 0.0)
    monkeypatch.setattr(reclaimed_publisher, "BACKOFF", Backoff(initial_seconds=0.05))
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_server())
        client = await stack.enter_async_context(KubeClient(Credentials(server.url)))
        amounts = {"cpu": "8", "memory": "8Gi", "pods": "110"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [READY]}
        await client.create("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})
        yield World(server, client, tmp_path)


def offers(node: dict[str, Any]) -> tuple[str | None, str | None]:
    allocatable = node["status"]["allocatable"]
    assert allocatable == node["status"]["capacity"]
    return allocatable.get("cotide.dev/reclaimed-cpu"), allocatable.get("cotide.dev/reclaimed-memory")


async def test_it_comes_stays_over_a_restart_and_goes_and_the_kubelets_part_is_untouched(world: World) -> None:
    async with world.publisher():
        world.outlooks.put([TRUSTED])
        node = await world.until(lambda node: offers(node) == ("4000", str(4 * 2**30)))
        assert [one["type"] for one in node["status"]["conditions"]] == ["cotide.dev/ForecastTrusted", "Ready"]
    written = node["metadata"]["resourceVersion"]
    async with world.publisher():
        world.outlooks.put([TRUSTED])
        # A second node's patch shows that the publisher has looked: the first one needed none.
        status = {"allocatable": {"cpu": "8", "memory": "8Gi"}, "capacity": {"cpu": "8", "memory": "8Gi"}}
        await world.client.create("/api/v1/nodes", {"metadata": {"name": "n2"}, "status": status})
        world.outlooks.put([replace(TRUSTED, node="n2")])
        async with asyncio.timeout(DEADLINE_SECONDS):
            while offers(await world.client.get("/api/v1/nodes/n2"))[0] is None:
                await asyncio.sleep(0.02)
        assert (await world.client.get(NODE))["metadata"]["resourceVersion"] == written
    async with world.publisher(publish=False):
        node = await world.until(lambda node: offers(node) == (None, None))
        assert node["status"]["allocatable"] == {"cpu": "8", "memory": "8Gi", "pods": "110"}
        assert node["status"]["conditions"] == [READY]
        assert "cotide.dev/forecast" not in node["metadata"].get("annotations", {})


@pytest.mark.parametrize("status", [409, 429, 500, 503])
async def test_faults_of_the_server_cost_tries_and_no_amount(world: World, status: int) -> None:
    fault = Fault(method="PATCH", path="/nodes/n1/status", count=2, status=status)
    world.server.faults.add(fault)
    async with world.publisher():
        world.outlooks.put([TRUSTED])
        await world.until(lambda node: offers(node) == ("4000", str(4 * 2**30)))


async def test_a_node_that_is_deleted_and_comes_back_gets_its_amounts_again(world: World) -> None:
    async with world.publisher():
        world.outlooks.put([TRUSTED])
        node = await world.until(lambda node: offers(node)[0] == "4000")
        await world.client.delete(NODE)
        amounts = {"cpu": "8", "memory": "8Gi"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [READY]}
        await world.client.create("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})
        again = await world.until(lambda node: offers(node)[0] == "4000")
        assert again["metadata"]["uid"] != node["metadata"]["uid"]


@pytest.mark.parametrize("kind", ["strategic", "merge", "json"])
async def test_somebody_elses_patch_of_any_kind_is_set_right_again(world: World, kind: PatchKind) -> None:
    name = "cotide.dev/reclaimed-cpu"
    patch: Any = {"status": {"capacity": {name: "9000"}, "allocatable": {name: "9000"}}}
    if kind == "json":  # as Kubernetes' own guide to extended resources has it
        paths = [f"/status/{part}/{name.replace('/', '~1')}" for part in ("capacity", "allocatable")]
        patch = [{"op": "add", "path": path, "value": "9000"} for path in paths]
    await world.client.patch(f"{NODE}/status", patch, kind)
    assert offers(await world.client.get(NODE)) == ("9000", None)
    async with world.publisher():
        world.outlooks.put([TRUSTED])
        await world.until(lambda node: offers(node) == ("4000", str(4 * 2**30)))


@pytest.mark.kubectl
async def test_kubectl_describe_shows_amounts_trust_and_events_and_the_guides_command_takes_them_away(
    world: World,
) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl on this machine")
    async with world.publisher():
        world.outlooks.put([TRUSTED])
        await world.until(lambda node: offers(node)[0] == "4000")
        fallen = replace(
            TRUSTED, offered_millicores=2000, trusted=False, reason="StaleFeed", message="no usage for 90 s"
        )
        world.outlooks.put([fallen])
        await world.until(lambda node: offers(node)[0] == "2000")
        events = "/api/v1/namespaces/default/events"
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not await world.client.list(events):
                await asyncio.sleep(0.02)
    described = await world.shell("kubectl describe node n1")
    # kubectl writes every quantity in its canonical form: 2k is 2000.
    assert len(re.findall(r"cotide.dev/reclaimed-cpu: +2k\n", described)) == 2, "capacity and allocatable"
    assert len(re.findall(rf"cotide.dev/reclaimed-memory: +{4 * 2**30}\n", described)) == 2
    assert re.search(r"cotide.dev/ForecastTrusted +False .* StaleFeed +no usage for 90 s", described)
    assert re.search(r"Warning +FellBackToRequests .* no usage for 90 s", described)
    assert "cotide.dev/forecast: online peak 3600m cpu, 1024Mi memory; p99 covers 98.9%; StaleFeed" in described
    (command,) = re.findall(r"^kubectl get nodes (?:.*\\\n)*.*", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    await world.shell(command)
    assert offers(await world.client.get(NODE)) == (None, None)
