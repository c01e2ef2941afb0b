"""Laws of every composition of a policy's parts under a hostile driver, and the one that is refused when built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.config import RUN_TIME_POLICIES, SLACK_POLICIES, HierarchicalConfig, SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.errors import InputError
from cotide_core.events import (
    Event,
    ModelsChanged,
    Node,
    NodeContended,
    NodeDeleted,
    NodeForecasted,
    NodeUpserted,
    NodeUsageSampled,
    Pod,
    PodDeleted,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCompletion, HeuristicQos
from cotide_core.forecasts import CompletionForecaster, Floats, MixBatch, QosAnswers, QosForecaster
from cotide_core.instructions import Bind, Evict, Instruction
from cotide_core.placement.capacity import Capacity
from cotide_core.placement.placer import Policy
from cotide_core.placement.plan_rule import Machines, PlanRule, Sharing
from cotide_core.placement.scoring import LeastAllocated, RandomRank
from cotide_core.policies import POLICIES, build_policy
from cotide_core.policies.catalogue import by_slack
from cotide_core.policies.qpsm import qpsm
from cotide_core.qos.qos_guard import QosGuard
from cotide_core.queueing.ordering import ArrivalOrder, PredictedShortestFirst, RandomOrder, SmallestVolumeFirst
from cotide_core.recording.ledger import LedgerWriter
from cotide_lab.commands.ledger_replay import replay

CPU, MEMORY, THRESHOLD = 1000, 1000, 0.3
NODES = ("a", "b")
ONLINE, BATCH, GRATIS = WorkloadClass.ONLINE, WorkloadClass.BATCH, WorkloadClass.GRATIS
KNOBS = HierarchicalConfig(
    capacity_share=1.0,
    overload_contended_share=0.2,
    overload_observation_seconds=1.0,
    overload_pause_seconds=1.0,
    flap_episodes=2,
    cordon_seconds=9.0,
)
Compose = Callable[[SchedulerConfig], Policy]


class Lawful:
    """A QoS model with a law that a test can follow: p = rate x jobs / 1000."""

    model_id = "lawful"

    def violation_probability(self, mixes: MixBatch) -> Floats:
        rate = mixes.requests_per_second + mixes.other_requests_per_second
        return np.asarray(np.minimum(1.0, rate * mixes.counts.sum(axis=1) / 1000))

    def answer(self, mixes: MixBatch) -> QosAnswers:
        return QosAnswers.within(self.violation_probability(mixes))


class Catalogue:
    def qos(self, model_id: str) -> QosForecaster:
        return Lawful() if model_id else HeuristicQos()

    def completion(self, model_id: str) -> CompletionForecaster:
        return HeuristicCompletion()


ORDERS = (ArrivalOrder(), PredictedShortestFirst(300.0, 3600.0), SmallestVolumeFirst(), RandomOrder(3))
PLANS = (
    None,
    PlanRule(),
    PlanRule(reservations=1),
    PlanRule(kept=True),
    PlanRule(kept=True, slack=True),
    PlanRule(machines=Machines.LEAST_WORK),
    PlanRule(sharing=Sharing.HIGH_DEMAND),
    PlanRule(reservations=2, sharing=Sharing.RELIABLE),
)


@dataclass(frozen=True)
class Parts:
    capacity: Capacity
    guarded: bool
    least_risky: bool
    order: int
    rank: str
    ranks_slack: bool
    plan: int
    monitor: bool

    def compose(self, config: SchedulerConfig) -> Policy:
        """Make the policy anew for each engine: guards and drawn ranks remember."""
        ranks = {
            "free": LeastAllocated(),
            "qpsm": qpsm(config).rank,
            "drawn": RandomRank(np.random.default_rng(config.seed)),
        }
        return Policy(
            "predictive",
            ORDERS[self.order],
            ranks[self.rank],
            QosGuard(THRESHOLD) if self.guarded else None,
            lowest_risk=self.guarded and self.least_risky,
            capacity=self.capacity,
            ranks_slack=self.ranks_slack,
            monitor=self.monitor,
            plan=PLANS[self.plan],
        )


parts = st.builds(
    Parts,
    capacity=st.sampled_from(Capacity),
    guarded=st.booleans(),
    least_risky=st.booleans(),
    order=st.integers(0, len(ORDERS) - 1),
    rank=st.sampled_from(("free", "qpsm", "drawn")),
    ranks_slack=st.booleans(),
    plan=st.one_of(st.just(0), st.integers(0, len(PLANS) - 1)),
    monitor=st.booleans(),
)


class Cluster:
    """Confirms binds, carries evictions out and checks each instruction against the truth."""

    def __init__(self, composed: Parts) -> None:
        self.parts = composed
        self.config = SchedulerConfig(policy="predictive", seed=4, hierarchical=KNOBS)
        self.scheduler = Scheduler(self.config, Catalogue())
        self.writer = LedgerWriter(self.config)
        self.lines = [self.writer.header()]
        self.now = 0.0
        self.pods: dict[str, Pod] = {}
        self.rates: dict[str, float] = {}
        self.events: list[Event] = [ModelsChanged("m", "m"), WorkloadUpserted(Workload("d/web"))]
        for name in NODES:
            self.add_node(name)

    def add_node(self, name: str) -> None:
        amounts = {"cotide.dev/reclaimed-cpu": CPU, "cotide.dev/reclaimed-memory": MEMORY, "cpu": CPU, "memory": MEMORY}
        self.events.append(NodeUpserted(Node(name, tuple(sorted({**amounts, "pods": 9}.items())))))

    def lose_node(self, name: str) -> None:
        self.events.append(NodeDeleted(name))
        for pod in self.there(name):
            self.delete(pod.key)

    def submit(self, number: int, cls: WorkloadClass, cpu: int, rate: float) -> None:
        key = f"d/{number}"
        if key in self.pods:
            return
        prefix = "" if cls is ONLINE else "cotide.dev/reclaimed-"
        requests = tuple(sorted({f"{prefix}cpu": cpu, f"{prefix}memory": 100}.items()))
        pod = Pod(key, f"u{number}-{len(self.lines)}", cls, requests, self.now, ours=True)
        self.rates[key] = rate if cls is ONLINE else 0.0
        self.emit(pod._replace(workload="d/web") if cls is ONLINE else pod._replace(type="sort"))

    def emit(self, pod: Pod) -> None:
        self.pods[pod.key] = pod
        self.events.append(PodUpserted(pod))
        if pod.node is not None and pod.workload_class is ONLINE:
            self.events.append(ServiceSampled(pod.key, self.rates[pod.key]))

    def delete(self, key: str) -> None:
        pod = self.pods.pop(key, None)
        if pod is not None:
            self.events.append(PodDeleted(pod.key, pod.uid))

    def sample(self, key: str, rate: float) -> None:
        pod = self.pods.get(key)
        if pod is not None and pod.node is not None and pod.workload_class is ONLINE:
            self.rates[key] = rate
            self.events.append(ServiceSampled(key, rate))

    def cycle(self, seconds: float) -> None:
        self.now += seconds
        events, self.events = self.events, []
        out = self.scheduler.handle(events, self.now)
        self.lines.append(self.writer.entry(self.now, events, out))
        for one in out:
            if isinstance(one, Evict):
                assert self.pods[one.key].workload_class is not ONLINE, "online pods are never evicted"
                assert self.parts.monitor or self.parts.capacity is Capacity.SLACK, "nobody else evicts"
                self.delete(one.key)
        self.bind([one for one in out if isinstance(one, Bind)])

    def bind(self, binds: list[Bind]) -> None:
        measured = {key for key, pod in self.pods.items() if pod.node is not None}
        for one in binds:
            pod = self.pods[one.key]
            assert pod.node is None, "never bound twice"
            self.emit(pod._replace(node=one.node, phase=PodPhase.RUNNING, started_seconds=self.now))
            self.check_capacity(one.node)
            if pod.workload_class is not ONLINE:
                self.check_guard(one, measured)
        online = {one.node for one in binds if self.pods[one.key].workload_class is ONLINE}
        self.check_slack({one.node for one in binds if self.pods[one.key].workload_class is not ONLINE}, online)

    def there(self, node: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.node == node]

    def check_capacity(self, node: str) -> None:
        for resource in ("cpu", "cotide.dev/reclaimed-cpu", "memory", "cotide.dev/reclaimed-memory"):
            used = sum(dict(pod.requests).get(resource, 0) for pod in self.there(node))
            assert used <= CPU, "no node is overfilled"

    def check_guard(self, bind: Bind, measured: set[str]) -> None:
        """A service that was bound in this very cycle has no rate yet."""
        if not self.parts.guarded:
            return
        rate = sum(self.rates[pod.key] for pod in self.there(bind.node) if pod.key in measured)
        jobs = sum(pod.workload_class is not ONLINE for pod in self.there(bind.node))
        if any(pod.workload_class is ONLINE for pod in self.there(bind.node)):
            assert min(1.0, rate * jobs / 1000) <= THRESHOLD + 1e-9, "no limit is predicted to break at bind time"

    def check_slack(self, batch: set[str], online: set[str]) -> None:
        """An online pod that was bound in this cycle takes what nobody knew to be taken."""
        if self.parts.capacity is not Capacity.SLACK:
            return
        state = self.scheduler.state
        peak, _ = state.host_load.online_peak(self.now, KNOBS.usage_stale_seconds)
        for node in batch - online:
            row = state.columns.row_of[node]
            held = state.columns.held[:2, :, row].sum(axis=0)
            assert (held <= state.host_load.physical()[:, row] - peak[:, row] + 1e-3).all(), "never above the slack"


loads = st.sampled_from((0.0, 50.0, 400.0, 900.0, 1200.0, 1e12))
moves = st.one_of(
    st.tuples(
        st.just("submit"),
        st.integers(0, 9),
        st.sampled_from((ONLINE, BATCH, GRATIS)),
        st.sampled_from((200, 300, 500, 900)),
        st.sampled_from((0.0, 90.0, 400.0)),
    ),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("rate"), st.integers(0, 9), st.sampled_from((0.0, 90.0, 400.0, 1e12))),
    st.tuples(st.just("usage"), st.sampled_from(NODES), loads),
    st.tuples(st.just("forecast"), st.sampled_from(NODES), loads, loads),
    st.tuples(st.sampled_from(("lose", "add")), st.sampled_from(NODES)),
    st.tuples(st.just("cycle"), st.sampled_from((0.0, 1.0, 12.0, 70.0))),
)


def drive(cluster: Cluster, steps: list[tuple[object, ...]]) -> None:
    for step in steps:
        match step:
            case ("submit", int(number), WorkloadClass() as cls, int(cpu), float(rate)):
                cluster.submit(number, cls, cpu, rate)
            case ("delete", int(number)):
                cluster.delete(f"d/{number}")
            case ("rate", int(number), float(rate)):
                cluster.sample(f"d/{number}", rate)
            case ("lose", str(name)):
                cluster.lose_node(name)
            case ("add", str(name)):
                cluster.add_node(name)
            case ("usage", str(name), float(cpu)):
                cluster.events.append(NodeUsageSampled(name, cluster.now, cpu, 100.0))
                cluster.events.append(NodeContended(name, cluster.now, cpu / 2000))
            case ("forecast", str(name), float(cpu), float(batch)):
                cluster.events.append(NodeForecasted(name, cluster.now + 30.0, cpu, 100.0, batch, 100.0))
            case ("cycle", float(seconds)):
                cluster.cycle(seconds)


def settle(cluster: Cluster) -> None:
    """Let everything end but what waits: then all must find a place by the engine's own wake-ups."""
    for name in NODES:
        cluster.add_node(name)
    for _ in range(200):
        for pod in [one for one in cluster.pods.values() if one.node is not None]:
            cluster.delete(pod.key)
        cluster.events += [NodeUsageSampled(name, cluster.now, 0.0, 0.0) for name in NODES]
        cluster.events += [NodeForecasted(name, cluster.now + 60.0, 0.0, 0.0, 0.0, 0.0) for name in NODES]
        cluster.cycle(0.0)
        if not cluster.pods:
            return
        wakeup = cluster.scheduler.next_wakeup(cluster.now)
        if wakeup is not None:
            cluster.now = max(cluster.now, wakeup)
    raise AssertionError(f"{sorted(cluster.pods)} wait for ever")


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(
    Parts(Capacity.SLACK, True, True, 0, "qpsm", True, 0, True),
    [*(("submit", number, BATCH, 200, 0.0) for number in range(3)), ("cycle", 1.0)],
)
@given(parts, st.lists(moves, min_size=8, max_size=40))
def test_every_composition_keeps_capacity_guard_and_online_pods_and_its_ledger_replays(
    composed: Parts, steps: list[tuple[object, ...]]
) -> None:
    with patch.dict(POLICIES, {"predictive": composed.compose}):
        cluster = Cluster(composed)
        # Services first, so that there is something to guard: one job beside the second is too much.
        drive(cluster, [("submit", 8, ONLINE, 200, 90.0), ("submit", 9, ONLINE, 200, 400.0), ("cycle", 0.0)])
        drive(cluster, steps)
        settle(cluster)
        result = replay(cluster.lines, Catalogue())
    assert result.difference is None
    assert result.cycles == len(cluster.lines) - 1


