"""A simulated hour of phased pods, live: Jobs on fake nodes, by phases and at task level.

Run with ``python benchmarks/days/phased_hour.py [--server real] [--together] [--speed 15] [--kills 2]``; not part of
CI. The API server is the embedded one, or kube-apiserver with etcd and controller-manager, found or built as by ``make
test-real``. The operator runs as a program of its own and is killed as often as ``--kills`` says. 125 Jobs of four pods
come in three quarters of an hour; this program is the work in them: a pod works through a phase once it is granted, as
fast as the cpu that its kubelet has set lets it, and then says the next one. The same Jobs run again without phases,
with the largest need of each, and in the simulator of `cotide experiment phases`, by utility and by arrival, which is
the live policy's order. A slow machine costs simulated seconds: with ``--together`` the two runs stand side by side,
each on a server of its own, so that both have the same machine. Prints one JSON object: job times, what phases gained
live (over pairs of the same Job, with its 95 % interval) and in the simulator by arrival, waits for a phase, and what
must not happen: a node whose kubelet holds more than it has, a phase that waits for ever, a Job that is lost. Exit code
0, 3 when any of those happened, 77 where there is no real API server to be had.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import numpy as np

sys.path.extend(
    str(Path(__file__).resolve().parents[2] / folder) for folder in ("benchmarks/shared", "tests/controlplane")
)

from api_servers import SERVERS, SKIP_CODE, reached, real_server
from binaries import NotToBeHad
from control_plane import ControlPlane
from operator_program import Reachable, free_port, operator, until_ready

from cotide_core.errors import ClusterError
from cotide_core.phases.profile import Phase, Profile
from cotide_core.units import CPU, resource_amount
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_kube.reflector import Reflector
from cotide_lab.phases.rules import FIFO, PHASES, TASK, TASK_FIFO
from cotide_lab.phases.utility import Weights
from cotide_lab.phases.workload import Stage, Workload
from cotide_lab.phases.world import run as run_offline
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import Fleet, FleetSettings, running_fleet
from cotide_sim.kubelets.node_objects import NodeShape
from cotide_sim.kubelets.resizing import RESIZE_SECONDS

NODES: Final = 13
CORES: Final = 4
OFFLINE: Final = (PHASES, FIFO, TASK, TASK_FIFO)
"""Rules in the simulator. The live policy is `fifo`: what phases gain live is held against the two by arrival."""
AS_LIVE: Final = "fifo, as pods are bound and resized"
"""By arrival, where a task starts only in the largest of its needs, on any node that has it, and a phase that needs
more begins a kubelet's `RESIZE_SECONDS` after it may. Beside `FIFO`, not in its place: it says what these two cost."""
SEEDS: Final = 10
STUDENT: Final = 2.262
"""97.5 % of Student's t of nine degrees of freedom, for `SEEDS`."""
GIB: Final = 1 << 30
PODS_OF_JOB: Final = 4
ARRIVE_SECONDS: Final = 2700.0
GIVE_UP_SECONDS: Final = 4 * 3600.0
"""Simulated; what has not ended by then waits for ever."""
TICK_SECONDS: Final = 0.05
OVER_SECONDS: Final = 1.0
"""Wall seconds that a node may seem overfull, since kubelets tell of two pods one after the other."""
BROKE: Final = 3
RESAMPLES: Final = 4000
JOBS_PATH: Final = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
KINDS: Final = {
    "scan": (("map", 1800, 1.0, 70), ("merge", 400, 1.0, 40)),
    "sort": (("shuffle", 400, 0.7, 90), ("sort", 900, 1.6, 40), ("reduce", 1800, 1.2, 60)),
    "join": (("fetch", 300, 0.5, 60), ("join", 1600, 1.0, 80), ("write", 500, 1.0, 40)),
}
"""Phases with millicores, GiB and seconds; chosen, after the mixes of the experiment."""
_CONFIG: Final = """\
apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
policy: fifo
leaderElection: {{enabled: false}}
simulatedTime: {{originSeconds: {origin!r}, speed: {speed}}}
"""


