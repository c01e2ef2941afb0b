"""Upstream's end-to-end specs of sig-scheduling, with one scheduler for all pods, on two real kubelets.

Run with ``make test-upstream`` (as root, on Linux) in the machine of `machine`. ``POLICY=qpsm`` chooses Cotide's
policy, ``KUBERNETES=1.36`` the release of the server and of the specs, ``FOCUS=`` and ``SKIP=`` some of the specs by
regular expressions. ``SCHEDULER=kube-scheduler`` runs upstream's own scheduler; ``RECORD=1`` keeps the results beside
this file, where a narrowed run replaces those of the specs that it ran. kube-scheduler's are what all others are
compared with.

Cotide runs with its ServiceAccount's rights and its own defaults, but as ``default-scheduler``. Prints a table; logs,
events, pods and ginkgo's report are in ``build/upstream``. Exit codes: 0, 1 when a spec is not passed that
kube-scheduler passes, 2 for a mistake in options, 77 where it can't be run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import images
from binaries import REQUIRED, SKIP_CODE, Binaries, NotToBeHad, tell_on_stderr
from machine import CGROUP_VARIABLE
from node_programs import find_or_download
from other_releases import TODAY, of_release
from processes import Process
from real_cluster import ALONE, DEPLOY, HEAD, apply, kubectl, until_served
from real_nodes import PAUSING, NodeCluster, RealNode, real_nodes
from repository import ROOT
from specs import Results, Spec, missed, of_report, table
from upstream_programs import VERSIONS, UpstreamPrograms, find_or_build

from cotide_kube.client import KubeClient

RESULTS: Final = Path(__file__).with_name("results")
OUT: Final = ROOT / "build" / "upstream"
FOLDER: Final = Path("/run/upstream")
"""In memory, and gone with the machine within the machine."""
KUBE_SCHEDULER: Final = "kube-scheduler"
NODES: Final = 2
LIMIT_MINUTES: Final = 120
"""Chosen: a run takes 23 minutes with kube-scheduler, and a failing spec waits for 5 or 10."""
GATED: Final = "GenericWorkload"
"""A feature gate that is alpha in 1.35 and 1.36, and off: ginkgo is to skip its specs."""
READY_SECONDS: Final = 120.0
READY: Final = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
ALONE_IN_CLUSTER: Final = f"{HEAD}schedulerName: default-scheduler\n{ALONE}"


@dataclass(frozen=True, slots=True)
class Exam:
    """What is run and where its traces stay."""

    scheduler: str
    release: str
    focus: str
    skip: str

    @property
    def policy(self) -> str:
        return self.scheduler.removeprefix("cotide-")

    @property
    def narrowed(self) -> bool:
        return bool(self.focus or self.skip)

    @property
    def out(self) -> Path:
        return OUT / f"{self.scheduler}-{self.release}"

    @property
    def recorded(self) -> Path:
        return RESULTS / f"{self.scheduler}-{self.release}.json"

    def baseline(self) -> Results | None:
        """Return kube-scheduler's results; None for a run that makes them."""
        if self.scheduler == KUBE_SCHEDULER:
            return None
        file = replace(self, scheduler=KUBE_SCHEDULER).recorded
        if not file.exists():
            raise SystemExit(f"upstream: {file.name} is missing: make test-upstream SCHEDULER=kube-scheduler RECORD=1")
        return Results.read(file)


def sit(exam: Exam) -> Results:
    """Run the specs and return what became of them."""
    binaries, specs = of_release(exam.release, tell_on_stderr), find_or_build(exam.release, tell_on_stderr)
    programs = find_or_download(tell_on_stderr)
    shutil.rmtree(exam.out, ignore_errors=True)
    exam.out.mkdir(parents=True)
    FOLDER.mkdir(parents=True)
    archives = image_archives(specs, images.busybox(programs.busybox))
    with real_nodes(binaries, programs, FOLDER, count=NODES) as cluster:
        for node in cluster.nodes:
            for archive in archives:
                node.import_image(archive)
        open_nodes(cluster)
        scheduler = start(exam, cluster)
        emit(f"{NODES} nodes are ready, {exam.scheduler} is started")
        try:
            with watched(binaries, exam.out):
                code = run(exam, specs, scheduler)
        finally:
            for log in FOLDER.glob("*.log"):
                shutil.copy(log, exam.out)
    emit(f"the specs ended with exit code {code}, the scheduler's is {scheduler.exit_code}")
    report = exam.out / "report.json"
    found: dict[str, Spec] = of_report(json.loads(report.read_text(encoding="utf-8"))) if report.exists() else {}
    return Results(VERSIONS[exam.release], exam.scheduler, found)


