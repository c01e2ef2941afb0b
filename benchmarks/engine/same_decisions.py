"""Does another version of the engine decide the same? Random clusters, two commits, every instruction compared.

    python benchmarks/engine/same_decisions.py 81d888d                      # against the files as they are here
    python benchmarks/engine/same_decisions.py 81d888d --seeds 0:1000 --policies predictive,qpsm
    python benchmarks/engine/same_decisions.py 81d888d --without-text       # where only words have changed

Each seed is a small cluster that lives through some thirty cycles of random events: pods of all classes, gangs,
measured and forecast rates and loads, trained models that come, nodes that come, go and are cordoned, binds and
evictions that are refused or never answered. What the engine says is carried out, so that a decision that differs makes
all after it differ. Each commit runs in a process of its own (`paired.unpacked`); prints the seeds that differ, exit 3
where there is one. A run of one side alone prints a digest a seed (``--alone``).

``--without-text`` compares kind, pod, node, victims and reason code alone. Each commit then runs its own copy of this
file, since names of the engine change with words; both copies must draw the same clusters.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from bench_engine import RATES, SIZES, TYPES, Trained, trained

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig, slack_knobs
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    BindRefused,
    Event,
    EvictRefused,
    Gang,
    ModelsChanged,
    Node,
    NodeDeleted,
    NodeForecasted,
    NodeUpserted,
    NodeUsageSampled,
    PeakAhead,
    Pod,
    PodDeleted,
    PodPhase,
    PodUpserted,
    RateForecast,
    RatesForecasted,
    RunTimeForecast,
    RunTimesForecasted,
    ServiceSampled,
    Taint,
    Workload,
    WorkloadUpserted,
)
from cotide_core.instructions import Bind, Evict, Instruction, Wait
from cotide_core.policies.catalogue import by_slack

sys.path.append(str(Path(__file__).resolve().parent.parent))  # beside this folder
from paired import ROOT, environment_of, unpacked

POLICIES = (
    "predictive", "predictive", "predictive", "hierarchical", "qpsm", "fifo", "fifo-guarded", "random-guarded",
    "predictive", "predictive", "svf", "easy-guarded",
)  # fmt: skip
CLASSES = (WorkloadClass.BATCH, WorkloadClass.BATCH, WorkloadClass.GRATIS, WorkloadClass.ONLINE)
WORKLOADS = ("shop/web", "shop/cart", "news/api")
CYCLES = 30
T = TypeVar("T")


class RandomCluster:
    """One seed: a cluster that does what the engine says, or doesn't, and whatever else happens in one."""

    def __init__(self, seed: int, policies: Sequence[str], catalogue: Trained) -> None:
        self.rng = np.random.default_rng(seed)
        self.policy = policies[seed % len(policies)]
        self.scheduler = Scheduler(self._config(seed), catalogue)
        self.now = 0.0
        self.count = 0
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.events: list[Event] = []
        self.busy = self.rng.random()
        """How much of its nodes the online pods of this cluster use."""
        for number, key in enumerate(WORKLOADS):
            self.events.append(WorkloadUpserted(Workload(key, float((10, 20, 5)[number]), exclusive=number == 2)))
        for _ in range(int(self.rng.integers(3, 60))):
            self.add_node()

    def _config(self, seed: int) -> SchedulerConfig:
        knobs = slack_knobs(self.policy) if by_slack(self.policy) else None
        if knobs is not None and self.chance(0.5):
            knobs = HierarchicalConfig(
                victims=self.one_of(("cheapest", "random", "none")),
                gratis_subtracts=self.one_of(("highest", "both", "held")),
                capacity_share=self.one_of((0.95, 0.7)),
                usage_stale_seconds=self.one_of((60.0, 1e9)),
                overload_observation_seconds=5.0,
                overload_pause_seconds=5.0,
                flap_episodes=2,
            )
        return SchedulerConfig(
            policy=self.policy,
            seed=seed,
            max_decisions_per_cycle=self.one_of((512, 512, 7)),
            qos_risk_threshold=self.one_of((0.1, 0.1, 0.3)),
            hierarchical=knobs,
            gang_reserve_seconds=self.one_of((None, 20.0)),
            packs=self.chance(0.1),
        )

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one_of(self, values: Sequence[T]) -> T:
        return values[int(self.rng.integers(len(values)))]

    def add_node(self) -> None:
        self.count += 1
        cpu = self.one_of((8000, 16000, 32000))
        amounts = {"cpu": cpu, "memory": cpu * 4_000_000, "pods": 60}
        if self.chance(0.7):
            amounts |= {"cotide.dev/reclaimed-cpu": cpu, "cotide.dev/reclaimed-memory": cpu * 4_000_000}
        soft = (Taint("old", "", "PreferNoSchedule"),) if self.chance(0.1) else ()
        self.put_node(Node(f"n{self.count}", tuple(sorted(amounts.items())), (("zone", self.one_of("ab")),), soft))

    def put_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.events.append(NodeUpserted(node))

    def lose_node(self) -> None:
        if len(self.nodes) > 2:
            name = self.one_of(list(self.nodes))
            del self.nodes[name]
            self.events.append(NodeDeleted(name))
            for key in [key for key, pod in self.pods.items() if pod.node == name]:
                self.delete(key)

    def cordon_node(self) -> None:
        node = self.nodes[self.one_of(list(self.nodes))]
        self.put_node(replace(node, cordoned_until_seconds=self.now + 30.0))

    def submit(self) -> None:
        """Bring a burst of pods of one class, sometimes all of one kind, sometimes a gang."""
        cls, alike, count = self.one_of(CLASSES), self.chance(0.3), int(self.rng.integers(1, 25))
        gang = Gang(f"d/g{self.count}", count, 60.0) if cls is not WorkloadClass.ONLINE and self.chance(0.15) else None
        cpu, size, kind = int(self.one_of((250, 500, 1000, 2000, 6000))), int(self.one_of(SIZES)), self.one_of(TYPES)
        for _ in range(count):
            self.count += 1
            if not alike:
                cpu, size, kind = int(self.one_of((250, 500, 1000, 2000))), int(self.one_of(SIZES)), self.one_of(TYPES)
            prefix = "cotide.dev/reclaimed-" if cls is not WorkloadClass.ONLINE and self.chance(0.5) else ""
            requests = tuple(sorted({f"{prefix}cpu": cpu, f"{prefix}memory": cpu * 1_500_000}.items()))
            pod = Pod(f"d/p{self.count}", f"u{self.count}", cls, requests, self.now, ours=True)
            if cls is WorkloadClass.ONLINE:
                pod = pod._replace(workload=self.one_of((*WORKLOADS, None)))
            else:
                estimate = float(self.rng.integers(5, 5000)) if self.chance(0.4) else None
                selector = (("zone", "a"),) if self.chance(0.1) else ()
                pod = pod._replace(
                    type=kind, input_bytes=size, requested_seconds=estimate, gang=gang, node_selector=selector
                )
            self.emit(pod)

    def emit(self, pod: Pod) -> None:
        self.pods[pod.key] = pod
        self.events.append(PodUpserted(pod))
        if pod.node is not None and pod.workload is not None and self.chance(0.9):
            self.events.append(ServiceSampled(pod.key, float(self.one_of(RATES[:4])), self._latency()))

    def _latency(self) -> float | None:
        return float(self.rng.lognormal(1.5, 0.8)) if self.chance(0.3) else None

    def delete(self, key: str) -> None:
        pod = self.pods.pop(key)
        self.events.append(PodDeleted(pod.key, pod.uid))

    def end_some(self) -> None:
        running = [key for key, pod in self.pods.items() if pod.node is not None]
        for key in running:
            if self.chance(0.15):
                self.delete(key)

    def measure(self) -> None:
        for pod in list(self.pods.values()):
            if pod.node is not None and pod.workload is not None and self.chance(0.5):
                self.events.append(ServiceSampled(pod.key, float(self.one_of(RATES[:4])), self._latency()))
        for node in self.nodes.values():
            if self.chance(0.6):
                cpu, memory = self._use(node)
                self.events.append(NodeUsageSampled(node.name, self.now, cpu, memory))

    def _use(self, node: Node) -> tuple[float, float]:
        offered = dict(node.allocatable)
        share = self.rng.uniform(0.0, self.busy)
        return share * offered["cpu"], share * offered["memory"]

    def forecast(self) -> None:
        for node in self.nodes.values():
            if self.chance(0.8):
                cpu, memory = self._use(node)
                until = self.now + 300.0
                ahead = tuple(
                    PeakAhead(until + 300.0 * 2**step, *self._use(node)) for step in range(int(self.rng.integers(0, 5)))
                )
                batch = self._use(node)
                self.events.append(NodeForecasted(node.name, until, cpu, memory, *batch, ahead=ahead))

    def forecast_rates(self) -> None:
        served = [key for key, pod in self.pods.items() if pod.workload is not None and pod.node is not None]
        rates = [RateForecast(key, tuple(self.rng.uniform(0, 2e4, 3).tolist())) for key in served if self.chance(0.7)]
        horizons = self.one_of(((300.0, 900.0, 3600.0), (60.0, 600.0, 6000.0)))
        self.events.append(RatesForecasted(horizons, self.now + 200.0, tuple(rates)))

    def forecast_run_times(self) -> None:
        waiting = [pod for pod in self.pods.values() if pod.node is None and pod.workload_class is WorkloadClass.BATCH]
        forecasts = [
            RunTimeForecast(pod.key, pod.uid, p50, 1.7 * p50)
            for pod, p50 in zip(waiting, self.rng.uniform(5, 3000, len(waiting)).tolist(), strict=True)
            if self.chance(0.3)
        ]
        self.events.append(RunTimesForecasted(tuple(forecasts)))

    def happen(self) -> None:
        """Let some of all that may happen between two cycles happen."""
        for share, what in (
            (0.7, self.submit),
            (0.4, self.submit),
            (0.3, self.end_some),
            (0.5, self.measure),
            (0.3, self.forecast),
            (0.2, self.forecast_rates),
            (0.2, self.forecast_run_times),
            (0.1, self.add_node),
            (0.1, self.lose_node),
            (0.1, self.cordon_node),
        ):
            if self.chance(share):
                what()
        if self.chance(0.08):
            self.events.append(ModelsChanged(*self.one_of((("trained", "trained"), ("", ""), ("trained", "")))))
        self.now += float(self.one_of((0.0, 0.5, 3.0, 15.0, 70.0)))

    def cycle(self) -> list[Instruction]:
        """Decide, and carry out what was decided, or don't."""
        events, self.events = self.events, []
        out = self.scheduler.handle(events, self.now)
        for one in out:
            if isinstance(one, Bind) and self.chance(0.93):
                pod = self.pods[one.key]
                self.emit(pod._replace(node=one.node, phase=PodPhase.RUNNING, started_seconds=self.now))
            elif isinstance(one, Bind) and self.chance(0.5):
                self.events.append(BindRefused(one.key, one.uid, one.node, 500, "no", retry=True))
            elif isinstance(one, Evict) and one.key in self.pods:
                if self.chance(0.8):
                    self.delete(one.key)
                else:
                    self.events.append(EvictRefused(one.key, one.uid, one.node, 429, "budget"))
        return out


