"""Where `interference` measures: one real node whose pods have cpus of their own, memcached, batch, Prometheus.

Everything else (control plane, kubelet, operator, agent, load generator) has the other cpus; the generator has a
real-time priority there, so that it is late for nobody. Called by `interference` alone, in the machine of
``tests/node/machine/machine.py``. Invariant: everything ends with that machine, and between two blocks there is no
batch pod, no agent and no operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from aiohttp import web

sys.path.extend(
    str(Path(__file__).resolve().parents[2] / "tests" / folder)
    for folder in ("controlplane", "node/machine", "support", "support/servers", "support/builders")
)

from binaries import NotToBeHad, find_or_build, tell_on_stderr
from containers import batch_pod, job, shell
from control_plane import free_port
from machine import CGROUP_VARIABLE, GROUPS
from node_programs import find_or_download
from processes import Process
from real_cluster import ALONE, DEPLOY, RealCluster, apply, until_served
from real_nodes import MEMCACHED, NodeCluster, RealNode, real_nodes

from cotide_core.units import RECLAIMED_CPU
from cotide_kube.client import KubeClient
from cotide_node_agent.group_files import GroupFiles, GroupsUnreadable, open_group_files

NAMESPACE: Final = "default"
PORT: Final = 11211
BATCH_PODS: Final = 4
BATCH_MILLICORES: Final = 150
SERVICE_MILLICORES: Final = 300
"""Chosen: four pods of batch fit beside the service on a cpu by their requests."""
HASHES: Final = "dd if=/dev/zero bs=64k count=4096 2>/dev/null | md5sum >/dev/null"
WORK: Final = f"trap 'exit 0' TERM; while :; do ({HASHES}) & wait $!; done"
"""Hashes 256 MiB again and again: two processes and a pipe, all of the cpu that it gets."""
WARM_UP_SECONDS: Final = 0.5
SETTLE_SECONDS: Final = 1.0
"""Between the last change and a window: containers that start use more than those that run. Chosen."""
AGENT_FIGURES: Final = ("batch_allowance_cores", "contention_factor", "services_waiting_share", "services_cpu_cores")
"""What the agent thought at the end of a window, kept beside it."""
PRIORITY: Final = ("chrt", "-f", "50")
POLICY: Final = """\
policy: {policy}
slotSeconds: 15
queue: {{backoffInitialSeconds: 0.5, backoffMaxSeconds: 2, unschedulableFlushSeconds: 2}}
metricsSource:
  intervalSeconds: 1
  staleAfterSeconds: 60
  prometheus:
    url: {url}
    podCpuQuery: >-
      sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{{container!="",container!="POD"}}[30s])) * 1000
    workloadQueries: {{free: {{default: enforced}}}}
