"""How long one piece of work holds the operator's deciding loop, for the largest objects that anybody may write.

Run with ``python benchmarks/engine/bench_largest_objects.py [--runs 3] [--only pod,job]``. An embedded API server and
whoever writes to it are one process, an operator with its default settings another. For each kind of object the largest
legal ones are written, and whatever runs in the operator's event loop meanwhile is timed, callback by callback, since
between two callbacks everything else has its turn. Milliseconds are the cpu time of the loop's own thread, so that a
busy machine does not count; the wall time of the same callback is beside it. Prints the longest callback of each case,
median and maximum over the runs, and what the loop used in all until everything was done, events and notes written, too
(of which at most 200 a second are); exit code 3 where a median is above 50 ms. The webhook answers in a thread of its
own and is not part of this.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import http.client
import json
import os
import statistics
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from cotide_cli.commands.operator_command import GC_OBJECTS_AT_FIRST
from cotide_core.limits import MAX_GANG, MAX_GANG_REQUESTS
from cotide_kube.credentials import Credentials
from cotide_operator.assembly import Operator, Options
from cotide_operator.cache.reflectors import Informers
from cotide_operator.config.settings import parse_settings
from cotide_operator.scheduling.garbage_passes import settle
from cotide_operator.translation.gangs import GANG_ANNOTATION, MIN_MEMBER_ANNOTATION
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
QUIET_SHARE: Final = 0.15
"""What was written is worked off when the loop used no more than this share of so many seconds: the queue is published
once a second for as long as pods wait."""
PATIENCE_SECONDS: Final = 120.0
"""For that; what came up to then is the row. Events of 10,000 pods take 50 s, as at most 200 are written a second: what
is measured next must not have them in it."""
SAMPLE_SECONDS: Final = 0.004
PROGRESS_SECONDS: Final = 20.0
"""Between two lines that say what is waited for."""
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


class Block(NamedTuple):
    """The longest callback since the last look, in seconds."""

    cpu: float = 0.0
    wall: float = 0.0
    what: str = ""
    collector: float = 0.0
    """The longest pause of the garbage collector, in any callback."""
    share: float = 0.0
    """Of the last `QUIET_SECONDS` that the loop's callbacks used."""
    cycles: int = 0
    spent: float = 0.0
    """All that the loop's callbacks used since the last reset."""
    unwritten: int = 0
    """Events and notes that are still to be written."""


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


def gang_case(name: str, first: int, kinds: int = MAX_GANG_REQUESTS) -> Case:
    """Return the case of a gang of as many pods as may be, of so many kinds."""

    def write(api: Api) -> None:
        for number in range(MAX_GANG):
            asks = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": f"{first + number % kinds}m"}}}]
            body = pod(f"gang-{number}", containers=asks)
            body["metadata"]["annotations"] = {GANG_ANNOTATION: "gang", MIN_MEMBER_ANNOTATION: str(MAX_GANG)}
            api.make(_DEFAULT, body)

    return Case("gang", name, write, lambda api: api.clear(_DEFAULT))


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
        gang_case(f"{MAX_GANG:,} pods of {MAX_GANG_REQUESTS} kinds", 1),
        gang_case(f"{MAX_GANG:,} pods of {MAX_GANG_REQUESTS} kinds that fit nowhere together", 20_000),
        gang_case(f"{MAX_GANG:,} unlike pods, more kinds than start together", 1, MAX_GANG),
        node_case("25,000 labels", node("large", metadata=labels)),
        node_case("1.4 MB of taints", node("large", spec={"taints": taints})),
        node_case("30,000 resources", node("large", offered=offered)),
        node_case("1.4 MB of images", node("large", images=images)),
        job_case(f"{CUSTOM_BYTES:,} bytes of template", {"template": template(volumes=filled(
            CUSTOM_BYTES, lambda i: {"name": f"v{i}", "emptyDir": {"sizeLimit": "1Gi"}}))}),
        job_case(f"{many:,} pods", wide_job, until_made),
        job_case(f"{many:,} pods that fit nowhere", {**wide_job, "template": template(containers=[
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "100"}}}])}, until_made),
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


