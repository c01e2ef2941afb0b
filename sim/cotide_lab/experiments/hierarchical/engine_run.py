"""One run of experiment hierarchical: the day of `data_center` through the real engine with policy `hierarchical`.

Called by `hierarchical.schedule`. One direction: tasks and samples -> events -> `Scheduler.handle` -> instructions ->
task starts and ends -> events. Runs differ only in the forecaster behind the `NodeForecasted` events. Invariant: the
same arguments give the same run.

As in Jiang et al., a machine's workload is the real usage of production plus the allocation of batch and gratis tasks.
An evicted or killed task starts over from the queue. Run time is length by MIPS, whatever else runs.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    Event,
    Node,
    NodeForecasted,
    NodeUpserted,
    NodeUsageSampled,
    Pod,
    PodDeleted,
    PodPhase,
    PodUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Evict, EvictCause, Instruction
from cotide_core.kernels.array_types import Floats
from cotide_core.units import CPU, MEMORY, PODS, RECLAIMED_CPU, RECLAIMED_MEMORY
from cotide_lab.experiments.hierarchical.data_center import (
    DAY_SAMPLES,
    DAY_SECONDS,
    MACHINES,
    REFERENCE_RATE,
    SAMPLE_SECONDS,
    WHOLE_BYTES,
    WHOLE_MILLICORES,
    Task,
)

COUNTED_SLOT_SECONDS: Final = 300.0
"""Overloads are counted in slots of this length for every prediction slot, so that runs can be compared."""
DRAIN_SECONDS: Final = 2 * DAY_SECONDS
"""Tasks that still wait at the end of the day get two more days of the same usage, without new tasks: the longest task
takes up to 26 hours."""
CAPACITY: Final = np.array(
    [[machine.cpu * WHOLE_MILLICORES for machine in MACHINES], [machine.memory * WHOLE_BYTES for machine in MACHINES]]
)
"""(2, 6) millicores and bytes."""


class Forecaster(Protocol):
    """Predicts the next slot, in shares of each machine; arrays are (2, 6): cpu and memory."""

    def record(self, online: Floats, batch: Floats) -> None:
        """Record the maxima of the finished slot."""
        ...

    def revise(self, batch: Floats) -> None:
        """Record the allocation of batch and gratis tasks after a placement, an end or an eviction."""
        ...

    def forecast(self, online: Floats, batch: Floats) -> tuple[Floats, Floats]:
        """Return the predicted peaks, given the present use and allocation."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run; arrays hold seconds, one for each task.

    Attributes
    ----------
    delays : from submission to the start of the last run. first_delays : to the start of the first.
    lost : run time thrown away by kills and evictions.
    """

    overloads: int
    kills: int
    evictions: int
    delays: Floats
    unfinished: int
    first_delays: Floats
    lost: Floats


@dataclass(slots=True)
class _Run:
    task: Task
    attempt: int
    pod: Pod
    node: int = -1


class Drive:
    """Plays one day."""

    def __init__(
        self,
        tasks: list[Task],
        usage: Floats,
        forecaster: Forecaster,
        config: SchedulerConfig,
        *,
        slot_seconds: float,
    ) -> None:
        self._tasks = tasks
        self._usage = usage
        self._forecaster = forecaster
        self._slot_samples = round(slot_seconds / SAMPLE_SECONDS)
        self._slot_seconds = slot_seconds
        self._scheduler = Scheduler(config, HeuristicCatalogue())
        self._held = np.zeros((2, len(MACHINES)))
        self._row = {machine.name: index for index, machine in enumerate(MACHINES)}
        self._runs: dict[str, _Run] = {}
        self._ends: list[tuple[float, str]] = []
        self._events: list[Event] = []
        self._delays = np.full(len(tasks), np.nan)
        self._first_delays = np.full(len(tasks), np.nan)
        self._lost = np.zeros(len(tasks))
        self._done = 0
        self._kills = self._evictions = self._overloads = 0
        self._peak = np.zeros((2, 2, len(MACHINES)))
        self._counted = np.zeros(len(MACHINES), np.bool_)
        self._moved = False

    def run(self) -> Outcome:
        """Play the day and its remaining tasks."""
        self._train()
        for index, machine in enumerate(MACHINES):
            cpu, memory = (int(amount) for amount in CAPACITY[:, index])
            amounts = ((RECLAIMED_CPU, cpu), (RECLAIMED_MEMORY, memory), (CPU, cpu), (MEMORY, memory), (PODS, 10_000))
            self._events.append(NodeUpserted(Node(machine.name, tuple(sorted(amounts)))))
        waiting = sorted(self._tasks, key=lambda task: task.at_seconds)
        position, sample, now = 0, 0, 0.0
        last = int((DAY_SECONDS + DRAIN_SECONDS) / SAMPLE_SECONDS)
        while sample < last and self._done < len(self._tasks):
            moments = [sample * SAMPLE_SECONDS]
            if position < len(waiting):
                moments.append(waiting[position].at_seconds)
            if self._ends:
                moments.append(self._ends[0][0])
            wakeup = self._scheduler.next_wakeup(now)
            if wakeup is not None:
                moments.append(wakeup)
            now = max(now, min(moments))
            while self._ends and self._ends[0][0] <= now:
                self._finish(heapq.heappop(self._ends)[1], now)
            while position < len(waiting) and waiting[position].at_seconds <= now:
                self._submit(waiting[position], 0, now)
                position += 1
            if sample * SAMPLE_SECONDS <= now:
                self._sample(sample, now)
                sample += 1
            self._cycle(now)
        open_delays = np.isnan(self._delays)
        submitted = np.array([task.at_seconds for task in sorted(self._tasks, key=lambda task: task.number)])
        self._delays[open_delays] = now - submitted[open_delays]
        first = np.where(np.isnan(self._first_delays), self._delays, self._first_delays)
        unfinished = len(self._tasks) - self._done
        return Outcome(self._overloads, self._kills, self._evictions, self._delays, unfinished, first, self._lost)

    def _train(self) -> None:
        """Show the forecaster the first day's slots, without any batch or gratis task."""
        for start in range(0, DAY_SAMPLES - self._slot_samples + 1, self._slot_samples):
            window = self._usage[:, :, start : start + self._slot_samples]
            self._forecaster.record(window.max(axis=2), np.zeros((2, len(MACHINES))))

    def _used(self, sample: int) -> Floats:
        # The second day of usage repeats while the remaining tasks finish.
        column: Floats = self._usage[:, :, DAY_SAMPLES + sample % DAY_SAMPLES]
        return column

    def _sample(self, sample: int, now: float) -> None:
        used = self._used(sample)
        load = used * CAPACITY + self._held
        if now < DAY_SECONDS:
            if sample % round(COUNTED_SLOT_SECONDS / SAMPLE_SECONDS) == 0:
                self._counted[:] = False
            over = (load > CAPACITY * (1 + 1e-9)).any(axis=0)
            self._overloads += int((over & ~self._counted).sum())
            self._counted |= over
        if sample % self._slot_samples == 0 and sample:
            self._forecaster.record(self._peak[0], self._peak[1])
            self._peak[:] = 0.0
            self._moved = True
        self._peak[0] = np.maximum(self._peak[0], used)
        self._peak[1] = np.maximum(self._peak[1], self._held / CAPACITY)
        for index, machine in enumerate(MACHINES):
            cpu, memory = (used * CAPACITY)[:, index].tolist()
            self._events.append(NodeUsageSampled(machine.name, now, cpu, memory))
        self._emit_forecast(used, now)

    def _emit_forecast(self, used: Floats, now: float) -> None:
        self._forecaster.revise(self._held / CAPACITY)
        online, batch = self._forecaster.forecast(used, self._held / CAPACITY)
        until = now + self._slot_seconds
        for index, machine in enumerate(MACHINES):
            peaks = [*(online * CAPACITY)[:, index].tolist(), *(batch * CAPACITY)[:, index].tolist()]
            self._events.append(NodeForecasted(machine.name, until, *peaks))

    def _submit(self, task: Task, attempt: int, now: float) -> None:
        key = f"s1/{task.number}-{attempt}"
        requests = (
            (RECLAIMED_CPU, max(1, round(task.cpu * WHOLE_MILLICORES))),
            (RECLAIMED_MEMORY, max(1, round(task.memory * WHOLE_BYTES))),
        )
        pod = Pod(key, key, task.workload_class, requests, now, ours=True)
        self._runs[key] = _Run(task, attempt, pod)
        self._events.append(PodUpserted(pod))

    def _finish(self, key: str, now: float) -> None:
        run = self._runs.get(key)
        if run is None or run.pod.phase is not PodPhase.RUNNING:
            return
        self._count(run, -1)
        run.pod = run.pod._replace(phase=PodPhase.SUCCEEDED, finished_seconds=now)
        self._events.append(PodUpserted(run.pod))
        self._done += 1

    def _cycle(self, now: float) -> None:
        """Handle the events, and at once the events that follow from them."""
        while True:
            if self._moved:
                self._moved = False
                self._emit_forecast(self._used(int(now // SAMPLE_SECONDS)), now)
            events, self._events = self._events, []
            self._carry_out(self._scheduler.handle(events, now), now)
            if not self._events:
                return

    def _carry_out(self, instructions: list[Instruction], now: float) -> None:
        for instruction in instructions:
            match instruction:
                case Bind(key, _, node):
                    self._start(self._runs[key], node, now)
                case Evict(key):
                    self._evict(self._runs.pop(key), instruction.cause, now)
                case _:
                    pass

    def _start(self, run: _Run, node: str, now: float) -> None:
        run.node = self._row[node]
        run.pod = run.pod._replace(node=node, phase=PodPhase.RUNNING, started_seconds=now)
        self._events.append(PodUpserted(run.pod))
        self._count(run, 1)
        delay = self._delays[run.task.number] = now - run.task.at_seconds
        if np.isnan(self._first_delays[run.task.number]):
            self._first_delays[run.task.number] = delay
        seconds = run.task.seconds * REFERENCE_RATE / MACHINES[run.node].mips
        heapq.heappush(self._ends, (now + seconds, run.pod.key))

    def _evict(self, run: _Run, cause: EvictCause, now: float) -> None:
        self._count(run, -1)
        self._kills += cause is EvictCause.OVERLOADED
        self._evictions += cause is EvictCause.PREEMPTED
        self._delays[run.task.number] = np.nan
        started = run.pod.started_seconds
        self._lost[run.task.number] += 0.0 if started is None else now - started
        self._events.append(PodDeleted(run.pod.key, run.pod.uid))
        self._submit(run.task, run.attempt + 1, now)

    def _count(self, run: _Run, sign: int) -> None:
        amounts = [amount for _, amount in run.pod.requests]
        self._held[:, run.node] += sign * np.array(amounts, np.float64)
        self._moved = True