"""
RECLAIMING: Final = "predictive"
"""The policy under which pods of Jobs ask for reclaimed capacity."""
RECLAIMS: Final = "hostLoad: {historySeconds: 600}\nreclaimed: {minimumIntervalSeconds: 0}\n"
RATE_QUERY: Final = "max_over_time(rate(memcached_commands_total[3s])[60s:1s])"
LATENCY_QUERY: Final = "max by (namespace, pod) (memcached_client_latency_p95_milliseconds)"


@dataclass(frozen=True, slots=True)
class Load:
    """What the generator makes: requests a second, seconds of a window, and the limit that the Workload states."""

    rate: float
    seconds: float
    limit_milliseconds: float


class Stage:
    """The node and what runs on it; made by `stage`."""

    def __init__(
        self, cluster: RealCluster, node: RealNode, load: Load, cpus: Sequence[int], models: Path | None
    ) -> None:
        self._cluster, self._node, self._load, self._models = cluster, node, load, models
        self.cpus = tuple(cpus)
        self._root = f"/{os.environ[CGROUP_VARIABLE]}/{node.name}"
        self.real_time = subprocess.run([*PRIORITY, "true"], capture_output=True, check=False).returncode == 0
        self._address = self._uid = ""
        self._latency: float | None = None
        self._prometheus_url = self._agent_url = ""

    # What stays.

    async def start_service(self) -> None:
        """Run memcached, and the Workload that names it."""
        container = {
            "name": "memcached",
            "image": MEMCACHED,
            "imagePullPolicy": "Never",
            "command": ["/usr/bin/memcached", "-u", "root", "-t", "1", "-m", "128", "-p", str(PORT)],
            "resources": {"requests": {"cpu": f"{SERVICE_MILLICORES}m", "memory": "200Mi"}},
        }
        labels = {"app": "memcached", "cotide.dev/class": "online"}
        spec = {"nodeName": self._node.name, "terminationGracePeriodSeconds": 1, "containers": [container]}
        body = {"metadata": {"name": "memcached", "labels": labels}, "spec": spec}
        await self._cluster.client.create(self._cluster.pods, body)
        qos = {
            "latencyP95Milliseconds": self._load.limit_milliseconds,
            "rpsQuery": RATE_QUERY,
            "latencyQuery": LATENCY_QUERY,
        }
        workload = {"selector": {"matchLabels": {"app": "memcached"}}, "qos": qos}
        document = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "memcached"}}
        path = self._cluster.path("workloads", "cotide.dev/v1alpha1")
        await self._cluster.client.create(path, {**document, "spec": workload})

        async def address() -> str:
            found = await self._cluster.client.get(f"{self._cluster.pods}/memcached")
            self._uid, status = found["metadata"]["uid"], found.get("status", {})
            return str(status.get("podIP", "")) if status.get("phase") == "Running" else ""

        self._address = await self._cluster.until("memcached runs", address)

    def confine(self) -> None:
        """Hold the node's pods to their cpus: first the groups below, else the kernel refuses."""
        listed = ",".join(map(str, self.cpus))
        for file in sorted(self._node.group("cpuset").rglob("cpuset.cpus"), key=lambda one: -len(one.parts)):
            file.write_text(listed, encoding="ascii")

    @contextlib.asynccontextmanager
    async def metrics(self) -> AsyncIterator[None]:
        """Serve what memcached counts and the client last saw, and run a Prometheus that reads it and the kubelet."""
        app = web.Application()
        app.router.add_get("/metrics", self._show)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            port = runner.addresses[0][1]
            await self._start_prometheus(f"127.0.0.1:{port}")
            yield
        finally:
            await runner.cleanup()

    async def _show(self, _: web.Request) -> web.Response:
        reader, writer = await asyncio.open_connection(self._address, PORT)
        try:
            writer.write(b"stats\r\n")
            text = (await reader.readuntil(b"END\r\n")).decode()
        finally:
            writer.close()
        labels = f'{{namespace="{NAMESPACE}",pod="memcached"}}'
        found = re.search(r"STAT cmd_get (\d+)", text)
        lines = [f"memcached_commands_total{labels} {found[1] if found else 0}"]
        if self._latency is not None:
            lines.append(f"memcached_client_latency_p95_milliseconds{labels} {self._latency}")
        return web.Response(text="\n".join([*lines, ""]))

    async def _start_prometheus(self, target: str) -> None:
        program = shutil.which("prometheus")
        if program is None:
            raise NotToBeHad("there is no prometheus (Debian's package of that name)")
        plane, port = self._cluster.plane, free_port()
        folder = plane.folder / "prometheus"
        folder.mkdir()
        certificate, key = plane.authority.client("prometheus", "system:masters")
        tls = {"ca_file": str(plane.authority.path), "cert_file": str(certificate), "key_file": str(key)}
        jobs = [
            {"job_name": "memcached", "honor_labels": True, "static_configs": [{"targets": [target]}]},
            {
                "job_name": "kubelet",
                "honor_labels": True,
                "scheme": "https",
                "metrics_path": "/metrics/cadvisor",
                "scrape_interval": "5s",
                "tls_config": tls,
                "static_configs": [{"targets": [f"{self._node.address}:10250"]}],
            },
        ]
        pace = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        jobs[1]["scrape_timeout"] = "4s"
        (folder / "prometheus.yaml").write_text(yaml.safe_dump({"global": pace, "scrape_configs": jobs}), "utf-8")
        self._prometheus_url = f"http://127.0.0.1:{port}"
        options = [f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
        process = plane.pen.start("prometheus", [program, *options, f"--web.listen-address=127.0.0.1:{port}"])

        async def sees(query: str) -> bool:
            assert process.exit_code is None, process.text()[-2000:]
            with contextlib.suppress(aiohttp.ClientError):
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(f"{self._prometheus_url}/api/v1/query", params={"query": query}) as answer,
                ):
                    return answer.status == 200 and bool((await answer.json())["data"]["result"])
            return False

        used = 'rate(container_cpu_usage_seconds_total{pod="memcached",container!="",container!="POD"}[30s])'
        await self._cluster.until("Prometheus knows what memcached uses", lambda: sees(used))
        await self._cluster.until("Prometheus knows what memcached answers", lambda: sees(RATE_QUERY))

    # What comes and goes.

    @contextlib.asynccontextmanager
    async def batch(self, block: str) -> AsyncIterator[None]:
        """Have the batch of a block on the node: none, pods put there by name, or a Job that a policy places."""
        if block == "alone":
            yield
        elif block in ("burstable", "besteffort"):
            requests = {"cpu": f"{BATCH_MILLICORES}m", "memory": "32Mi"} if block == "burstable" else {}
            for number in range(BATCH_PODS):
                body = batch_pod(f"{block}-{number}", shell(WORK, requests=requests), nodeName=self._node.name)
                await self._cluster.client.create(self._cluster.pods, body)
            await self._cluster.until("batch runs", lambda: self._placed(BATCH_PODS))
            try:
                yield
            finally:
                for number in range(BATCH_PODS):
                    await self._cluster.client.delete(f"{self._cluster.pods}/{block}-{number}")
                await self._cluster.until("batch is gone", self._nobody)
        else:
            async with self._cluster.operator(self._config(block), name=block):
                if block == RECLAIMING:
                    await self._cluster.until("reclaimed capacity is published", self._published)
                requests = {"cpu": f"{BATCH_MILLICORES}m", "memory": "32Mi"}
                body = job(block, shell(WORK, requests=requests), completions=BATCH_PODS, parallelism=BATCH_PODS)
                await self._cluster.client.create(self._cluster.jobs, body)
                await self._cluster.until(f"{block} has decided", self._decided)
                try:
                    yield
                finally:
                    await self._cluster.client.delete(f"{self._cluster.jobs}/{block}")
                    await self._cluster.until("batch is gone", self._nobody)

    def _config(self, policy: str) -> str:
        models = f"models: {{directory: {self._models}}}\n" if self._models is not None else ""
        more = RECLAIMS if policy == RECLAIMING else ""
        return ALONE + models + more + POLICY.format(policy=policy, url=self._prometheus_url)

    async def _batch(self) -> list[dict[str, Any]]:
        pods = await self._cluster.client.list(self._cluster.pods)
        return [pod for pod in pods if pod["metadata"]["name"] != "memcached"]

    async def _placed(self, count: int) -> bool:
        return [pod["status"].get("phase") for pod in await self._batch()] == ["Running"] * count

    async def _nobody(self) -> bool:
        return not await self._batch()

    async def _published(self) -> bool:
        node = await self._cluster.client.get(f"/api/v1/nodes/{self._node.name}")
        return int(node["status"]["allocatable"].get(RECLAIMED_CPU, "0")) > 0

    async def _decided(self) -> bool:
        """Whether each pod of the Job runs or was refused."""
        pods = await self._batch()
        settled = [pod["status"].get("phase") == "Running" or bool(_refusal(pod)) for pod in pods]
        return len(pods) == BATCH_PODS and all(settled)

    @contextlib.asynccontextmanager
    async def agent(self, options: Sequence[str]) -> AsyncIterator[Process]:
        """Run the node agent until it governs the batch pods that are there."""
        port = free_port()
        journal = self._cluster.plane.folder / "agent.json"
        command = [
            sys.executable, "-m", "cotide_cli", "node-agent", "--node", self._node.name,
            "--kubeconfig", str(self._cluster.plane.folder / "admin.kubeconfig"), "--cgroup-root", self._root,
            "--journal", str(journal), "--metrics-port", str(port), *options,
        ]  # fmt: skip
        process = self._cluster.plane.pen.start("node-agent", command, {"PYTHONUNBUFFERED": "1"})
        try:
            wanted = len(await self._running())

            self._agent_url = f"http://127.0.0.1:{port}/metrics"

            async def governs() -> bool:
                assert process.exit_code is None, process.text()[-2000:]
                return (await self._agent_says()).get("governed_pods") == wanted

            await self._cluster.until("the agent governs batch", governs)
            yield process
        finally:
            self._agent_url = ""
            process.end(signal.SIGTERM)

    async def _agent_says(self) -> dict[str, float]:
        """Return the agent's metrics of its node; none where there is no agent, or not yet."""
        if not self._agent_url:
            return {}
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession() as session, session.get(self._agent_url) as answer:
                of_the_node = r"^cotide_node_agent_(\w+)\{node=\S+\} (\S+)$"
                lines = re.findall(of_the_node, await answer.text(), re.MULTILINE)
                return {name: float(value) for name, value in lines}
        return {}

    async def _running(self) -> list[str]:
        return [pod["metadata"]["uid"] for pod in await self._batch() if pod["status"].get("phase") == "Running"]

    # One window.

    async def window(self, seed: int) -> dict[str, Any]:
        """Measure once; latencies in ms, cpu in cores over the generator's life."""
        await asyncio.sleep(SETTLE_SECONDS)
        uids = await self._running()
        files = open_group_files(GROUPS, self._root)
        before, busy, begun = _used(files, uids), _busy_ticks(self.cpus), time.monotonic()
        queued = _queued_seconds(files, self._uid)
        report = await self._load_once(seed)
        passed = time.monotonic() - begun
        queued = _queued_seconds(files, self._uid) - queued
        after, ticks = _used(files, uids), _busy_ticks(self.cpus)
        self._latency = report["p95_ms"]
        agent = await self._agent_says()
        path = self._cluster.path("workloads", "cotide.dev/v1alpha1")
        status = (await self._cluster.client.get(f"{path}/memcached")).get("status", {})
        return {
            **report,
            "queued_us": 1e6 * queued / max(1, report["requests"]),
            "batch_pods": len(uids),
            "batch_cores": sum(after.get(uid, used) - used for uid, used in before.items()) / passed,
            "busy_share": (ticks - busy) / (passed * os.sysconf("SC_CLK_TCK") * len(self.cpus)),
            "batch_changed": sorted(await self._running()) != sorted(uids),
            "refusals": sorted({_refusal(pod) for pod in await self._batch()} - {""}),
            "agent": {key: agent[key] for key in AGENT_FIGURES if key in agent},
            "told": {key: status.get(key) for key in ("rps", "latencyP95Milliseconds", "violations")},
            "load_average": os.getloadavg()[0],
        }

    async def _load_once(self, seed: int) -> dict[str, Any]:
        load = self._load
        command = [
            sys.executable, "-m", "cotide_lab.profile.tcp_load", "--target", f"memcached://{self._address}:{PORT}",
            "--rate", f"{load.rate:g}", "--seconds", f"{load.seconds:g}", "--warm-up", f"{WARM_UP_SECONDS:g}",
            "--seed", str(seed),
        ]  # fmt: skip
        if self.real_time:
            command = [*PRIORITY, *command, "--sleeps"]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said, complaint = await process.communicate()
        if process.returncode != 0:
            raise SystemExit(f"the load generator failed: {complaint.decode().strip()[-500:]}")
        found: dict[str, Any] = json.loads(said.decode().strip().splitlines()[-1])
        return found


