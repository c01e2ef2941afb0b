"""What is kept of even spreads as rows change equals a look at every row, and what scores count is kube-scheduler's."""

from __future__ import annotations

from collections import Counter

import engine_objects
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.config import SYSTEM_SPREADS, DefaultSpread
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import Node, NodeUpserted, Pod, PodDeleted, PodRules, PodUpserted, Requirement, Spread
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind
from cotide_core.placement.candidates import Candidates
from cotide_core.placement.feasibility import FITS, Feasibility
from cotide_core.placement.scoring import LeastAllocated
from cotide_core.placement.top_rows import Ties
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import ShapeTable
from cotide_core.state.snapshot import Snapshot

WEB = (Requirement("app", "In", ("web",)),)
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
ZONES = ("a", "b", "")


def zoned(number: int, zone: str, cpu: int) -> Node:
    name = f"n{number}"
    return engine_objects.node(name, cpu, pods=4, labels=((HOST, name), *(((ZONE, zone),) if zone else ())))


def labelled(name: str, **fields: object) -> Pod:
    return engine_objects.pod(name, 100, **{"uid": name, "labels": (("app", "web"),), **fields})


def selected(*spreads: DefaultSpread) -> PodRules:
    return PodRules(
        spreads=tuple(
            Spread(spread.topology_key, spread.max_skew, WEB, False, requires_labels=spread.requires_labels)
            for spread in spreads
        )
    )


RULES = (
    selected(*SYSTEM_SPREADS),
    selected(DefaultSpread(ZONE, 1), DefaultSpread(HOST, 1)),
    selected(DefaultSpread(ZONE, 2)),
    selected(DefaultSpread("rack", 1)),
)
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(("hold", "other", "drop", "zone", "size")), st.integers(0, 6), st.integers(0, len(ZONES) - 1)
    ),
    max_size=40,
)


def apply(state: ClusterState, kind: str, number: int, zone: int, name: str) -> None:
    if kind == "hold":
        state.apply(PodUpserted(labelled(name, node=f"n{number}")))
    elif kind == "other":
        state.apply(PodUpserted(labelled(name, node=f"n{number}", labels=(("app", "db"),))))
    elif kind == "drop":
        held = [record for record in state.records() if record.node == f"n{number}"]
        for record in held[:1]:
            state.apply(PodDeleted(record.pod.key, record.pod.uid))
    else:
        state.apply(NodeUpserted(zoned(number, ZONES[zone], 300 if kind == "size" else 1000)))


@settings(deadline=None)
@given(CHANGES, st.sampled_from(RULES))
def test_scores_kept_up_change_by_change_equal_a_look_at_every_row(
    changes: list[tuple[str, int, int]], rules: PodRules
) -> None:
    state, table, feasibility = ClusterState(), ShapeTable(), Feasibility()
    for number in range(6):
        state.apply(NodeUpserted(zoned(number, ZONES[number % 3], 1000)))
    fit = table.of(labelled("waits", rules=rules), state).fit
    kept = Candidates(fit, feasibility, LeastAllocated(), Ties(0))
    assert fit.peers is not None
    for index, (kind, number, zone) in enumerate(changes):
        apply(state, kind, number, zone, f"p{index}")
        state.matches.count_all(fit.peers)
        snapshot = Snapshot.of(state)
        kept.refresh(snapshot)
        everything = slice(0, snapshot.size)
        codes = feasibility.codes(fit, snapshot, everything)
        wished = feasibility.preferences(fit, snapshot, codes == FITS)
        expected = LeastAllocated().scores(snapshot, fit, everything) + (0.0 if wished is None else wished)
        expected[codes != FITS] = -np.inf
        assert kept.scores.tolist() == expected.tolist()
        if (codes == FITS).any():
            assert expected[kept.draw()] == expected.max()
            best = kept.best(4)
            assert expected[best].tolist() == sorted(expected[codes == FITS].tolist(), reverse=True)[:4]


