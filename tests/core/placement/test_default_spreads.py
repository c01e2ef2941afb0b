"""Online pods that a Service or their owner selects are spread by default, whatever the policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import engine_objects
import pytest

from cotide_core.classes import WorkloadClass
from cotide_core.config import DefaultSpread
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import (
    Event,
    NodeUpserted,
    Pod,
    PodRules,
    PodSelector,
    PodUpserted,
    Requirement,
    SelectorDeleted,
    SelectorUpserted,
    Spread,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind
from cotide_core.state.cluster_state import ClusterState

POLICIES = ("predictive", "qpsm", "fifo")
GIB = engine_objects.GIB
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def zoned(number: int, zones: int = 3, cpu: int = 4000) -> NodeUpserted:
    name = f"n{number}"
    labels = ((HOST, name), *(((ZONE, f"z{number % zones}"),) if zones else ()))
    return engine_objects.node_upserted(name, cpu, memory=16 * GIB, labels=labels)


def selector(owner: str, name: str, **labels: str) -> SelectorUpserted:
    wanted = tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items()))
    return SelectorUpserted(PodSelector(owner, f"d/{name}", wanted))


def labelled(name: str, cpu: int = 0, cls: WorkloadClass = WorkloadClass.ONLINE, **fields: object) -> Pod:
    """A pod of an app, which scores count with 100m and 200Mi where it asks for no cpu."""
    unrequested = {} if cpu else {"unrequested_millicores": 100, "unrequested_memory_bytes": 200 << 20, "requests": ()}
    memory = cpu * 4 * GIB // 1000
    return engine_objects.pod(name, cpu, cls, memory=memory, **{"labels": (("app", "web"),), **unrequested, **fields})


def pods(count: int, cpu: int = 0, **fields: object) -> list[Event]:
    return [
        PodUpserted(labelled(f"p{number:03}", cpu, created_seconds=float(number), **fields)) for number in range(count)
    ]


def engine(*events: Event, policy: str = "fifo", **config: object) -> Scheduler:
    settings = SchedulerConfig(policy=policy, **config)  # type: ignore[arg-type]  # fields are named by each test
    scheduler = Scheduler(settings, HeuristicCatalogue())
    scheduler.handle(list(events), 0.0)
    return scheduler


def bound(scheduler: Scheduler, events: Sequence[Event], now: float = 1.0) -> list[str]:
    return [one.node for one in scheduler.handle(events, now) if isinstance(one, Bind)]


def zones_of(nodes: Sequence[str]) -> Counter[int]:
    return Counter(int(name[1:]) % 3 for name in nodes)


@pytest.mark.parametrize("policy", POLICIES)
def test_sixty_pods_of_a_service_without_requests_are_six_on_each_of_ten_nodes(policy: str) -> None:
    # kube-scheduler has at most 7 on one: 60 pods, 10 hosts, and its rounding to whole points.
    scheduler = engine(*map(zoned, range(10)), selector("Service", "web", app="web"), policy=policy)
    found = Counter(bound(scheduler, pods(60)))
    assert sum(found.values()) == 60
    assert max(found.values()) <= 7


@pytest.mark.parametrize("policy", POLICIES)
def test_ten_replicas_use_the_nodes_that_are_half_full_and_all_zones(policy: str) -> None:
    # Nine nodes are half full and one is empty. kube-scheduler uses nine nodes and three zones.
    full = [PodUpserted(labelled(f"full{number}", 2000, labels=(), node=f"n{number}")) for number in range(9)]
    replicas = selector("ReplicaSet", "web", app="web")
    scheduler = engine(*map(zoned, range(10)), *full, replicas, policy=policy)
    found = bound(scheduler, pods(10, 100, controller="ReplicaSet/web"))
    assert len(set(found)) >= 9
    assert max(Counter(found).values()) <= 2
    assert sorted(zones_of(found).values()) == [3, 3, 4]


def test_without_a_selector_the_empty_node_takes_them_all() -> None:
    full = [PodUpserted(labelled(f"full{number}", 2000, labels=(), node=f"n{number}")) for number in range(9)]
    assert set(bound(engine(*map(zoned, range(10)), *full), pods(10, 100))) == {"n9"}


@pytest.mark.parametrize("policy", POLICIES)
def test_nodes_without_a_zone_are_still_told_apart_by_their_names(policy: str) -> None:
    nodes = [zoned(number, zones=0) for number in range(4)]
    found = bound(engine(*nodes, selector("Service", "web", app="web"), policy=policy), pods(8, 100))
    assert set(Counter(found).values()) == {2}


def test_a_list_of_constraints_takes_the_place_of_the_defaults() -> None:
    # One zone of four hosts and one of one: an even spread over zones puts half of the pods on the single host.
    nodes = [zoned(number, zones=0) for number in range(5)]
    in_two = [
        NodeUpserted(engine_objects.node(f"n{number}", 4000, labels=((HOST, f"n{number}"), (ZONE, "ab"[number == 4]))))
        for number in range(5)
    ]
    service = selector("Service", "web", app="web")
    by_zone = engine(*nodes, *in_two, service, default_spreads=(DefaultSpread(ZONE, 1, required=True),))
    assert Counter(bound(by_zone, pods(8, 100)))["n4"] == 4
    nowhere = engine(*nodes, *in_two, service, default_spreads=())
    assert Counter(bound(nowhere, pods(8, 100)))["n4"] in (1, 2)


def peers(state: ClusterState, waiting: Pod) -> tuple[Spread, ...]:
    found = state.matches.peers_of(waiting)
    return () if found is None else found.rules.spreads


def test_the_selector_of_a_pod_joins_its_services_and_its_controller() -> None:
    state = ClusterState()
    for event in (
        selector("Service", "web", app="web"),
        selector("Service", "other", app="db"),
        selector("ReplicaSet", "web-1", hash="1"),
        selector("ReplicaSet", "web-2", hash="2"),
    ):
        state.apply(event)
    app, first = Requirement("app", "In", ("web",)), Requirement("hash", "In", ("1",))
    assert {peer.selector for peer in peers(state, labelled("p"))} == {(app,)}
    assert {peer.selector for peer in peers(state, labelled("p", controller="ReplicaSet/web-1"))} == {(app, first)}
    assert {peer.selector for peer in peers(state, labelled("p", controller="ReplicaSet/gone"))} == {(app,)}
    assert peers(state, labelled("p", labels=(("app", "none"),))) == ()
    assert peers(state, labelled("e/p")) == ()
    assert peers(state, labelled("p", cls=WorkloadClass.BATCH)) == ()
    state.apply(SelectorDeleted("Service", "d/web"))
    assert peers(state, labelled("p")) == ()


def test_constraints_that_a_pod_states_are_its_own() -> None:
    state = ClusterState()
    state.apply(selector("Service", "web", app="web"))
    own = Spread("rack", 2, (Requirement("app", "Exists"),), required=False)
    assert peers(state, labelled("p", rules=PodRules(spreads=(own,)))) == (own,)


def test_a_waiting_pod_is_spread_from_when_a_service_selects_it_until_it_is_gone() -> None:
    # The only node is full; a node that comes then finds the pods as the selectors are by then.
    scheduler = engine(zoned(0, cpu=100), policy="fifo")
    waiting = pods(3, 1000)
    assert bound(scheduler, waiting) == []
    fit = {entry.shape.fit for entry in scheduler._queue}
    assert [one.peers for one in fit] == [None]
    scheduler.handle([selector("Service", "web", app="web")], 2.0)
    assert [entry.shape.fit.peers is not None for entry in scheduler._queue] == [True] * 3
    scheduler.handle([SelectorDeleted("Service", "d/web")], 3.0)
    assert {entry.shape.fit for entry in scheduler._queue} == fit


def test_a_service_of_one_tenant_gives_no_other_tenants_pod_another_look() -> None:
    scheduler = engine(zoned(0, cpu=100))
    scheduler.handle(pods(2, 1000), 1.0)
    asked: list[str] = []
    peers_of = scheduler.state.matches.peers_of
    scheduler.state.matches.peers_of = lambda one: asked.append(one.key) or peers_of(one)  # type: ignore[method-assign,func-returns-value]
    requirement = (Requirement("app", "In", ("web",)),)
    scheduler.handle([SelectorUpserted(PodSelector("Service", "e/web", requirement))], 2.0)
    assert asked == []
    scheduler.handle([selector("Service", "web", app="web")], 3.0)
    assert set(asked) == {"d/p000", "d/p001"}
