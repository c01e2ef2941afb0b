"""Codes and scores over all nodes, and that what is kept equals what would be evaluated anew."""

from __future__ import annotations

from typing import Any

import engine_objects
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.events import (
    HostPort,
    Node,
    NodeDeleted,
    NodeUpserted,
    Pod,
    PodDeleted,
    PodUpserted,
    ServiceSampled,
    Taint,
    Workload,
    WorkloadUpserted,
)
from cotide_core.placement.candidates import Candidates
from cotide_core.placement.feasibility import FITS, Feasibility
from cotide_core.placement.scoring import LeastAllocated, LowPressure, LowRate, Weighted, WithoutService
from cotide_core.placement.top_rows import Ranking, Ties
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import ShapeTable
from cotide_core.state.snapshot import Snapshot

ONLINE = WorkloadClass.ONLINE
ANY = "0.0.0.0"  # noqa: S104 - compared as data, nothing is bound


def node(name: str, cpu: int = 1000, pods: int = 10, **fields: Any) -> Node:
    """A node that offers reclaimed cpu, too."""
    return engine_objects.node(name, cpu, pods=pods, offers={"cotide.dev/reclaimed-cpu": 500}, **fields)


def pod(key: str, at: str | None = None, cpu: int = 400, **fields: Any) -> Pod:
    """A pod of which a node of 1,000 millicores holds two."""
    return engine_objects.pod(key, cpu, node=at, **fields)


def messages(state: ClusterState, waiting: Pod) -> dict[str, str]:
    """Return why each node refuses a pod; an empty string where it fits."""
    shape = ShapeTable().of(waiting, state)
    feasibility = Feasibility()
    snapshot = Snapshot.of(state)
    codes = feasibility.codes(shape.fit, snapshot, slice(0, snapshot.size))
    return {
        snapshot.name(row): feasibility.reasons.messages[code] for row, code in enumerate(codes) if snapshot.alive[row]
    }


def having(*events: object) -> ClusterState:
    state = ClusterState()
    for event in events:
        state.apply(event)  # type: ignore[arg-type]  # events by construction
    return state


def test_a_node_without_enough_of_a_resource_says_which() -> None:
    state = having(NodeUpserted(node("a", cpu=399)), NodeUpserted(node("b", cpu=400)))
    assert messages(state, pod("d/p")) == {"a": "Insufficient cpu", "b": ""}


def test_reclaimed_and_extended_resources_are_counted_like_any_other() -> None:
    state = having(NodeUpserted(node("a")), PodUpserted(pod("d/1", "a", requests=(("cotide.dev/reclaimed-cpu", 300),))))
    asks = (("cotide.dev/reclaimed-cpu", 201),)
    assert messages(state, pod("d/p", requests=asks)) == {"a": "Insufficient cotide.dev/reclaimed-cpu"}
    assert messages(state, pod("d/p", requests=(("example.com/gpu", 1),))) == {"a": "Insufficient example.com/gpu"}


def test_a_full_node_takes_no_pod_that_asks_for_nothing() -> None:
    state = having(NodeUpserted(node("a", pods=1)), PodUpserted(pod("d/1", "a", requests=())))
    assert messages(state, pod("d/p", requests=())) == {"a": "Too many pods"}


def test_a_request_of_zero_asks_for_nothing() -> None:
    state = having(NodeUpserted(node("a")))
    assert messages(state, pod("d/p", requests=(("example.com/gpu", 0),))) == {"a": ""}


def test_a_host_port_conflicts_with_the_same_port_on_any_overlapping_address() -> None:
    def taking(address: str, protocol: str = "TCP") -> tuple[HostPort, ...]:
        return (HostPort(protocol, address, 80),)

    state = having(NodeUpserted(node("a")), PodUpserted(pod("d/1", "a", host_ports=taking("10.0.0.1"))))
    busy = "node(s) didn't have free ports for the requested pod ports"
    assert messages(state, pod("d/p", host_ports=taking(ANY))) == {"a": busy}
    assert messages(state, pod("d/p", host_ports=taking("10.0.0.1"))) == {"a": busy}
    assert messages(state, pod("d/p", host_ports=taking("10.0.0.2"))) == {"a": ""}
    assert messages(state, pod("d/p", host_ports=taking("10.0.0.1", "UDP"))) == {"a": ""}