class Planned(NamedTuple):
    """A Job of the hour: when it comes (simulated seconds), of which kind, and how much longer it takes."""

    at: float
    kind: str
    factor: float


@dataclass
class Worker:
    """The work in one pod: where it is, how many seconds of that are left, and when it asked for it."""

    job: int
    phases: tuple[tuple[str, int, float, float], ...]
    factor: float
    said: float
    position: int = 0
    left: float = 0.0
    begun: bool = False
    busy: bool = False

    def __post_init__(self) -> None:
        self.left = self.phases[0][3] * self.factor


@dataclass
class Hour:
    """What was written down; simulated seconds."""

    ended: dict[int, list[float]] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    held_small: int = 0
    overfull: list[str] = field(default_factory=list)
    kills: int = 0


def plan(seed: int, jobs: int) -> list[Planned]:
    """Return the Jobs of an hour, by when they come; fewer come within less time."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, ARRIVE_SECONDS * jobs / 125, jobs))
    kinds = rng.choice(sorted(KINDS), jobs)
    return [
        Planned(float(at), str(kind), float(factor))
        for at, kind, factor in zip(times, kinds, rng.lognormal(0.0, 0.3, jobs), strict=True)
    ]


class Workers:
    """The work in all pods, and an eye on what kubelets hold."""

    def __init__(self, client: KubeClient, fleet: Fleet, jobs: list[Planned], hour: Hour, *, phased: bool) -> None:
        self._client, self._fleet, self._jobs, self._hour, self._phased = client, fleet, jobs, hour, phased
        self._workers: dict[str, Worker] = {}
        self._pods: dict[str, PodObject] = {}
        self._over: dict[str, float] = {}
        self._writes: set[asyncio.Task[None]] = set()

    async def follow(self) -> None:
        """Keep the pods as the server shows them."""
        async for batch in Reflector(self._client, "/api/v1/pods", PodObject).batches():
            for change in batch:
                if change.object is None:
                    continue
                key = f"{change.object.metadata.namespace}/{change.object.metadata.name}"
                if change.kind == "DELETED":
                    self._pods.pop(key, None)
                else:
                    self._pods[key] = change.object

    async def work(self) -> None:
        """Let time pass in all pods."""
        before = self._fleet.clock.now()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self._fleet.clock.now()
            for key, pod in list(self._pods.items()):
                if pod.status.phase == "Running" and pod.status.container_statuses:
                    self._pass(key, pod, now - before, now)
            self._weigh()
            before = now

    def _pass(self, key: str, pod: PodObject, seconds: float, now: float) -> None:
        worker = self._workers.get(pod.metadata.uid)
        if worker is None:
            number = int(pod.metadata.name.split("-")[1])
            planned = self._jobs[number]
            worker = Worker(number, KINDS[planned.kind], planned.factor, now)
            self._workers[pod.metadata.uid] = worker
        if worker.busy:
            return
        name, need, _, _ = worker.phases[worker.position]
        if self._phased and pod.metadata.annotations.get("cotide.dev/granted-phase") != name:
            return
        if not worker.begun:
            worker.begun = True
            if self._phased:
                self._hour.waits.append(now - worker.said)
                self._hour.held_small += "cotide.dev/phase-note" in pod.metadata.annotations
        worker.left -= seconds * min(1.0, _held(pod) / need)
        if worker.left > 0:
            return
        if worker.position + 1 == len(worker.phases):
            worker.busy = True
            self._fleet.succeed(pod)
            self._hour.ended.setdefault(worker.job, []).append(now)
            return
        worker.position, worker.said = worker.position + 1, now
        worker.left, worker.begun = worker.phases[worker.position][3] * worker.factor, False
        if self._phased:
            worker.busy = True
            self._write(self._say(key, pod, worker))

    def _write(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _say(self, key: str, pod: PodObject, worker: Worker) -> None:
        notes = {"cotide.dev/phase": worker.phases[worker.position][0]}
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": notes}}
        namespace, _, name = key.partition("/")
        while not await self._is_settled(f"/api/v1/namespaces/{namespace}/pods/{name}", body):
            await asyncio.sleep(0.1)
        worker.busy = False

    async def _is_settled(self, path: str, body: dict[str, Any]) -> bool:
        try:
            await self._client.patch(path, body)
        except ApiError as error:
            return error.status in (404, 409)  # gone, or another one
        except ClusterError:
            return False
        return True

    def _weigh(self) -> None:
        """Compare what each node has with what its kubelet counts and with what is set for its pods."""
        held: dict[str, int] = {}
        for pod in self._pods.values():
            if pod.status.phase == "Running" and pod.status.container_statuses:
                held[pod.spec.node_name] = held.get(pod.spec.node_name, 0) + _held(pod)
        for node, millicores in held.items():
            if millicores <= 1000 * CORES:
                self._over.pop(node, None)
            elif time.monotonic() - self._over.setdefault(node, time.monotonic()) > OVER_SECONDS:
                self._hour.overfull.append(f"{node}: {millicores} set")
        for room in self._fleet.residents.rooms():
            if any(room.taken[name] > most for name, most in room.allocatable.items()):
                self._hour.overfull.append(f"{room.name}: {dict(room.taken)} counted")


def _held(pod: PodObject) -> int:
    resources = pod.status.container_statuses[0].resources or pod.spec.containers[0].resources
    return resource_amount(CPU, resources.requests.get(CPU, 0))


def _job(number: int, planned: Planned, *, phased: bool) -> dict[str, Any]:
    phases = KINDS[planned.kind]
    largest = {
        "cpu": f"{max(phase[1] for phase in phases)}m",
        "memory": str(int(GIB * max(phase[2] for phase in phases))),
    }
    container: dict[str, Any] = {"name": "c", "image": "x", "resources": {"requests": largest}}
    spec: dict[str, Any] = {
        "class": "batch",
        "type": planned.kind,
        "completions": PODS_OF_JOB,
        "parallelism": PODS_OF_JOB,
        "template": {
            "metadata": {"annotations": {"sim.cotide.dev/lone-seconds": "86400"}},
            "spec": {"containers": [container]},
        },
    }
    if phased:
        spec["phases"] = [
            {"name": name, "resources": {"cpu": f"{cpu}m", "memory": str(int(GIB * memory))}}
            for name, cpu, memory, _ in phases
        ]
    return {
        "apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "metadata": {"name": f"job-{number}"}, "spec": spec
    }  # fmt: skip


Operate = Callable[[Path, Any, str, int, float, Hour, asyncio.Event], Coroutine[Any, Any, None]]
"""Runs the operator on a server by a configuration, and sets the event once it decides; see `_operate`."""


async def run_live(
    jobs: list[Planned],
    speed: float,
    kills: int,
    folder: Path,
    plane: ControlPlane | None,
    *,
    phased: bool,
    operate: Operate | None = None,
) -> dict[str, Any]:
    """Run the hour, with an operator of `_operate` or another; return figures."""
    origin, hour = time.time(), Hour()
    shape = NodeShape(millicores=1000 * CORES, memory_bytes=16 * GIB)
    settings = FleetSettings(GeneratedInterference(), count=NODES, shape=shape, origin_seconds=origin, speed=speed)
    async with contextlib.AsyncExitStack() as stack:
        server, credentials = await stack.enter_async_context(reached(plane))
        client = await stack.enter_async_context(KubeClient(credentials))
        await client.create("/api/v1/namespaces", {"metadata": {"name": "cotide-system"}})
        fleet = await stack.enter_async_context(running_fleet(client, settings))
        workers = Workers(client, fleet, jobs, hour, phased=phased)
        open_ = asyncio.Event()
        config = _CONFIG.format(origin=origin, speed=speed)
        tasks = [
            asyncio.create_task(one)
            for one in (
                workers.follow(),
                workers.work(),
                (operate or _operate)(folder, server, config, kills, speed, hour, open_),
            )
        ]
        stack.push_async_callback(_cancelled, tasks)
        await _opened(client, open_, tasks)
        begun = fleet.clock.now()
        for number, planned in enumerate(jobs):
            await asyncio.sleep(max(0.0, (begun + planned.at - fleet.clock.now()) / speed))
            await client.create(JOBS_PATH, _job(number, planned, phased=phased))
        lost = await _until_ended(client, fleet, hour, begun, tasks, len(jobs))
    took = {
        number: max(hour.ended[number]) - begun - planned.at
        for number, planned in enumerate(jobs)
        if len(hour.ended.get(number, ())) >= PODS_OF_JOB
    }
    times = list(took.values())
    last = max((max(one) for one in hour.ended.values()), default=begun)
    waits = np.array(hour.waits or [0.0])
    return {
        "jobs": len(times),
        "pods_that_ended": sum(len(one) for one in hour.ended.values()),
        "job_seconds": float(np.mean(times)) if times else None,
        "makespan_seconds": last - begun,
        "phase_waits": {
            "count": len(hour.waits),
            "p50": float(np.median(waits)),
            "p95": float(np.quantile(waits, 0.95)),
            "most": float(waits.max()),
        },
        "phases_held_small": hour.held_small,
        "operator_killed": hour.kills,
        "overfull": hour.overfull[:5],
        "jobs_lost": lost,
        "took_seconds": [round(took[number], 1) if number in took else None for number in range(len(jobs))],
    }


async def _opened(client: KubeClient, open_: asyncio.Event, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until the operator is ready and no node is closed: a real server opens them when it has seen them ready."""
    waiting = asyncio.create_task(open_.wait())
    await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
    while any(node["spec"].get("taints") for node in await client.list("/api/v1/nodes")):
        await asyncio.sleep(0.2)