class Stopwatch:
    """Times each callback of one event loop, and samples where the long ones are."""

    def __init__(self) -> None:
        self._longest = Block()
        self._used = self._used_before = 0.0
        self._ends: deque[tuple[float, float]] = deque([(time.monotonic(), 0.0)])
        """Moments about a tenth of a second apart, and what the loop had used up to then."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self._collected = 0.0
        self._thread = 0
        self._began: float | None = None
        self._stacks: Counter[str] = Counter()
        self._collecting = 0.0

    def install(self) -> None:
        """Time the running loop, in whose thread this is called."""
        self.loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        original = asyncio.events.Handle._run

        def timed(handle: asyncio.events.Handle) -> None:
            if asyncio.events._get_running_loop() is not self.loop:
                original(handle)
                return
            self._stacks.clear()
            self._began = wall = time.perf_counter()
            cpu = time.thread_time()
            original(handle)
            spent = time.thread_time() - cpu
            self._began = None
            if spent > self._longest.cpu:
                what = f"{described(handle)} {self._stacks.most_common(4)}"
                self._longest = Block(spent, time.perf_counter() - wall, what)
            self._used += spent
            now = time.monotonic()
            if now - self._ends[-1][0] >= 0.1:
                self._ends.append((now, self._used))
                while now - self._ends[0][0] > 2 * QUIET_SECONDS:
                    self._ends.popleft()

        asyncio.events.Handle._run = timed  # type: ignore[method-assign]  # the one place through which all callbacks go
        gc.callbacks.append(self._collection)
        Thread(target=self._sample, daemon=True).start()

    def reset(self) -> None:
        """Forget the longest callback and the longest pause."""
        self._longest, self._collected, self._used_before = Block(), 0.0, self._used

    def look(self, cycles: int, unwritten: int) -> Block:
        """Return what was the longest since the last reset."""
        since = time.monotonic() - QUIET_SECONDS
        before = max((used for at, used in list(self._ends) if at <= since), default=0.0)
        share = (self._used - before) / QUIET_SECONDS
        spent = self._used - self._used_before
        return self._longest._replace(
            collector=self._collected, share=share, cycles=cycles, spent=spent, unwritten=unwritten
        )

    def _collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected = max(self._collected, time.thread_time() - self._collecting)

    def _sample(self) -> None:
        while True:
            time.sleep(SAMPLE_SECONDS)
            began, frame = self._began, sys._current_frames().get(self._thread)
            if began is None or time.perf_counter() - began < SAMPLE_SECONDS:
                continue
            names = []
            while frame is not None and len(names) < 40:
                if "cotide" in frame.f_code.co_filename:
                    names.append(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}")
                frame = frame.f_back
            self._stacks["<".join(names[:4])] += 1


def described(handle: asyncio.events.Handle) -> str:
    """Return whose step a callback is."""
    task = getattr(handle._callback, "__self__", None)
    return (
        f"{task.get_name()} {getattr(task.get_coro(), '__qualname__', '')}"
        if isinstance(task, asyncio.Task)
        else repr(handle)[:120]
    )


def operate(url: str, ours: Connection) -> None:
    """In a process of its own: run an operator, and tell of its longest callback when asked."""
    watch = Stopwatch()

    async def run() -> None:
        watch.install()
        # As ``cotide operator`` does; uvloop is left out, since nothing can time its callbacks.
        gc.set_threshold(GC_OBJECTS_AT_FIRST, *gc.get_threshold()[1:])
        credentials = Credentials(url)
        informers = Informers(credentials, install_crds=True, listed=settle)
        operator = Operator(parse_settings(_CONFIG), Options(metrics_port=0, install_crds=True), credentials, informers)
        stop = asyncio.Event()
        Thread(target=answer, args=(ours, watch, asyncio.get_running_loop(), stop, operator), daemon=True).start()
        await operator.run(stop)

    asyncio.run(run())


def answer(
    ours: Connection, watch: Stopwatch, loop: asyncio.AbstractEventLoop, stop: asyncio.Event, operator: Operator
) -> None:
    """In a thread: tell and forget the longest callback, or stop."""
    while True:
        asked = ours.recv()
        if asked == "stop":
            loop.call_soon_threadsafe(stop.set)
            return
        if asked == "reset":
            watch.reset()
        ours.send(watch.look(operator.loop.cycles, len(operator.dispatcher)))


class Operated:
    """The operator's process."""

    def __init__(self, url: str) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=operate, args=(url, theirs), daemon=True)
        self.process.start()

    def ask(self, what: str) -> Block:
        self._pipe.send(what)
        answer: Block = self._pipe.recv()
        return answer

    def until_quiet(self, after: str) -> Block:
        """Wait until what was written is worked off; return the longest callback since the last reset."""
        time.sleep(0.3)
        begun = reported = time.monotonic()
        while True:
            block = self.ask("look")
            quiet = block.share < QUIET_SHARE and not block.unwritten
            if quiet and block.cycles and time.monotonic() - begun > QUIET_SECONDS:
                return block
            if time.monotonic() - begun > PATIENCE_SECONDS:
                print(f"gave up waiting {PATIENCE_SECONDS:.0f} s after {after}", file=sys.stderr, flush=True)
                return block
            if time.monotonic() - reported > PROGRESS_SECONDS:
                reported = time.monotonic()
                print(f"still busy {reported - begun:.0f} s after {after}: {block.what}", file=sys.stderr, flush=True)
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


