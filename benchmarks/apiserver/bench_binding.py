"""The whole binding path: pods through the API server, the operator's engine and back, against a bare loop.

Three processes, as in real life: the embedded API server, ``cotide operator``, and this one, which prepares and
watches. Nodes are plain Node objects: with 1,000 live fake kubelets on the same cores their status writes would be
measured, not the operator (``--kubelets`` runs them nevertheless). For each policy the pods are created first, the
operator then finds them waiting, as after a restart under load; the clock runs from its first binding to its last.
In the same run and on the same server a bare loop posts the very same bindings (pod, node, annotations), with the same
number in flight and no thought: what the server and the HTTP client take by themselves.

Targets of the project: >= 800 pods/s with fifo, >= 400 pods/s with qpsm, at 1,000 nodes and 5,000 pods.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop

from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials
from cotide_sim.apiserver.testing import server_process

NAMESPACE = "bench"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
IN_FLIGHT = 32
POLL_SECONDS = 0.05
DEADLINE_SECONDS = 120.0
SCHEDULED = re.compile(rb'^cotide_schedule_attempts_total\{[^}]*result="scheduled"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class Round:
    policy: str
    pods_per_second: float
    first_bind_seconds: float
    bare_per_second: float

    @property
    def ratio(self) -> float:
        return self.pods_per_second / self.bare_per_second


def node(index: int) -> dict[str, Any]:
    resources = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{index:04d}", "labels": {"kubernetes.io/hostname": f"node-{index:04d}"}},
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(index: int) -> dict[str, Any]:
    requests = {"cpu": "250m", "memory": "512Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{index:05d}", "namespace": NAMESPACE, "labels": {"app": "bench"}},
        "spec": {
            "schedulerName": "cotide",
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": requests}}],
        },
    }


async def spread(work: Iterable[Callable[[], Awaitable[Any]]], in_flight: int) -> None:
    """Run calls with a fixed number in flight."""
    iterator: Iterator[Callable[[], Awaitable[Any]]] = iter(work)

    async def worker() -> None:
        for call in iterator:
            await call()

    await asyncio.gather(*(worker() for _ in range(in_flight)))


async def fill(client: KubeClient, pods: int) -> None:
    await spread((lambda i=i: client.create(PODS, pod(i)) for i in range(pods)), IN_FLIGHT)


async def empty(client: KubeClient) -> None:
    names = [one["metadata"]["name"] for one in await client.list(PODS)]
    await spread((lambda n=n: client.delete(f"{PODS}/{n}", grace_seconds=0) for n in names), IN_FLIGHT)
    for kind in ("events",):
        await client.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/{kind}")


async def measure_operator(kubeconfig: Path, policy: str, pods: int, folder: Path) -> tuple[float, float]:
    """Return (pods per second from first to last binding, seconds from start of the process to the first)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / f"{policy}.yaml"
    config.write_text(
        "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n"
        f"policy: {policy}\nconcurrentBinds: {IN_FLIGHT}\nleaderElection: {{enabled: false}}\n"
    )
    arguments = [sys.executable, "-m", "cotide_cli", "operator", "--config", str(config), "--install-crds"]
    arguments += ["--kubeconfig", str(kubeconfig), "--metrics-port", str(port), "--log-level", "warning"]
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*arguments)
    try:
        async with aiohttp.ClientSession() as session:
            first, last, before = 0.0, 0.0, 0.0
            while last < pods:
                if process.returncode is not None or time.perf_counter() - started > DEADLINE_SECONDS:
                    raise SystemExit(f"the operator bound {last:g} of {pods} pods and no more")
                await asyncio.sleep(POLL_SECONDS)
                last = await bound(session, port)
                if last and not first:
                    # Bindings began between two looks: the count at this one belongs to the time before it.
                    first, before = time.perf_counter(), last
            ended = time.perf_counter()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()
    return (pods - before) / (ended - first), first - started


async def bound(session: aiohttp.ClientSession, port: int) -> float:
    try:
        # Only this series: twenty times a second the whole page would take several percent of what is measured.
        async with session.get(f"http://127.0.0.1:{port}/metrics?name[]=cotide_schedule_attempts_total") as response:
            return sum(float(value) for value in SCHEDULED.findall(await response.read()))
    except aiohttp.ClientError:
        return 0.0


