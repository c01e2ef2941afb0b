"""What pods name costs neither time nor memory beyond what nodes offer; what is interned is given back."""

from __future__ import annotations

from typing import Any

import engine_objects
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    NodeDeleted,
    NodeTerm,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Requirement,
    Taint,
    Workload,
    WorkloadDeleted,
    WorkloadUpserted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Wait, WaitReason
from cotide_core.placement.feasibility import CODES_MOST, OTHERWISE, REASONS_KEPT, Reasons
from cotide_core.placement.label_index import LabelIndex
from cotide_core.placement.node_predicates import MISMATCH, refusal
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.node_columns import ALWAYS, RESOURCES_KEPT, TYPES_MOST
from cotide_core.state.shapes import Constraints
from cotide_core.state.snapshot import Snapshot

CPU = (("cpu", 100),)


def node(name: str = "n", *more: tuple[str, int], **fields: Any) -> NodeUpserted:
    """A node that is never full, and offers more resources if a test says so."""
    return engine_objects.node_upserted(name, 64_000, memory=0, pods=5000, offers=dict(more), **fields)


def pod(name: str, requests: tuple[tuple[str, int], ...] = CPU, **fields: Any) -> PodUpserted:
    """A pod that asks for any resources."""
    return engine_objects.pod_upserted(name, requests=requests, **fields)


def engine(policy: str = "fifo") -> Scheduler:
    return Scheduler(SchedulerConfig(policy=policy), HeuristicCatalogue())


def test_resources_that_no_node_offers_get_no_column() -> None:
    found = engine()
    out = found.handle([node(), pod("p", tuple(sorted((f"a.b/r{n}", 1) for n in range(8000))))], 0.0)
    assert set(found.state.columns.resources) == set(ALWAYS)
    assert [one.message for one in out if isinstance(one, Wait)] == ["0/1 nodes are available: 1 Insufficient a.b/r0"]


def test_a_pod_that_waits_for_a_device_is_placed_when_a_node_brings_it() -> None:
    found = engine()
    found.handle([node("plain"), pod("p", (("cpu", 100), ("x.y/gpu", 1)))], 0.0)
    out = found.handle([node("devices", ("x.y/gpu", 1))], 20.0)
    assert [(one.key, one.node) for one in out if isinstance(one, Bind)] == [("d/p", "devices")]


def test_what_runs_already_holds_a_resource_that_comes_later() -> None:
    found = engine()
    held = pod("held", (("cpu", 100), ("x.y/gpu", 1)), node="n")
    found.handle([node(), held, pod("p", (("cpu", 100), ("x.y/gpu", 1)))], 0.0)
    out = found.handle([node("n", ("x.y/gpu", 1))], 20.0)  # the one that there is, is taken
    assert not [one for one in out if isinstance(one, Bind)]
    out = found.handle([PodDeleted("d/held", "u-held")], 40.0)
    assert [one.key for one in out if isinstance(one, Bind)] == ["d/p"]


def test_resources_that_come_and_go_with_nodes_share_columns() -> None:
    found = engine()
    for day in range(200):
        found.handle([node("n", (f"x.y/r{day}", 4)), pod(f"p{day}", (("cpu", 1), (f"x.y/r{day}", 1)))], float(day))
    assert len(found.state.columns.resources) <= RESOURCES_KEPT
    assert found.state.columns.free_of("x.y/r199", 0) == 3


def test_types_that_come_and_go_share_columns() -> None:
    found = engine("qpsm")
    found.handle([node()], 0.0)
    for number in range(4000):
        one = pod(f"p{number}", type=f"t{number}", node="n")
        found.handle([one, pod(f"w{number}", type=f"t{number}", gates=("g",))], float(number))
        found.handle(
            [PodDeleted(f"d/p{number}", f"u-p{number}"), PodDeleted(f"d/w{number}", f"u-w{number}")], float(number)
        )
    columns = found.state.columns
    assert len(columns.type_names) <= TYPES_MOST + 1
    assert columns.type_counts.sum() == 0


