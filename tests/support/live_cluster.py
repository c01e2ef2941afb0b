"""A cluster in virtual time around the engine, and builders, for the tests of policies that plan.

Imported by those tests. What the engine binds runs for as long as it truly takes; nothing else happens but what a test
submits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine_objects import node_upserted, pod_upserted
from hypothesis import strategies as st
from replay_reference import Job

from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import Event, Node, NodeUpserted, Pod, PodPhase, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCompletion, HeuristicQos
from cotide_core.forecasts import CompletionForecast, CompletionForecaster, QosForecaster
from cotide_core.instructions import Bind, Instruction
from cotide_core.kernels.array_types import Floats


class Estimates(HeuristicCompletion):
    """Believes the user's estimate: it is p50 and p90 alike."""

    def isolated_seconds(self, types, input_bytes: Floats, requested_seconds: Floats) -> CompletionForecast:
        return CompletionForecast(requested_seconds, requested_seconds)


class Catalogue:
    def qos(self, model_id: str) -> QosForecaster:
        return HeuristicQos()

    def completion(self, model_id: str) -> CompletionForecaster:
        return Estimates()


class Cluster:
    """Runs what the engine binds for as long as it truly takes; confirmations come with the next other event."""

    def __init__(self, policy: str, nodes: dict[str, tuple[int, int]], **knobs: object) -> None:
        config = replace(SchedulerConfig(policy=policy, assume_timeout_seconds=1e9), **knobs)  # type: ignore[arg-type]  # as named
        self.scheduler = Scheduler(config, Catalogue())
        self.nodes = nodes
        self.events: list[Event] = [
            NodeUpserted(Node(name, (("cpu", cpu), ("memory", memory), ("pods", 110))))
            for name, (cpu, memory) in nodes.items()
        ]
        self.submits: list[tuple[float, Pod, float]] = []
        self.run: dict[str, float] = {}
        self.running: dict[str, tuple[float, Pod]] = {}
        self.start: dict[str, float] = {}
        self.on: dict[str, str] = {}
        self.planned: list[tuple[float, dict[str, tuple[float, str, bool]]]] = []

    def submit(self, name: str, at: float, run: float, estimate: float, cpu: int, memory: int = 0, **fields) -> None:
        requests = (("cpu", cpu), ("memory", memory))
        cls = WorkloadClass.BATCH
        pod = Pod(f"d/{name}", f"u{name}", cls, requests, at, ours=True, requested_seconds=estimate)
        pod = pod._replace(**fields)
        self.submits.append((at, pod, run))

    def play(self) -> dict[str, float]:
        self.submits.sort(key=lambda submit: submit[0])
        now = 0.0
        while self.submits or self.running or self.events or sum(self.scheduler.pending().values()):
            for key in [key for key, (end, _) in self.running.items() if end == now]:
                _, pod = self.running.pop(key)
                self.events.append(PodUpserted(pod._replace(phase=PodPhase.SUCCEEDED)))
            while self.submits and self.submits[0][0] == now:
                _, pod, self.run[pod.key] = self.submits.pop(0)
                self.events.append(PodUpserted(pod))
            events, self.events = self.events, []
            out = self.scheduler.handle(events, now)
            self.take(out, now)
            planned = self.scheduler.planned()
            self.planned.append((now, {key: (p.start_seconds, p.node, p.reserved) for key, p in planned.items()}))
            later = [end for end, _ in self.running.values()] + [at for at, _, _ in self.submits]
            wakeup = self.scheduler.next_wakeup(now)
            if wakeup is not None and wakeup < 1e8:
                later.append(wakeup)
            if not later:
                break
            now = min(later)
        return self.start

    def take(self, out: list[Instruction], now: float) -> None:
        for bind in out:
            if not isinstance(bind, Bind):
                continue
            pod = self.scheduler.state.pod(bind.key)
            assert pod is not None
            assert bind.key not in self.start
            self.start[bind.key], self.on[bind.key] = now, bind.node
            running = pod._replace(node=bind.node, phase=PodPhase.RUNNING, started_seconds=now)
            self.running[bind.key] = (now + self.run[bind.key], running)
            for column, resource in enumerate(("cpu", "memory")):
                used = sum(dict(p.requests)[resource] for _, p in self.running.values() if p.node == bind.node)
                assert used <= self.nodes[bind.node][column], "never overfilled"
            self.events.append(PodUpserted(running))


@st.composite
def jobs_of(draw: st.DrawFn, *, outlive: bool) -> tuple[list[Job], int]:
    capacity = draw(st.integers(1, 8))
    jobs, at = [], 0
    for number in range(draw(st.integers(1, 14))):
        at += draw(st.sampled_from((0, 0, 1, 3, 10)))
        estimate = draw(st.integers(1, 30))
        run = draw(st.integers(1, 60 if outlive else estimate))
        jobs.append(Job(number, at, run, draw(st.integers(1, capacity)), estimate, 0, estimate))
    return jobs, capacity


def live_starts(policy: str, jobs: list[Job], capacity: int, **fields) -> list[float]:
    cluster = Cluster(policy, {"a": (1000 * capacity, 1 << 30)})
    for job in jobs:
        cluster.submit(f"{job.number:02}", job.submit, job.run, job.forecast, 1000 * job.demand, **fields)
    starts = cluster.play()
    return [starts[f"d/{job.number:02}"] for job in jobs]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[str, tuple[int, int]], list[tuple[int, int, int, int, int]]]:
    sizes = st.tuples(st.integers(1, 4), st.integers(1, 4))
    nodes = {f"n{number}": draw(sizes) for number in range(draw(st.integers(1, 3)))}
    pods, at = [], 0
    for _ in range(draw(st.integers(1, 14))):
        at += draw(st.sampled_from((0, 0, 1, 4)))
        estimate = draw(st.integers(1, 20))
        cpu, memory = draw(st.sampled_from(sorted(nodes.values())))
        demand = draw(st.integers(1, cpu)), draw(st.integers(0, memory))
        pods.append((at, draw(st.integers(1, estimate)), estimate, *demand))
    return nodes, pods


def engine(policy: str, *events: Event, **knobs: object) -> tuple[Scheduler, list[Instruction]]:
    scheduler = Scheduler(replace(SchedulerConfig(policy=policy), **knobs), Catalogue())  # type: ignore[arg-type]
    return scheduler, scheduler.handle(events, 0.0)


def node(name: str = "a", cpu: int = 4000) -> NodeUpserted:
    """A node of four cpus, unless told otherwise."""
    return node_upserted(name, cpu, memory=1 << 30)


def pod(name: str, cpu: int, estimate: float, at: float = 0.0, **fields: Any) -> PodUpserted:
    """A pod with its user's estimate, by which plans are made."""
    return pod_upserted(name, cpu, **{"created_seconds": at, "requested_seconds": estimate, **fields})


def running(name: str, cpu: int, estimate: float, on: str = "a", **fields: Any) -> PodUpserted:
    return pod(name, cpu, estimate, node=on, phase=PodPhase.RUNNING, started_seconds=0.0, **fields)


def bound(out: list[Instruction]) -> dict[str, str]:
    return {one.key.removeprefix("d/"): one.node for one in out if isinstance(one, Bind)}