async def measure_bare(url: str, bindings: list[tuple[str, str, dict[str, str]]]) -> float:
    """Post the same bindings with nothing but an HTTP client; return bindings per second."""
    bodies = [
        (
            f"{url}{PODS}/{name}/binding",
            orjson.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": name, "annotations": annotations},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": target},
                }
            ),
        )
        for name, target, annotations in bindings
    ]
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    async with aiohttp.ClientSession(connector=connector, headers={"Content-Type": "application/json"}) as session:

        async def post(where: str, body: bytes) -> None:
            async with session.post(where, data=body) as response:
                if response.status != 201:
                    raise SystemExit(f"the bare loop got {response.status}: {await response.text()}")
                await response.read()

        started = time.perf_counter()
        await spread((lambda w=w, b=b: post(w, b) for w, b in bodies), IN_FLIGHT)
        return len(bodies) / (time.perf_counter() - started)


async def one_round(client: KubeClient, url: str, kubeconfig: Path, policy: str, pods: int, folder: Path) -> Round:
    await fill(client, pods)
    rate, first = await measure_operator(kubeconfig, policy, pods, folder)
    placed = await client.list(PODS)
    nodeless = [one["metadata"]["name"] for one in placed if not one["spec"].get("nodeName")]
    if nodeless or len(placed) != pods:
        raise SystemExit(f"{len(nodeless)} of {len(placed)} pods carry no node, e.g. {nodeless[:3]}")
    bindings = [
        (one["metadata"]["name"], one["spec"]["nodeName"], one["metadata"].get("annotations", {})) for one in placed
    ]
    await empty(client)
    await fill(client, pods)
    bare = await measure_bare(url, bindings)
    await empty(client)
    return Round(policy, rate, first, bare)


async def run(options: argparse.Namespace) -> list[Round]:
    rounds: list[Round] = []
    with tempfile.TemporaryDirectory() as name, server_process() as server:
        folder, kubeconfig = Path(name), server.kubeconfig_path
        async with KubeClient(load_credentials(str(kubeconfig))) as client:
            await client.create(
                "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            )
            if not options.kubelets:
                await spread((lambda i=i: client.create("/api/v1/nodes", node(i)) for i in range(options.nodes)), 16)
            with kubelets(kubeconfig, options) if options.kubelets else contextlib.nullcontext():
                while len(await client.list("/api/v1/nodes")) < options.nodes:
                    await asyncio.sleep(0.5)
                for policy in options.policies.split(","):
                    for _ in range(options.rounds):
                        rounds.append(await one_round(client, server.url, kubeconfig, policy, options.pods, folder))
                        report(rounds[-1])
    return rounds


@contextlib.contextmanager
def kubelets(kubeconfig: Path, options: argparse.Namespace) -> Iterator[None]:
    arguments = [sys.executable, "-m", "cotide_cli", "nodes", "--kubeconfig", str(kubeconfig)]
    arguments += ["--count", str(options.nodes), "--log-level", "warning"]
    process = subprocess.Popen(arguments)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def report(one: Round) -> None:
    print(
        f"{one.policy:>6}: {one.pods_per_second:7.0f} pods/s bound, first after {one.first_bind_seconds:.1f} s; "
        f"bare loop {one.bare_per_second:.0f}/s; ratio {one.ratio:.2f}",
        file=sys.stderr,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policies", default="fifo,qpsm")
    parser.add_argument("--kubelets", action="store_true", help="run fake nodes instead of plain Node objects")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rounds = runner.run(run(options))
    medians = {}
    for policy in options.policies.split(","):
        mine = [one for one in rounds if one.policy == policy]
        medians[policy] = {
            "pods_per_second": round(statistics.median(one.pods_per_second for one in mine)),
            "bare_per_second": round(statistics.median(one.bare_per_second for one in mine)),
            "ratio": round(statistics.median(one.ratio for one in mine), 2),
        }
    print(json.dumps({"nodes": options.nodes, "pods": options.pods, "rounds": options.rounds, "median": medians}))


if __name__ == "__main__":
    main()