def test_the_least_risky_node_needs_a_guard_that_tells_risks() -> None:
    with pytest.raises(InputError, match="without a guard"):
        Policy("p", ArrivalOrder(), LeastAllocated(), lowest_risk=True)


def test_the_policies_that_the_configuration_knows_to_go_by_slack_are_those_whose_capacity_is_slack() -> None:
    built = {name: build_policy(SchedulerConfig(policy=name)) for name in POLICIES}
    assert {name for name, policy in built.items() if policy.capacity is Capacity.SLACK} == set(SLACK_POLICIES)
    assert {name for name in POLICIES if by_slack(name)} == set(SLACK_POLICIES)
    assert {name for name, policy in built.items() if policy.follows_run_time} == set(RUN_TIME_POLICIES)


def guarded_by_slack(*, least_risky: bool = True) -> Parts:
    return Parts(Capacity.SLACK, True, least_risky, 0, "qpsm", True, 0, True)


def instructions(cluster: Cluster) -> list[Instruction]:
    """Hand over what happened, and return what is decided, without carrying it out."""
    events, cluster.events = cluster.events, []
    return cluster.scheduler.handle(events, cluster.now)


def on(cluster: Cluster, number: int, cls: WorkloadClass, cpu: int, node: str, rate: float = 0.0) -> None:
    cluster.submit(number, cls, cpu, rate)
    cluster.emit(cluster.pods[f"d/{number}"]._replace(node=node, phase=PodPhase.RUNNING, started_seconds=0.0))