def test_each_node_gives_its_first_reason_in_kube_schedulers_order() -> None:
    tainted = node("a", cpu=1, taints=(Taint("gpu", "", "NoSchedule"),))
    assert messages(having(NodeUpserted(tainted)), pod("d/p")) == {"a": "node(s) had untolerated taint {gpu: }"}


def test_an_exclusive_service_wants_a_node_without_another_and_keeps_others_off() -> None:
    def online(key: str, workload: str, at: str | None = None) -> Pod:
        return pod(key, at, cpu=10, workload_class=ONLINE, workload=workload)

    state = having(
        *(NodeUpserted(node(name)) for name in "abc"),
        WorkloadUpserted(Workload("d/own", exclusive=True)),
        WorkloadUpserted(Workload("d/other")),
        PodUpserted(online("d/1", "d/own", "a")),
        PodUpserted(online("d/2", "d/other", "b")),
    )
    shared = "node(s) run another online service and the Workload is exclusive"
    assert messages(state, online("d/p", "d/own")) == {"a": "", "b": shared, "c": ""}
    held = "node(s) run an exclusive online service"
    assert messages(state, online("d/p", "d/other")) == {"a": held, "b": "", "c": ""}
    # A batch pod of its own, as a label may make one, is no service and does not stand for another's.
    state.apply(PodUpserted(pod("d/3", "b", cpu=10, workload="d/own")))
    assert messages(state, online("d/p", "d/own"))["b"] == shared
    state.apply(PodUpserted(pod("d/4", "a", cpu=10, workload="d/other")))
    assert messages(state, online("d/p", "d/other"))["a"] == held
    # Batch pods, and online pods that no Workload promises anything for, are nobody's rival.
    assert set(messages(state, pod("d/p")).values()) == {""}
    assert set(messages(state, pod("d/p", workload_class=ONLINE)).values()) == {""}


def test_a_preferred_taint_makes_a_node_the_last_resort() -> None:
    soft = node("a", taints=(Taint("old", "", "PreferNoSchedule"),))
    state = having(NodeUpserted(soft), NodeUpserted(node("b")), PodUpserted(pod("d/1", "b", cpu=500)))
    found = candidates_of(state, pod("d/p"))
    assert [Snapshot.of(state).name(row) for row in found.best(2)] == ["b", "a"]


def test_a_node_whose_pods_will_want_more_comes_after_one_whose_pods_will_want_less() -> None:
    def phased(key: str, at: str, growth: int) -> Pod:
        return pod(key, at, cpu=300)._replace(growth_millicores=growth)

    state = having(NodeUpserted(node("a")), NodeUpserted(node("b")), PodUpserted(phased("d/1", "a", 300)))
    state.apply(PodUpserted(pod("d/2", "b", cpu=500)))
    found = Candidates(ShapeTable().of(pod("d/p"), state).fit, Feasibility(), LeastAllocated(), Ties(0))
    found.refresh(Snapshot.of(state))
    assert [Snapshot.of(state).name(row) for row in found.best(2)] == ["b", "a"]
    state.apply(PodUpserted(phased("d/1", "a", 100)))  # in its next phase
    found.refresh(Snapshot.of(state))
    assert [Snapshot.of(state).name(row) for row in found.best(2)] == ["a", "b"]
    state.apply(PodDeleted("d/1", pod("d/1").uid))
    assert not state.columns.growth_millicores.any()


def test_what_a_pod_states_of_its_phases_makes_a_node_full_at_worst() -> None:
    # a: 1000 - 300 free, all of which it will want; b: 1000 - 450 free. Empty of cpu is as bad as it gets.
    state = having(NodeUpserted(node("a")), NodeUpserted(node("b")), PodUpserted(pod("d/2", "b", cpu=450)))
    state.apply(PodUpserted(pod("d/1", "a", cpu=300)._replace(growth_millicores=10**6)))
    found = Candidates(ShapeTable().of(pod("d/p"), state).fit, Feasibility(), LeastAllocated(), Ties(0))
    found.refresh(Snapshot.of(state))
    scores = {Snapshot.of(state).name(row): found.scores[row] for row in range(2)}
    assert scores["b"] > scores["a"] > -1.0


def candidates_of(state: ClusterState, waiting: Pod) -> Candidates:
    rank = Weighted(((WithoutService(), 8.0), (LowRate(), 3.0), (LowPressure(), 2.0), (LeastAllocated(), 0.5)))
    found = Candidates(ShapeTable().of(waiting, state).fit, Feasibility(), rank, Ties(0))
    found.refresh(Snapshot.of(state))
    return found


