"""Upstream's scheduler_perf workloads, under kube-scheduler and Cotide in turn, on one real API server.

Run with ``make bench-upstream`` (``ARGS="--only Preemption --repeats 3"`` for some of it). The YAML and the templates
of the workloads are those of the Kubernetes that the control plane is built from, in Go's module cache; sizes are in
`perf_workloads`. One etcd and one kube-apiserver without controllers, with upstream's admission plugins off; each
scheduler is a process with an administrator's identity, started for each workload and warmed by one pod. While the pods
to be measured are made it is stopped (``--no-freeze``: it is not), and its pods a second count from then on.

After each run the placements are checked from the API's objects alone. Each run is in ``--out``/journal.jsonl before
the next begins: stopped anywhere and begun again, it goes on. A whole run is in ``--out``/result.json, and the journal
is gone. Prints a table for each policy. Exit codes: 0, 1 when
Cotide breaks a rule or leaves a pod that kube-scheduler does not, 2 for a mistake in options, 77 where it can't be run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop

sys.path.extend(
    str(Path(__file__).resolve().parents[2] / folder)
    for folder in ("benchmarks/shared", "benchmarks/race", "tests/controlplane")
)

from binaries import KUBERNETES, REQUIRED, SKIP_CODE, Binaries, NotToBeHad, find_go, find_or_build, tell_on_stderr
from control_plane import ControlPlane
from journal import Journal
from perf_cluster import clear, make_namespace, path
from perf_figures import KUBE_SCHEDULER, comparisons, faulty, run_of, table
from perf_operations import Operations
from perf_pods import PodWatch
from perf_workloads import CHOSEN, Workload, scheduler_perf, workloads
from placements import Placements
from processes import Pen, Process
from race_profiles import configuration
from race_watcher import cpu_seconds, machine, memory_bytes

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient
from cotide_operator.cache.preflight import await_resources, install

OUT: Final = Path(__file__).resolve().parents[2] / "build" / "upstream" / "perf"
RESULTS: Final = Path(__file__).with_name("results")
WARM: Final = "warm"
"""Namespace, node and pod that show that a scheduler binds."""
WARM_SECONDS: Final = 300.0
"""Chosen: the first start after a change compiles kernels."""
REST_SECONDS: Final = 0.5
REST_SHARE: Final = 0.05
"""Of one core. A scheduler that uses no more for `REST_SECONDS` has started (chosen: an idle one uses up to .03)."""
MAX_REST_SECONDS: Final = 20.0
REPORTED_REFUSALS: Final = 3
"""Refusals that a line of progress names; the journal has all."""
TERMINATED: Final = 128 + signal.SIGTERM
"""Exit code, as a shell gives it."""
OFF: Final = "ServiceAccount,TaintNodesByCondition,Priority,StorageObjectInUseProtection"
"""Admission plugins: upstream's, and the one whose finalizers no controller takes away here."""
Json = dict[str, Any]


class PerfPlane(ControlPlane):
    """A control plane as upstream's scheduler_perf starts it: no audit, fewer admission plugins, many requests."""

    def api_server_flags(self) -> dict[str, str]:
        flags = {key: value for key, value in super().api_server_flags().items() if not key.startswith("audit-")}
        return {
            **flags,
            "disable-admission-plugins": OFF,
            "max-requests-inflight": "2000",
            "max-mutating-requests-inflight": "1000",
        }