def test_a_node_with_enough_slack_that_would_break_a_limit_is_refused_and_said_to_be_at_risk() -> None:
    with patch.dict(POLICIES, {"predictive": guarded_by_slack().compose}):
        cluster = Cluster(guarded_by_slack())
    # a: 100m of 1000m for a service at 400/s: one job is p = 400 x 1 / 1000 = .4, above .3. b: 950m taken.
    on(cluster, 1, ONLINE, 100, "a", 400.0)
    on(cluster, 2, ONLINE, 950, "b")
    cluster.submit(3, BATCH, 200, 0.0)
    (wait,) = instructions(cluster)
    assert wait.reason == "QosAtRisk"
    refused = [(one.nodes, one.reason, one.probability) for one in wait.refused]
    assert refused == [(1, "QosAtRisk", 0.4), (1, "InsufficientSlack", None)]


@pytest.mark.parametrize(("rate", "evicted"), [(100.0, ["d/4"]), (400.0, [])])
def test_nobody_is_evicted_on_a_node_that_the_guard_refuses(rate: float, evicted: list[str]) -> None:
    with patch.dict(POLICIES, {"predictive": guarded_by_slack().compose}):
        cluster = Cluster(guarded_by_slack())
    # a: 100m online and 800m gratis, which leave 100m of the 200m that the batch pod asks for. With the gratis pod
    # there, it is the second job: p = 2 x rate / 1000.
    on(cluster, 1, ONLINE, 100, "a", rate)
    on(cluster, 4, GRATIS, 800, "a")
    on(cluster, 2, ONLINE, 950, "b")
    cluster.submit(3, BATCH, 200, 0.0)
    out = instructions(cluster)
    assert [one.key for one in out if isinstance(one, Evict)] == evicted
    (wait,) = (one for one in out if not isinstance(one, Evict))
    risks = [(one.nodes, one.probability) for one in wait.refused if one.reason == "QosAtRisk"]
    assert risks == ([] if evicted else [(1, 0.8)])
    assert sum(one.nodes for one in wait.refused) == 2