def _refusal(pod: dict[str, Any]) -> str:
    """Return why a pod has no node; empty where it has one, or nobody said."""
    conditions = pod["status"].get("conditions") or ()
    return next(
        (
            condition.get("message", "?")
            for condition in conditions
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        ),
        "",
    )


def _used(files: GroupFiles, uids: Sequence[str]) -> dict[str, float]:
    found = {}
    for pod in files.pods():
        if pod.uid in uids:
            with contextlib.suppress(GroupsUnreadable):  # it ended meanwhile
                found[pod.uid] = files.cpu_seconds(pod.path)
    return found


def _queued_seconds(files: GroupFiles, uid: str) -> float:
    """Return how long a pod's threads have waited for a cpu that others had (/proc/THREAD/schedstat, second figure)."""
    waited = 0
    for thread in (one for pod in files.pods() if pod.uid == uid for one in files.threads(pod.path)):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it ended meanwhile
            waited += int(Path(f"/proc/{thread}/schedstat").read_text(encoding="ascii").split()[1])
    return waited / 1e9


def _busy_ticks(cpus: Sequence[int]) -> int:
    """Return the ticks in which these cpus did something, since the machine's start (proc(5), /proc/stat)."""
    busy = 0
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        words = line.split()
        if words[0] in {f"cpu{one}" for one in cpus}:
            user, nice, system, _, _, irq, softirq, steal = map(int, words[1:9])
            busy += user + nice + system + irq + softirq + steal
    return busy