def decision(instruction: Instruction) -> tuple[str, str, str, tuple[str, ...], str]:
    """Return kind, pod, node, victims and reason code: what an instruction decides, without its sentences.

    The victim of an `Evict` is its pod, and the one that gets the room stands in the place of victims.
    """
    match instruction:
        case Bind(key=key, node=node, at_risk=at_risk):
            return "bind", key, node, (), "at risk" if at_risk else ""
        case Wait(key=key, nominated_node=node, victims=victims, reason=code):
            return "wait", key, node, victims, code.value
        case Evict(key=key, node=node, nominee=nominee, cause=cause):
            return "evict", key, node, (nominee,), cause.value


def digests(seeds: range, policies: Sequence[str], *, text: bool = True) -> Iterator[tuple[int, str, int, str]]:
    """Yield of each seed its policy, how many instructions there were, and a digest of them all."""
    catalogue = trained(2000)
    for seed in seeds:
        cluster, seen, binds = RandomCluster(seed, policies, catalogue), hashlib.sha256(), 0
        if cluster.chance(0.7):
            cluster.events.append(ModelsChanged("trained", "trained"))
        for _ in range(CYCLES):
            cluster.happen()
            out = cluster.cycle()
            binds += sum(isinstance(one, Bind) for one in out)
            for instruction in out:
                seen.update(repr(instruction if text else decision(instruction)).encode())
            if text:
                scheduler = cluster.scheduler
                rest = scheduler.next_wakeup(cluster.now), scheduler.pending(), scheduler.predicted_starts(cluster.now)
                seen.update(repr(rest).encode())
        yield seed, cluster.policy, binds, seen.hexdigest()[:16]


