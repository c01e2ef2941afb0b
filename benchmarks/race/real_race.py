"""The race: Cotide, kube-scheduler and a bare loop of bindings, in turn, on one real API server.

One etcd and one kube-apiserver (see ``tests/controlplane``), N plain nodes, and the schedulers as the processes that
they are, with the same identity (an administrator: exempt from the server's fair queueing) and no client limit that
would matter (kube-scheduler: 5,000 requests a second; Cotide has none). In each round each racer

1. finds the pods waiting, is started, and binds them: pods a second from its first binding to its last, and what every
   process used of the processor meanwhile;
2. writes what it still has to say (events; notes ride in the bindings), which is waited for in the first round;
3. binds pods that come at a steady rate, then a burst of them: seconds from a pod's creation to its binding.

Everything is timed by one watch (`race_watcher`). ``--scale`` measures a start with a full cluster instead: from the
operator's start to its first binding, and its memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop
from aiohttp import web
from race_course import PODS, clear, count_events, count_notes, fill, pour, prepare, service_rates, stand
from race_pods import IMAGES, Variety
from race_profiles import PROFILES, configuration

sys.path.extend(
    str(Path(__file__).resolve().parents[2] / folder)
    for folder in ("benchmarks/shared", "benchmarks/engine", "tests/controlplane")
)

from binaries import KUBERNETES, NotToBeHad, tell_on_stderr
from control_plane import ControlPlane, control_plane, free_port
from other_releases import OTHERS, RELEASES, TODAY, of_release
from processes import Process
from race_watcher import PodWatch, between, cpu_seconds, machine, memory_bytes

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient
from cotide_operator.cache.preflight import await_resources, install

COTIDES: Final = {"cotide-fifo": False, "cotide-qpsm": True, "cotide-predictive": True}
"""Whether a policy has models, by racer."""
RACERS: Final = ("bare", *PROFILES, *COTIDES)
USUAL: Final = ("bare", "kube-scheduler", "cotide-fifo", "cotide-qpsm", "cotide-predictive")
"""Who races unless others are named."""
DEADLINE_SECONDS: Final = 300.0
REST_SECONDS: Final = 1.0
LARGEST_KILOBYTES: Final = 1000
"""etcd takes requests up to 1.5 MiB."""
TERMINATED: Final = 128 + signal.SIGTERM
"""Exit code, as a shell gives it."""
Json = dict[str, Any]


@dataclass
class Course:
    """All that a heat needs."""

    plane: ControlPlane
    client: KubeClient
    watch: PodWatch
    options: argparse.Namespace
    metrics_url: str
    models: Path | None
    variety: Variety

    def start(self, racer: str) -> Process:
        """Start a racer's process."""
        folder, kubeconfig = self.plane.folder, self.plane.folder / "admin.kubeconfig"
        if racer == "bare":
            loop = Path(__file__).with_name("race_bare_loop.py")
            return self.plane.pen.start(racer, [sys.executable, str(loop), str(kubeconfig)])
        config = folder / f"{racer}.yaml"
        if racer in PROFILES:
            config.write_text(configuration(racer, kubeconfig))
            return self.plane.start_scheduler(config)
        policy = racer.removeprefix("cotide-")
        models = f"models: {{directory: {self.models}}}\n" if self.models is not None else ""
        config.write_text(
            f"apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\npolicy: {policy}\n"
            f"leaderElection: {{enabled: false}}\nmetricsSource: {{scrape: {{url: {self.metrics_url}}}}}\n"
            + (models if COTIDES[racer] else "")
        )
        arguments = ["operator", "--kubeconfig", str(kubeconfig), "--config", str(config), "--metrics-port", "0"]
        return self.plane.pen.start(
            racer, [sys.executable, "-m", "cotide_cli", *arguments, "--log-level", self.options.log_level]
        )

    def processes(self, racer: Process | None) -> dict[str, int]:
        found = {"apiserver": self.plane.api_server.pid, "etcd": self.plane.etcd.pid}
        return found if racer is None else {"scheduler": racer.pid, **found}


def scheduler_name(racer: str) -> str:
    return "nobody" if racer == "bare" else "default-scheduler" if racer in PROFILES else "cotide"