def test_by_requests_a_monitor_relieves_overloaded_nodes_and_keeps_jobs_off_cordoned_ones() -> None:
    composed = replace(guarded_by_slack(), capacity=Capacity.REQUESTS, guarded=False, rank="free")
    with patch.dict(POLICIES, {"predictive": composed.compose}):
        cluster = Cluster(composed)
    cordoned = cluster.events[2]
    assert isinstance(cordoned, NodeUpserted)
    cluster.events.append(NodeUpserted(replace(cordoned.node, cordoned_until_seconds=5.0)))
    on(cluster, 4, GRATIS, 500, "b")
    on(cluster, 2, ONLINE, 100, "b")
    cluster.submit(3, BATCH, 200, 0.0)
    binds = [instruction for instruction in instructions(cluster) if isinstance(instruction, Bind)]
    assert [bind.node for bind in binds] == ["b"], "a has room, and is cordoned"
    evicted = []
    for second in (1.0, 2.5):  # 900m of use and 500m + 200m held, on 1000m, for longer than 1 s
        cluster.now = second
        cluster.events.append(NodeUsageSampled("b", second, 900.0, 100.0))
        evicted += [instruction.key for instruction in instructions(cluster) if isinstance(instruction, Evict)]
    assert evicted == ["d/4"]