def test_more_types_at_once_than_there_are_columns_are_counted_without_a_type_and_taken_off_again() -> None:
    state = ClusterState()
    state.apply(node())
    names = [f"p{number}" for number in range(TYPES_MOST + 100)]
    for name in names:
        state.apply(pod(name, type=f"t-{name}", node="n", input_bytes=7))
    assert len(state.columns.type_names) == TYPES_MOST + 1
    assert int(state.columns.type_counts[state.columns.types[""], 0]) == 100
    for name in names:
        state.apply(PodDeleted(f"d/{name}", f"u-{name}"))
    assert not state.columns.type_counts.any()
    assert not state.columns.type_bytes.any()


def test_workloads_that_come_and_go_share_numbers() -> None:
    state = ClusterState()
    state.apply(node())
    for number in range(500):
        state.apply(WorkloadUpserted(Workload(f"d/w{number}")))
        web = pod("web", workload=f"d/w{number}", workload_class=WorkloadClass.ONLINE, node="n")
        state.apply(web)
        state.apply(PodDeleted("d/web", "u-web"))
        state.apply(WorkloadDeleted(f"d/w{number}"))
    assert len(state.columns.workload_names) == 1


def test_sentences_beyond_int16_share_one_and_are_numbered_anew() -> None:
    reasons = Reasons()
    reasons.number(OTHERWISE, WaitReason.NO_MATCHING_NODE)
    codes = {reasons.number(f"taint {number}", WaitReason.NO_MATCHING_NODE) for number in range(40_000)}
    assert max(codes) < CODES_MOST
    found = engine()
    for number in range(0, REASONS_KEPT + 100, 50):
        taints = [node(f"n{n}", taints=(Taint("at", str(number + n), "NoSchedule"),)) for n in range(50)]
        found.handle([*taints, pod("p", attempts=number)], float(number))
    assert len(found._placer.feasibility.reasons.messages) < REASONS_KEPT
    assert [one.node for one in found.handle([node("free")], 1e6) if isinstance(one, Bind)] == ["free"]


KEYS = st.sampled_from(("zone", "host", "size", "none"))
VALUES = st.sampled_from(("a", "b", "7", "12", "-3", "x" * 70, "9" * 30, ""))
LABELS = st.dictionaries(KEYS, VALUES, max_size=3).map(lambda found: tuple(sorted(found.items())))
REQUIREMENTS = st.builds(
    Requirement,
    KEYS,
    st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd")),
    st.lists(VALUES, max_size=3).map(tuple),
)
FIELDS = st.builds(
    Requirement,
    st.sampled_from(("metadata.name", "metadata.uid")),
    st.sampled_from(("In", "NotIn")),
    st.lists(st.sampled_from(("n0", "n1", "n9")), max_size=2).map(tuple),
)
TERMS = st.builds(NodeTerm, st.lists(REQUIREMENTS, max_size=3).map(tuple), st.lists(FIELDS, max_size=1).map(tuple))


@given(
    st.lists(st.lists(LABELS, min_size=1, max_size=5), min_size=1, max_size=3),
    st.dictionaries(KEYS, VALUES, max_size=2).map(lambda found: tuple(sorted(found.items()))),
    st.lists(TERMS, max_size=4).map(tuple),
)
def test_matching_all_nodes_at_once_agrees_with_matching_each(rounds, selector, terms) -> None:
    state, index, wished = ClusterState(), LabelIndex(), Constraints(selector, terms)
    for labels in rounds:
        for number, one in enumerate(labels):
            state.apply(node(f"n{number}", labels=one))
        if len(labels) == 1:
            state.apply(NodeDeleted("n0"))
            state.apply(node("n9", labels=labels[0]))
        snapshot = Snapshot.of(state)
        found = index.matches(wished, snapshot)
        for row, there in enumerate(snapshot.nodes):
            if there is not None:
                assert found[row] == (refusal(there, wished) != MISMATCH)
