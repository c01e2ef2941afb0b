"""The extender: seconds of one call, and what kube-scheduler loses by asking.

``calls`` serves the extender over HTTPS from a cache of N nodes (a tenth with a service) and asks it from another
process, one pod after the other, each about as many nodes as kube-scheduler would (its own share of N): filter, and the
assumption that follows. ``race`` runs kube-scheduler on a real API server with the same pods, alone and with the
extender, in turn, several rounds; everything is timed by one watch (see `real_race`). With ``--per-second`` pods come
one by one to a kube-scheduler that has nothing else to do, and what counts is how long each waits for its node.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import multiprocessing
import ssl
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from race_course import (
    ALIKE,
    RATES,
    SERVICE_SHARE,
    clear,
    fill,
    node,
    node_name,
    pour,
    prepare,
    service_rates,
    standing_pod,
)

sys.path.extend(
    str(Path(__file__).resolve().parents[2] / folder)
    for folder in ("benchmarks/shared", "benchmarks/engine", "tests/controlplane")
)

from binaries import KUBERNETES, find_or_build, tell_on_stderr
from control_plane import ControlPlane, control_plane, free_port
from identities import Authority
from processes import Process
from race_watcher import PodWatch, cpu_seconds, machine
from real_race import Course, bound, serve_metrics, train

from cotide_core.config import SchedulerConfig
from cotide_core.events import ServiceSampled
from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials
from cotide_kube.objects import NodeObject, PodObject
from cotide_operator.cache.object_cache import KINDS, CustomObject, ObjectCache
from cotide_operator.cache.preflight import await_resources, install
from cotide_operator.clock import ScaledClock
from cotide_operator.config.extender_settings import ExtenderSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.webhooks.extender.extender import Extender, ExtenderDependencies

Json = dict[str, Any]
QPS = 5000
WARMING = 40
"""Pods before those that are timed; chosen: connections, caches and compiled code are there by then."""


def asked_about(nodes: int) -> int:
    """Return how many feasible nodes kube-scheduler looks for (numFeasibleNodesToFind, without a setting)."""
    if nodes < 100:
        return nodes
    return max(100, nodes * max(5, 50 - nodes // 125) // 100)


def cache_of(nodes: int, pods: list[Json]) -> ObjectCache:
    cache = ObjectCache()
    for index in range(nodes):
        cache.apply("nodes", "ADDED", msgspec.convert(node(index), NodeObject))
    spec = {"selector": {"matchLabels": {"app": "web"}}, "qos": {"latencyP95Milliseconds": 10}}
    workload = {"metadata": {"name": "web", "namespace": "standing", "uid": "w"}, "spec": spec}
    cache.apply("workloads", "ADDED", msgspec.convert(workload, CustomObject))
    web = [standing_pod(f"web-{i}", node_name(i), {"app": "web"}) for i in range(0, nodes, SERVICE_SHARE)]
    for body in web:
        body["metadata"] |= {"namespace": "standing", "uid": body["metadata"]["name"]}
    for body in [*web, *pods]:
        cache.apply("pods", "ADDED", msgspec.convert(body, PodObject))
    for kind in KINDS:
        cache.mark_synced(kind)
    return cache


def ask(port: int, authority: str, names: list[str], pods: list[Json], answers: Any) -> None:
    """In another process: ask about one pod after the other; hand over milliseconds."""
    connection = http.client.HTTPSConnection("localhost", port, context=ssl.create_default_context(cafile=authority))
    milliseconds = []
    for body in pods:
        request = json.dumps({"Pod": body, "NodeNames": names})
        started = time.perf_counter()
        connection.request("POST", "/filter", request, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        milliseconds.append(1000 * (time.perf_counter() - started))
        assert len(answer["NodeNames"]) == 1, answer
    answers.put(milliseconds)


async def calls(nodes: int, count: int, *, beside_services: bool) -> Json:
    from bench_engine import trained

    pods = [ALIKE.pod(f"p{i}", "cotide-assisted", i) for i in range(count)]
    for body in pods:
        body["metadata"] |= {"namespace": "race", "uid": body["metadata"]["name"]}
    cache = cache_of(nodes, pods)
    with tempfile.TemporaryDirectory(prefix="extender-") as name:
        folder = Path(name)
        authority = Authority(folder)
        for file, path in zip(("tls.crt", "tls.key"), authority.server("localhost"), strict=True):
            (folder / file).write_bytes(path.read_bytes())
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(KUBECONFIG))
        credentials = load_credentials(str(kubeconfig))
        settings = ExtenderSettings(enabled=True, port=free_port(), certificate_directory=folder)
        outcomes: list[object] = []
        needs = ExtenderDependencies(
            client=KubeClient(credentials),
            credentials=credentials,
            cache=cache,
            clock=ScaledClock(),
            metrics=Metrics(),
            hand_over=outcomes.append,
        )
        extender = Extender(settings, SchedulerConfig(policy="qpsm"), ("cotide",), needs)
        extender.use(trained(2000).qos("trained"))
        for i in range(0, nodes, SERVICE_SHARE):
            rate = RATES[i // SERVICE_SHARE % len(RATES)]
            extender.follower.emit(ServiceSampled(f"standing/web-{i}", float(rate)))
        running = asyncio.create_task(extender.run("127.0.0.1"))
        while not extender.listening:
            await asyncio.sleep(0.01)
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        # Either as they come, or nodes with a service only: then the model is asked for every pod.
        every = SERVICE_SHARE if beside_services else 1
        names = [node_name(i) for i in range(0, nodes, every)][: asked_about(nodes)]
        asker = context.Process(target=ask, args=(settings.port, str(authority.path), names, pods, answers))
        asker.start()
        milliseconds = await asyncio.to_thread(answers.get, True, 300)
        asker.join()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert len(outcomes) >= count
    ordered = sorted(milliseconds)
    p50, p99 = (round(ordered[int(share * len(ordered))], 2) for share in (0.5, 0.99))
    return {"nodes": nodes, "asked_about": len(names), "calls": count, "p50_ms": p50, "p99_ms": p99,
            "max_ms": round(ordered[-1], 2)}  # fmt: skip


KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "none",
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "none", "user": {}}],
}


def start(course: Course, racer: str, authority: Authority, port: int) -> list[Process]:
    """Start kube-scheduler, after an operator that it asks where it is to."""
    kubeconfig, folder = str(course.plane.folder / "admin.kubeconfig"), course.plane.folder
    config: Json = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig, "qps": QPS, "burst": 2 * QPS},
        "leaderElection": {"leaderElect": False},
    }
    found = []
    if racer == "assisted":
        config["extenders"] = [
            {
                "urlPrefix": f"https://localhost:{port}",
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "preemptVerb": "preempt",
                "weight": 5,
                "enableHTTPS": True,
                "nodeCacheCapable": True,
                "httpTimeout": "5s",
                "tlsConfig": {"caFile": str(authority.path)},
            }
        ]
        settings = folder / "assisted-operator.yaml"
        settings.write_text(
            "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\npolicy: qpsm\n"
            f"leaderElection: {{enabled: false}}\nmetricsSource: {{scrape: {{url: {course.metrics_url}}}}}\n"
            f"models: {{directory: {course.models}}}\n"
            f"extender: {{enabled: true, port: {port}, certificateDirectory: {authority.folder}, "
            "schedulerNames: [default-scheduler]}\n"
        )
        arguments = ["operator", "--kubeconfig", kubeconfig, "--config", str(settings), "--metrics-port", "0"]
        found.append(course.plane.pen.start("operator", [sys.executable, "-m", "cotide_cli", *arguments]))
        deadline = time.monotonic() + 60
        while "deciding with policy" not in found[0].text() or "extender on https" not in found[0].text():
            if time.monotonic() > deadline or found[0].exit_code is not None:
                raise SystemExit(found[0].text()[-2000:])
            time.sleep(0.1)
    path = folder / f"{racer}.yaml"
    path.write_text(json.dumps(config))
    found.append(course.plane.start_scheduler(path))
    return found


async def heat(course: Course, racer: str, number: int, authority: Authority) -> Json:
    names = [f"{racer}-{number}-{i:05d}" for i in range(course.options.pods)]
    if course.options.per_second:
        return await trickle(course, racer, number, names, authority)
    course.watch.look_for(names)
    await fill(course.client, names, "default-scheduler")
    processes = start(course, racer, authority, free_port())
    try:
        await bound(course, processes[-1], course.options.pods)
        times = sorted(course.watch.bound.values())
        used = cpu_seconds({str(i): process.pid for i, process in enumerate(processes)})
    finally:
        for process in reversed(processes):
            process.end()
    await clear(course.client)
    rate = (len(names) - 1) / (times[-1] - times[0])
    sys.stderr.write(f"{racer} {number}: {rate:.0f} pods/s, cpu s {list(used.values())}\n")
    return {"racer": racer, "round": number, "pods_per_second": round(rate, 1)}


async def trickle(course: Course, racer: str, number: int, names: list[str], authority: Authority) -> Json:
    """Let pods come one by one, after some that warm up whoever decides; return how long they waited."""
    processes = start(course, racer, authority, free_port())
    try:
        warming = [f"warm-{name}" for name in names[:WARMING]]
        for some in (warming, names):
            course.watch.look_for(some)
            await pour(course.client, some, "default-scheduler", course.options.per_second)
            await bound(course, processes[-1], len(some))
    finally:
        for process in reversed(processes):
            process.end()
    waits = sorted(1000 * (course.watch.bound[name] - course.watch.created[name]) for name in names)
    await clear(course.client)
    p50, p95, p99 = (round(waits[int(share * len(waits))], 2) for share in (0.5, 0.95, 0.99))
    sys.stderr.write(f"{racer} {number}: p50 {p50} ms, p95 {p95}, p99 {p99}\n")
    return {"racer": racer, "round": number, "p50_ms": p50, "p95_ms": p95, "p99_ms": p99}


async def race(plane: ControlPlane, options: argparse.Namespace, folder: Path) -> Json:
    authority = Authority(folder)
    for file, path in zip(("tls.crt", "tls.key"), authority.server("localhost"), strict=True):
        (folder / file).write_bytes(path.read_bytes())
    models = train(folder / "models")
    with serve_metrics(service_rates(options.nodes)) as begin:
        served, url = await begin()
        try:
            async with KubeClient(plane.admin, max_connections=64, timeout_seconds=120.0) as client:
                await install(client)
                await await_resources(client)
                await prepare(client, options.nodes)
                watch = PodWatch(client, "/api/v1/namespaces/race/pods")
                course = Course(plane, client, watch, options, url, models)
                watching = asyncio.ensure_future(watch.run())
                runs = []
                for number in range(options.rounds):
                    for racer in ("kube-scheduler", "assisted")[:: 1 if number % 2 == 0 else -1]:
                        runs.append(await heat(course, racer, number, authority))  # noqa: PERF401 - one after the other
                watching.cancel()
        finally:
            await served.cleanup()
    if options.per_second:
        figures = ("p50_ms", "p95_ms", "p99_ms")
        found = {
            racer: {figure: _median(runs, racer, figure) for figure in figures}
            for racer in ("kube-scheduler", "assisted")
        }
        longer = {figure: round(found["assisted"][figure] - found["kube-scheduler"][figure], 2) for figure in figures}
        return {"rounds": runs, "median_of_rounds": found, "longer": longer}
    medians = {racer: _median(runs, racer, "pods_per_second") for racer in ("kube-scheduler", "assisted")}
    ratio = round(medians["assisted"] / medians["kube-scheduler"], 2)
    return {"rounds": runs, "median": medians, "ratio": ratio}


def _median(runs: list[Json], racer: str, figure: str) -> float:
    return round(statistics.median(run[figure] for run in runs if run["racer"] == racer), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("calls", "race"))
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--beside-services", action="store_true", help="calls: about nodes with a service only")
    parser.add_argument("--per-second", type=float, default=0.0, help="race: pods come one by one, so many a second")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if options.what == "calls":
            result = runner.run(calls(options.nodes, options.pods, beside_services=options.beside_services))
        else:
            with tempfile.TemporaryDirectory(prefix="race-") as name:
                folder = Path(name)
                (folder / "plane").mkdir()
                with control_plane(find_or_build(tell_on_stderr), folder / "plane") as plane:
                    result = runner.run(race(plane, options, folder))
    print(json.dumps({"kubernetes": KUBERNETES, "machine": machine(), **result}, indent=1))


if __name__ == "__main__":
    main()
