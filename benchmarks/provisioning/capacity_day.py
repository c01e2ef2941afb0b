"""A simulated day of capacity, live: 200 fake machines of four types, switched by the operator.

Run with ``python benchmarks/provisioning/capacity_day.py [--server real] [--hours 24] [--speed 60] [--seeds 0,1,2]``;
not part of CI. The API server is the embedded one, or kube-apiserver with etcd and controller-manager, where the
operator has its own account with the rights of ``deploy``. It runs as a program of its own, on a clock that is
``--speed`` times as fast. Services that stay and Jobs whose arrivals follow a day's curve need machines; all but a few
are off when the day begins. Machines boot late or fail and answers get lost as often as ``--mishaps`` says. Every five
simulated minutes it is written down what pods ask for and what is on. Beside it, on a cluster of its own with the same
arrivals, the simple rival: thresholds on what pods ask for (`reactive_machines`; the operator only schedules there).
Prints one JSON object for each: how closely what is on follows what is needed, waits, energy beside that of all
machines on, orders, and what must not happen (a need with two machines, a pod on a machine that is switched off). The
load of the machine and how late the latest Job was made say whether it could follow. Exit code 0, 1 when the operator
ended, 3 when any of those happened, 77 where there is no real API server to be had.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np
from reactive_machines import ENDED, ReactiveMachines, need_of

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "shared"))

from api_servers import SERVERS, SKIP_CODE, as_installed, reached, real_server
from binaries import NotToBeHad
from control_plane import ControlPlane
from operator_program import free_port, operator, until_ready

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.cache.preflight import await_resources
from cotide_operator.provisioning.cluster_view import ORDER_LABEL
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fake_nodes import Mishaps
from cotide_sim.kubelets.fleet import Fleet, FleetSettings, running_fleet
from cotide_sim.kubelets.machine_room import MachineRoom, Rack
from cotide_sim.kubelets.node_objects import NodeShape

LABEL: Final = "node.kubernetes.io/instance-type"
TYPES: Final = {"small": (4, 16, 80), "even": (8, 32, 60), "wide": (16, 64, 40), "tall": (8, 128, 20)}
"""Cores, GiB and machines of each type; idle and peak watts go with the cores (chosen)."""
FIRST_ON: Final = 3
"""Machines of each type that are on when the day begins."""
TASKS: Final = ((0.4, 2, 4, 1800.0), (0.3, 4, 8, 3600.0), (0.2, 12, 24, 5400.0), (0.1, 6, 60, 3600.0))
"""Share, cores, GiB and median seconds of the kinds of Jobs (chosen)."""
JOBS_AN_HOUR: Final = 60.0
SWING: Final = 0.7
"""The day's curve: so much above its mean at three in the afternoon, and below it at three in the morning."""
SERVICES: Final = 20
STEP_SECONDS: Final = 300.0
SAY_STEPS: Final = 12
"""An hour is told on stderr."""
BROKE: Final = 3
JOBS: Final = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
WORKLOADS: Final = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"
_CONFIG: Final = """\
apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
policy: fifo
leaderElection: {{enabled: false}}
simulatedTime: {{originSeconds: {origin!r}, speed: {speed}}}
consolidation: {{enabled: {ours}, intervalSeconds: 120, stableSeconds: 240, cooldownSeconds: 600, movesPerHour: 300, \
movesAtOnce: 4, minimumAgeSeconds: 600, timeoutSeconds: 900}}
provisioning:
  mode: {mode}
  intervalSeconds: 120
  bootDeadlineSeconds: 1200
  actuator: {{url: '{url}', timeoutSeconds: 10, askAgainSeconds: 2, retrySeconds: 120}}
  machineTypes:
"""
_TYPE: Final = (
    "  - {{name: {name}, cpu: '{cores}', memory: {memory}Gi, count: {count}, idleWatts: {idle}, peakWatts: {peak}, "
    "bootSeconds: 120, minimumUpSeconds: 600}}\n"
)


