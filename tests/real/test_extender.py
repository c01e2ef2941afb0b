"""kube-scheduler asks Cotide: the real one, with the profile that deploy/extender ships, on a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml
from control_plane import ControlPlane, free_port
from identities import Authority
from manifests import pod_manifest
from processes import Process
from real_cluster import ALONE, DEPLOY, RealCluster

PROFILES = DEPLOY / "extender" / "profiles"
ASSISTED = "cotide-assisted"
QPS = 500


class Extender:
    """Certificates and configurations of one extender and of the kube-scheduler that asks it."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.port = plane, free_port()
        authority = Authority(folder)
        certificate, key = authority.server("localhost")
        (folder / "tls.crt").write_bytes(certificate.read_bytes())
        (folder / "tls.key").write_bytes(key.read_bytes())
        self._folder, self._authority = folder, authority.path
        self._client = authority.client("kube-scheduler")

    def settings(self, *, binds: bool) -> str:
        """The operator's section."""
        bound = f", binds: true, clientAuthority: {self._authority}" if binds else ""
        return f"extender: {{enabled: true, port: {self.port}, certificateDirectory: {self._folder}{bound}}}\n"

    @contextlib.asynccontextmanager
    async def scheduler(self, profile: str, *, binds: bool = False) -> AsyncIterator[Process]:
        """Run kube-scheduler with a shipped profile, at this machine's addresses."""
        config: dict[str, Any] = yaml.safe_load((PROFILES / profile).read_text(encoding="utf-8"))
        kubeconfig = str(self.plane.folder / "admin.kubeconfig")
        config["clientConnection"] = {"kubeconfig": kubeconfig, "qps": QPS, "burst": 2 * QPS}
        config["leaderElection"] = {"leaderElect": False}
        [extender] = config["extenders"]
        certificate, key = map(str, self._client)
        extender["urlPrefix"] = f"https://localhost:{self.port}"
        extender["tlsConfig"] = {"caFile": str(self._authority)}
        if binds:
            extender["tlsConfig"] |= {"certFile": certificate, "keyFile": key}
            extender["bindVerb"] = "bind"
        path = self._folder / "kube-scheduler.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        process = self.plane.start_scheduler(path)
        try:
            yield process
        finally:
            process.end(signal.SIGTERM)


def pod(name: str, cls: str, cpu: str, **spec: Any) -> dict[str, Any]:
    """A pod that kube-scheduler binds and Cotide advises on."""
    app = {"app": name.rpartition("-")[0]}
    return pod_manifest(name, cpu, "64Mi", cls=cls, labels=app, spec={"schedulerName": ASSISTED, **spec})


async def create(cluster: RealCluster, bodies: list[dict[str, Any]]) -> None:
    await asyncio.gather(*(cluster.client.create(cluster.pods, body) for body in bodies))


async def until_placed(cluster: RealCluster, count: int, selector: str = "") -> dict[str, str]:
    async def enough() -> bool:
        return len(await cluster.placed(selector)) >= count

    await cluster.until(f"{count} pods are on nodes", enough)
    return await cluster.placed(selector)


APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


async def test_a_burst_through_kube_scheduler_fills_the_nodes_and_keeps_its_constraints(
    cluster: RealCluster, tmp_path: Path
) -> None:
    extender = Extender(cluster.plane, tmp_path)
    async with (
        cluster.nodes(6, "--cpu", "4"),
        cluster.operator(ALONE + extender.settings(binds=True)),
        extender.scheduler("assisted.yaml", binds=True) as scheduler,
    ):
        await create(cluster, [pod(f"apart-{index}", "batch", "1", affinity=APART) for index in range(6)])
        placed = await until_placed(cluster, 6, "app=apart")
        assert sorted(Counter(placed.values()).values()) == [1] * 6, scheduler.text()
        # Up to three cores are left on each of six nodes: what else runs there, in millicores, is deploy/'s own.
        await create(cluster, [pod(f"burst-{index}", "batch", "1") for index in range(30)])
        others = Counter[str]()
        for one in await cluster.client.list("/api/v1/pods"):
            if one["spec"].get("nodeName") and one["metadata"]["namespace"] != cluster.namespace:
                others[one["spec"]["nodeName"]] += 250
        room = {node: (3000 - others[node]) // 1000 for node in placed.values()}
        placed = await until_placed(cluster, sum(room.values()), "app=burst")
        assert Counter(placed.values()) == room

        async def is_said() -> bool:
            events = await cluster.client.list(cluster.path("events"))
            return any("0/6 nodes are available" in event.get("message", "") for event in events)

        await cluster.until("kube-scheduler says why the others wait", is_said)
        found = await cluster.client.list(cluster.pods)
        assert not [one for one in found if one["status"].get("phase") == "Failed"]  # no kubelet refused one
        bound = [one for one in found if one["spec"].get("nodeName")]
        assert all("cotide.dev/decision" in one["metadata"].get("annotations", {}) for one in bound)


async def test_an_operator_that_is_killed_and_comes_back_loses_no_pod_and_holds_none_up(
    cluster: RealCluster, tmp_path: Path
) -> None:
    extender = Extender(cluster.plane, tmp_path)
    names = [f"gone-{index}" for index in range(120)]
    async with cluster.nodes(10, "--cpu", "16"), extender.scheduler("assisted.yaml"):
        for turn in range(10):
            part = names[turn * 12 : (turn + 1) * 12]
            async with cluster.operator(ALONE + extender.settings(binds=False), name=f"operator-{turn}") as operator:
                creating = asyncio.create_task(create(cluster, [pod(name, "batch", "1") for name in part]))
                await until_placed(cluster, turn * 12 + 3)
                operator.end(signal.SIGKILL)
                await creating
        placed = await until_placed(cluster, 120)
        assert max(Counter(placed.values()).values()) <= 16
        events = await cluster.client.list(cluster.path("events"))
        scheduled = Counter(event["involvedObject"]["name"] for event in events if event["reason"] == "Scheduled")
        assert set(scheduled) == set(names)
        assert max(scheduled.values()) == 1


async def test_where_it_is_not_to_be_ignored_pods_wait_until_it_answers(cluster: RealCluster, tmp_path: Path) -> None:
    extender = Extender(cluster.plane, tmp_path)
    reclaiming = pod("reclaims-0", "batch", "0")
    reclaiming["spec"]["containers"][0]["resources"] = {
        kind: {"cotide.dev/reclaimed-cpu": "100"} for kind in ("requests", "limits")
    }
    async with cluster.nodes(2), extender.scheduler("batch-waits.yaml"):
        for node in await cluster.client.list("/api/v1/nodes"):
            patch = {"status": {"allocatable": {"cotide.dev/reclaimed-cpu": "1000"}}}
            await cluster.client.patch(f"/api/v1/nodes/{node['metadata']['name']}/status", patch)
        await create(cluster, [pod("plain-0", "batch", "1"), reclaiming])
        assert set(await until_placed(cluster, 1)) == {"plain-0"}
        async with cluster.operator(f"policy: hierarchical\n{ALONE}{extender.settings(binds=False)}"):
            await until_placed(cluster, 2)
