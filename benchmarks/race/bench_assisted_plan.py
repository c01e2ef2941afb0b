"""The demo's plan through kube-scheduler, alone and asking Cotide, beside Cotide's own scheduler.

A real kube-apiserver and kube-scheduler, fake nodes with the demo's interference, and the pods of `assisted_course`:
the same arrivals for every racer. Printed for each: the share of time that services were over their limit, waiting, and
constraints that were broken at any look. The bar: over the limit for at most 1.5 times ``qpsm``'s share, and for at
most a quarter of kube-scheduler's own. With ``--kills N`` one more act: with an extender that kube-scheduler can't do
without, the operator is killed and started again N times, and every pod must be bound once, in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import assisted_course as course
import uvloop

sys.path.extend(
    str(Path(__file__).resolve().parents[2] / folder) for folder in ("benchmarks/shared", "tests/controlplane")
)

from binaries import KUBERNETES, find_or_build, tell_on_stderr
from control_plane import ControlPlane, control_plane, free_port
from identities import Authority
from processes import Process
from race_watcher import PodWatch, machine

from cotide_core.units import MEMORY, resource_amount
from cotide_kube.client import KubeClient
from cotide_operator.cache.preflight import await_resources, install
from cotide_operator.clock import ScaledClock
from cotide_sim.cluster.scorecard import Scorecard
from cotide_sim.demo.facts import RunFacts
from cotide_sim.demo.observer import Observer
from cotide_sim.demo.options import DemoOptions
from cotide_sim.demo.preparation import Prepared, prepare
from cotide_sim.demo.stage import NODE_CORES, NODE_MEMORY
from cotide_sim.workloads.scenarios import SLOT_SECONDS

Json = dict[str, Any]
RACERS = {"qpsm": "cotide", "kube-scheduler": "default-scheduler", "assisted": "default-scheduler"}
LEAD_SECONDS = 4.0
"""Of the wall: services start in it. Chosen."""
POLL_SECONDS = 0.5
START_SECONDS = 120.0
GO_ON_SECONDS = 300.0
"""Longest wait for the last pod to be bound after the last kill; chosen."""
QPS = 2000


@dataclass
class Stage:
    """What all acts share."""

    plane: ControlPlane
    client: KubeClient
    options: argparse.Namespace
    prepared: Prepared
    clock: ScaledClock
    metrics_url: str
    authority: Authority
    zones: dict[str, str] = field(default_factory=dict)

    @property
    def kubeconfig(self) -> str:
        return str(self.plane.folder / "admin.kubeconfig")

    def start_operator(self, port: int) -> Process:
        """Start an operator, with the extender where a port is given."""
        text = (
            "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\npolicy: qpsm\n"
            "leaderElection: {enabled: false}\n"
            f"metricsSource: {{scrape: {{url: '{self.metrics_url}'}}, intervalSeconds: 0.5, staleAfterSeconds: 60}}\n"
            f"models: {{directory: {self.prepared.models_directory}}}\n"
            f"simulatedTime: {{originSeconds: {self.clock.origin_seconds:.0f}, speed: {self.clock.speed:g}}}\n"
        )
        if port:
            text += (
                f"extender: {{enabled: true, port: {port}, certificateDirectory: {self.authority.folder}, "
                "schedulerNames: [default-scheduler]}\n"
            )
        path = self.plane.folder / "operator.yaml"
        path.write_text(text)
        arguments = ["operator", "--kubeconfig", self.kubeconfig, "--config", str(path), "--metrics-port", "0"]
        return self.plane.pen.start("operator", [sys.executable, "-m", "cotide_cli", *arguments])

    def start_scheduler(self, port: int, *, ignorable: bool) -> Process:
        """Start kube-scheduler, which asks an extender where a port is given."""
        config: Json = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": self.kubeconfig, "qps": QPS, "burst": 2 * QPS},
            "leaderElection": {"leaderElect": False},
            "podMaxBackoffSeconds": 2,
        }
        if port:
            asked = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt", "weight": 5}
            how = {"enableHTTPS": True, "nodeCacheCapable": True, "httpTimeout": "5s", "ignorable": ignorable}
            trusted = {"tlsConfig": {"caFile": str(self.authority.path)}}
            config["extenders"] = [{"urlPrefix": f"https://localhost:{port}", **asked, **how, **trusted}]
        path = self.plane.folder / "kube-scheduler.yaml"
        path.write_text(json.dumps(config))
        return self.plane.start_scheduler(path)


async def decides(process: Process, port: int) -> None:
    """Wait until an operator decides, and answers where it is to."""
    deadline = time.monotonic() + START_SECONDS
    while "deciding with policy" not in process.text() or (port and "extender on https" not in process.text()):
        if time.monotonic() > deadline or process.exit_code is not None:
            raise SystemExit(process.text()[-3000:])
        await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def schedulers(stage: Stage, racer: str) -> AsyncIterator[None]:
    """Run who schedules."""
    port = free_port() if racer == "assisted" else 0
    running = []
    try:
        if racer != "kube-scheduler":
            running.append(stage.start_operator(port))
            await decides(running[0], port)
        if racer != "qpsm":
            running.append(stage.start_scheduler(port, ignorable=True))
        yield
        for one in running:
            if one.exit_code is not None:
                raise SystemExit(one.text()[-3000:])
    finally:
        for one in reversed(running):
            one.end(signal.SIGTERM)


async def submit(stage: Stage, start: float, scheduler: str) -> list[str]:
    """Create each job's pods at its simulated second; return their names."""
    names: list[str] = []
    for number, job in enumerate(sorted(stage.prepared.plan.jobs, key=lambda planned: planned.at_seconds)):
        wait = (start + job.at_seconds - stage.clock.now()) / stage.clock.speed
        if wait > 0:
            await asyncio.sleep(wait)
        for pod in course.job_pods(job, number, scheduler):
            await stage.client.create(course.PODS, pod)
            names.append(pod["metadata"]["name"])
    return names