NODES = tuple("abcdefghijkl")
events = st.one_of(
    st.builds(lambda name, cpu: NodeUpserted(node(name, cpu)), st.sampled_from(NODES), st.sampled_from((300, 900))),
    st.builds(lambda name: NodeUpserted(node(name, unschedulable=True)), st.sampled_from(NODES)),
    st.builds(NodeDeleted, st.sampled_from(NODES)),
    st.builds(lambda n, at: PodUpserted(pod(f"d/{n}", at)), st.integers(0, 9), st.sampled_from(NODES)),
    st.builds(
        lambda n, at: PodUpserted(pod(f"d/{n}", at, workload_class=ONLINE, workload="d/web")),
        st.integers(0, 9), st.sampled_from(NODES),
    ),
    st.builds(
        lambda n, at, growth: PodUpserted(pod(f"d/{n}", at)._replace(growth_millicores=growth)),
        st.integers(0, 9), st.sampled_from(NODES), st.sampled_from((-50, 70, 10**6)),
    ),
    st.builds(lambda n: PodDeleted(f"d/{n}", f"d/{n}"), st.integers(0, 9)),
    st.builds(lambda n, rate: ServiceSampled(f"d/{n}", rate), st.integers(0, 9), st.sampled_from((1e3, 5e4))),
    st.builds(lambda exclusive: WorkloadUpserted(Workload("d/web", 10.0, exclusive)), st.booleans()),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(events, max_size=4), max_size=12), st.booleans(), st.sampled_from((0, 8)))
def test_candidates_kept_up_row_by_row_equal_a_full_evaluation(
    cycles: list[list[object]], online: bool, one_by_one: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cotide_core.placement.candidates.ONE_BY_ONE", one_by_one)
        keep_up(cycles, online)


def keep_up(cycles: list[list[object]], online: bool) -> None:
    state = having(*(NodeUpserted(node(name)) for name in NODES), WorkloadUpserted(Workload("d/web")))
    waiting = pod("d/waiting", workload_class=ONLINE, workload="d/web") if online else pod("d/waiting")
    kept = candidates_of(state, waiting)
    for cycle in cycles:
        for event in cycle:
            state.apply(event)  # type: ignore[arg-type]  # events by construction
        snapshot = Snapshot.of(state)
        kept.refresh(snapshot)
        if online and snapshot.state.workload("d/web") != Workload("d/web"):
            return  # an exclusive Workload gives its pods another shape
        fresh = candidates_of(state, waiting)
        assert [kept_message(kept, code) for code in kept.codes] == [kept_message(fresh, code) for code in fresh.codes]
        assert np.array_equal(kept.scores, fresh.scores)
        assert kept.best(5) == fresh.best(5)
        assert kept.tally.get(FITS, 0) == np.count_nonzero(fresh.codes == FITS)
        assert sum(kept.tally.values()) == len(state.columns)


def kept_message(candidates: Candidates, code: int) -> str:
    return candidates._feasibility.reasons.messages[code]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=400),
    st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from((0.0, 1.0, 2.5, 9.0, -np.inf))), max_size=60),
    st.integers(1, 300),
)
def test_a_ranking_kept_up_change_by_change_equals_a_sort(
    start: list[int], changes: list[tuple[int, float]], count: int
) -> None:
    scores = np.array(start, np.float64)
    scores[scores == 0] = -np.inf
    ties = Ties(0)
    ranking, position = Ranking(ties), ties.positions(len(scores))
    for index, value in [(0, float(scores[0])), *changes]:
        row = index % len(scores)
        ranking.change(row, float(scores[row]), value)
        scores[row] = value
        expected = sorted(
            (row for row in range(len(scores)) if scores[row] > -np.inf), key=lambda r: (-scores[r], position[r])
        )
        assert ranking.best(scores, count) == expected[:count]


def test_a_row_that_leaves_the_end_of_a_ranking_is_gone_from_it() -> None:
    # 300 rows of scores 299..0: the list holds the best 128 and ends with row 127.
    scores = np.arange(299, -1, -1, dtype=np.float64)
    ranking = Ranking(Ties(0))
    assert ranking.best(scores, 128)[-1] == 127
    ranking.change(127, float(scores[127]), -1.0)
    scores[127] = -1.0
    assert ranking.best(scores, 128)[-1] == 128
    assert 127 not in ranking.best(scores, 299)
