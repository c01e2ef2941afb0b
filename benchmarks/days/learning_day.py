"""A fresh install of the prod overlay that learns for a simulated day, is killed, and meets a poisoned store.

Run with ``python benchmarks/days/learning_day.py [--hours 24] [--speed 240] [--data DIR]``; not part of CI. Programs of
their own: the embedded API server, fake nodes on a clock that is ``--speed`` times as fast, and the operator with the
configuration of deploy/overlays/prod, of which only this is changed: the clock, where rates come from (the nodes'
page), and the wall seconds between two looks, which are shorter as the day is. Services are unlike: 2 to 500 ms
alone and rates over three decades, each with the course of a day; batch jobs come all day. Prints one JSON object and
ends with exit code 3 unless all of these hold:

- after the day the model decides for most services, as their Workloads' statuses say;
- the operator is killed (SIGKILL) and started again, and decides for all of them again before anything new was learned;
- the store is poisoned (each kept sample says the same latency, far below every limit) while no operator runs; the next
  one notices and drops it (``contradicted``), and the model decides for no fewer services in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import math
import re
import signal
import sys
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.extend(str(ROOT / folder) for folder in ("benchmarks/shared", "tests/controlplane"))

from processes import Pen, Process  # noqa: E402 - found by the line above
from race_watcher import machine  # noqa: E402

from cotide_kube.client import KubeClient  # noqa: E402
from cotide_kube.credentials import load_credentials  # noqa: E402
from cotide_operator.cache.preflight import await_resources, install  # noqa: E402
from cotide_predictors.learning import kept_state  # noqa: E402

Json = dict[str, Any]
OVERLAY: Final = ROOT / "deploy" / "overlays" / "prod" / "cotide.yaml"
NAMESPACE: Final = "shop"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
WORKLOADS: Final = f"/apis/cotide.dev/v1alpha1/namespaces/{NAMESPACE}/workloads"
STORE: Final = "/api/v1/namespaces/cotide-system/configmaps"
KEPT: Final = f"cotide-learned-samples.{NAMESPACE}"
BASES: Final = (0.05, 0.2)
"""Milliseconds that the modelled service takes alone (docs/research/simulation.md); others are multiples of it."""
JOB_TYPES: Final = ("aggregate", "grep", "join", "md5", "sample", "select", "sort", "wordcount")
COURSE: Final = (0.25, 0.2, 0.15, 0.2, 0.35, 0.6, 0.8, 0.9, 1.0, 0.85, 0.6, 0.4)
"""Share of a service's peak, two hours each (chosen: quiet at night, busiest in the afternoon)."""
PODS_AN_HOUR: Final = 30.0
CORES: Final = 8
AFTER_KILL_HOURS: Final = 3.0
AFTER_POISON_HOURS: Final = 8.0
"""From when the next operator decides, however long it took to start (chosen: on a machine under a load of 25 statuses
were not written within an hour of that clock, nor was a model trained within two)."""
DEADLINE_SECONDS: Final = 120.0
MISSED: Final = 3


@dataclass(frozen=True)
class Service:
    """One service: its scale, its peak rate in requests/s of its own, and its limit in milliseconds."""

    name: str
    latency_factor: float
    rate_factor: float
    peak: float
    limit: float

    def objects(self) -> tuple[Json, Json]:
        """Return its pod and the Workload that adopts it."""
        courses = ",".join(f"{share * self.peak:.0f}" for share in COURSE)
        notes = {
            "sim.cotide.dev/rates": courses,
            "sim.cotide.dev/rates-step-seconds": "7200",
            "sim.cotide.dev/latency-factor": repr(self.latency_factor),
            "sim.cotide.dev/rate-factor": repr(self.rate_factor),
        }
        labels = {"app": self.name, "cotide.dev/class": "online"}
        spec = {"selector": {"matchLabels": {"app": self.name}}, "qos": {"latencyP95Milliseconds": self.limit}}
        kind = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Workload", "metadata": {"name": self.name}}
        return pod(self.name, labels, notes, "1"), {**kind, "spec": spec}


def services(count: int, rng: np.random.Generator) -> list[Service]:
    """Draw services of 2 to 500 ms, with rates over three decades."""
    found = []
    for number in range(count):
        slow = float(np.exp(rng.uniform(math.log(2.0 / BASES[0]), math.log(500.0 / BASES[1]))))
        fewer = float(np.exp(rng.uniform(math.log(1e-3), 0.0)))
        peak = float(np.exp(rng.uniform(math.log(35_000.0), math.log(140_000.0))))
        limit = float(rng.choice((0.5, 1.0, 2.0))) * slow
        found.append(Service(f"web-{number:02}", slow, fewer, round(peak), round(limit, 3)))
    return found