async def heat(course: Course, racer: str, number: int) -> Json:
    """Return what one racer did in one round."""
    options, watch = course.options, course.watch
    names = [f"{racer}-{number}-{i:05d}" for i in range(options.pods)]
    watch.look_for(names)
    await fill(course.client, names, scheduler_name(racer), course.variety)
    await asyncio.sleep(REST_SECONDS)
    process = course.start(racer)
    try:
        result = {"racer": racer, "round": number, **await backlog(course, process, racer, number)}
        if racer != "bare":
            for kind, pods, rate in (("steady", options.steady, options.rate), ("burst", options.burst, 0.0)):
                if pods:
                    result[kind] = await arrivals(course, process, racer, f"{number}-{kind}", pods, rate)
        result["memory_bytes"] = memory_bytes(process.pid)
    finally:
        process.end(signal.SIGTERM)
    if watch.faults:
        raise SystemExit(f"{racer}: {watch.faults}")
    await clear(course.client)
    return result


async def backlog(course: Course, process: Process, racer: str, number: int) -> Json:
    """Time the binding of pods that waited."""
    watch, pods = course.watch, course.options.pods
    processes, begun = course.processes(process), asyncio.get_running_loop().time()
    at_start = cpu_seconds(processes)
    await bound(course, process, 1)
    at_first = cpu_seconds(processes)
    await bound(course, process, pods)
    at_last, events = cpu_seconds(processes), await count_events(course.client)
    times = sorted(watch.bound.values())
    result: Json = {
        "bound": len(times),
        "pods_per_second": round((pods - 1) / (times[-1] - times[0]), 1),
        "first_bind_seconds": round(times[0] - begun, 2),
        "nodes_used": len(set(watch.nodes.values())),
        "cpu_seconds": between(at_first, at_last),
        "cpu_seconds_to_first_bind": between(at_start, at_first),
        "events_at_last_bind": events,
        "notes_at_last_bind": await count_notes(course.client),
    }
    if racer != "bare" and number == 0:
        deadline = time.monotonic() + course.options.events_seconds
        while events < pods and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
            events = await count_events(course.client)
        result["events"], result["events_missing"] = events, max(0, pods - events)
        result["events_seconds"] = round(asyncio.get_running_loop().time() - times[0], 2)
        result["cpu_seconds_with_events"] = between(at_first, cpu_seconds(processes))
    return result


async def arrivals(course: Course, process: Process, racer: str, label: str, pods: int, rate: float) -> Json:
    """Time pods that come while the racer runs, from creation to binding."""
    await clear(course.client)
    await asyncio.sleep(REST_SECONDS)
    watch = course.watch
    names = [f"{racer}-{label}-{i:05d}" for i in range(pods)]
    watch.look_for(names)
    name = scheduler_name(racer)
    before = cpu_seconds(course.processes(process))
    variety = course.variety
    await (pour(course.client, names, name, rate, variety) if rate else fill(course.client, names, name, variety))
    await bound(course, process, pods)
    used = between(before, cpu_seconds(course.processes(process)))
    waits = sorted(1000 * (watch.bound[name] - watch.created[name]) for name in names)
    p50, p99 = (round(waits[min(pods - 1, int(share * pods))], 1) for share in (0.5, 0.99))
    return {"pods": pods, "p50_ms": p50, "p99_ms": p99, "max_ms": round(waits[-1], 1), "cpu_seconds": used}