async def _operate(
    folder: Path, server: Reachable, config: str, kills: int, speed: float, hour: Hour, open_: asyncio.Event
) -> None:
    """Run the operator, and kill it so often, evenly over the hour."""
    for life in range(kills + 1):
        port = free_port()
        async with operator(folder, server, config, port) as program:
            async with aiohttp.ClientSession() as session:
                await until_ready(session, port, program)
            open_.set()
            if life == kills:
                await program.wait()
                raise ClusterError(f"the operator ended: {(folder / 'operator.log').read_text()[-2000:]}")
            await asyncio.sleep(3600.0 / (kills + 1) / speed)
            program.kill()
            await program.wait()
            hour.kills += 1


async def _until_ended(
    client: KubeClient, fleet: Fleet, hour: Hour, begun: float, tasks: list[asyncio.Task[None]], count: int
) -> list[str]:
    """Wait until all Jobs have succeeded; return those that have not when patience ends."""
    while True:
        for task in tasks:
            if task.done():
                task.result()
        jobs = await client.list(JOBS_PATH)
        left = [job["metadata"]["name"] for job in jobs if job.get("status", {}).get("phase") != "Succeeded"]
        if (not left and len(jobs) == count) or fleet.clock.now() - begun > GIVE_UP_SECONDS or hour.overfull:
            return left
        await asyncio.sleep(1.0)


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def by_seeds(jobs: int) -> dict[str, dict[str, float]]:
    """Return phases by arrival over task level by arrival in the simulator, over hours of `SEEDS` seeds."""
    hours = [offline(plan(seed, jobs)) for seed in range(SEEDS)]
    found = {}
    for rule in (FIFO, AS_LIVE):
        ratios = np.array([hour[rule] / hour[TASK_FIFO] for hour in hours])
        half = STUDENT * ratios.std(ddof=1) / np.sqrt(SEEDS)
        found[rule] = {
            "mean": float(ratios.mean()),
            "low": float(ratios.mean() - half),
            "high": float(ratios.mean() + half),
            "least": float(ratios.min()),
            "most": float(ratios.max()),
        }
    return found