def batch(number: int, rng: np.random.Generator) -> Json:
    """A pod of ten minutes to some hours."""
    cores = int(rng.choice((1, 2, 4), p=(0.6, 0.3, 0.1)))
    notes = {
        "cotide.dev/type": str(rng.choice(JOB_TYPES)),
        "cotide.dev/input-size": f"{int(rng.integers(1, 12))}Gi",
        "sim.cotide.dev/lone-seconds": f"{rng.lognormal(math.log(2400.0), 0.6):.0f}",
    }
    labels = {"cotide.dev/class": "batch"}
    return pod(f"batch-{number:04}", labels, notes, str(cores), restartPolicy="Never", schedulerName="cotide")


def pod(name: str, labels: Json, notes: Json, cpu: str, **spec: Any) -> Json:
    """Return a pod of one container."""
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    metadata = {"name": name, "labels": labels, "annotations": notes}
    return {"metadata": metadata, "spec": {"schedulerName": "cotide", "containers": [container], **spec}}


def configuration(folder: Path, page: str, origin: float, speed: float) -> Json:
    """Return the overlay's configuration on a fast clock."""
    found: Json = yaml.safe_load(OVERLAY.read_text(encoding="utf-8"))
    retraining = found["models"]["retraining"]
    retraining |= {"checkSeconds": max(1.0, 30.0 * 60 / speed), "keepSeconds": max(2.0, 300.0 * 60 / speed)}
    found["models"] |= {"directory": str(folder / "models"), "pollSeconds": 1.0}
    found["metricsSource"] = {"scrape": {"url": page}, "intervalSeconds": 0.5, "staleAfterSeconds": 5}
    found["simulatedTime"] = {"originSeconds": origin, "speed": speed}
    return found


