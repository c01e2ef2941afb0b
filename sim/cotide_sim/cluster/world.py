"""A cluster in virtual time: a plan, simulated machines and the real engine, without HTTP.

Called by experiments and tests (and by `cotide simulate` later); the live demo plays the same plan through the API. The
flow has one direction, as everywhere::

    plan and machines -> events -> Scheduler.handle -> instructions -> machines -> events

There is no other feedback: the engine learns of a start, a finish or a latency from an event. For a policy that plans
by slack, pods of jobs request reclaimed capacity, and `slot_forecasts` reports the present and the forecast usage of
each node's online pods. Invariants: the same arguments give the same run. Every pod of a job runs once, unless it is
evicted: then it goes on for its grace period, and starts over under a new name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.config import slack_knobs
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import (
    Event,
    ModelsChanged,
    Node,
    NodeUpserted,
    Pod,
    PodDeleted,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasts import ModelCatalogue
from cotide_core.instructions import Bind, Evict, Instruction
from cotide_core.policies.catalogue import by_slack
from cotide_core.units import CPU, MEMORY, PODS
from cotide_predictors.request_rates.service_rates import ServiceRates
from cotide_predictors.run_time.habits.pod_run_times import PodRunTimes
from cotide_sim.cluster.event_queue import Timeline
from cotide_sim.cluster.machine import MachinePark, NodeUsage
from cotide_sim.cluster.occupancy import Occupancy
from cotide_sim.cluster.planned_pods import NAMESPACE, PlannedPod, pods_of_job, pods_of_service
from cotide_sim.cluster.scorecard import SLOT_SECONDS, NodeLoad, Scorecard, Summary, overloaded
from cotide_sim.cluster.slot_forecasts import NodeLoads, PeakRule, SlotForecasts
from cotide_sim.interference.model import Interference
from cotide_sim.workloads.plan import Plan, PlannedJob, PlannedService

SAMPLE_SECONDS: Final = 5.0
"""Period of measuring latencies, rates and cpu; chosen: the fake nodes' metrics, 4 times a second at speed 20."""
NODE_MILLICORES: Final = 8000
NODE_MEMORY_BYTES: Final = 32 << 30
NODE_PODS: Final = 110
LEAD_SECONDS: Final = 60.0
"""Services start this long before the run; that time is not scored."""
GRACE_SECONDS: Final = 1.0
"""Time that an evicted pod takes to end, as on the fake nodes (`kubelets.residents.STOP_SECONDS`)."""


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a run.

    Attributes
    ----------
    summary : the figures.
    violations : share of time over its limit, by service.
    cycles, instructions : calls of the engine, and its decisions.
    """

    summary: Summary
    violations: dict[str, float]
    cycles: int
    instructions: int


Listener = Callable[[float, Sequence[Event], Sequence[Instruction]], None]


class World:
    """One run of one policy.

    Parameters
    ----------
    plan : services and arrivals.
    interference : the physics of the machines.
    config, catalogue : of the engine.
    models : ids that the catalogue knows; None leaves the engine with its heuristics.
    nodes : 8-core nodes with 32 GiB.
    noise : standard deviation of the log of measured latencies.
    listener : called with each cycle (a ledger, a collector of samples); must not change anything.
    slot_seconds : of overload slots, and of forecasts where the policy plans by slack.
    peak : the rule of such a policy for the planned peak of online pods.
    run_times : forecasts run times from habits, as the live operator's does; None leaves them to the completion model.
    rates : forecasts request rates, as the live operator's does; it also learns the services' rates from before the
        run. None leaves the engine with the latest measured rates.
    """

    def __init__(
        self,
        plan: Plan,
        interference: Interference,
        config: SchedulerConfig,
        catalogue: ModelCatalogue,
        *,
        models: ModelsChanged | None = None,
        nodes: int = 40,
        noise: float = 0.0,
        listener: Listener | None = None,
        slot_seconds: float = SLOT_SECONDS,
        peak: PeakRule | None = None,
        run_times: PodRunTimes | None = None,
        rates: ServiceRates | None = None,
    ) -> None:
        self._plan = plan
        self._scheduler = Scheduler(config, catalogue)
        self._park = MachinePark(interference, origin_seconds=0.0, noise=noise, seed=config.seed)
        self._score = Scorecard(slot_seconds=slot_seconds)
        self._timeline: Timeline[Callable[[], None]] = Timeline(now=-LEAD_SECONDS)
        self._plans: dict[str, PlannedPod] = {}
        self._pods: dict[str, Pod] = {}
        self._limits = {f"{NAMESPACE}/{service.name}": service.limit_milliseconds for service in plan.services}
        self._events: list[Event] = [] if models is None else [models]
        self._nodes = [f"node-{number:03d}" for number in range(nodes)]
        self._occupancy = Occupancy(self._nodes)
        allocatable = ((CPU, NODE_MILLICORES), (MEMORY, NODE_MEMORY_BYTES), (PODS, NODE_PODS))
        bare = [Node(name, allocatable) for name in self._nodes]
        self._events += [NodeUpserted(node) for node in bare]
        self._forecasts = None
        if by_slack(config.policy):
            knobs = config.hierarchical or slack_knobs(config.policy)
            self._forecasts = SlotForecasts(
                bare,
                np.array([NODE_MILLICORES, NODE_MEMORY_BYTES], np.float64),
                slot_seconds=slot_seconds,
                rule=peak or PeakRule(),
                capacity_share=knobs.capacity_share,
            )
        self._published: dict[str, dict[str, int]] = {}
        self._listener = listener
        self._run_times = run_times
        self._rates = rates
        self._cycles = self._instructions = 0

    def run(self) -> Run:
        """Play the plan from its start to its end.

        Raises
        ------
        RuntimeError
            When the engine decides something impossible (a pod bound twice, a node over its capacity): a fault of the
            engine that must not pass for a result.
        """
        self._set_stage()
        end = self._plan.duration_seconds
        while self._timeline.now < end:
            self._cycle()
            moments = (self._timeline.next_due(), self._park.next_finish(), self._scheduler.next_wakeup(self._now))
            following = min((moment for moment in moments if moment is not None), default=end)
            # Work that is left at this very moment is taken up again at once, after its own events.
            self._pass_time(min(end, max(self._now, following)))
        return Run(self._score.summary(end), self._score.violation_ratio_by_service(), self._cycles, self._instructions)

    @property
    def _now(self) -> float:
        return self._timeline.now

    def _set_stage(self) -> None:
        for name in self._nodes:
            self._park.add_node(name, NODE_MILLICORES, NODE_MEMORY_BYTES)
        for service in self._plan.services:
            self._start_service(service)
        for job in self._plan.jobs:
            self._timeline.add(job.at_seconds, lambda job=job: self._submit(job))  # type: ignore[misc]  # early binding
        self._timeline.add(-LEAD_SECONDS, self._measure)
        if self._rates is not None:
            before = {
                f"{NAMESPACE}/{planned_service.name}": planned_service.rates_before
                for planned_service in self._plan.services
                if planned_service.rates_before
            }
            self._rates.remember(before)

    def _start_service(self, service: PlannedService) -> None:
        key = f"{NAMESPACE}/{service.name}"
        self._events.append(WorkloadUpserted(Workload(key, service.limit_milliseconds, service.exclusive)))
        self._score.observe_service_arrival(key, service.replicas, self._now)
        for planned in pods_of_service(service, self._now):
            self._appear(planned)

    def _submit(self, job: PlannedJob) -> None:
        self._score.observe_job(f"{NAMESPACE}/{job.name}", job.completions)
        for planned in pods_of_job(job, self._now, reclaimed=self._forecasts is not None):
            self._appear(planned)

    def _appear(self, plan: PlannedPod) -> None:
        self._plans[plan.pod.key] = plan
        self._score.observe_arrival(plan.pod.key, plan.pod.workload_class, self._now)
        self._emit(plan.pod)

    def _emit(self, pod: Pod) -> None:
        self._pods[pod.key] = pod
        self._events.append(PodUpserted(pod))

    def _cycle(self) -> None:
        events, self._events = self._events, []
        if self._run_times is not None:
            forecasts = self._run_times.arrived(events, self._scheduler.completion_forecaster)
            events += [] if forecasts is None else [forecasts]
        if self._rates is not None:
            # Rates of the lead do not belong to the run's past: there the course of each service wraps around.
            ahead = self._rates.take(events if self._now >= 0.0 else _without_rates(events), max(0.0, self._now))
            events += [] if ahead is None else [ahead]
        instructions = self._scheduler.handle(events, self._now)
        if self._run_times is not None:
            self._run_times.decided(instructions)
        self._cycles += 1
        self._instructions += len(instructions)
        if self._listener is not None:
            self._listener(self._now, events, instructions)
        for instruction in instructions:
            match instruction:
                case Bind():
                    self._bind(instruction)
                case Evict():
                    self._evict(instruction)
                case _:
                    pass

    def _bind(self, bind: Bind) -> None:
        pod = self._pods[bind.key]
        if pod.phase is not PodPhase.PENDING:
            raise RuntimeError(f"{bind.key} was bound to {bind.node}, but is {pod.phase} on {pod.node}")
        self._check_capacity(bind.node, pod)
        load = self._plans[bind.key].load
        self._occupancy.start(bind.node, pod, load)
        self._park.start_pod(bind.node, load, self._now)
        self._score.observe_bound(pod.key, self._now)
        self._score.observe_started(pod.key, self._now)
        if pod.workload is not None:
            self._score.observe_ready(pod.key, pod.workload, self._now)
        self._emit(pod._replace(node=bind.node, phase=PodPhase.RUNNING, started_seconds=self._now))

    def _check_capacity(self, node: str, arriving: Pod) -> None:
        """Refuse the pods that a kubelet would refuse: here this is a fault, since the engine alone binds."""
        capacity = {CPU: NODE_MILLICORES, MEMORY: NODE_MEMORY_BYTES, **self._published.get(node, {})}
        excess = self._occupancy.excess(node, arriving, capacity)
        if excess is not None:
            resource, used = excess
            raise RuntimeError(
                f"{node} would hold {used} of {capacity.get(resource, 0)} {resource} with {arriving.key}"
            )

    def _evict(self, evict: Evict) -> None:
        pod = self._pods[evict.key]
        self._score.observe_evicted(pod.key, self._now)
        self._emit(pod._replace(terminating=True))
        self._timeline.add(self._now + GRACE_SECONDS, lambda: self._end_evicted(evict.key))

    def _end_evicted(self, key: str) -> None:
        pod = self._pods[key]
        if pod.phase is not PodPhase.RUNNING:
            return  # it ended by itself within its grace period
        del self._pods[key]
        self._score.observe_gone(pod.key, self._now)
        if pod.workload is not None:
            self._score.observe_unready(pod.key, pod.workload, self._now)
        self._leave(pod)
        self._park.stop_pod(key, self._now)
        self._events.append(PodDeleted(key, pod.uid))
        self._appear(self._plans[key].again(self._now))

    def _leave(self, pod: Pod) -> None:
        assert pod.node is not None  # noqa: S101 - it ran
        self._occupancy.end(pod.node, pod, self._plans[pod.key].load)

    def _pass_time(self, now: float) -> None:
        for finished in self._park.advance(now):
            pod = self._pods[finished.key]
            assert pod.job is not None  # noqa: S101 - only pods of jobs are finite
            self._score.observe_succeeded(pod.key, pod.job)
            self._leave(pod)
            self._emit(pod._replace(phase=PodPhase.SUCCEEDED, finished_seconds=finished.at_seconds))
        for action in self._timeline.move_to(now):
            action()

    def _measure(self) -> None:
        """Sample every service and the cluster's cpu, and come back."""
        scored = self._now >= 0.0
        for sample in self._park.service_samples(self._now):
            self._events.append(ServiceSampled(sample.key, sample.requests_per_second, sample.latency_p95_milliseconds))
            service = self._pods[sample.key].workload
            if scored and service is not None:
                self._score.observe_service(
                    sample.key,
                    service,
                    over_limit=sample.latency_p95_milliseconds > self._limits[service],
                    now_seconds=self._now,
                )
        usage = self._park.node_usage(self._now)
        if scored:
            used = sum(node_usage.cpu_millicores for node_usage in usage)
            self._score.observe_cpu(used / (NODE_MILLICORES * len(self._nodes)), self._now)
        self._measure_nodes(usage, scored=scored)
        self._timeline.add(self._now + SAMPLE_SECONDS, self._measure)

    def _measure_nodes(self, usage: Sequence[NodeUsage], *, scored: bool) -> None:
        """Compare each node's load with its capacity, and feed the forecasts."""
        asked, held = self._occupancy.asked.copy(), self._occupancy.held.copy()
        real = np.array([[node_usage.online_millicores, node_usage.online_memory_bytes] for node_usage in usage]).T
        if scored:
            capacity = np.array([[NODE_MILLICORES], [NODE_MEMORY_BYTES]], np.float64)
            for row in np.flatnonzero(overloaded(real + held, capacity)).tolist():
                (cpu, memory), (held_cpu, held_memory) = real[:, row].tolist(), held[:, row].tolist()
                load = NodeLoad(
                    self._nodes[row], cpu, memory, held_cpu, held_memory, NODE_MILLICORES, NODE_MEMORY_BYTES
                )
                self._score.observe_node(load, self._now)
        if self._forecasts is not None:
            measured = self._forecasts.measure(NodeLoads(real, asked, held), self._now)
            for event in measured:
                if isinstance(event, NodeUpserted):
                    self._published[event.node.name] = dict(event.node.allocatable)
            self._events += measured


def _without_rates(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if not isinstance(event, ServiceSampled)]