async def act(stage: Stage, racer: str) -> Json:
    """Run one racer on the plan."""
    plan, client, clock = stage.prepared.plan, stage.client, stage.clock
    broken: set[str] = set()
    async with schedulers(stage, racer), aiohttp.ClientSession() as session:
        start = clock.now() + LEAD_SECONDS * clock.speed
        facts = RunFacts(racer, start, plan.duration_seconds, jobs_planned=len(plan.jobs))
        card = Scorecard(start_seconds=start, slot_seconds=SLOT_SECONDS)
        limits = {service.name: service.limit_milliseconds for service in plan.services}
        observer = Observer(
            client, stage.metrics_url, clock, facts, card, arrivals={}, completions={}, limits=limits,
            node_millicores=NODE_CORES * 1000, node_memory_bytes=resource_amount(MEMORY, NODE_MEMORY),
        )  # fmt: skip
        await course.start_services(client, plan, start, RACERS[racer])
        running = [
            asyncio.create_task(observer.watch_pods()),
            asyncio.create_task(observer.watch_metrics(session)),
            asyncio.create_task(submit(stage, start, RACERS[racer])),
        ]
        try:
            while clock.now() < start + plan.duration_seconds:
                for task in running:
                    if task.done():
                        task.result()
                broken |= set(course.faults_of(await client.list(course.PODS), stage.zones))
                await asyncio.sleep(POLL_SECONDS)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        pods = await client.list(course.PODS)
    services = [pod for pod in pods if course.WORKLOAD_LABEL in pod["metadata"]["labels"]]
    found = {
        "racer": racer,
        **{k: v for k, v in card.summary(start + plan.duration_seconds).items() if k != "jobs_finished"},
        "late_seconds": round(facts.late_seconds, 1),
        "pods_made": len(pods),
        "pods_succeeded": sum(pod["status"].get("phase") == "Succeeded" for pod in pods),
        "services_on_nodes": f"{sum(bool(one['spec'].get('nodeName')) for one in services)} of {len(services)}",
        "broken_constraints": sorted(broken),
    }
    await course.clear(client)
    sys.stderr.write(f"{racer}: over the limit {found['qos_violation_ratio']:.4f}, broken {len(broken)}\n")
    return found