@dataclass(frozen=True, slots=True)
class Stage:
    """What every run needs."""

    plane: PerfPlane
    client: KubeClient
    watch: PodWatch
    freeze: bool

    def start(self, scheduler: str) -> Process:
        """Start a scheduler's process."""
        folder, kubeconfig = self.plane.folder, self.plane.folder / "admin.kubeconfig"
        config = folder / f"{scheduler}.yaml"
        if scheduler == KUBE_SCHEDULER:
            config.write_text(configuration(KUBE_SCHEDULER, kubeconfig), encoding="utf-8")
            return self.plane.start_scheduler(config)
        policy = scheduler.removeprefix("cotide-")
        config.write_text(
            f"apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\npolicy: {policy}\n"
            "schedulerName: default-scheduler\nleaderElection: {enabled: false}\nreclaimed: {publish: false}\n",
            encoding="utf-8",
        )
        arguments = ["operator", "--kubeconfig", str(kubeconfig), "--config", str(config), "--metrics-port", "0"]
        command = [sys.executable, "-m", "cotide_cli", *arguments, "--log-level", "warning"]
        return self.plane.pen.start(scheduler, command)

    async def warm(self, process: Process) -> None:
        """Wait until a scheduler binds a pod; what this took is gone before a workload begins."""
        await make_namespace(self.client, WARM, {})
        status = {
            "capacity": {"cpu": "1", "memory": "1Gi", "pods": "9"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.client.create(path("Node"), {"metadata": {"name": WARM}, "status": status})
        pod = {
            "metadata": {"name": WARM},
            "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "x"}]},
        }
        await self.client.create(path("Pod", WARM), pod)
        if not await self.watch.until(lambda one: one.over, [(WARM, WARM)], WARM_SECONDS, WARM_SECONDS):
            raise ClusterError(f"the scheduler does not bind: {process.text()[-2000:]}")
        await self.client.delete(path("Pod", WARM, WARM), grace_seconds=0)
        await self.client.delete(path("Node", name=WARM))
        await rest(process)
        self.watch.forget()


async def rest(process: Process) -> None:
    """Return when a scheduler's start is over: what it loads after its first binding is part of no workload."""
    end = time.monotonic() + MAX_REST_SECONDS
    while time.monotonic() < end:
        before = cpu_seconds({"one": process.pid})["one"]
        await asyncio.sleep(REST_SECONDS)
        if cpu_seconds({"one": process.pid})["one"] - before <= REST_SHARE * REST_SECONDS:
            return


async def heat(stage: Stage, workload: Workload, scheduler: str) -> Json:
    """Run one workload under one scheduler, check where its pods are, and clear."""
    process, begun = stage.start(scheduler), time.monotonic()
    try:
        await stage.warm(process)
        operations = Operations(stage.client, stage.watch, workload, process, freeze=stage.freeze)
        measured = await operations.run()
        listed = [await stage.client.list(path(kind)) for kind in ("Pod", "Node", "Namespace")]
        placements = Placements(*listed)
        return {
            **run_of(measured.late, len(measured.pods), measured.cpu_seconds),
            **placements.evenness(measured.pods),
            "violations": placements.violations(),
            "unbound": measured.unbound,
            "refusals": measured.refusals,
            "faults": [*measured.faults, *stage.watch.faults, *logged(process)],
            "memory_mib": memory_bytes(process.pid)["highest"] >> 20,
            "load_average": round(os.getloadavg()[0], 1),
            "total_seconds": round(time.monotonic() - begun, 1),
        }
    finally:
        process.end(signal.SIGTERM)
        await clear(stage.client)
        stage.watch.forget()


def logged(process: Process) -> list[str]:
    """Return what a scheduler reports as its own fault."""
    text = process.text()
    return [text[text.index("Traceback") :][-1000:]] if "Traceback" in text else []


async def all_runs(stage: Stage, options: argparse.Namespace, journal: Journal, chosen: Sequence[Workload]) -> None:
    """Run what the journal lacks; the schedulers take turns in being first."""
    schedulers = [KUBE_SCHEDULER, *(f"cotide-{policy}" for policy in options.policies)]
    for repeat in range(options.repeats):
        for number, workload in enumerate(chosen):
            turn = (repeat + number) % len(schedulers)
            for scheduler in schedulers[turn:] + schedulers[:turn]:
                key = {"workload": workload.name, "sizes": dict(workload.sizes), "scheduler": scheduler}
                if not journal.lacks(**key, repeat=repeat):
                    continue
                journal.add({**key, "repeat": repeat, **await heat(stage, workload, scheduler)})
                report(journal.lines[-1])


def report(run: Json) -> None:
    refusals = list(run["refusals"].items())
    wrong = {**run["violations"], **dict(refusals[:REPORTED_REFUSALS])}
    if len(refusals) > REPORTED_REFUSALS:
        wrong["further refusals"] = len(refusals) - REPORTED_REFUSALS
    emit(
        f"{run['workload']} {run['scheduler']}: {run['bound']} of {run['pods']} pods, {run['pods_per_second']:.0f}/s, "
        f"{run['cpu_seconds_per_1000_pods']:.2f} cpu s per 1,000, at most {run['most_on_one_node']} on a node, zone "
        f"skew {run['zone_skew']}, load {run['load_average']}" + (f", wrong: {wrong} {run['faults']}" if wrong else "")
    )


@contextmanager
def started(binaries: Binaries) -> Iterator[PerfPlane]:
    """Run a control plane in a folder that goes with it."""
    with tempfile.TemporaryDirectory(prefix="upstream-perf-") as name, Pen(Path(name)) as pen:
        plane = PerfPlane(binaries, Path(name), pen)
        plane.start()
        emit(f"kube-apiserver {KUBERNETES} and etcd after {plane.started_in_seconds:.1f} s")
        yield plane


@asynccontextmanager
async def stage_on(plane: PerfPlane, *, freeze: bool) -> AsyncIterator[Stage]:
    """Install our definitions and watch all pods."""
    async with KubeClient(plane.admin, max_connections=64, timeout_seconds=120.0) as client:
        await install(client)
        await await_resources(client)
        watch = PodWatch(client)
        async with asyncio.TaskGroup() as group:  # a watch that ends with an error ends the run
            watching = group.create_task(watch.run())
            yield Stage(plane, client, watch, freeze)
            watching.cancel()


async def measure(plane: PerfPlane, options: argparse.Namespace, journal: Journal, chosen: Sequence[Workload]) -> None:
    mine = asyncio.current_task()
    assert mine is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, mine.cancel)
    async with stage_on(plane, freeze=options.freeze) as stage:
        await all_runs(stage, options, journal, chosen)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", help="TEST/NAME[@size=n,...]; by default those of perf_workloads")
    parser.add_argument("--only", default="", help="a regular expression of the workloads to run")
    parser.add_argument("--policies", type=lambda text: text.split(","), default=["predictive"], help="of Cotide")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument(
        "--no-freeze", dest="freeze", action="store_false", help="let the scheduler run while pods are made"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the journal")
    parser.add_argument("--record", action="store_true", help="keep the runs in benchmarks/upstream/results")
    return parser.parse_args()


def main() -> int:
    options = parse()
    asked = options.workloads or [name for name in CHOSEN if re.search(options.only, name)]
    try:
        binaries = find_or_build(tell_on_stderr)
        perf = scheduler_perf(find_go(tell_on_stderr), KUBERNETES)
    except NotToBeHad as reason:
        emit(f"skipped: {reason}")
        return 1 if os.environ.get(REQUIRED) == "required" else SKIP_CODE
    try:
        chosen = list(workloads(perf, asked))
    except ValueError as error:
        emit(str(error))
        return 2
    journal = Journal(options.out / "journal.jsonl", {"kubernetes": KUBERNETES, "freeze": options.freeze})
    with started(binaries) as plane, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(measure(plane, options, journal, chosen))
        except asyncio.CancelledError:
            return TERMINATED
    finish(options, journal)
    return show(journal.lines, options.policies)


def finish(options: argparse.Namespace, journal: Journal) -> None:
    """Write the result of a whole run in place of its journal, and on request beside this file."""
    document = {"plan": journal.plan, "machine": machine(), "runs": journal.lines}
    files = [options.out / "result.json"]
    if options.record:
        RESULTS.mkdir(exist_ok=True)
        files.append(RESULTS / f"scheduler-perf-{KUBERNETES.rpartition('.')[0]}.json")
    for file in files:
        file.write_text(f"{json.dumps(document, indent=1)}\n", encoding="utf-8")
    (options.out / "journal.jsonl").unlink()


def show(runs: Sequence[Json], policies: Sequence[str]) -> int:
    """Print a table for each policy; return the exit code."""
    wrong = []
    for policy in policies:
        compared = comparisons(runs, f"cotide-{policy}")
        sys.stdout.write(f"{policy}\n{table(compared)}\n")
        wrong += [f"{policy}: {name}" for name in faulty(compared)]
    if wrong:
        sys.stdout.write(f"placements that kube-scheduler does not make, or pods without a node: {', '.join(wrong)}\n")
    return 1 if wrong else 0


def emit(line: str) -> None:
    sys.stderr.write(f"upstream_perf: {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
