"""Pods per second that the fake nodes start and finish on the embedded API server, over HTTP.

Run with ``python benchmarks/apiserver/bench_fake_nodes.py``. The server and ``cotide nodes`` (1,000 nodes) are
processes of their own; this one creates the pods, posts the bindings, watches like an operator would, and prints the
rates from the first binding to the last Running (pods that stay) and to the last Succeeded (pods that work one
simulated second), and the CPU that each process took.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import uvloop

from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials
from cotide_kube.objects import PodObject
from cotide_kube.reflector import Reflector
from cotide_sim.apiserver.testing import ServerProcess, server_process

PODS_PATH = "/api/v1/namespaces/default/pods"
SPEED = 20


def pod(name: str, isolated_seconds: int) -> dict[str, object]:
    requests = {"cpu": "100m", "memory": "64Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"cotide.dev/class": "batch"},
            "annotations": {"sim.cotide.dev/lone-seconds": str(isolated_seconds)},
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}],
        },
    }


class Phases:
    """Counts pods that reached a phase, as a watch tells it."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.succeeded: set[str] = set()
        self.changed = asyncio.Event()
        self.synced = asyncio.Event()

    async def follow(self, client: KubeClient) -> None:
        async for batch in Reflector(client, "/api/v1/pods", PodObject).batches():
            for change in batch:
                if change.object is None:
                    self.synced.set()
                elif change.object.status.phase == "Running":
                    self.running.add(change.object.metadata.name)
                elif change.object.status.phase == "Succeeded":
                    self.succeeded.add(change.object.metadata.name)
            self.changed.set()

    async def reach(self, names: set[str], reached: set[str]) -> None:
        async with asyncio.timeout(120):
            while not names <= reached:
                self.changed.clear()
                await self.changed.wait()


async def burst(
    client: KubeClient, phases: Phases, prefix: str, count: int, nodes: int, isolated_seconds: int
) -> float:
    """Create pods, then bind them all and return the seconds until the last one is where it should be."""
    gate = asyncio.Semaphore(16)
    uids: dict[str, str] = {}

    async def create(name: str) -> None:
        async with gate:
            uids[name] = (await client.create(PODS_PATH, pod(name, isolated_seconds)))["metadata"]["uid"]

    async def bind(number: int, name: str) -> None:
        async with gate:
            answer = await client.bind("default", name, uids[name], f"fake-{number % nodes}")
            assert answer.ok, answer

    names = [f"{prefix}-{number}" for number in range(count)]
    await asyncio.gather(*(create(name) for name in names))
    began = time.perf_counter()
    await asyncio.gather(*(bind(number, name) for number, name in enumerate(names)))
    bound = time.perf_counter() - began
    await phases.reach(set(names), phases.succeeded if isolated_seconds == 1 else phases.running)
    took = time.perf_counter() - began
    print(f"  bindings alone {count / bound:7.0f}/s; to the last status {count / took:7.0f} pods/s ({took:.2f} s)")
    return took


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(server: ServerProcess, fleet: subprocess.Popen[bytes], nodes: int, count: int) -> None:
    async with KubeClient(load_credentials(str(server.kubeconfig_path))) as client:
        began = time.perf_counter()
        while len(await client.list("/api/v1/nodes")) < nodes:
            await asyncio.sleep(0.1)
        print(f"{nodes} nodes registered {time.perf_counter() - began:.1f} s after the fake nodes' process began")
        phases = Phases()
        following = asyncio.create_task(phases.follow(client))
        await phases.synced.wait()
        for prefix, isolated_seconds, what in (
            ("stay", 1_000_000, "until Running"),
            ("pass", 1, "until Succeeded (bind, Running, Succeeded)"),
        ):
            print(f"{count} pods {what}:")
            before = cpu_seconds(server.process.pid), cpu_seconds(fleet.pid), time.process_time()
            took = await burst(client, phases, prefix, count, nodes, isolated_seconds)
            after = cpu_seconds(server.process.pid), cpu_seconds(fleet.pid), time.process_time()
            used = " ".join(
                f"{name} {(b - a):.2f} s"
                for name, a, b in zip(("server", "nodes", "driver"), before, after, strict=True)
            )
            print(f"  CPU, creations included: {used}; rate {count / took:.0f} pods/s")
        following.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores")
    with server_process() as server:
        command = [sys.executable, "-m", "cotide_cli", "nodes", "--kubeconfig", str(server.kubeconfig_path)]
        command += ["--count", str(options.nodes), "--speed", str(SPEED), "--log-level", "warning"]
        with subprocess.Popen(command) as fleet:
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(measure(server, fleet, options.nodes, options.pods))
            finally:
                fleet.terminate()


if __name__ == "__main__":
    main()
