"""Reclaimed capacity is never promised twice: through restarts, new registrations, and pods that come before nodes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import Event, Node, NodeDeleted, NodeForecasted, NodeUpserted, Pod, PodDeleted, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Evict, Wait, WaitReason
from cotide_core.policies.catalogue import by_slack

PHYSICAL = 1000
NODES = ("a", "b")
RECLAIMED = ("cotide.dev/reclaimed-cpu", "cotide.dev/reclaimed-memory")
PLAIN = ("cpu", "memory")
ONLINE, BATCH, GRATIS = WorkloadClass.ONLINE, WorkloadClass.BATCH, WorkloadClass.GRATIS


def offering(name: str, reclaimed: int | None) -> Node:
    """A node of 1000 millicores and 1000 bytes that publishes as much reclaimed capacity, or none at all."""
    amounts = {"cpu": PHYSICAL, "memory": PHYSICAL, "pods": 20}
    if reclaimed is not None:
        amounts |= dict.fromkeys(RECLAIMED, reclaimed)
    return Node(name, tuple(sorted(amounts.items())))


def asking(key: str, cls: WorkloadClass, kinds: tuple[str, str], amount: int, node: str | None = None) -> Pod:
    return Pod(key, f"u-{key}", cls, tuple((kind, amount) for kind in sorted(kinds)), 0.0, ours=True, node=node)


class Cluster:
    """An API server that publishes what it likes; checks each decision against what it shows."""

    def __init__(self, policy: str) -> None:
        knobs = HierarchicalConfig(capacity_share=1.0) if by_slack(policy) else None
        self.config = SchedulerConfig(policy=policy, hierarchical=knobs)
        self.scheduler = Scheduler(self.config, HeuristicCatalogue())
        self.now = 0.0
        self.count = 0
        self.confirmed = 0.0
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.under_way: dict[str, str] = {}
        self.events: list[Event] = []

    def publish(self, name: str, reclaimed: int | None) -> None:
        self.nodes[name] = offering(name, reclaimed)
        self.events.append(NodeUpserted(self.nodes[name]))

    def register_anew(self, name: str) -> None:
        """The Node is deleted and comes back without what was published; its pods are still there."""
        if self.nodes.pop(name, None) is not None:
            self.events.append(NodeDeleted(name))
        self.publish(name, None)

    def submit(self, cls: WorkloadClass, kinds: tuple[str, str], amount: int) -> None:
        self.count += 1
        pod = asking(f"d/{self.count}", cls, kinds, amount)
        self.pods[pod.key] = pod
        self.events.append(PodUpserted(pod))

    def delete(self, number: int) -> None:
        pod = self.pods.pop(f"d/{number}", None)
        if pod is not None:
            self.under_way.pop(pod.key, None)
            self.events.append(PodDeleted(pod.key, pod.uid))

    def confirm(self) -> None:
        """Let the API server take the bindings that are under way."""
        for key, node in self.under_way.items():
            self.pods[key] = self.pods[key]._replace(node=node)
            self.events.append(PodUpserted(self.pods[key]))
        self.under_way.clear()
        self.confirmed = self.now

    def restart(self, *, pods_first: bool, crash: bool) -> None:
        """A new process lists everything; bindings under way were taken before, or died with their sender.

        None is taken later: an orderly end waits for them, and after a crash the lease keeps the successor waiting.
        """
        if crash:
            self.under_way.clear()
        self.confirm()
        self.scheduler = Scheduler(self.config, HeuristicCatalogue())
        nodes: list[Event] = [NodeUpserted(node) for node in self.nodes.values()]
        pods: list[Event] = [PodUpserted(pod) for pod in self.pods.values()]
        self.events = pods + nodes if pods_first else nodes + pods
        if pods_first:
            self.events = pods
            self.cycle(1.0)
            self.events += nodes

    def in_use(self, name: str, kinds: tuple[str, ...], *classes: WorkloadClass) -> int:
        at = {**{key: pod.node for key, pod in self.pods.items()}, **self.under_way}
        there = [pod for key, pod in self.pods.items() if at[key] == name and pod.workload_class in classes]
        return sum(dict(pod.requests).get(kind, 0) for pod in there for kind in kinds)

    def cycle(self, seconds: float) -> None:
        self.now += seconds
        if self.now - self.confirmed > self.config.assume_timeout_seconds / 2:
            self.confirm()  # no binding stays unanswered for as long as the engine waits
        events, self.events = self.events, []
        out = self.scheduler.handle(events, self.now)
        upserted = {event.pod.key for event in events if isinstance(event, PodUpserted)}
        assert upserted | self.pods.keys() >= {one.key for one in out if isinstance(one, Bind)}
        for one in out:
            if isinstance(one, Evict):
                self.delete(int(one.key.removeprefix("d/")))
        for one in out:
            if isinstance(one, Bind):
                self.bound(one)

    def bound(self, bind: Bind) -> None:
        pod, name = self.pods[bind.key], bind.node
        assert pod.node is None, "never bound twice"
        assert bind.key not in self.under_way
        self.under_way[bind.key] = name
        offered = dict(self.nodes[name].allocatable)
        for reclaimed, plain in zip(RECLAIMED, PLAIN, strict=True):
            everyone = self.in_use(name, (plain,), ONLINE, BATCH, GRATIS)
            assert everyone <= PHYSICAL, "plain requests fit as a kubelet counts them"
            if dict(pod.requests).get(reclaimed):
                assert self.in_use(name, (reclaimed,), ONLINE, BATCH, GRATIS) <= offered[reclaimed]
                assert self.in_use(name, (reclaimed, plain), BATCH, GRATIS) <= PHYSICAL, "nor more than there is"


submissions = st.tuples(
    st.just("submit"),
    st.sampled_from((BATCH, ONLINE, GRATIS)),
    st.sampled_from((RECLAIMED, PLAIN)),
    st.sampled_from((250, 500)),
)
moves = st.one_of(
    submissions,
    submissions,
    submissions,
    st.tuples(st.just("publish"), st.sampled_from(NODES), st.sampled_from((0, 600, 1000))),
    st.tuples(st.just("again"), st.sampled_from(NODES)),
    st.tuples(st.just("restart"), st.booleans(), st.booleans()),
    st.tuples(st.just("delete"), st.integers(1, 12)),
    st.tuples(st.just("forecast"), st.sampled_from(NODES), st.sampled_from((0.0, 400.0, 900.0))),
    st.tuples(st.just("confirm")),
    st.tuples(st.just("cycle"), st.sampled_from((0.0, 1.0, 15.0))),
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(("fifo", "qpsm", "hierarchical", "predictive")), st.lists(moves, min_size=12, max_size=30))
def test_reclaimed_capacity_is_never_promised_twice(policy: str, steps: list[tuple[object, ...]]) -> None:
    cluster = Cluster(policy)
    cluster.publish("a", 600)
    for step in steps:
        match step:
            case ("publish", str(name), int(amount)):
                cluster.publish(name, amount)
            case ("again", str(name)):
                cluster.register_anew(name)
            case ("restart", bool(pods_first), bool(crash)):
                cluster.restart(pods_first=pods_first, crash=crash)
            case ("submit", WorkloadClass() as cls, (str(), str()) as kinds, int(amount)):
                cluster.submit(cls, kinds, amount)
                cluster.cycle(11.0)
            case ("delete", int(number)):
                cluster.delete(number)
            case ("forecast", str(name), float(cpu)):
                cluster.events.append(NodeForecasted(name, cluster.now + 30.0, cpu, cpu, 0.0, 0.0))
            case ("confirm",):
                cluster.confirm()
            case ("cycle", float(seconds)):
                cluster.cycle(seconds)
    cluster.cycle(1.0)


def engine(policy: str, *pods: Pod, reclaimed: int | None) -> Scheduler:
    scheduler = Scheduler(SchedulerConfig(policy=policy), HeuristicCatalogue())
    scheduler.handle([NodeUpserted(offering("a", reclaimed)), *(PodUpserted(pod) for pod in pods)], 0.0)
    return scheduler


def waits(scheduler: Scheduler, pod: Pod, now: float = 1.0) -> Wait:
    (wait,) = [one for one in scheduler.handle([PodUpserted(pod)], now) if isinstance(one, Wait)]
    return wait


POLICIES = pytest.mark.parametrize("policy", ["fifo", "qpsm", "hierarchical", "predictive"])


@POLICIES
def test_where_no_node_offers_any_yet_the_pod_waits_and_the_sentence_names_it(policy: str) -> None:
    scheduler = engine(policy, reclaimed=None)
    pod = asking("d/p", BATCH, RECLAIMED, 100)
    wait = waits(scheduler, pod)
    assert wait.reason is WaitReason.INSUFFICIENT_SLACK
    assert wait.message == "0/1 nodes are available: 1 Insufficient cotide.dev/reclaimed-cpu"
    out = scheduler.handle([NodeUpserted(offering("a", 100))], 20.0)
    assert [one.key for one in out if isinstance(one, Bind)] == ["d/p"], "what is published wakes who waited for it"


@POLICIES
def test_shrinking_below_what_is_in_use_evicts_nobody_and_lets_nobody_in(policy: str) -> None:
    running = [asking(f"d/{number}", cls, RECLAIMED, 400, "a") for number, cls in enumerate((BATCH, GRATIS))]
    scheduler = engine(policy, *running, reclaimed=800)
    out = scheduler.handle([NodeUpserted(offering("a", 100))], 1.0)
    assert [one for one in out if isinstance(one, Evict)] == []
    # 100 published, 800 in use; even one that asks for a single millicore waits.
    assert "Insufficient cotide.dev/reclaimed-cpu" in waits(scheduler, asking("d/p", GRATIS, RECLAIMED, 1)).message


@POLICIES
def test_what_plain_batch_pods_hold_is_not_promised_again_while_an_older_publication_stands(policy: str) -> None:
    scheduler = engine(policy, asking("d/plain", BATCH, PLAIN, 700, "a"), reclaimed=800)
    # 1000 there, 700 held by a plain batch pod: 300 are left, whatever the node still publishes.
    assert "Insufficient cotide.dev/reclaimed-cpu" in waits(scheduler, asking("d/p", GRATIS, RECLAIMED, 301)).message
    out = scheduler.handle([PodUpserted(asking("d/q", GRATIS, RECLAIMED, 20))], 2.0)
    assert [one.key for one in out if isinstance(one, Bind)] == ["d/q"]


def test_hierarchical_asks_for_predicted_slack_as_well_as_for_what_is_published() -> None:
    for policy, bound in (("fifo", ["d/p"]), ("hierarchical", []), ("predictive", [])):
        scheduler = engine(policy, asking("d/web", ONLINE, PLAIN, 600, "a"), reclaimed=800)
        # No forecast: 1000 - 600 asked for = 400 left, though 800 are still published.
        out = scheduler.handle([PodUpserted(asking("d/p", BATCH, RECLAIMED, 401))], 1.0)
        assert [one.key for one in out if isinstance(one, Bind)] == bound