async def bound(course: Course, process: Process, count: int) -> None:
    """Wait until so many pods are bound, and no longer than the racer lives."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not await course.watch.until_bound(count, 1.0):
        if process.exit_code is not None or time.monotonic() > deadline:
            raise SystemExit(f"bound {len(course.watch.bound)} of {count} pods and no more: {process.text()[-2000:]}")


async def scale(course: Course) -> Json:
    """Time a start of each racer in a full cluster, from its start to its first binding, and look at its memory."""
    options = course.options
    emit(f"filling {options.nodes} nodes with {options.pods} pods")
    await stand(course.client, options.nodes, options.pods, course.variety)
    runs: list[Json] = []
    for number in range(options.rounds):
        for racer in (one for one in options.racers if one != "bare"):
            names = [f"{racer}-{number}-{i:03d}" for i in range(options.waiting)]
            course.watch.look_for(names)
            await fill(course.client, names, scheduler_name(racer), course.variety)
            begun, process = asyncio.get_running_loop().time(), course.start(racer)
            await bound(course, process, len(names))
            first = min(course.watch.bound.values()) - begun
            used = cpu_seconds({"scheduler": process.pid})["scheduler"]
            await asyncio.sleep(options.watch_memory_seconds)
            memory = memory_bytes(process.pid)
            process.end(signal.SIGTERM)
            if options.log_level in ("debug", "info"):
                emit(process.text())
            await clear(course.client)
            runs.append(
                {"racer": racer, "first_bind_seconds": round(first, 2), "cpu_seconds": used, "memory_bytes": memory}
            )
            emit(f"{racer}: first binding after {first:.2f} s, {memory['now'] / 2**20:.0f} MiB")
    return {
        "rounds": runs,
        "median": {
            racer: {
                "first_bind_seconds": median(one["first_bind_seconds"] for one in mine),
                "memory_mib": median(one["memory_bytes"]["now"] / 2**20 for one in mine),
                "memory_highest_mib": median(one["memory_bytes"]["highest"] / 2**20 for one in mine),
            }
            for racer, mine in by_racer(runs)
        },
    }


async def race(course: Course) -> Json:
    """Return all rounds and their medians."""
    options, runs = course.options, []
    begun = time.monotonic()
    for number in range(options.rounds):
        if time.monotonic() - begun > options.seconds:
            emit(f"{number} of {options.rounds} rounds, since their time is over")
            break
        # Each begins once in a while, so that nobody always runs on what another one left behind.
        turn = number % len(options.racers)
        for racer in options.racers[turn:] + options.racers[:turn]:
            runs.append(await heat(course, racer, number))
            report(runs[-1])
    return {"rounds": runs, "median": medians(runs)}


def medians(runs: list[Json]) -> Json:
    found: Json = {}
    for racer, mine in by_racer(runs):
        pods = mine[0]["cpu_seconds"]
        found[racer] = {
            "pods_per_second": median(one["pods_per_second"] for one in mine),
            "first_bind_seconds": median(one["first_bind_seconds"] for one in mine),
            "cpu_seconds": {name: median(one["cpu_seconds"][name] for one in mine) for name in pods},
        }
        for kind in ("steady", "burst"):
            if kind in mine[0]:
                found[racer][kind] = {key: median(one[kind][key] for one in mine) for key in ("p50_ms", "p99_ms")}
    for racer, of in found.items():
        for rival in ("bare", "kube-scheduler"):
            if rival in found and rival != racer:
                of[f"ratio_to_{rival}"] = round(of["pods_per_second"] / found[rival]["pods_per_second"], 2)
    return found


def by_racer(runs: list[Json]) -> Iterator[tuple[str, list[Json]]]:
    for racer in dict.fromkeys(one["racer"] for one in runs):
        yield racer, [one for one in runs if one["racer"] == racer]


def median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 2)


def report(one: Json) -> None:
    waits = ", ".join(
        f"{kind} p50 {one[kind]['p50_ms']:.0f} p99 {one[kind]['p99_ms']:.0f} ms"
        for kind in ("steady", "burst")
        if kind in one
    )
    cpu = " ".join(f"{name} {seconds:.1f}" for name, seconds in one["cpu_seconds"].items())
    said = f", events {one['events_at_last_bind']}, notes {one['notes_at_last_bind']}"
    if "events" in one:
        said += f", all events after {one['events_seconds']:.0f} s, {one['events_missing']} missing"
    emit(
        f"round {one['round'] + 1} {one['racer']:>15}: {one['pods_per_second']:6.0f} pods/s, first after "
        f"{one['first_bind_seconds']:.1f} s, cpu s: {cpu}"
        + (said if one["racer"] != "bare" else "")
        + (f"; {waits}" if waits else "")
    )


def emit(line: str) -> None:
    sys.stderr.write(f"race: {line}\n")
    sys.stderr.flush()


def train(folder: Path) -> Path:
    """Train both models and return the directory that holds them."""
    from bench_engine import trained

    from cotide_operator.observability.ledger_file import write_files
    from cotide_predictors.serialisation import to_files

    catalogue = trained(2000)
    for kind in ("qos", "completion"):
        model: Any = getattr(catalogue, kind)("trained")
        (folder / kind).mkdir(parents=True)
        write_files(folder / kind, to_files(model))
    return folder


@contextmanager
def serve_metrics(text: str) -> Iterator[Callable[[], Any]]:
    """Serve the request rates of the services; yields what starts it inside the event loop."""
    port = free_port()

    async def begin() -> tuple[web.AppRunner, str]:
        application = web.Application()
        application.router.add_get("/metrics", lambda _: _answer(text))
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return runner, f"http://127.0.0.1:{port}/metrics"

    yield begin


async def _answer(text: str) -> web.Response:
    return web.Response(text=text)


async def run(plane: ControlPlane, options: argparse.Namespace, models: Path | None) -> Json:
    """Race, or measure starts; cancelled by SIGTERM, so that whatever is being read ends first."""
    mine = asyncio.current_task()
    assert mine is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, mine.cancel)
    with serve_metrics(service_rates(options.nodes)) as begin:
        served, url = await begin()
        try:
            async with KubeClient(plane.admin, max_connections=64, timeout_seconds=120.0) as client:
                await install(client)
                await await_resources(client)
                emit(f"making {options.nodes} nodes")
                variety = Variety(options.pod_kilobytes, options.images)
                await prepare(client, options.nodes, variety)
                watch = PodWatch(client, PODS)
                course = Course(plane, client, watch, options, url, models, variety)
                work = scale(course) if options.scale else race(course)
                watching, racing = asyncio.ensure_future(watch.run()), asyncio.ensure_future(work)
                try:
                    done, _ = await asyncio.wait({watching, racing}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in (watching, racing):
                        task.cancel()
                    await asyncio.gather(watching, racing, return_exceptions=True)
                return (done - {watching} or done).pop().result()
        finally:
            await served.cleanup()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument(
        "--pods", type=int, default=3000, help="that wait when a racer starts; with --scale: that stand"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--racers", type=lambda text: text.split(","), default=list(USUAL), help=", ".join(RACERS))
    parser.add_argument(
        "--pod-kilobytes",
        type=_sizes,
        default=(),
        metavar="KB,...",
        help="sizes of varied pods, in turn, such as 2,5,10",
    )
    parser.add_argument(
        "--images", type=int, default=0, help=f"images on each node, at most {IMAGES}; kubelets tell 50"
    )
    parser.add_argument("--fsync", action="store_true", help="etcd waits for the disk, as in production")
    parser.add_argument("--kubernetes", choices=RELEASES, default=TODAY, help="release of the server")
    parser.add_argument("--steady", type=int, default=1000, help="pods that come one by one; 0 for none")
    parser.add_argument("--rate", type=float, default=100.0, help="of those, a second")
    parser.add_argument("--burst", type=int, default=1000, help="pods that come as fast as can be; 0 for none")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no round begins after these")
    parser.add_argument(
        "--events-seconds", type=float, default=60.0, help="longest wait for events still to be written"
    )
    parser.add_argument("--scale", action="store_true", help="measure starts in a full cluster")
    parser.add_argument("--waiting", type=int, default=200, help="pods that wait in it")
    parser.add_argument("--watch-memory-seconds", type=float, default=10.0, help="before memory is looked at")
    parser.add_argument("--log-level", default="warning", help="of the operator")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options = parser.parse_args()
    if unknown := set(options.racers) - set(RACERS):
        parser.error(f"--racers: {', '.join(sorted(unknown))} is none of {', '.join(RACERS)}")
    if not 0 <= options.images <= IMAGES:
        parser.error(f"--images: {options.images} is not between 0 and {IMAGES}")
    return options


def _sizes(text: str) -> tuple[float, ...]:
    sizes = tuple(float(part) for part in text.split(","))
    if not all(0.5 <= size <= LARGEST_KILOBYTES for size in sizes):
        raise argparse.ArgumentTypeError(f"{text}: sizes go from 0.5 to {LARGEST_KILOBYTES} kB")
    return sizes


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # an end like any other: all processes end first
    options = parse()
    try:
        binaries = of_release(options.kubernetes, tell_on_stderr)
    except NotToBeHad as reason:
        raise SystemExit(f"no race: {reason}") from None
    with tempfile.TemporaryDirectory(prefix="race-") as name:
        folder = Path(name)
        models = train(folder / "models") if any(COTIDES.get(racer) for racer in options.racers) else None
        with (
            control_plane(binaries, folder, fsync=options.fsync) as plane,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            emit(f"kube-apiserver {options.kubernetes} and etcd after {plane.started_in_seconds:.1f} s")
            try:
                result = runner.run(run(plane, options, models))
            except asyncio.CancelledError:
                raise SystemExit(TERMINATED) from None
            except ClusterError as error:  # who ends a group of processes ends the API server while it is read
                raise SystemExit(f"race: ended, since the API server is gone or refuses: {error}") from None
    chosen = {key: getattr(options, key) for key in ("nodes", "pods", "scale", "pod_kilobytes", "images", "fsync")}
    release = OTHERS.get(options.kubernetes, KUBERNETES)
    result = {**chosen, "kubernetes": release, "machine": machine(), **result}
    print(
        json.dumps(
            result if options.output == "json" else result["median"], indent=None if options.output == "json" else 1
        )
    )


if __name__ == "__main__":
    main()