def image_archives(specs: UpstreamPrograms, shell: dict[str, bytes | str]) -> list[Path]:
    """Write the images of the specs' pods: pause is our shell that waits, agnhost is upstream's own program."""
    pause, agnhost = specs.images()
    made = {
        pause: images.oci_archive(pause, shell, PAUSING),
        agnhost: images.oci_archive(
            agnhost, {**shell, "agnhost": specs.agnhost.read_bytes()}, ["pause"], entry_point=["/agnhost"]
        ),
    }
    written = []
    for number, content in enumerate(made.values()):
        written.append(FOLDER / f"upstream-image-{number}.tar")
        written[-1].write_bytes(content)
    return written


def open_nodes(cluster: NodeCluster) -> None:
    """Wait until the nodes are Ready, and give each a zone of its own: two specs spread over zones."""
    deadline = time.monotonic() + READY_SECONDS
    while kubectl(cluster.plane, "get", "nodes", "-o", READY).stdout.split() != ["True"] * NODES:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the nodes are not ready:\n{cluster.nodes[0].kubelet.text()[-2000:]}")
        time.sleep(0.3)
    for number, node in enumerate(cluster.nodes, 1):
        label(cluster, node, f"zone-{number}")


def label(cluster: NodeCluster, node: RealNode, zone: str) -> None:
    labels = (f"topology.kubernetes.io/zone={zone}", "topology.kubernetes.io/region=region-1")
    done = kubectl(cluster.plane, "label", "node", node.name, *labels)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


def start(exam: Exam, cluster: NodeCluster) -> Process:
    """Start the scheduler of all pods, and wait until it decides."""
    plane = cluster.plane
    if exam.scheduler == KUBE_SCHEDULER:
        return plane.start_scheduler(None, v="2")
    asyncio.run(deploy(cluster))
    token = asyncio.run(plane.token("cotide-system", "cotide-operator"))
    config = plane.folder / "cotide.yaml"
    metrics = "metricsSource: {kubernetes: {}}\n" if exam.policy == "hierarchical" else ""
    config.write_text(f"{ALONE_IN_CLUSTER}policy: {exam.policy}\n{metrics}", encoding="utf-8")
    arguments = ["--kubeconfig", str(plane.kubeconfig("cotide", token=token)), "--config", str(config)]
    command = [sys.executable, "-m", "cotide_cli", "operator", *arguments, "--metrics-port", "0"]
    process = plane.pen.start("cotide", command, {"PYTHONUNBUFFERED": "1"})
    deadline = time.monotonic() + READY_SECONDS
    while "deciding with policy" not in process.text():
        if process.exit_code is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Cotide did not start:\n{process.text()[-2000:]}")
        time.sleep(0.1)
    return process


async def deploy(cluster: NodeCluster) -> None:
    """Give Cotide its definitions, its account with the rights that are shipped, and its PriorityClasses."""
    async with KubeClient(cluster.plane.admin) as client:
        await client.create("/api/v1/namespaces", {"metadata": {"name": "cotide-system"}})
    for folder in ("crds", "rbac"):
        await apply(cluster.plane, DEPLOY / folder)
    done = kubectl(cluster.plane, "apply", "-f", str(DEPLOY / "base" / "priority-classes.yaml"))
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    await until_served(cluster.plane)