@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 12), st.integers(0, 300), st.integers(0, 4)), min_size=1),
    st.integers(0, 500),
    st.booleans(),
)
def test_one_row_is_worth_the_same_bits_alone_and_among_all(
    held: list[tuple[int, int, int, int]], asked: int, reclaims: bool
) -> None:
    state = ClusterState()
    for number, (cpu, memory, unrequested, count) in enumerate(held):
        offers = {"cotide.dev/reclaimed-cpu": 700, "cotide.dev/reclaimed-memory": 1 << 30}
        state.apply(engine_objects.node_upserted(f"n{number}", 1000, offers=offers))
        for index in range(count):
            placed = engine_objects.pod(f"p{number}-{index}", cpu // 4, memory=memory << 20, node=f"n{number}")
            state.apply(PodUpserted(placed._replace(unrequested_millicores=unrequested, growth_millicores=cpu - 400)))
    waiting = engine_objects.pod("waits", asked, unrequested_memory_bytes=200 << 20)
    if reclaims:
        waiting = waiting._replace(requests=(("cotide.dev/reclaimed-cpu", asked + 1),), unrequested_memory_bytes=0)
    fit, snapshot = ShapeTable().of(waiting, state).fit, Snapshot.of(state)
    together = LeastAllocated().scores(snapshot, fit, slice(0, snapshot.size))
    alone = LeastAllocated().row_score(snapshot, fit)
    assert [alone(row) for row in range(snapshot.size)] == together.tolist()


def placed_on(policy: str, nodes: int, *pods: Pod) -> Counter[str]:
    scheduler = Scheduler(SchedulerConfig(policy=policy, max_decisions_per_cycle=len(pods)), HeuristicCatalogue())
    scheduler.handle([engine_objects.node_upserted(f"n{number}", 4000) for number in range(nodes)], 0.0)
    found = scheduler.handle([PodUpserted(pod) for pod in pods], 1.0)
    return Counter(one.node for one in found if isinstance(one, Bind))


def empty(name: str, cls: WorkloadClass = WorkloadClass.ONLINE) -> Pod:
    """A pod of one container without requests."""
    return engine_objects.pod(name, 0, cls, requests=(), unrequested_millicores=100, unrequested_memory_bytes=200 << 20)


def test_pods_without_requests_use_as_many_nodes_as_there_are_of_them() -> None:
    for policy in ("predictive", "qpsm", "fifo", "random-guarded", "hierarchical"):
        found = placed_on(policy, 100, *(empty(f"p{number}") for number in range(100)))
        assert sum(found.values()) == 100
        assert max(found.values()) == 1 or policy == "random-guarded"


def test_a_placed_pod_without_requests_counts_for_the_pod_that_asks() -> None:
    held = [empty(f"e{number}")._replace(node="n0") for number in range(5)]
    assert set(placed_on("fifo", 2, *held, engine_objects.pod("p", 100, WorkloadClass.ONLINE))) == {"n1"}


def test_capacity_that_is_used_up_counts_as_none_however_much_more_is_counted() -> None:
    state = ClusterState()
    for number, count in enumerate((40, 60)):
        state.apply(engine_objects.node_upserted(f"n{number}", 4000, memory=4 << 30))
        for index in range(count):
            state.apply(PodUpserted(empty(f"p{number}-{index}")._replace(node=f"n{number}")))
    fit, snapshot = ShapeTable().of(empty("waits"), state).fit, Snapshot.of(state)
    assert LeastAllocated().scores(snapshot, fit, slice(0, 2)).tolist() == [0.0, 0.0]


def test_equals_are_drawn_from_the_seed_and_any_of_them_may_be_taken() -> None:
    def first(seed: int, policy: str) -> str:
        scheduler = Scheduler(SchedulerConfig(policy=policy, seed=seed), HeuristicCatalogue())
        scheduler.handle([engine_objects.node_upserted(f"n{number}", 4000) for number in range(5)], 0.0)
        found = scheduler.handle([PodUpserted(engine_objects.pod("p", 100))], 1.0)
        return next(one.node for one in found if isinstance(one, Bind))

    for policy in ("fifo", "qpsm", "predictive", "hierarchical"):
        drawn = [first(seed, policy) for seed in range(60)]
        assert set(drawn) == {f"n{number}" for number in range(5)}
        assert drawn == [first(seed, policy) for seed in range(60)]
