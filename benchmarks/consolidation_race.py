"""Consolidation for real: Cotide, the descheduler, or nobody, each on a cluster of its own with the same load.

One etcd, kube-apiserver and kube-controller-manager (see ``tests/controlplane``), N fake nodes, and Deployments:
services with a disruption budget (a quarter may be away), and workers without one. Pods
are spread over all nodes, then most workers are scaled away, so that nodes stand half empty; from then on the racer
works for so many simulated minutes while workers come and go. Seen by looks at all pods and budgets:

- nodes without a pod at the end, evictions, pods that wait, the longest that one waited (wall seconds);
- looks at which a service had fewer healthy pods than its budget wants;
- processor seconds and memory of whoever consolidates; for Cotide that is its whole operator, which binds the pods too.

    python benchmarks/consolidation_race.py --racers nobody,cotide,descheduler --descheduler PATH

The descheduler (HighNodeUtilization, as its documentation has it beside kube-scheduler's MostAllocated) is built from
its module: ``sigs.k8s.io/descheduler`` v0.36.0. Its interval is a simulated minute, as Cotide's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from race_watcher import between, cpu_seconds, memory_bytes

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "controlplane"))

from binaries import find_or_build, tell_on_stderr
from control_plane import ControlPlane, control_plane, free_port
from processes import Process

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.cache.preflight import await_resources, install

RACERS: Final = ("nobody", "cotide", "descheduler")
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PODS: Final = "/api/v1/namespaces/default/pods"
LOOK_SECONDS: Final = 0.25
DEADLINE_SECONDS: Final = 600.0
NODE_CORES: Final = 8
EVICTED: Final = "EvictionByEvictionAPI"
MOST_ALLOCATED: Final = """\
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]}}
"""
POLICY: Final = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: race
  pluginConfig:
  - name: DefaultEvictor
    args: {nodeFit: true, minPodAge: 10s}
  - name: HighNodeUtilization
    args: {thresholds: {cpu: 50, memory: 50}}
  plugins: {balance: {enabled: [HighNodeUtilization]}}
"""
Json = dict[str, Any]


@dataclass
class Sight:
    """What was seen of the pods."""

    nodes: dict[str, str] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    evicted: set[str] = field(default_factory=set)
    waits: dict[str, float] = field(default_factory=dict)
    longest: float = 0.0
    below_budget: int = 0
    looks: int = 0

    def look(self, pods: list[Json], budgets: list[Json]) -> None:
        """Take in one look."""
        now = time.monotonic()
        self.nodes, waits = {}, {}
        self.ready.clear()
        for pod in pods:
            uid, conditions = pod["metadata"]["uid"], pod["status"].get("conditions") or ()
            if any(one.get("reason") == EVICTED and one["type"] == "DisruptionTarget" for one in conditions):
                self.evicted.add(uid)
            if pod["metadata"].get("deletionTimestamp"):
                continue
            if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
                self.ready.add(uid)
            if pod["spec"].get("nodeName"):
                self.nodes[uid] = pod["spec"]["nodeName"]
            else:
                waits[uid] = self.waits.get(uid, now)
        self.waits = waits
        self.longest = max([self.longest, *(now - since for since in waits.values())])
        self.looks += 1
        for one in budgets:
            status = one.get("status") or {}
            self.below_budget += status.get("currentHealthy", 0) < status.get("desiredHealthy", 0)


