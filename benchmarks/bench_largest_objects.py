"""How long one piece of work holds the operator's deciding loop, for the largest objects that anybody may write.

Run with ``python benchmarks/bench_largest_objects.py [--runs 3] [--only pod,job]``. An embedded API server and whoever
writes to it are one process, an operator with its default settings another. For each kind of object the largest legal
ones are written, and whatever runs in the operator's event loop meanwhile is timed, callback by callback, since between
two callbacks everything else has its turn. Milliseconds are the cpu time of the loop's own thread, so that a busy
machine does not count; the wall time of the same callback is beside it. Prints the longest callback of each case,
median and maximum over the runs; exit code 3 where a median is above 50 ms. The webhook answers in a thread of its own
and is not part of this.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

from cotide_kube.credentials import Credentials
from cotide_operator.assembly import Operator, Options
from cotide_operator.config.settings import parse_settings
from cotide_sim.apiserver.server import ApiServer

BAR_MILLISECONDS: Final = 50.0
MISSED: Final = 3
OBJECT_BYTES: Final = 1_400_000
"""Of one pod or node: a little below the 1.5 MiB that etcd stores."""
CUSTOM_BYTES: Final = 300_000
"""Of one Job or Workload: with its managed fields below the 384 KiB that are read."""
NODES: Final = 200
PODS: Final = 10_000
QUIET_SECONDS: Final = 1.0
"""Without a callback above a millisecond: what was written is worked off."""
_CONFIG: Final = """\
apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
leaderElection: {enabled: false}
policy: qpsm
"""
Object = dict[str, Any]
_DEFAULT: Final = "/api/v1/namespaces/default/pods"
_OURS: Final = "/apis/cotide.dev/v1alpha1/namespaces/default"


@dataclass(frozen=True)
class Case:
    """One kind of object: how it is written, and how it goes."""

    kind: str
    name: str
    write: Callable[[Api], None]
    clear: Callable[[Api], None]


@dataclass
class Longest:
    """The longest callback since the last look."""

    cpu: float = 0.0
    wall: float = 0.0
    what: str = ""
    busy_at: float = 0.0


class Api:
    """Writes to the API server, one request at a time."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)

    def send(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> int:
        """Send a request; return the status."""
        data = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, data, {"Content-Type": kind})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300 and answer.status not in (404, 409):
            print(f"{method} {path}: {answer.status} {text[:300]!r}", file=sys.stderr)
        return answer.status

    def count(self, path: str) -> int:
        """Return how many objects a collection has."""
        self._connection.request("GET", f"{path}?limit=1")
        answer = json.loads(self._connection.getresponse().read())
        return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount", 0))

    def make(self, path: str, body: Object) -> None:
        """Create an object that must be accepted."""
        if self.send("POST", path, body) >= 300:
            raise SystemExit(f"{path} was refused")

    def clear(self, path: str) -> None:
        """Delete whatever is in a collection, or one object."""
        self.send("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})


def pod(name: str, **spec: Any) -> Object:
    labels = {"cotide.dev/class": "batch", "app": "crowd"}
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1m"}}}
    wanted = {"schedulerName": "cotide", "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": wanted}


def filled(count_bytes: int, make: Callable[[int], Any]) -> list[Any]:
    """Return as many items as are so many bytes of JSON."""
    size = len(json.dumps(make(100_000))) + 2
    return [make(number) for number in range(count_bytes // size)]


def node(name: str, **more: Any) -> Object:
    offered = {"cpu": "64", "memory": "256Gi", "pods": "1000", **more.pop("offered", {})}
    metadata = {"name": name, **more.pop("metadata", {})}
    status = {"allocatable": offered, "capacity": offered, "conditions": [{"type": "Ready", "status": "True"}], **more}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": more.pop("spec", {}), "status": status}


def ours(kind: str, name: str, spec: Object, **metadata: Any) -> Object:
    return {"apiVersion": "cotide.dev/v1alpha1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def template(**spec: Any) -> Object:
    containers = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1m"}}}]
    return {"spec": {"containers": containers, **spec}}


def pods_case(name: str, count: int = 1, **spec: Any) -> Case:
    """Return the case of pods of one form."""

    def write(api: Api) -> None:
        for number in range(count):
            api.make(_DEFAULT, pod(f"large-{number}", **spec))

    return Case("pod", name, write, lambda api: api.clear(_DEFAULT))


def annotated(api: Api) -> None:
    body = pod("large")
    body["metadata"]["annotations"] = {f"a{number}/b": "x" * 50 for number in range(3500)}
    api.make(_DEFAULT, body)


def crowd(api: Api, count: int = PODS, prefix: str = "crowd") -> None:
    for number in range(count):
        api.make(_DEFAULT, pod(f"{prefix}-{number}"))


def node_case(name: str, body: Object) -> Case:
    return Case("node", name, lambda api: api.make("/api/v1/nodes", body), lambda api: api.clear("/api/v1/nodes/large"))


def job_case(name: str, spec: Object, then: Callable[[Api], None] | None = None) -> Case:
    def write(api: Api) -> None:
        api.make(f"{_OURS}/jobs", ours("Job", "large", {"class": "batch", **spec}))
        if then is not None:
            then(api)

    def clear(api: Api) -> None:
        api.clear(f"{_OURS}/jobs/large")
        api.clear(_DEFAULT)

    return Case("job", name, write, clear)


def lowered(api: Api) -> None:
    """Lower a Job of 10,000 pods to one, once they are there."""
    until_made(api)
    kind = "application/merge-patch+json"
    api.send("PATCH", f"{_OURS}/jobs/large", {"spec": {"completions": 1, "parallelism": 1}}, kind)


def crowded(name: str, spec: Object) -> Case:
    """A Workload among 10,000 pods of its namespace."""

    def write(api: Api) -> None:
        api.make(f"{_OURS}/workloads", ours("Workload", "large", spec))

    return Case("workload", name, write, lambda api: api.clear(f"{_OURS}/workloads/large"))


def cases() -> list[Case]:
    many = PODS
    variables = [
        {"name": "c", "image": "x", "env": filled(OBJECT_BYTES, lambda i: {"name": f"V{i}", "value": "x" * 40})}
    ]
    containers = filled(
        OBJECT_BYTES, lambda i: {"name": f"c{i}", "image": "x", "resources": {"requests": {"cpu": "1m"}}}
    )
    terms = [{"matchExpressions": [{"key": f"k{i}", "operator": "NotIn", "values": ["a"]}]} for i in range(500)]
    too_many = filled(
        OBJECT_BYTES, lambda i: {"matchExpressions": [{"key": f"k{i}", "operator": "In", "values": ["a", "b"]}]}
    )
    tolerations = filled(OBJECT_BYTES, lambda i: {"key": f"t{i}", "operator": "Exists", "effect": "NoSchedule"})
    resources = {f"r{number}.example.com/thing": "1" for number in range(20_000)}
    asks = [{"name": "c", "image": "x", "resources": {"requests": resources, "limits": resources}}]

    def affinity(found: list[Any]) -> Object:
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": found}}}

    labels = {"labels": {f"label-{number}": "x" * 30 for number in range(25_000)}}
    taints = filled(OBJECT_BYTES, lambda i: {"key": f"t{i}", "value": "v", "effect": "NoSchedule"})
    offered = {f"r{number}.example.com/thing": "1" for number in range(30_000)}
    images = filled(OBJECT_BYTES, lambda i: {"names": [f"registry.example.com/image-{i}"], "sizeBytes": i})
    values = [f"value-{number}" for number in range(64)]
    terms_of_64 = [{"key": f"x{number}", "operator": "NotIn", "values": values} for number in range(32)]
    wide = {"matchLabels": {"app": "crowd"}, "matchExpressions": terms_of_64}
    wide_job = {"completions": many, "parallelism": many, "template": template()}
    service = {"qos": {"latencyP95Milliseconds": 10}}
    return [
        pods_case("1.4 MB of variables", containers=variables),
        pods_case("20 of them at once", 20, containers=variables),
        pods_case("1.4 MB of containers", containers=containers),
        pods_case("500 selector terms", affinity=affinity(terms)),
        pods_case("1.4 MB of selector terms", affinity=affinity(too_many)),
        pods_case("1.4 MB of tolerations", tolerations=tolerations),
        pods_case("20,000 resources", containers=asks),
        Case("pod", "256 KB of annotations", annotated, lambda api: api.clear(_DEFAULT)),
        Case("pod", f"{many:,} small ones at once", crowd, lambda api: api.clear(_DEFAULT)),
        node_case("25,000 labels", node("large", metadata=labels)),
        node_case("1.4 MB of taints", node("large", spec={"taints": taints})),
        node_case("30,000 resources", node("large", offered=offered)),
        node_case("1.4 MB of images", node("large", images=images)),
        job_case(f"{CUSTOM_BYTES:,} bytes of template", {"template": template(volumes=filled(
            CUSTOM_BYTES, lambda i: {"name": f"v{i}", "emptyDir": {"sizeLimit": "1Gi"}}))}),
        job_case(f"{many:,} pods", wide_job, until_made),
        job_case(f"{many:,} pods, lowered to 1", wide_job, lowered),
        crowded("selects 10,000 pods", {"selector": {"matchLabels": {"app": "crowd"}}, **service}),
        crowded("32 terms of 64 values among 10,000 pods", {"selector": wide, **service}),
        crowded("300 KB of template", {"replicas": 1, **service, "template": template(volumes=filled(
            CUSTOM_BYTES, lambda i: {"name": f"v{i}", "emptyDir": {"sizeLimit": "1Gi"}}))}),
    ]  # fmt: skip


def until_made(api: Api) -> None:
    """Wait for 10,000 pods."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if api.count(_DEFAULT) >= PODS:
            return
        time.sleep(1.0)


def operate(url: str, ours: Connection) -> None:
    """In a process of its own: run an operator, and tell of its longest callback when asked."""
    longest = Longest()
    original = asyncio.events.Handle._run

    def timed(handle: asyncio.events.Handle) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        original(handle)
        spent = time.thread_time() - cpu
        if spent > longest.cpu and loop_thread[0] is asyncio.events._get_running_loop():
            longest.cpu, longest.wall, longest.what = spent, time.perf_counter() - wall, repr(handle)
        if spent > 1e-3:
            longest.busy_at = time.monotonic()

    loop_thread: list[Any] = [None]
    asyncio.events.Handle._run = timed  # type: ignore[method-assign]  # the one place through which every callback goes

    async def run() -> None:
        loop_thread[0] = asyncio.get_running_loop()
        operator = Operator(parse_settings(_CONFIG), Options(metrics_port=0, install_crds=True), Credentials(url))
        stop = asyncio.Event()
        Thread(target=answer, args=(ours, longest, asyncio.get_running_loop(), stop, operator), daemon=True).start()
        await operator.run(stop)

    asyncio.run(run())


def answer(
    ours: Connection, longest: Longest, loop: asyncio.AbstractEventLoop, stop: asyncio.Event, operator: Operator
) -> None:
    """In a thread: tell and forget the longest callback, or stop."""
    while True:
        asked = ours.recv()
        if asked == "stop":
            loop.call_soon_threadsafe(stop.set)
            return
        if asked == "reset":
            longest.cpu = longest.wall = 0.0
            longest.what = ""
        ours.send((longest.cpu, longest.wall, longest.what, time.monotonic() - longest.busy_at, operator.loop.cycles))


class Operated:
    """The operator's process."""

    def __init__(self, url: str) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=operate, args=(url, theirs), daemon=True)
        self.process.start()

    def ask(self, what: str) -> tuple[float, float, str, float, int]:
        self._pipe.send(what)
        answer: tuple[float, float, str, float, int] = self._pipe.recv()
        return answer

    def until_quiet(self) -> tuple[float, float, str]:
        """Wait until what was written is worked off; return the longest callback since the last reset."""
        time.sleep(0.3)
        while True:
            cpu, wall, what, quiet, cycles = self.ask("look")
            if quiet > QUIET_SECONDS and cycles:
                return cpu, wall, what
            time.sleep(0.1)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send("stop")
        self.process.join(20)
        self.process.kill()


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Run the API server in a thread of this process."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, daemon=True).start()
    server = ApiServer()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result()
    try:
        yield server.url
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)


def measure(only: set[str], runs: int, trace: bool) -> dict[str, list[tuple[float, float]]]:
    """Return cpu and wall milliseconds of the longest callback of each run, by case."""
    found: dict[str, list[tuple[float, float]]] = {}

    def note(name: str, got: tuple[float, float, str]) -> None:
        found.setdefault(name, []).append((1000 * got[0], 1000 * got[1]))
        if trace:
            print(f"{name}: {1000 * got[0]:.1f} ms {got[2][:300]}", file=sys.stderr)

    with serving() as url:
        operated = Operated(url)
        operated.until_quiet()
        api = Api(url)
        for number in range(NODES):
            api.make("/api/v1/nodes", node(f"n{number}"))
        for case in cases():
            if only and case.kind not in only:
                continue
            if case.kind == "workload":
                crowd(api)
            operated.until_quiet()
            for _ in range(runs):
                operated.ask("reset")
                case.write(api)
                note(f"{case.kind}: {case.name}", operated.until_quiet())
                operated.ask("reset")
                case.clear(api)
                note(f"{case.kind}: {case.name}, taken away", operated.until_quiet())
            if case.kind == "workload":
                api.clear(_DEFAULT)
                operated.until_quiet()
        operated.end()
        if not only or "list" in only:
            crowd(api)
            for _ in range(runs):
                operated = Operated(url)
                note(f"list: {PODS:,} pods and {NODES} nodes at the start", operated.until_quiet())
                operated.end()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each case (default 3)")
    parser.add_argument("--only", default="", help="kinds, with commas: pod, node, job, workload, list (default all)")
    parser.add_argument("--trace", action="store_true", help="say which callback was the longest, on stderr")
    asked = parser.parse_args()
    found = measure({name for name in asked.only.split(",") if name}, asked.runs, asked.trace)
    missed = False
    print(f"{'longest callback':<44} {'median ms':>10} {'max ms':>8} {'wall, max':>10}")
    for name, spent in found.items():
        cpu, wall = [one for one, _ in spent], max(one for _, one in spent)
        middle = statistics.median(cpu)
        missed |= middle > BAR_MILLISECONDS
        print(f"{name:<44} {middle:10.1f} {max(cpu):8.1f} {wall:10.1f}{'  above' if middle > BAR_MILLISECONDS else ''}")
    return MISSED if missed else 0


if __name__ == "__main__":
    sys.exit(main())