@contextlib.contextmanager
def nodes(cpus: int, folder: Path, emit: Callable[[str], None] = tell_on_stderr) -> Any:
    """Run one node whose pods fit on so many of the machine's cpus; all that we start has the others."""
    there = sorted(os.sched_getaffinity(0))
    if len(there) <= cpus:
        raise NotToBeHad(f"it needs a cpu beside the {cpus} of the node")
    binaries, programs = find_or_build(emit), find_or_download(emit)
    os.sched_setaffinity(0, there[cpus:])
    reserved = {"systemReserved": {"cpu": str(len(there) - cpus), "memory": "500Mi"}}
    with real_nodes(binaries, programs, folder, count=1, settings=reserved) as running:
        yield running, there[:cpus]


@contextlib.asynccontextmanager
async def stage(running: NodeCluster, cpus: Sequence[int], load: Load, models: Path | None) -> AsyncIterator[Stage]:
    """Make everything that stays."""
    await apply(running.plane, DEPLOY / "overlays" / "reclaimed")
    await until_served(running.plane)
    async with KubeClient(running.plane.admin) as client:
        cluster, (node,) = RealCluster(running.plane, client, NAMESPACE), running.nodes

        async def is_open() -> bool:
            found = await client.get(f"/api/v1/nodes/{node.name}")
            ready = {one["type"]: one["status"] for one in found.get("status", {}).get("conditions", ())}
            return ready.get("Ready") == "True" and not found["spec"].get("taints")

        await cluster.until("the node is open", is_open)
        found = Stage(cluster, node, load, cpus, models)
        await found.start_service()
        found.confine()
        async with found.metrics():
            yield found
