"""A day of churn in an hour: does the operator's memory stay flat, and the number of its metric series?

Run with ``python benchmarks/days/soak.py [--seconds 3600] [--speed 24]``; not part of CI. An operator runs as a program
of its own against an embedded API server and fake nodes, on a clock that is ``--speed`` times as fast. Meanwhile types,
Workloads, Jobs, namespaces with limits, extended resources, labels and tolerations come and go, each under a name that
never comes back, so that whatever is remembered for ever grows. The resident memory of the operator's process and the
lines of its ``/metrics`` are written down again and again. Caches fill in the first half of a run, which is not judged.
Flat means of the second half: the median of its last third is above that of its first third by at most 1 % or 4 MiB of
memory, whichever is more (chosen: what an allocator keeps; in ten minutes at full pace a leak of a kilobyte a pod is
more), and by 20 series, a histogram counted once (chosen: a label of attempts has 15 values; of what is made anew in
that time there are thousands). Prints one JSON object on stdout, with the growth in bytes a pod; exit code 0 for flat,
1 when the operator ended, 3 when something grew.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "shared"))

from operator_program import free_port, operator, until_ready

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.fleet import FleetSettings, running_fleet
from cotide_sim.kubelets.node_objects import NodeShape

NODES: Final = 8
ALIVE: Final = 40
"""Objects of each kind that are there at a time, about; chosen: the nodes are half full."""
MEMORY_SHARE, MEMORY_BYTES = 0.01, 4 << 20
SERIES_LINES: Final = 20
NOT_COUNTED: Final = re.compile(r"#|\s*$|\w+_(bucket|sum|created)\b")
STEPS_A_NAMESPACE: Final = 60
"""Chosen: a namespace lives for half a minute, longer than what is said of its pods waits for a calm moment."""
PODS_A_STEP: Final = 2
GREW: Final = 3
_CONFIG: Final = """\
apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
leaderElection: {{enabled: false}}
metricsSource: {{scrape: {{url: 'http://127.0.0.1:{metrics}/metrics'}}, intervalSeconds: 1, staleAfterSeconds: 5}}
simulatedTime: {{originSeconds: {origin}, speed: {speed}}}
"""
Object = dict[str, Any]


@dataclass
class Sample:
    """What was measured at one moment, in wall seconds from the start."""

    at: float
    memory_bytes: int
    series: int
    steps: int = 0


@dataclass
class Churn:
    """Makes and takes away; every name is new."""

    client: KubeClient
    rng: random.Random
    made: int = 0
    alive: dict[str, list[str]] = field(default_factory=dict)

    async def step(self) -> None:
        """Make one thing of each kind and take away the oldest of those that are too many."""
        self.made += 1
        number = self.made
        if number % STEPS_A_NAMESPACE == 1:
            annotations = {"cotide.dev/max-batch-cpu": f"{self.rng.randint(1, 64)}", "cotide.dev/max-queued-pods": "50"}
            namespace = {"metadata": {"name": f"soak-{number}", "annotations": annotations}}
            await self._make("namespaces", "/api/v1/namespaces", namespace, keep=6)
        space = (self.alive["namespaces"][-1]).rpartition("/")[2]
        ours = f"/apis/cotide.dev/v1alpha1/namespaces/{space}"
        pods = f"/api/v1/namespaces/{space}/pods"
        await self._make("pods", pods, self._pod(number), keep=ALIVE)
        await self._make("odd pods", pods, self._odd_pod(number), keep=10)
        if number % 5 == 0:
            await self._make("workloads", f"{ours}/workloads", self._workload(number), keep=8)
            await self._make("jobs", f"{ours}/jobs", self._job(number), keep=8)

    async def _make(self, kind: str, path: str, body: Object, keep: int) -> None:
        name = body["metadata"]["name"]
        with contextlib.suppress(ClusterError):
            await self.client.create(path, body)
        there = self.alive.setdefault(kind, [])
        there.append(f"{path}/{name}")
        while len(there) > keep:
            gone = there.pop(0)
            if kind == "namespaces":
                await self._empty(gone)
            with contextlib.suppress(ClusterError):
                await self.client.delete(gone)

    async def _empty(self, namespace: str) -> None:
        """Do what a namespace controller does: what is in it goes first."""
        name = namespace.rpartition("/")[2]
        at_once = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        ours = f"/apis/cotide.dev/v1alpha1/namespaces/{name}"
        for path in (f"{ours}/jobs", f"{ours}/workloads", f"{namespace}/pods", f"{namespace}/events"):
            with contextlib.suppress(ClusterError):
                await self.client.request("DELETE", path, at_once)

    def _pod(self, number: int) -> Object:
        rng = self.rng
        annotations = {
            "cotide.dev/type": f"type-{number}",
            "cotide.dev/input-size": str(rng.randint(1, 10**10)),
            "sim.cotide.dev/lone-seconds": f"{rng.uniform(20, 400):.1f}",
        }
        labels = {"cotide.dev/class": rng.choice(("batch", "gratis"))}
        cpu = f"{rng.randint(50, 800)}m"
        return _pod(f"pod-{number}", {"cpu": cpu, "memory": f"{rng.randint(16, 512)}Mi"}, annotations, labels)

    def _odd_pod(self, number: int) -> Object:
        """A pod that no node takes: its resource, its selector and its toleration have names of their own."""
        body = _pod(f"odd-{number}", {"cpu": "10m", f"example.com/r{number}": "1"}, {}, {f"label-{number}": "x"})
        body["spec"]["nodeSelector"] = {f"zone-{number}": "a"}
        body["spec"]["tolerations"] = [{"key": f"taint-{number}", "operator": "Exists"}]
        return body

    def _workload(self, number: int) -> Object:
        template = {
            "metadata": {"annotations": {"sim.cotide.dev/rates": f"{self.rng.uniform(10, 500):.1f}"}},
            "spec": {"containers": [_container({"cpu": "200m", "memory": "64Mi"})]},
        }
        return _ours("Workload", f"service-{number}", {"replicas": 2, "template": template})

    def _job(self, number: int) -> Object:
        annotations = {"sim.cotide.dev/lone-seconds": f"{self.rng.uniform(20, 200):.1f}"}
        spec = {"containers": [_container({"cpu": "100m", "memory": "64Mi"})]}
        template = {"metadata": {"annotations": annotations}, "spec": spec}
        work = {"class": "batch", "type": f"kind-{number}", "completions": 3, "parallelism": 2, "template": template}
        return _ours("Job", f"job-{number}", work)


def _container(requests: dict[str, str]) -> Object:
    extended = {name: amount for name, amount in requests.items() if "/" in name}
    return {"name": "c", "image": "x", "resources": {"requests": requests, "limits": extended}}


def _pod(name: str, requests: dict[str, str], annotations: dict[str, str], labels: dict[str, str]) -> Object:
    metadata = {"name": name, "annotations": annotations, "labels": labels}
    spec = {"schedulerName": "cotide", "restartPolicy": "Never", "containers": [_container(requests)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _ours(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": "cotide.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process (proc(5), ``VmRSS``)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def verdict(samples: list[Sample]) -> tuple[dict[str, Any], list[str]]:
    """Return the medians of the first and the last third of the second half, and what grew between them."""
    latter = samples[len(samples) // 2 :]
    third = max(1, len(latter) // 3)
    figures: dict[str, Any] = {"samples": len(samples)}
    grew: list[str] = []
    for name, share, absolute in (("memory_bytes", MEMORY_SHARE, MEMORY_BYTES), ("series", 0.0, SERIES_LINES)):
        first, last = (
            statistics.median(getattr(one, name) for one in part) for part in (latter[:third], latter[-third:])
        )
        figures[name] = {"from": first, "to": last, "growth": last - first}
        if last - first > max(share * first, absolute):
            grew.append(name)
    pods = PODS_A_STEP * (latter[-third // 2].steps - latter[third // 2].steps)
    figures["bytes_a_pod"] = round(figures["memory_bytes"]["growth"] / pods) if pods > 0 else None
    return figures, grew


async def soak(seconds: float, speed: float, pause: float, seed: int, folder: Path) -> tuple[dict[str, Any], int]:
    """Churn for so many wall seconds; return figures and exit code."""
    server = ApiServer()
    await server.start()
    origin = time.time()
    fleet_settings = FleetSettings(
        interference=GeneratedInterference(), count=NODES, shape=NodeShape(millicores=8000), speed=speed,
        origin_seconds=origin, metrics_port=0,
    )  # fmt: skip
    port = free_port()
    samples: list[Sample] = []
    async with (
        KubeClient(Credentials(server.url)) as client,
        running_fleet(client, fleet_settings) as fleet,
        operator(
            folder, server, _CONFIG.format(metrics=fleet.metrics_port, origin=origin, speed=speed), port
        ) as program,
        aiohttp.ClientSession() as session,
    ):
        await until_ready(session, port, program)
        churn = Churn(client, random.Random(seed))
        begun = time.monotonic()
        next_sample = begun
        while (now := time.monotonic()) < begun + seconds and program.returncode is None:
            await churn.step()
            if now >= next_sample:
                next_sample = now + max(1.0, seconds / 600)
                lines = await _series(session, port)
                samples.append(Sample(now - begun, resident_bytes(program.pid), lines, churn.made))
                if len(samples) % 30 == 1:
                    last = samples[-1]
                    print(f"{last.at:6.0f} s  {last.memory_bytes >> 20} MiB  {last.series} series", file=sys.stderr)
            await asyncio.sleep(pause)
        ended = program.returncode
    await server.stop()
    if ended is not None:
        return {"ended": ended, "log": (folder / "operator.log").read_text(encoding="utf-8")[-2000:]}, 1
    figures, grew = verdict(samples)
    figures |= {"seconds": seconds, "simulated_seconds": seconds * speed, "steps": churn.made, "grew": grew}
    return figures, GREW if grew else 0


async def _series(session: aiohttp.ClientSession, port: int) -> int:
    async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        return sum(1 for line in (await answer.text()).splitlines() if not NOT_COUNTED.match(line))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0, help="wall seconds (default 3600)")
    parser.add_argument("--speed", type=float, default=24.0, help="simulated seconds a wall second (default 24)")
    parser.add_argument(
        "--pause", type=float, default=0.1, help="wall seconds between two steps of churn (default 0.1)"
    )
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cotide-soak-") as folder:
        figures, code = asyncio.run(soak(asked.seconds, asked.speed, asked.pause, asked.seed, Path(folder)))
    print(json.dumps(figures))
    return code


if __name__ == "__main__":
    sys.exit(main())