def alone(folder: Path, arguments: argparse.Namespace) -> list[str]:
    """Return the lines of one commit, whose engine these clusters ask."""
    program = folder / Path(__file__).resolve().relative_to(ROOT) if arguments.without_text else Path(__file__)
    command = [sys.executable, str(program), "--alone", "--seeds", arguments.seeds, "--policies", arguments.policies]
    if arguments.without_text:
        command.append("--without-text")
    done = subprocess.run(command, env=environment_of(folder), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", help="a commit")
    parser.add_argument("after", nargs="?", help="another; default: the files as they are here")
    parser.add_argument("--seeds", default="0:300", help="first:last, the last left out")
    parser.add_argument("--policies", default=",".join(POLICIES), help="of seed 0, 1, ... in turn")
    parser.add_argument("--without-text", action="store_true", help="compare kind, pod, node, victims and reason code")
    parser.add_argument("--alone", action="store_true", help="print the digests of the engine that is imported")
    arguments = parser.parse_args()
    if arguments.alone:
        first, last = map(int, arguments.seeds.split(":"))
        policies = arguments.policies.split(",")
        for seed, policy, binds, digest in digests(range(first, last), policies, text=not arguments.without_text):
            print(seed, policy, binds, digest, flush=True)
        return
    if arguments.before is None:
        parser.error("which commit is to be compared with?")
    folders = [unpacked(arguments.before), ROOT if arguments.after is None else unpacked(arguments.after)]
    before, after = (alone(folder, arguments) for folder in folders)
    differing = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    for one, other in differing:
        print(f"DIFFERS: {one} / {other}")
    binds = sum(int(line.split()[2]) for line in before)
    extent = "without their text" if arguments.without_text else "to the last byte"
    print(f"{len(before) - len(differing)} of {len(before)} clusters decide the same {extent} ({binds} binds)")
    if differing:
        raise SystemExit(3)


if __name__ == "__main__":
    main()