@contextlib.contextmanager
def watched(binaries: Binaries, out: Path) -> Iterator[None]:
    """Write all events and all states of pods as JSON lines meanwhile, to explain a failure."""
    command = [str(binaries.kubectl), "--kubeconfig", str(FOLDER / "admin.kubeconfig")]
    with contextlib.ExitStack() as stack:
        for what in ("events", "pods"):
            sink = stack.enter_context((out / f"{what}.jsonl").open("wb"))
            listing = [*command, "get", what, "--all-namespaces", "--watch", "--output", "json"]
            stack.callback(subprocess.Popen(listing, stdout=sink, stderr=subprocess.STDOUT).kill)
        yield


def run(exam: Exam, specs: UpstreamPrograms, scheduler: Process) -> int:
    """Run upstream's program and say now and then how far it is; return its exit code."""
    flags = {
        "provider": "skeleton",
        "kubeconfig": FOLDER / "admin.kubeconfig",
        "num-nodes": NODES,
        "minStartupPods": 0,
        "disable-log-dump": "true",
        "report-dir": exam.out,
        "ginkgo.focus": f"\\[sig-scheduling\\].*({exam.focus})" if exam.focus else "\\[sig-scheduling\\]",
        "ginkgo.skip": f"{GATED}|{exam.skip}" if exam.skip else GATED,
        "ginkgo.seed": 1,
        "ginkgo.timeout": f"{LIMIT_MINUTES}m",
        "ginkgo.json-report": exam.out / "report.json",
        "ginkgo.no-color": "true",
        "ginkgo.v": "true",
    }
    command = [str(specs.specs), *(f"--{name}={value}" for name, value in flags.items())]
    begun, ended = time.monotonic(), 0
    with (
        (exam.out / "e2e.log").open("w", encoding="utf-8", buffering=1) as log,
        subprocess.Popen(command, cwd=exam.out, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running,
    ):
        assert running.stdout is not None
        for line in running.stdout:
            log.write(line)
            if re.match(r"^• ", line):
                ended += 1
                emit(f"{time.monotonic() - begun:.0f} s, {ended} specs ended: {line.strip()}")
    if scheduler.exit_code is not None:
        emit(f"the scheduler ended with exit code {scheduler.exit_code}:\n{scheduler.text()[-2000:]}")
    return running.returncode


def emit(line: str) -> None:
    sys.stderr.write(f"upstream: {line}\n")
    sys.stderr.flush()


def parse() -> tuple[Exam, bool]:
    """Return what is asked for, and whether the results are kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scheduler", choices=("cotide", KUBE_SCHEDULER), default="cotide")
    parser.add_argument("--policy", default="predictive", help="of Cotide")
    parser.add_argument("--kubernetes", choices=tuple(VERSIONS), default=TODAY, help="release of server and specs")
    parser.add_argument("--focus", default="", help="a regular expression of names of specs to run")
    parser.add_argument("--skip", default="", help="a regular expression of names of specs to leave out")
    parser.add_argument("--record", action="store_true", help="keep a whole run in tests/upstream/results")
    options = parser.parse_args()
    name = KUBE_SCHEDULER if options.scheduler == KUBE_SCHEDULER else f"cotide-{options.policy}"
    return Exam(name, options.kubernetes, options.focus, options.skip), options.record


def main() -> int:
    exam, record = parse()
    baseline = exam.baseline()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if CGROUP_VARIABLE not in os.environ:
            raise NotToBeHad("they run in a machine of their own: make test-upstream")
        results = sit(exam)
    except NotToBeHad as reason:
        emit(f"the specs are skipped: {reason}")
        return 1 if os.environ.get(REQUIRED) == "required" else SKIP_CODE
    results.write(exam.out / "results.json")
    if record:
        narrowed = exam.narrowed and exam.recorded.exists()
        (results.over(Results.read(exam.recorded)) if narrowed else results).write(exam.recorded)
    sys.stdout.write(f"{table(results, baseline)}\n")
    for name, spec in results.specs.items():
        if spec.message:
            sys.stdout.write(f"\n{name}\n  {spec.message}\n")
    failed = missed(results, baseline, exam.focus, exam.skip) if baseline else [] if results.passed else ["all"]
    if failed:
        sys.stdout.write(f"\n{len(failed)} specs that kube-scheduler passes were not passed; logs in {exam.out}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