async def killed(stage: Stage) -> Json:
    """Kill the operator again and again while kube-scheduler depends on it."""
    plan, client, clock, kills = stage.prepared.plan, stage.client, stage.clock, stage.options.kills
    watch = PodWatch(client, course.PODS)
    start = clock.now() + LEAD_SECONDS * clock.speed
    jobs = sorted(plan.jobs, key=lambda planned: planned.at_seconds)
    names = [
        pod["metadata"]["name"] for n, job in enumerate(jobs) for pod in course.job_pods(job, n, RACERS["assisted"])
    ]
    services = [f"{service.name}-{index}" for service in plan.services for index in range(service.replicas)]
    watch.look_for([*names, *services])
    watching = asyncio.ensure_future(watch.run())
    port = free_port()
    operator, scheduler = stage.start_operator(port), stage.start_scheduler(port, ignorable=False)
    await decides(operator, port)
    await course.start_services(client, plan, start, RACERS["assisted"])
    submitting = asyncio.create_task(submit(stage, start, RACERS["assisted"]))
    moments = []
    for _ in range(kills):
        await asyncio.sleep(stage.options.between)
        before = len(watch.bound)
        operator.end(signal.SIGKILL)
        await asyncio.sleep(1.0)
        operator = stage.start_operator(port)
        await decides(operator, port)
        moments.append((before, len(watch.bound)))
    made = await submitting
    deadline = time.monotonic() + GO_ON_SECONDS
    while len(watch.bound) < len(names) + len(services) and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
    pods = await client.list(course.PODS)
    refused = [one["metadata"]["name"] for one in pods if one["status"].get("phase") == "Failed"]
    for one in (scheduler, operator):
        one.end(signal.SIGTERM)
    watching.cancel()
    await course.clear(client)
    return {
        "kills": kills,
        "pods": len(made) + len(services),
        "lost": sorted({*made, *services} - {one["metadata"]["name"] for one in pods}),
        "bound_twice": watch.faults,
        "bound": len(watch.bound),
        "never_bound": sorted({*made, *services} - set(watch.bound)),
        "failed_on_their_node": refused,
        "bound_before_each_kill_and_after_its_restart": moments,
    }


async def race(plane: ControlPlane, options: argparse.Namespace, folder: Path) -> Json:
    authority = Authority(folder)
    for file, path in zip(("tls.crt", "tls.key"), authority.server("localhost"), strict=True):
        (folder / file).write_bytes(path.read_bytes())
    asked = DemoOptions(
        options.seconds, options.nodes, options.seed, ("qpsm",), None, None, "json", speed=options.speed
    )
    prepared = prepare(asked, folder, lambda text: sys.stderr.write(f"{text}\n") and None)
    clock = ScaledClock(origin_seconds=float(int(time.time())), speed=options.speed)
    port = free_port()
    nodes = [
        "nodes", "--kubeconfig", str(plane.folder / "admin.kubeconfig"), "--count", str(options.nodes),
        "--cpu", str(NODE_CORES), "--memory", NODE_MEMORY, "--speed", f"{clock.speed:g}",
        "--origin-seconds", f"{clock.origin_seconds:.0f}", "--interference", str(prepared.interference_file),
        "--metrics-port", str(port),
    ]  # fmt: skip
    fleet = plane.pen.start("nodes", [sys.executable, "-m", "cotide_cli", *nodes])
    async with KubeClient(plane.admin, max_connections=32, timeout_seconds=120.0) as client:
        await install(client)
        await await_resources(client)
        await course.prepare(client, options.nodes)
        stage = Stage(plane, client, options, prepared, clock, f"http://127.0.0.1:{port}/metrics", authority)
        found = await client.list("/api/v1/nodes")
        stage.zones = {one["metadata"]["name"]: one["metadata"]["labels"][course.ZONE] for one in found}
        acts = [await act(stage, racer) for racer in options.racers.split(",") if racer]
        end = await killed(stage) if options.kills else None
        if fleet.exit_code is not None:
            raise SystemExit(fleet.text()[-3000:])
    ratios = {one["racer"]: one["qos_violation_ratio"] for one in acts}
    return {"seed": options.seed, "acts": acts, "over_limit": ratios, "killed": end}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--racers", default=",".join(RACERS))
    parser.add_argument("--nodes", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=45.0, help="of the wall, for each racer")
    parser.add_argument("--speed", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument(
        "--between", type=float, default=2.0, help="seconds of the wall from a restart to the next kill"
    )
    options = parser.parse_args()
    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        tempfile.TemporaryDirectory(prefix="assisted-") as name,
    ):
        folder = Path(name)
        (folder / "plane").mkdir()
        with control_plane(find_or_build(tell_on_stderr), folder / "plane") as plane:
            result = runner.run(race(plane, options, folder))
    print(json.dumps({"kubernetes": KUBERNETES, "machine": machine(), **result}, indent=1))


if __name__ == "__main__":
    main()
