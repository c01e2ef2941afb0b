"""A simulated day in shadow mode beside the real kube-scheduler, with the role of deploy/shadow, which only reads.

Run with ``python benchmarks/days/shadow_day.py [--hours 24] [--speed 480]``; not part of CI. A real etcd,
kube-apiserver, kube-controller-manager and kube-scheduler, fake nodes on a clock that is ``--speed`` times as fast,
services whose rates follow a day's curve, and batch pods that come by another one. An operator in shadow mode watches
it as a program of its own. Prints one JSON object and ends with exit code 3 unless all of these hold:

- the server's audit log has no request of the shadow's account but reads, and none that was refused;
- the pods that the report counts as placed are those that the server says have a node;
- `cotide replay` finds no difference, and the ledger that a fresh engine writes from the same events gives the same
  report, figure by figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

sys.path.extend(
    str(Path(__file__).resolve().parents[2] / folder) for folder in ("benchmarks/shared", "tests/controlplane")
)

from binaries import KUBERNETES, find_or_build, tell_on_stderr
from control_plane import ControlPlane, control_plane, free_port
from processes import Process
from race_watcher import machine

from cotide_core.cycle import Scheduler
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.recording.ledger import LedgerWriter, read_ledger
from cotide_core.recording.shadow_report import ShadowReport, shadow_report
from cotide_kube.client import KubeClient
from cotide_lab.commands.ledger_replay import replay
from cotide_operator.cache.preflight import await_resources, install

Json = dict[str, Any]
ROLE: Final = Path(__file__).resolve().parents[2] / "deploy" / "shadow" / "rbac.yaml"
COLLECTIONS: Final = {
    "ServiceAccount": "/api/v1/namespaces/cotide-system/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
USER: Final = "system:serviceaccount:cotide-system:cotide-shadow"
READS: Final = frozenset({"get", "list", "watch"})
PODS: Final = "/api/v1/namespaces/default/pods"
WORKLOADS: Final = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"
PODS_AN_HOUR: Final = 30.0
SWING: Final = 0.7
"""The curve of arrivals: so much above its mean at three in the afternoon, and below it at three in the morning."""
SERVICES: Final = 4
RATES: Final = (9000, 7000, 6000, 8000, 15000, 30000, 45000, 55000, 60000, 50000, 32000, 15000)
"""Requests per second of a service, two hours each (chosen: quiet at night, near its core's most in the afternoon)."""
CORES: Final = 8
DEADLINE_SECONDS: Final = 120.0
MISSED: Final = 3


def batch(number: int, rng: np.random.Generator) -> Json:
    """A pod of half an hour to some hours."""
    cores = int(rng.choice((1, 2, 4), p=(0.6, 0.3, 0.1)))
    notes = {
        "cotide.dev/type": "wordcount",
        "cotide.dev/input-size": f"{int(rng.integers(1, 8))}Gi",
        "sim.cotide.dev/lone-seconds": f"{rng.lognormal(math.log(5400.0), 0.6):.0f}",
    }
    return _pod(f"batch-{number:04}", {"cotide.dev/class": "batch"}, notes, str(cores), restartPolicy="Never")


def service(number: int) -> tuple[Json, Json]:
    """A service of one pod, and the Workload that adopts it."""
    notes = {
        "sim.cotide.dev/rates": ",".join(map(str, RATES)),
        "sim.cotide.dev/rates-step-seconds": "7200",
    }
    labels = {"app": f"web-{number}", "cotide.dev/class": "online"}
    spec = {"selector": {"matchLabels": {"app": f"web-{number}"}}, "qos": {"latencyP95Milliseconds": 10}}
    kind = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Workload", "metadata": {"name": f"web-{number}"}}
    return _pod(f"web-{number}", labels, notes, "1"), {**kind, "spec": spec}


def _pod(name: str, labels: Json, notes: Json, cpu: str, **spec: Any) -> Json:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    metadata = {"name": name, "labels": labels, "annotations": notes}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


async def feed(client: KubeClient, rng: np.random.Generator, options: argparse.Namespace) -> int:
    """Make batch pods for so long; return how many."""
    begun, at, number = time.monotonic(), 0.0, 0
    while True:
        swing = 1.0 + SWING * math.sin(2 * math.pi * (at / 86_400.0 - 0.375))
        at += rng.exponential(3600.0 / (PODS_AN_HOUR * swing))
        if at > options.hours * 3600.0:
            return number
        await asyncio.sleep(max(0.0, begun + at / options.speed - time.monotonic()))
        await client.create(PODS, batch(number, rng))
        number += 1


async def until(what: str, process: Process, words: str) -> None:
    """Wait until a program says something."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while words not in process.text():
        if process.exit_code is not None or time.monotonic() > deadline:
            raise SystemExit(f"{what}: {process.text()[-2000:]}")
        await asyncio.sleep(0.1)


async def day(plane: ControlPlane, options: argparse.Namespace, folder: Path) -> Json:
    """Run the day; return what the server says of it."""
    rng, origin, port = np.random.default_rng(options.seed), time.time(), free_port()
    admin = str(plane.folder / "admin.kubeconfig")
    async with KubeClient(plane.admin, max_connections=16, timeout_seconds=60.0) as client:
        await install(client)
        await await_resources(client)
        await client.create("/api/v1/namespaces", {"metadata": {"name": "cotide-system"}})
        for document in yaml.safe_load_all(ROLE.read_text(encoding="utf-8")):
            await client.create(COLLECTIONS[document["kind"]], document)
        clock = ["--speed", str(options.speed), "--origin-seconds", repr(origin), "--metrics-port", str(port)]
        shape = ["--count", str(options.nodes), "--cpu", str(CORES), "--memory", "32Gi"]
        command = [sys.executable, "-m", "cotide_cli", "nodes", "--kubeconfig", admin, *shape, *clock]
        nodes = plane.pen.start("nodes", command)
        while sum(not one["spec"].get("taints") for one in await client.list("/api/v1/nodes")) < options.nodes:
            await asyncio.sleep(0.5)
        token = await plane.token("cotide-system", "cotide-shadow")
        settings = folder / "shadow.yaml"
        settings.write_text(
            "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\nmode: shadow\n"
            "leaderElection: {enabled: false}\n"
            f"simulatedTime: {{originSeconds: {origin!r}, speed: {options.speed}}}\n"
            f"metricsSource: {{scrape: {{url: 'http://127.0.0.1:{port}/metrics'}}}}\n"
            f"ledger: {{directory: {folder / 'ledger'}}}\n"
        )
        arguments = ["--kubeconfig", str(plane.kubeconfig("cotide-shadow", token=token)), "--config", str(settings)]
        command = [sys.executable, "-m", "cotide_cli", "operator", *arguments, "--metrics-port", "0"]
        shadow = plane.pen.start("shadow", command)
        await until("the shadow", shadow, "deciding with policy")
        scheduler = plane.start_scheduler()
        for number in range(SERVICES):
            pod, workload = service(number)
            await client.create(WORKLOADS, workload)
            await client.create(PODS, pod)
        made = await feed(client, rng, options)
        await asyncio.sleep(2.0)
        scheduler.end(signal.SIGTERM)
        await asyncio.sleep(2.0)  # what the shadow would write late is written by now, and it has seen the last binding
        left = shadow.end(signal.SIGTERM)
        pods = await client.list(PODS)
        nodes.end(signal.SIGTERM)
    phases = Counter(pod["status"].get("phase") for pod in pods)
    placed = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
    return {"made": made + SERVICES, "placed": placed, "phases": dict(phases), "shadow_left_with": left,
            "traceback": "Traceback" in shadow.text()}  # fmt: skip


def audited(log: Path) -> Json:
    """Return what the shadow's account asked for: reads by verb, what is no read, what was refused."""
    mine = [one for line in log.open(encoding="utf-8") if (one := json.loads(line))["user"]["username"] == USER]
    verbs = Counter(one["verb"] for one in mine)
    refused = [one["requestURI"] for one in mine if one.get("responseStatus", {}).get("code") == 403]
    return {
        "requests": dict(verbs),
        "writes": sum(verbs[verb] for verb in verbs if verb not in READS),
        "refused": refused,
    }


def written_anew(file: Path) -> Iterator[bytes]:
    """Yield the ledger that a fresh engine writes from the same events."""
    with file.open("rb") as lines:
        ledger = read_ledger(lines)
        engine, writer = Scheduler(ledger.config, HeuristicCatalogue()), LedgerWriter(ledger.config)
        yield writer.header()
        for entry in ledger:
            yield writer.entry(entry.now, entry.events, engine.handle(entry.events, entry.now))


def reports(file: Path) -> tuple[ShadowReport, ShadowReport, str | None]:
    """Return the ledger's report, that of the ledger written anew, and what a replay finds different."""
    with file.open("rb") as lines:
        first = shadow_report(lines, HeuristicCatalogue())
    with file.open("rb") as lines:
        difference = replay(lines, HeuristicCatalogue()).difference
    return first, shadow_report(written_anew(file), HeuristicCatalogue()), difference


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--speed", type=float, default=480.0, help="simulated seconds for each second")
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shadow-day-") as name:
        folder = Path(name)
        for part in ("plane", "ledger"):
            (folder / part).mkdir()
        with control_plane(find_or_build(tell_on_stderr), folder / "plane") as plane:
            plane.start_controller_manager()
            plane.wait_for_accounts()
            seen = asyncio.run(day(plane, options, folder))
            asked = audited(plane.audit_log)
        first, anew, difference = reports(folder / "ledger" / "ledger.jsonl")
    holds = {
        "no write, nothing refused": asked["writes"] == 0 and not asked["refused"] and bool(asked["requests"]),
        "report counts the server's placements": first.placed == seen["placed"],
        "replay finds no difference": difference is None,
        "report of the replay is the same": asdict(first) == asdict(anew),
        "shadow ended well": seen["shadow_left_with"] == 0 and not seen["traceback"],
    }
    figures = {"kubernetes": KUBERNETES, "machine": machine(), "server": seen, "audit": asked, "holds": holds}
    print(json.dumps({**figures, "report": asdict(first), "difference": difference}, indent=1))
    sys.exit(0 if all(holds.values()) else MISSED)


if __name__ == "__main__":
    main()