def offline(jobs: list[Planned]) -> dict[str, float]:
    """Return mean job seconds of the same hour in the simulator, by rule."""
    stages = []
    for number, planned in enumerate(jobs):
        phases = tuple(
            Phase(name, (cpu, int(GIB * memory)), int(1000 * seconds * planned.factor))
            for name, cpu, memory, seconds in KINDS[planned.kind]
        )
        stages.append(Stage(number, Profile(phases), PODS_OF_JOB, reduces=False))
    workload = Workload(
        name="hour",
        kinds=tuple(planned.kind for planned in jobs),
        submitted=np.array([int(1000 * planned.at) for planned in jobs], np.int64),
        stages=tuple(stages),
        factor=np.ones(len(jobs) * PODS_OF_JOB),
        capacity=np.tile(np.array([1000 * CORES, 16 * GIB], np.int64), (NODES, 1)),
    )
    found = {rule: float(run_offline(workload, rule).job_seconds.mean()) for rule in OFFLINE}
    bound_whole = Weights(whole=1, overcommit=np.inf)
    as_live = run_offline(workload, FIFO, bound_whole, int(1000 * RESIZE_SECONDS))
    return {**found, AS_LIVE: float(as_live.job_seconds.mean())}


def paired(phases: Sequence[float | None], task: Sequence[float | None]) -> dict[str, float]:
    """Return the ratio of the mean job times with its 95 % interval, by resampling Jobs that both runs have."""
    both = np.array([(phase, other) for phase, other in zip(phases, task, strict=True) if phase and other])
    drawn = both[np.random.default_rng(0).integers(0, len(both), (RESAMPLES, len(both)))].mean(axis=1)
    ratios = drawn[:, 0] / drawn[:, 1]
    low, high = np.quantile(ratios, (0.025, 0.975))
    return {"live": float(both[:, 0].mean() / both[:, 1].mean()), "low": float(low), "high": float(high)}