def poisoned(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return a store of which each sample says the same latency, far below every limit."""
    samples, windows, model = kept_state.from_files(files)
    return kept_state.to_files([replace(sample, latency=1e-3) for sample in samples], windows, model)


def unpacked(stored: Json) -> dict[str, bytes]:
    """Return the files in a ConfigMap of the store."""
    return {name: zlib.decompress(base64.b64decode(text)) for name, text in stored["binaryData"].items()}


def packed(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return files as `unpacked` takes them."""
    return {name: base64.b64encode(zlib.compress(content)).decode() for name, content in files.items()}


def verdicts(day: Sequence[str], killed: Sequence[str], end: Sequence[str], count: int, contradicted: float) -> Json:
    """Return which of the bars hold; each list names the services for which the model decides."""
    return {
        "the model decides for most services after the day": len(day) > count / 2,
        "killed and restarted, it still does": set(day) <= set(killed),
        "the poisoned store is noticed": contradicted >= 1,
        "and the model decides for no fewer in the end": len(end) >= len(day),
    }


class Day:
    """The programs, and what the server says."""

    def __init__(self, pen: Pen, folder: Path, options: argparse.Namespace) -> None:
        self._pen, self._folder, self._options = pen, folder, options
        self._origin = time.time()
        self._operators = 0
        self._kubeconfig = str(folder / "admin.kubeconfig")

    async def run(self) -> Json:
        """Play the day and what follows; return all figures."""
        options, rng = self._options, np.random.default_rng(self._options.seed)
        server = [*self._command("apiserver"), "--port", "0", "--kubeconfig-out", self._kubeconfig]
        self._pen.start("apiserver", server)
        await _until(lambda: Path(self._kubeconfig).exists(), "the API server")
        async with KubeClient(load_credentials(self._kubeconfig, None), max_connections=16) as client:
            await install(client)
            await await_resources(client)
            for name in ("cotide-system", NAMESPACE):
                await client.create("/api/v1/namespaces", {"metadata": {"name": name}})
            page = await self._start_nodes(client)
            drawn = services(options.services, rng)
            for one in drawn:
                online, workload = one.objects()
                await client.create(WORKLOADS, workload)
                await client.create(PODS, online)
            operator = await self._start_operator(page)
            feeding = asyncio.create_task(self._feed(client, rng))
            await self._sleep_until(options.hours)
            after_day = await self._decided(client)
            operator.end(signal.SIGKILL)
            for one in drawn:  # what a status says from now on, the next operator has written
                await client.patch(f"{WORKLOADS}/{one.name}/status", {"status": {"decidedBy": None}})
            operator = await self._start_operator(page)
            await self._sleep_until(self._hours() + AFTER_KILL_HOURS)
            took_up = self._said_now(operator, r"took up (\d+) samples and the trust of (\d+) services")
            after_kill = await self._decided(client)
            operator.end(signal.SIGKILL)
            stored = await client.get(f"{STORE}/{KEPT}")
            stored["binaryData"] = packed(poisoned(unpacked(stored)))
            await client.replace(f"{STORE}/{KEPT}", stored)
            operator = await self._start_operator(page)
            await self._sleep_until(self._hours() + AFTER_POISON_HOURS)
            contradicted = self._metric('learned_store_total{outcome="contradicted"}')
            after_poison = await self._decided(client)
            feeding.cancel()
            left = operator.end(signal.SIGTERM)
        holds = verdicts(after_day, after_kill, after_poison, len(drawn), contradicted)
        return {
            "services": len(drawn), "decides_after_day": after_day, "took_up": took_up,
            "decides_after_kill": after_kill, "decides_after_poison": after_poison, "contradicted": contradicted,
            "rollbacks": self._said_now(operator, r"rolled back: (.*)"), "operator_left_with": left, "holds": holds,
        }  # fmt: skip

    def _command(self, name: str) -> list[str]:
        return [sys.executable, "-m", "cotide_cli", name]

    async def _start_nodes(self, client: KubeClient) -> str:
        options = self._options
        clock = ["--speed", str(options.speed), "--origin-seconds", repr(self._origin), "--metrics-port", "0"]
        shape = ["--count", str(options.nodes), "--cpu", str(CORES), "--memory", "32Gi"]
        physics = [] if options.data is None else ["--interference", f"measured:{options.data / 'colocation'}"]
        command = [*self._command("nodes"), "--kubeconfig", self._kubeconfig, *shape, *clock, *physics]
        nodes = self._pen.start("nodes", command)
        found = await self._said(nodes, r"(http://[0-9.:]+)/metrics")
        while sum(not one["spec"].get("taints") for one in await client.list("/api/v1/nodes")) < options.nodes:
            await asyncio.sleep(0.5)
        return f"{found[0]}/metrics"

    async def _start_operator(self, page: str) -> Process:
        self._operators += 1
        settings = self._folder / "cotide.yaml"
        settings.write_text(yaml.safe_dump(configuration(self._folder, page, self._origin, self._options.speed)))
        arguments = ["--kubeconfig", self._kubeconfig, "--config", str(settings), "--metrics-port", "0"]
        operator = self._pen.start(f"operator-{self._operators}", [*self._command("operator"), *arguments])
        await self._said(operator, "deciding with policy")
        self._page = (await self._said(operator, r"board on (http://[0-9.:]+)"))[0]
        return operator

    async def _feed(self, client: KubeClient, rng: np.random.Generator) -> None:
        """Make batch pods until cancelled."""
        at, number = self._hours() * 3600.0, 0
        while True:
            at += rng.exponential(3600.0 / PODS_AN_HOUR)
            await self._sleep_until(at / 3600.0)
            await client.create(PODS, batch(number, rng))
            number += 1

    async def _decided(self, client: KubeClient) -> list[str]:
        """Return the services for which the model decides."""
        found = await client.list(WORKLOADS)
        return sorted(one["metadata"]["name"] for one in found if one.get("status", {}).get("decidedBy") == "Model")

    def _metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self._page}/metrics", timeout=10) as answer:  # noqa: S310 - our own page
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"cotide_{name}"))

    def _hours(self) -> float:
        return (time.time() - self._origin) * self._options.speed / 3600.0

    async def _sleep_until(self, hours: float) -> None:
        await asyncio.sleep(max(0.0, (hours - self._hours()) * 3600.0 / self._options.speed))

    async def _said(self, process: Process, pattern: str) -> tuple[str, ...]:
        """Wait until a program says something; return the groups of it."""
        await _until(lambda: re.search(pattern, process.text()) or process.exit_code is not None, pattern, process)
        return self._said_now(process, pattern) or ()

    @staticmethod
    def _said_now(process: Process, pattern: str) -> tuple[str, ...]:
        found = re.search(pattern, process.text())
        return () if found is None else tuple(found.groups()) or (found[0],)


async def _until(holds: Any, what: str, process: Process | None = None) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            said = "" if process is None else process.text()[-2000:]
            raise SystemExit(f"{what} did not come within {DEADLINE_SECONDS:.0f} s {said}")
        await asyncio.sleep(0.1)


def main() -> None:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--speed", type=float, default=240.0, help="simulated seconds for each second")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--services", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="directory of the measured co-location tables; generated without it")
    parser.add_argument("--logs", type=Path, help="keep the programs' logs in this directory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="learning-day-") as name:
        folder = Path(name)
        logs = options.logs or folder
        logs.mkdir(parents=True, exist_ok=True)
        with Pen(logs) as pen:
            figures = asyncio.run(Day(pen, folder, options).run())
    print(json.dumps({"machine": machine(), "hours": options.hours, "speed": options.speed, **figures}, indent=1))
    sys.exit(0 if all(figures["holds"].values()) else MISSED)


if __name__ == "__main__":
    main()