def deployment(name: str, replicas: int, cpu: int, scheduler: str) -> Json:
    """A Deployment of pods that run for ever."""
    requests = {"cpu": f"{cpu}m", "memory": f"{cpu * 2}Mi"}
    container = {"name": "c", "image": "none", "resources": {"requests": requests}}
    spec = {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    selector = {"matchLabels": {"app": name}}
    body = {"replicas": replicas, "selector": selector, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


async def insist(call: Callable[[], Awaitable[Any]]) -> None:
    """Write until it is written: a busy machine's server may not answer in time."""
    while True:
        try:
            await call()
        except ApiError as error:
            if error.status == 409:
                return
            raise
        except ClusterError:
            continue
        return


class Cluster:
    """One racer's cluster."""

    def __init__(self, plane: ControlPlane, client: KubeClient, options: argparse.Namespace, racer: str) -> None:
        self.plane, self.client, self.options, self.racer = plane, client, options, racer
        self.origin = time.time()
        self.sight = Sight()
        self.kubeconfig = plane.folder / "admin.kubeconfig"
        each = options.pods // 100
        self.services = {f"service-{number}": each for number in range(40)}
        self.workers = {f"worker-{number}": each for number in range(60)}

    def cotide(self, name: str, *arguments: str) -> Process:
        """Start one of our programs."""
        command = [sys.executable, "-m", "cotide_cli", name, "--kubeconfig", str(self.kubeconfig), *arguments]
        return self.plane.pen.start(f"{name}-{self.racer}", command)

    def scheduler(self) -> Process:
        """Start who binds the pods; with Cotide it is who consolidates, too."""
        folder, options = self.plane.folder, self.options
        if self.racer == "descheduler":
            config = folder / "scheduler.yaml"
            config.write_text(
                "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
                f"clientConnection: {{kubeconfig: {self.kubeconfig}, qps: 2000, burst: 4000}}\n"
                f"leaderElection: {{leaderElect: false}}\n{MOST_ALLOCATED if self.spread and options.packed else ''}"
            )
            return self.plane.start_scheduler(config)
        consolidation = (
            "consolidation: {enabled: true, intervalSeconds: 60, stableSeconds: 60, minimumAgeSeconds: 300,"
            f" movesPerHour: {options.moves}, movesAtOnce: {options.at_once}, timeoutSeconds: 900, spareNodes: 1}}\n"
        )
        config = folder / "operator.yaml"
        config.write_text(
            "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\npolicy: fifo\n"
            "leaderElection: {enabled: false}\n"
            f"simulatedTime: {{originSeconds: {self.origin!r}, speed: {options.speed}}}\n"
            + (consolidation if self.racer == "cotide" and self.spread else "")
        )
        return self.cotide("operator", "--config", str(config), "--metrics-port", "0", "--log-level", "info")

    spread = False
    """Whether the pods are on the nodes: nobody consolidates before."""

    def descheduler(self) -> Process:
        """Start the descheduler."""
        policy = self.plane.folder / "policy.yaml"
        policy.write_text(POLICY)
        interval = f"{max(1, round(60 / self.options.speed))}s"
        command = [str(self.options.descheduler), "--kubeconfig", str(self.kubeconfig), "--policy-config-file"]
        more = [str(policy), "--descheduling-interval", interval, "--secure-port", str(free_port()), "-v", "2"]
        return self.plane.pen.start("descheduler", [*command, *more])

    async def look(self) -> None:
        """Look at all pods and budgets once."""
        pods, budgets = await asyncio.gather(
            self.client.list(PODS, {"resourceVersion": "0"}, chunk=10_000), self.client.list(BUDGETS)
        )
        self.sight.look(pods, budgets)

    async def until(self, what: str, count: int) -> None:
        """Wait until so many pods are ready and none else is there."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            with contextlib.suppress(ClusterError):
                await self.look()
            if len(self.sight.ready) == count and not self.sight.waits:
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.racer}: not {what}: {len(self.sight.ready)} of {count} ready")
            await asyncio.sleep(1.0)

    async def scale(self, name: str, replicas: int) -> None:
        """Set the replicas of a Deployment."""
        self.workers[name] = replicas
        await insist(partial(self.client.patch, f"{DEPLOYMENTS}/{name}", {"spec": {"replicas": replicas}}))

    async def fill(self) -> None:
        """Make the pods, and let most workers go when they are spread."""
        scheduler = "default-scheduler" if self.racer == "descheduler" else "cotide"
        for index, (name, replicas) in enumerate((self.services | self.workers).items()):
            # On average six tenths of all cores: a quarter, a half or a whole of the mean.
            mean = 600 * NODE_CORES * self.options.nodes / self.options.pods
            cpu = round(mean * (0.5, 1.0, 1.5)[index % 3])
            body = deployment(name, replicas, cpu, scheduler)
            await insist(partial(self.client.create, DEPLOYMENTS, body))
        for name in self.services:
            spec = {"maxUnavailable": "25%", "selector": {"matchLabels": {"app": name}}}
            body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}}
            await insist(partial(self.client.create, BUDGETS, {**body, "spec": spec}))
        await self.until("filled", sum((self.services | self.workers).values()))
        for name, replicas in list(self.workers.items()):
            await self.scale(name, replicas // 4)
        await self.until("thinned", sum((self.services | self.workers).values()))

    async def churn(self, rng: random.Random, seconds: float) -> None:
        """Let workers come and go, and look, for so many seconds of the wall."""
        end = time.monotonic() + seconds
        turn = 0.0
        while time.monotonic() < end:
            if time.monotonic() >= turn and time.monotonic() < end - seconds / 4:
                turn = time.monotonic() + 300.0 / self.options.speed
                for name in rng.sample(sorted(self.workers), 3):
                    each = self.options.pods // 100
                    await self.scale(name, rng.randint(each // 8, each // 2))
            with contextlib.suppress(ClusterError):
                await self.look()
            await asyncio.sleep(LOOK_SECONDS)


@contextlib.asynccontextmanager
async def cluster(plane: ControlPlane, options: argparse.Namespace, racer: str) -> AsyncIterator[Cluster]:
    """Add nodes to a control plane."""
    async with KubeClient(plane.admin) as client:
        await install(client)
        await await_resources(client)
        running = Cluster(plane, client, options, racer)
        told = ["--speed", str(options.speed), "--origin-seconds", repr(running.origin)]
        shape = ["--cpu", str(NODE_CORES), "--memory", "32Gi", "--count", str(options.nodes)]
        running.cotide("nodes", *shape, *told)
        while sum(not one["spec"].get("taints") for one in await client.list("/api/v1/nodes")) < options.nodes:
            await asyncio.sleep(0.5)
        yield running


async def race(plane: ControlPlane, options: argparse.Namespace, racer: str) -> Json:
    """Return what one racer came to."""
    async with cluster(plane, options, racer) as running:
        scheduler = running.scheduler()
        await running.fill()
        before = set(running.sight.nodes.values())
        running.spread = True
        if racer != "nobody":
            scheduler.end(signal.SIGTERM)
            scheduler = running.scheduler()
        worker = running.descheduler() if racer == "descheduler" else scheduler
        running.sight = Sight()
        at_start, begun = cpu_seconds({"it": worker.pid}), time.monotonic()
        await running.churn(random.Random(options.seed), 60.0 * options.minutes / options.speed)
        used = between(at_start, cpu_seconds({"it": worker.pid}))["it"]
        await asyncio.sleep(5.0)
        sight = running.sight
        await running.look()
        nodes = await running.client.list("/api/v1/nodes")
        told = worker.text().splitlines()
        return {
            "racer": racer,
            "nodes": options.nodes,
            "nodes_used_before": len(before),
            "nodes_used_after": len(set(sight.nodes.values())),
            "cordoned": sum(bool(one["spec"].get("unschedulable")) for one in nodes),
            "pods": len(sight.nodes),
            "evictions": len(sight.evicted),
            "waiting_at_end": len(sight.waits),
            "longest_wait_wall_seconds": round(sight.longest, 1),
            "looks": sight.looks,
            "budgets_below_at_looks": sight.below_budget,
            "wall_seconds": round(time.monotonic() - begun, 1),
            "cpu_seconds": used,
            "memory_bytes": memory_bytes(worker.pid) if worker.exit_code is None else None,
            "ended": worker.exit_code,
            "log": told[-options.log_lines :] if options.log_lines else [],
        }


def main() -> None:
    """Run the racers in turn and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--racers", default=",".join(RACERS))
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=60.0, help="simulated")
    parser.add_argument("--speed", type=float, default=20.0)
    parser.add_argument("--moves", type=int, default=600, help="budget of an hour")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packed", action=argparse.BooleanOptionalAction, default=True, help="MostAllocated")
    parser.add_argument("--descheduler", type=Path, help="its program")
    parser.add_argument("--log-lines", type=int, default=0)
    options = parser.parse_args()
    binaries = find_or_build(tell_on_stderr)
    for racer in options.racers.split(","):
        with tempfile.TemporaryDirectory() as folder, control_plane(binaries, Path(folder)) as plane:
            plane.start_controller_manager()
            plane.wait_for_accounts()
            print(json.dumps(asyncio.run(race(plane, options, racer))), flush=True)


if __name__ == "__main__":
    main()