class Table:
    """The rows, each printed as soon as it is known."""

    def __init__(self, trace: bool) -> None:
        self._trace = trace
        self.missed = False
        print(
            f"{'longest callback':<52} {'median ms':>10} {'max ms':>8} {'wall, max':>10} {'collector':>10} "
            f"{'loop, s':>8}  load",
            flush=True,
        )

    def row(self, name: str, runs: Sequence[Block]) -> None:
        """Print what the runs of one case took."""
        cpu, wall = [run.cpu for run in runs], max(run.wall for run in runs)
        pause = max(run.collector for run in runs)
        above = statistics.median(cpu) > BAR_MILLISECONDS / 1000.0
        self.missed |= above
        used = statistics.median(run.spent for run in runs)
        print(
            f"{name:<52} {1000 * statistics.median(cpu):10.1f} {1000 * max(cpu):8.1f} {1000 * wall:10.1f} "
            f"{1000 * pause:10.1f} {used:8.2f} {os.getloadavg()[0]:5.1f}{'  above' if above else ''}",
            flush=True,
        )
        if self._trace:
            worst = max(runs, key=lambda run: run.cpu)
            print(f"    {worst.what}", flush=True)


def measure(wanted: Callable[[Case], bool], lists: bool, runs: int, table: Table) -> None:
    """Write each case, take it away again, and print how long the operator's loop was held."""
    with serving() as url:
        operated = Operated(url)
        operated.until_quiet("its start")
        api = Api(url)
        for number in range(NODES):
            api.make("/api/v1/nodes", node(f"n{number}"))
        for case in filter(wanted, cases()):
            name = f"{case.kind}: {case.name}"
            if case.kind == "workload":
                crowd(api)
            operated.until_quiet(f"the pods before {name}")
            written: list[Block] = []
            cleared: list[Block] = []
            for _ in range(runs):
                operated.ask("reset")
                case.write(api)
                written.append(operated.until_quiet(name))
                operated.ask("reset")
                case.clear(api)
                cleared.append(operated.until_quiet(f"{name}, taken away"))
            table.row(name, written)
            table.row(f"{name}, taken away", cleared)
            if case.kind == "workload":
                api.clear(_DEFAULT)
                operated.until_quiet("the pods' end")
        operated.end()
        if lists:
            crowd(api)
            started: list[Block] = []
            for _ in range(runs):
                operated = Operated(url)
                started.append(operated.until_quiet("a start"))
                operated.end()
            table.row(f"list: {PODS:,} pods and {NODES} nodes at the start", started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each case (default 3)")
    parser.add_argument(
        "--only", default="", help="kinds, with commas: pod, gang, node, job, workload, list (default all)"
    )
    parser.add_argument("--case", default="", help="only cases whose name holds this")
    parser.add_argument("--trace", action="store_true", help="say which callback was the longest, and where it was")
    asked = parser.parse_args()
    only = {name for name in asked.only.split(",") if name}

    def wanted(case: Case) -> bool:
        return (not only or case.kind in only) and asked.case in case.name

    table = Table(asked.trace)
    measure(wanted, (not only or "list" in only) and not asked.case, asked.runs, table)
    return MISSED if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