def run_one(asked: argparse.Namespace, jobs: list[Planned], rule: str) -> dict[str, Any]:
    """Run the hour by one rule on a server of its own."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        plane = stack.enter_context(real_server(folder)) if asked.server == "real" else None
        run = run_live(jobs, asked.speed, asked.kills, folder, plane, phased=rule == "phases")
        return asyncio.run(run)


def run_together(rules: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Run the hour by each rule at the same time, each in a process of its own."""
    own = [one for one in sys.argv[1:] if one != "--together"]
    started = {
        rule: subprocess.Popen([sys.executable, __file__, *own, "--only", rule], stdout=subprocess.PIPE, text=True)
        for rule in rules
    }
    said = {rule: process.communicate()[0] for rule, process in started.items()}
    for rule, process in started.items():
        if process.returncode not in (0, BROKE):
            raise SystemExit(f"the run by {rule} ended with {process.returncode}")
    return {rule: json.loads(text)[rule] for rule, text in said.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", type=float, default=15.0, help="simulated seconds a wall second (default 15)")
    parser.add_argument("--kills", type=int, default=2, help="how often the operator is killed (default 2)")
    parser.add_argument("--jobs", type=int, default=125, help="Jobs of four pods (default 125)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=["phases", "task"], help="one of the two runs")
    parser.add_argument("--server", choices=SERVERS, default="emulator", help="default: emulator")
    parser.add_argument("--together", action="store_true", help="both runs at the same time")
    asked = parser.parse_args()
    jobs = plan(asked.seed, asked.jobs)
    figures: dict[str, Any] = {"simulator": offline(jobs), "load": os.getloadavg()[0]}
    rules = ("phases", "task") if asked.only is None else (asked.only,)
    try:
        figures |= run_together(rules) if asked.together else {rule: run_one(asked, jobs, rule) for rule in rules}
    except NotToBeHad as reason:
        sys.stderr.write(f"no real API server: {reason}\n")
        return SKIP_CODE
    found = [figures[rule] for rule in rules]
    broke = any(one["overfull"] or one["jobs_lost"] or one["jobs"] < len(jobs) for one in found)
    if asked.only is None and not broke:
        simulated = figures["simulator"]
        both = paired(*(one.pop("took_seconds") for one in found))
        figures["over_task"] = {
            **both,
            **{f"simulator, {rule}": simulated[rule] / simulated[TASK_FIFO] for rule in (FIFO, AS_LIVE)},
        }
        figures["simulator_by_seeds"] = by_seeds(asked.jobs)
    print(json.dumps(figures, indent=1))
    return BROKE if broke else 0


if __name__ == "__main__":
    sys.exit(main())