def idle_watts(cores: float) -> float:
    """Return watts of an idle machine (chosen)."""
    return 20 + 6 * cores


def peak_watts(cores: float) -> float:
    """Return watts of a machine at work (chosen)."""
    return 30 + 14 * cores


@dataclass
class Day:
    """What was written down: cores asked for by pods that run or wait, and cores of the machines that are on."""

    at: list[float] = field(default_factory=list)
    """Seconds of the wall of each look: on a busy machine they are not five simulated minutes apart."""
    needed: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    """Of the machines that are on, by the share of their cores that pods ask for."""
    on: list[float] = field(default_factory=list)
    waits: dict[str, float] = field(default_factory=dict)
    """Simulated seconds from a pod's making to its start, by uid."""
    waiting: int = 0
    """Pods without a node at the last look."""
    late: float = 0.0
    """Simulated seconds by which a Job was made later than it came, at most."""
    failed_reads: int = 0
    """How often the server did not answer."""


async def feed(client: KubeClient, rng: np.random.Generator, first: float, hours: float, speed: float, day: Day) -> int:
    """Make services and Jobs for so long, as from the first hour of the day; return how many Jobs."""
    for number in range(SERVICES):
        body = {"metadata": {"name": f"web-{number}"}, "spec": {"replicas": 1, "template": _template(2, 4, None)}}
        await client.create(WORKLOADS, {"apiVersion": "cotide.dev/v1alpha1", "kind": "Workload", **body})
    begun, at, number = time.monotonic(), 0.0, 0
    while True:
        swing = 1.0 + SWING * math.sin(2 * math.pi * ((first * 3600.0 + at) / 86_400.0 - 0.375))
        at += rng.exponential(3600.0 / (JOBS_AN_HOUR * max(swing, 0.05)))
        if at > hours * 3600.0:
            return number
        await asyncio.sleep(max(0.0, begun + at / speed - time.monotonic()))
        _, cores, memory, median = TASKS[rng.choice(len(TASKS), p=[one[0] for one in TASKS])]
        spec = {
            "class": "batch",
            "type": f"work-{cores}",
            "template": _template(cores, memory, rng.lognormal(math.log(median), 0.6)),
        }
        with contextlib.suppress(ClusterError):
            body = {"metadata": {"name": f"job-{number}"}, "spec": spec}
            await client.create(JOBS, {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", **body})
        day.late = max(day.late, (time.monotonic() - begun) * speed - at)
        number += 1


def _template(cores: int, memory: int, seconds: float | None) -> dict[str, Any]:
    annotations = {} if seconds is None else {"sim.cotide.dev/lone-seconds": f"{seconds:.1f}"}
    requests = {"cpu": str(cores), "memory": f"{memory}Gi"}
    container = {"name": "c", "image": "x", "resources": {"requests": requests}}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}


async def watch(client: KubeClient, day: Day, speed: float) -> None:
    """Write down what is needed and what is on, every five simulated minutes."""
    while True:
        try:
            nodes, pods = await asyncio.gather(client.list("/api/v1/nodes"), client.list("/api/v1/pods"))
        except ClusterError:
            day.failed_reads += 1
        else:
            _look(day, nodes, pods, speed)
        await asyncio.sleep(STEP_SECONDS / speed)


def _look(day: Day, nodes: list[dict[str, Any]], pods: list[dict[str, Any]], speed: float) -> None:
    asked, held = 0.0, Counter[str]()
    for pod in pods:
        status = pod.get("status", {})
        if status.get("phase") not in ENDED:
            cores = need_of(pod)[0]
            asked += cores
            held[pod["spec"].get("nodeName", "")] += cores
        if status.get("startTime"):
            made, begun = (parse_timestamp(one) for one in (pod["metadata"]["creationTimestamp"], status["startTime"]))
            day.waits[pod["metadata"]["uid"]] = max(begun - made, 0.0) * speed
    day.at.append(time.monotonic())
    day.needed.append(asked)
    day.waiting = sum(not pod["spec"].get("nodeName") for pod in pods)
    on = {node["metadata"]["name"]: float(node["status"]["capacity"]["cpu"]) for node in nodes}
    day.on.append(sum(on.values()))
    day.watts.append(
        sum(
            idle_watts(cores) + (peak_watts(cores) - idle_watts(cores)) * held[name] / cores
            for name, cores in on.items()
        )
    )
    if len(day.on) % SAY_STEPS == 1:
        line = (
            f"{len(day.on) // SAY_STEPS} h: {asked:.0f} cores asked for, {day.on[-1]:.0f} on, {day.waiting} pods wait"
        )
        print(line, file=sys.stderr, flush=True)


async def run(
    asked: argparse.Namespace, racer: str, seed: int, folder: Path, plane: ControlPlane | None
) -> tuple[dict[str, Any], int]:
    """Run the day; return figures and exit code."""
    origin, day, speed, mishaps = time.time(), Day(), asked.speed, asked.mishaps
    arrivals, luck = (np.random.default_rng([seed, part]) for part in range(2))
    async with contextlib.AsyncExitStack() as stack:
        server, credentials = await stack.enter_async_context(reached(plane))
        client = await stack.enter_async_context(KubeClient(credentials))
        await client.create("/api/v1/namespaces", {"metadata": {"name": "cotide-system"}})
        if plane is not None:
            server = await as_installed(plane, "provisioning", "consolidation")
            await await_resources(client)
        racks = {}
        for name in TYPES:
            fleet: Fleet = await stack.enter_async_context(running_fleet(client, _fleet(name, origin, speed)))
            racks[name] = Rack(fleet, fleet.settings.names, FIRST_ON)
        chances = Mishaps(120.0, fails=mishaps, late=mishaps / 2, silent=mishaps, twice=mishaps)
        room = MachineRoom(client, racks, ORDER_LABEL, rng=luck, mishaps=chances, speed=speed)
        url, ours = await stack.enter_async_context(room.serving()), racer == "cotide"
        mode, enabled = ("act", "true") if ours else ("advice", "false")
        config = _CONFIG.format(origin=origin, speed=speed, url=url, mode=mode, ours=enabled)
        config += "".join(
            _TYPE.format(
                name=name, cores=cores, memory=memory, count=count, idle=idle_watts(cores), peak=peak_watts(cores)
            )
            for name, (cores, memory, count) in TYPES.items()
        )
        port = free_port()
        program = await stack.enter_async_context(operator(folder, server, config, port, install_crds=plane is None))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        await until_ready(session, port, program)
        tasks = [asyncio.create_task(watch(client, day, speed))]
        if not ours:
            idle = [idle_watts(cores) for cores, _, _ in TYPES.values()]
            tasks.append(asyncio.create_task(ReactiveMachines(client, room, TYPES, idle, LABEL, speed).run()))
        jobs = await feed(client, arrivals, asked.first_hour, asked.hours, speed, day)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        orders = await _orders(session, port) if program.returncode is None else {}
        ended, switched = program.returncode, room.switched
    if ended is not None:
        return {"ended": ended, "log": (folder / "operator.log").read_text(encoding="utf-8")[-2000:]}, 1
    twice = [key for key, times in switched.started.items() if times > 1]
    figures = (
        {"racer": racer, "server": asked.server, "seed": seed, "speed": speed, "load": os.getloadavg()[2]}
        | _figures(day, asked.hours)
        | {
            "orders": orders,
            "jobs": jobs,
            "machines_started": len(switched.started),
            "machines_stopped": sum(switched.stopped.values()),
            "needs_with_two_machines": len(twice),
            "pods_lost_to_a_stop": len(switched.lost),
        }
    )
    return figures, BROKE if twice or switched.lost else 0


def _fleet(name: str, origin: float, speed: float) -> FleetSettings:
    cores, memory, count = TYPES[name]
    shape = NodeShape(millicores=1000 * cores, memory_bytes=memory << 30, labels={LABEL: name})
    return FleetSettings(
        interference=GeneratedInterference(), count=count, on=FIRST_ON, name_prefix=f"{name}-", shape=shape,
        origin_seconds=origin, speed=speed,
    )  # fmt: skip


def _figures(day: Day, hours: float) -> dict[str, Any]:
    needed, on, waits = np.array(day.needed), np.array(day.on), np.array(list(day.waits.values()) or [0.0])
    holds = np.diff(day.at, append=2 * day.at[-1] - day.at[-2]) if len(day.at) > 1 else np.ones(len(day.at))
    mean_needed, mean_on, mean_watts = (float(np.average(one, weights=holds)) for one in (needed, on, day.watts))
    cores = sum(one * count for one, _, count in TYPES.values())
    idle = sum(idle_watts(one) * count for one, _, count in TYPES.values())
    used = mean_watts * hours / 1000.0
    # All on, the same work draws at least 8 W a core above idling.
    work = 8.0 * mean_needed * hours / 1000.0
    return {
        "hours": hours,
        "samples": len(needed),
        "cores_needed": {"mean": mean_needed, "least": needed.min(), "most": needed.max()},
        "cores_on": {"mean": mean_on, "least": on.min(), "most": on.max(), "of": cores},
        "correlation_of_on_and_needed": float(np.corrcoef(needed, on)[0, 1]) if len(on) > 2 else None,
        "share_of_on_that_is_asked_for": float(np.minimum(needed, on).sum() / on.sum()),
        "wait_seconds": {"p50": float(np.quantile(waits, 0.5)), "p95": float(np.quantile(waits, 0.95))},
        "waiting_at_end": day.waiting,
        "latest_job_seconds": day.late,
        "failed_reads": day.failed_reads,
        "kilowatt_hours": {"used": used, "all_machines_on": idle * hours / 1000.0 + work},
    }


async def _orders(session: aiohttp.ClientSession, port: int) -> dict[str, float]:
    """Return the operator's orders by what became of them."""
    async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        text = await answer.text()
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        outcome = re.search(r'outcome="(Node\w+)"', name)
        if line.startswith("cotide_provisioning_orders_total") and outcome:
            found[outcome[1]] = found.get(outcome[1], 0.0) + float(value)
    return found


def run_one(asked: argparse.Namespace, racer: str, seed: int) -> tuple[dict[str, Any], int]:
    """Run one day on a server of its own."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        plane = stack.enter_context(real_server(folder)) if asked.server == "real" else None
        try:
            return asyncio.run(run(asked, racer, seed, folder, plane))
        finally:
            log = folder / "operator.log"
            if asked.logs is not None and log.exists():
                asked.logs.mkdir(parents=True, exist_ok=True)
                shutil.copy(log, asked.logs / f"{asked.server}-{racer}-{seed}.log")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=SERVERS, default="emulator", help="default: emulator")
    parser.add_argument("--hours", type=float, default=24.0, help="simulated hours (default 24)")
    parser.add_argument("--first-hour", type=float, default=0.0, help="of the day (default 0)")
    parser.add_argument("--speed", type=float, default=60.0, help="simulated seconds a wall second (default 60)")
    parser.add_argument("--mishaps", type=float, default=0.05, help="chance of a boot that fails, ... (default 0.05)")
    parser.add_argument("--seeds", default="0", help="one after the other (default 0)")
    parser.add_argument("--racers", default="cotide,reactive")
    parser.add_argument("--logs", type=Path, help="a folder for what the operator says")
    asked = parser.parse_args()
    worst = 0
    for seed in map(int, asked.seeds.split(",")):
        for racer in asked.racers.split(","):
            try:
                figures, code = run_one(asked, racer, seed)
            except NotToBeHad as reason:
                sys.stderr.write(f"no real API server: {reason}\n")
                return SKIP_CODE
            print(json.dumps(figures), flush=True)
            worst = max(worst, code)
    return worst


if __name__ == "__main__":
    sys.exit(main())
