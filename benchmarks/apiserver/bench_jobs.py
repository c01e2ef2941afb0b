"""Churn of Jobs: from their creation until they have succeeded, and what it costs the server and the operator.

Four processes: the embedded API server, fake nodes, ``cotide operator``, and this one, which makes the Jobs and looks.
Each Job has one pod that runs for a few seconds. Told are the seconds until the last pod was bound and until the last
Job's status says so, the writes that the server took in between (versions of the server, so all writes of everybody
count), and the operator's cpu seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials
from cotide_sim.apiserver.testing import server_process

JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
IN_FLIGHT = 16
POLL_SECONDS = 0.2
DEADLINE_SECONDS = 180.0
CONFIG = """\
apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
policy: fifo
leaderElection: {enabled: false}
"""


@dataclass(frozen=True)
class Round:
    made_seconds: float
    bound_seconds: float
    done_seconds: float
    writes_per_job: float
    operator_cpu_seconds: float


def job(index: int, run_seconds: float) -> dict[str, Any]:
    annotations = {"sim.cotide.dev/lone-seconds": f"{run_seconds:g}"}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    return {
        "apiVersion": "cotide.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": f"job-{index:05d}", "namespace": "default"},
        "spec": {"template": {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}},
    }


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def version(client: KubeClient) -> int:
    return int((await client.get("/api/v1/namespaces?limit=1"))["metadata"]["resourceVersion"])


async def one_round(client: KubeClient, operator: subprocess.Popen[bytes], options: argparse.Namespace) -> Round:
    before, cpu = await version(client), cpu_seconds(operator.pid)
    started = time.perf_counter()
    todo = iter(range(options.jobs))

    async def make() -> None:
        for index in todo:
            await client.create(JOBS, job(index, options.run_seconds))

    await asyncio.gather(*(make() for _ in range(IN_FLIGHT)))
    made = time.perf_counter() - started
    bound = done = 0.0
    while not done:
        await asyncio.sleep(POLL_SECONDS)
        now = time.perf_counter() - started
        if now > DEADLINE_SECONDS:
            raise SystemExit("the Jobs were not done in time")
        jobs = await client.list(JOBS)
        phases = [(one.get("status") or {}).get("phase") for one in jobs]
        if not bound:
            pods = await client.list(PODS)
            placed = sum(1 for pod in pods if pod["spec"].get("nodeName"))
            bound = now if placed == options.jobs else 0.0
        if phases.count("Succeeded") == options.jobs:
            done = now
    await asyncio.sleep(1.0)  # what is written last
    spent = cpu_seconds(operator.pid) - cpu
    writes = (await version(client) - before) / options.jobs
    names = [one["metadata"]["name"] for one in await client.list(JOBS)]
    for name in names:
        await client.delete(f"{JOBS}/{name}")
    while await client.list(PODS) or await client.list(JOBS):
        await asyncio.sleep(POLL_SECONDS)
    return Round(made, bound, done, writes, spent)


@contextlib.contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "cotide_cli", *arguments, "--log-level", "warning"])
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def ready(port: int) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(POLL_SECONDS)


async def run(options: argparse.Namespace) -> list[Round]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    rounds = []
    with tempfile.TemporaryDirectory() as name, server_process() as server:
        config = Path(name) / "config.yaml"
        config.write_text(CONFIG)
        where = ("--kubeconfig", str(server.kubeconfig_path))
        mine = ("operator", "--config", str(config), "--install-crds", *where, "--metrics-port", str(port))
        with program("nodes", *where, "--count", str(options.nodes), "--cpu", "32"), program(*mine) as operator:
            async with KubeClient(load_credentials(str(server.kubeconfig_path))) as client:
                await asyncio.wait_for(ready(port), DEADLINE_SECONDS)
                for _ in range(options.rounds):
                    rounds.append(await one_round(client, operator, options))
                    print(json.dumps(asdict(rounds[-1])), file=sys.stderr)
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run-seconds", type=float, default=3.0)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rounds = runner.run(run(options))
    median = {name: round(statistics.median(asdict(one)[name] for one in rounds), 2) for name in asdict(rounds[0])}
    print(json.dumps({"nodes": options.nodes, "jobs": options.jobs, "rounds": options.rounds, "median": median}))


if __name__ == "__main__":
    main()
