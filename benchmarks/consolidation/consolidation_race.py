"""Consolidation for real: Cotide, the descheduler, Karpenter, or nobody, each on its own cluster with the same load.

``--server real``: one etcd, kube-apiserver and kube-controller-manager (see ``tests/controlplane``) and Deployments.
``--server emulator``: the embedded API server and Workloads, whose pods Cotide's operator makes. N fake nodes; services
with a disruption budget (a quarter may be away), and workers without one. Pods are spread over all nodes, then most
workers are scaled away, so that nodes stand half empty: on the real server every racer of a seed starts from the very
same pods on the same nodes (`consolidation_start`). From then on the racer works for so many simulated minutes while
workers come and go. Seen by a watch of all pods
(`consolidation_observer`), so that no version is missed:

- pods by node at the start, and nodes with a pod at the end;
- evictions, those of pods that came only since, replacements among them, and how many pods stood at the start on as
  many of the lightest nodes: so many have to go in any case, but for those that end;
- pods that wait, and the longest that one waited (wall seconds);
- versions at which a service had fewer ready pods than its budget wants;
- processor seconds and memory of whoever consolidates; for Cotide that is its whole operator, which binds the pods too.

    python benchmarks/consolidation/consolidation_race.py \\
        --racers nobody,cotide,descheduler --descheduler PATH --seeds 0,1,2
    python benchmarks/consolidation/consolidation_race.py --server emulator --racers cotide

The last is an hour of 200 nodes and 3,000 pods.

The descheduler (HighNodeUtilization, as its documentation has it beside kube-scheduler's MostAllocated) is built from
its module: ``sigs.k8s.io/descheduler`` v0.36.0. Its interval is a simulated minute, as Cotide's. For Karpenter see
`karpenter_nodes`; its clock is the wall's. Exit code 1: a service was below its budget, or a pod waits at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import consolidation_start
import karpenter_nodes
from consolidation_observer import PodObserver

sys.path.extend(
    str(Path(__file__).resolve().parents[2] / folder) for folder in ("benchmarks/shared", "tests/controlplane")
)

from api_servers import SERVERS, real_server
from control_plane import ControlPlane, free_port
from processes import Pen, Process
from race_watcher import between, cpu_seconds, memory_bytes

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials, load_credentials
from cotide_operator.cache.preflight import await_resources, install

RACERS: Final = ("nobody", "cotide", "descheduler")
OTHERS: Final = ("descheduler", "karpenter")
"""Racers beside kube-scheduler."""
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
WORKLOADS: Final = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PODS: Final = "/api/v1/namespaces/default/pods"
STEP_SECONDS: Final = 0.25
SETTLE_SECONDS: Final = 30.0
SAY_SECONDS: Final = 10.0
"""Of the wall, between two lines about how far it is."""
DEADLINE_SECONDS: Final = 600.0
NODE_CORES: Final = 8
SPREADS: Final = "profiles: [{schedulerName: default-scheduler}]\n"
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


def deployment(name: str, replicas: int, cpu: int, scheduler: str) -> Json:
    """A Deployment of pods that run for ever."""
    requests = {"cpu": f"{cpu}m", "memory": f"{cpu * 2}Mi"}
    container = {"name": "c", "image": "none", "resources": {"requests": requests}}
    spec = {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    selector = {"matchLabels": {"app": name}}
    body = {"replicas": replicas, "selector": selector, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


def workload(name: str, replicas: int, cpu: int) -> Json:
    """A Workload of such pods."""
    spec = deployment(name, replicas, cpu, "cotide")["spec"]
    body = {"replicas": replicas, "template": spec["template"]}
    return {"apiVersion": "cotide.dev/v1alpha1", "kind": "Workload", "metadata": {"name": name}, "spec": body}


class Emulator:
    """The embedded API server as a program, with what `Cluster` wants of a `ControlPlane`."""

    def __init__(self, folder: Path, pen: Pen) -> None:
        self.folder, self.pen = folder, pen
        self._file = folder / "admin.kubeconfig"
        command = [sys.executable, "-m", "cotide_cli", "apiserver", "--port", "0", "--kubeconfig-out", str(self._file)]
        server = pen.start("apiserver", command)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not self._file.exists():
            if server.exit_code is not None or time.monotonic() > deadline:
                raise SystemExit(f"the emulator did not start: {server.text()}")
            time.sleep(0.1)

    @property
    def admin(self) -> Credentials:
        """Who may do everything."""
        return load_credentials(str(self._file))


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

    def __init__(
        self, plane: ControlPlane | Emulator, client: KubeClient, options: argparse.Namespace, racer: str
    ) -> None:
        self.plane, self.client, self.options, self.racer = plane, client, options, racer
        self.origin = time.time()
        self._say_next = 0.0
        self.sight = PodObserver(client, PODS)
        self.owners = DEPLOYMENTS if isinstance(plane, ControlPlane) else WORKLOADS
        self.kubeconfig = plane.folder / "admin.kubeconfig"
        each = options.pods // 100
        self.services = {f"service-{number}": each for number in range(40)}
        self.workers = {f"worker-{number}": each for number in range(60)}

    @property
    def pods_scheduler(self) -> str:
        """Whom the pods name."""
        return "default-scheduler" if self.racer in OTHERS else "cotide"

    def cotide(self, name: str, *arguments: str) -> Process:
        """Start one of our programs."""
        command = [sys.executable, "-m", "cotide_cli", name, "--kubeconfig", str(self.kubeconfig), *arguments]
        return self.plane.pen.start(f"{name}-{self.racer}", command)

    def scheduler(self) -> Process:
        """Start who binds the pods; with Cotide it is who consolidates, too."""
        folder, options = self.plane.folder, self.options
        if isinstance(self.plane, ControlPlane) and self.racer in OTHERS:
            config = folder / "scheduler.yaml"
            packs = MOST_ALLOCATED if self.spread and options.packed else SPREADS
            config.write_text(
                "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
                f"clientConnection: {{kubeconfig: {self.kubeconfig}, qps: 2000, burst: 4000}}\n"
                f"leaderElection: {{leaderElect: false}}\n{packs}"
            )
            return self.plane.start_scheduler(config)
        consolidation = (
            "consolidation: {enabled: true, intervalSeconds: 60, stableSeconds: 60, minimumAgeSeconds: 300,"
            f" movesPerHour: {options.moves}, movesAtOnce: {options.at_once}, timeoutSeconds: 900, spareNodes: 1,"
            f" reserveShare: {options.reserve}, packs: {str(options.packs).lower()}}}\n"
        )
        config = folder / "operator.yaml"
        config.write_text(
            "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\npolicy: fifo\n"
            "leaderElection: {enabled: false}\n"
            f"simulatedTime: {{originSeconds: {self.origin!r}, speed: {options.speed}}}\n"
            + (consolidation if self.racer == "cotide" and self.spread else "")
        )
        return self.cotide("operator", "--config", str(config), "--metrics-port", "0", "--log-level", "info")

    karpenter: Process
    """Its program, where it races."""
    watching: asyncio.Task[None]
    """The watch of all pods."""
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

    @contextlib.asynccontextmanager
    async def seen(self) -> AsyncIterator[None]:
        """Watch all pods."""
        self.watching = asyncio.create_task(self.sight.run())
        try:
            yield
        finally:
            self.watching.cancel()
            await asyncio.gather(self.watching, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def karpenters_nodes(self) -> AsyncIterator[None]:
        """Run Karpenter and kubelets of its nodes; it makes them once there is a scheduler that can't place a pod."""
        await karpenter_nodes.prepare(self.client, self.options.karpenter_module)
        environment = karpenter_nodes.environment(self.kubeconfig, free_port(), free_port())
        self.karpenter = self.plane.pen.start("karpenter", [str(self.options.karpenter)], environment)
        kubelets = asyncio.create_task(karpenter_nodes.Kubelets(self.client, PODS).run())
        try:
            async with self.seen():
                yield
        finally:
            kubelets.cancel()
            await asyncio.gather(kubelets, return_exceptions=True)

    async def settle(self) -> None:
        """Let who waits now get a node: pods may be moved until the last moment."""
        waiting, deadline = set(self.sight.waits), time.monotonic() + SETTLE_SECONDS
        while waiting & self.sight.waits.keys() and time.monotonic() < deadline:
            await self.pause()
        self.sight.left = len(waiting & self.sight.waits.keys())

    async def pause(self) -> None:
        """Wait a little; a watch that ended sees nothing any more, and must not be taken for a calm cluster."""
        if self.watching.done():
            await self.watching
        if time.monotonic() >= self._say_next:
            self._say_next = time.monotonic() + SAY_SECONDS
            sight, wall = self.sight, time.time() - self.origin
            print(
                f"{self.racer}: {wall:4.0f} s: {len(sight.there)} pods, {sight.ready} ready, {len(sight.waits)} without"
                f" a node, on {len(sight.nodes())} nodes, {len(sight.account.evicted)} evicted",
                file=sys.stderr,
            )
        await asyncio.sleep(STEP_SECONDS)

    async def until(self, what: str, count: int) -> None:
        """Wait until so many pods are ready and none else is there."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.sight.ready != count or self.sight.waits or len(self.sight.there) != count:
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.racer}: not {what}: {self.sight.ready} of {count} ready")
            await self.pause()

    async def scale(self, name: str, replicas: int) -> None:
        """Set the replicas of a Deployment."""
        self.workers[name] = replicas
        await insist(partial(self.client.patch, f"{self.owners}/{name}", {"spec": {"replicas": replicas}}))

    async def fill(self, seed: int) -> None:
        """Make the pods, and let most workers go when they are spread."""
        for index, (name, replicas) in enumerate((self.services | self.workers).items()):
            # On average six tenths of all cores: a quarter, a half or a whole of the mean.
            mean = 600 * NODE_CORES * self.options.nodes / self.options.pods
            cpu = round(mean * (0.5, 1.0, 1.5)[index % 3])
            ours = self.owners == WORKLOADS
            body = workload(name, replicas, cpu) if ours else deployment(name, replicas, cpu, self.pods_scheduler)
            await insist(partial(self.client.create, self.owners, body))
        for name in self.services:
            spec = {"maxUnavailable": "25%", "selector": {"matchLabels": {"app": name}}}
            body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}}
            await insist(partial(self.client.create, BUDGETS, {**body, "spec": spec}))
        whole = sum((self.services | self.workers).values())
        if self.owners == DEPLOYMENTS:
            await consolidation_start.put_pods(self.client, PODS, whole, DEADLINE_SECONDS)
        await self.until("filled", whole)
        if self.owners == DEPLOYMENTS:
            left = {name: replicas // 4 for name, replicas in self.workers.items()}
            await consolidation_start.keep_some(self.client, PODS, left, seed)
        for name, replicas in list(self.workers.items()):
            await self.scale(name, replicas // 4)
        await self.until("thinned", sum((self.services | self.workers).values()))
        self.sight.floors = {name: count - math.ceil(count / 4) for name, count in self.services.items()}

    async def churn(self, rng: random.Random, seconds: float) -> None:
        """Let workers come and go for so many seconds of the wall."""
        end = time.monotonic() + seconds
        turn = 0.0
        while time.monotonic() < end:
            if time.monotonic() >= turn and time.monotonic() < end - seconds / 4:
                turn = time.monotonic() + 300.0 / self.options.speed
                for name in rng.sample(sorted(self.workers), 3):
                    each = self.options.pods // 100
                    await self.scale(name, rng.randint(each // 8, each // 2))
            await self.pause()


@contextlib.asynccontextmanager
async def cluster(plane: ControlPlane | Emulator, options: argparse.Namespace, racer: str) -> AsyncIterator[Cluster]:
    """Add nodes to a control plane."""
    async with KubeClient(plane.admin) as client:
        await install(client)
        await await_resources(client)
        running = Cluster(plane, client, options, racer)
        if racer == "karpenter":
            async with running.karpenters_nodes():
                yield running
            return
        clock = ["--speed", str(options.speed), "--origin-seconds", repr(running.origin)]
        shape = ["--cpu", str(NODE_CORES), "--memory", "32Gi", "--count", str(options.nodes)]
        running.cotide("nodes", *shape, *clock)
        while sum(not one["spec"].get("taints") for one in await client.list("/api/v1/nodes")) < options.nodes:
            await asyncio.sleep(0.5)
        async with running.seen():
            yield running


async def race(plane: ControlPlane | Emulator, options: argparse.Namespace, racer: str, seed: int) -> Json:
    """Return what one racer came to."""
    async with cluster(plane, options, racer) as running:
        ours = options.server == "emulator"
        scheduler = running.scheduler() if ours or racer == "karpenter" else None
        if racer == "karpenter":
            await karpenter_nodes.fill(running.client, PODS, options.nodes, DEADLINE_SECONDS)
        if scheduler is not None and not ours:
            scheduler.end(signal.SIGTERM)
        await running.fill(seed)
        by_node = Counter(one.node for one in running.sight.there)
        at_start, before = [by_node[name] for name in sorted(by_node)], sorted(by_node.values())
        running.spread = True
        if scheduler is not None and ours:
            scheduler.end(signal.SIGTERM)
        scheduler = running.scheduler()
        worker = running.descheduler() if racer == "descheduler" else scheduler
        if racer == "karpenter":
            worker = running.karpenter
            await karpenter_nodes.open_budget(running.client)
        running.sight.begin()
        cpu_before, begun = cpu_seconds({"it": worker.pid}), time.monotonic()
        await running.churn(random.Random(seed), 60.0 * options.minutes / options.speed)
        used = between(cpu_before, cpu_seconds({"it": worker.pid}))["it"]
        await running.settle()
        nodes = await running.client.list("/api/v1/nodes")
        log, figures = worker.text().splitlines(), running.sight.figures()
        return {
            "racer": racer,
            "server": options.server,
            "seed": seed,
            "nodes": options.nodes,
            "nodes_used_before": len(before),
            "pods_by_node_at_start": at_start,
            **figures,
            "pods_at_start_on_the_lightest": sum(before[: max(0, len(before) - figures["nodes_used_after"])]),
            "cordoned": sum(bool(node["spec"].get("unschedulable")) for node in nodes),
            "wall_seconds": round(time.monotonic() - begun, 1),
            "cpu_seconds": used,
            "memory_bytes": memory_bytes(worker.pid) if worker.exit_code is None else None,
            "ended": worker.exit_code,
            "log": log[-options.log_lines :] if options.log_lines else [],
        }


@contextlib.contextmanager
def server(name: str) -> Iterator[ControlPlane | Emulator]:
    """Start a server of a kind, with nothing on it."""
    with tempfile.TemporaryDirectory() as folder:
        if name == "emulator":
            with Pen(Path(folder)) as pen:
                yield Emulator(Path(folder), pen)
            return
        with real_server(Path(folder)) as plane:
            yield plane


def main() -> int:
    """Run the racers in turn and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=SERVERS, default="real")
    parser.add_argument("--racers", default=",".join(RACERS))
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=60.0, help="simulated")
    parser.add_argument("--speed", type=float, default=20.0)
    parser.add_argument("--moves", type=int, default=600, help="budget of an hour")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--reserve", type=float, default=0.1, help="Cotide's reserveShare")
    parser.add_argument("--packs", action=argparse.BooleanOptionalAction, default=True, help="Cotide's packs")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--packed", action=argparse.BooleanOptionalAction, default=True, help="MostAllocated")
    parser.add_argument("--descheduler", type=Path, help="its program")
    parser.add_argument("--karpenter", type=Path, help="its program")
    parser.add_argument("--karpenter-module", type=Path, help="the folder of its module")
    parser.add_argument("--log-lines", type=int, default=0)
    options = parser.parse_args()
    racers = options.racers.split(",")
    if options.server == "emulator" and set(racers) & set(OTHERS):
        parser.error("the emulator runs no Deployments: nobody and cotide alone")
    broken = False
    for seed in map(int, options.seeds.split(",")):
        for racer in racers:
            with server(options.server) as plane:
                found = asyncio.run(race(plane, options, racer, seed))
            broken |= bool(found["versions_below_budget"] or found["waiting_at_end"])
            print(json.dumps(found), flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
