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
from cotide_core.placement.feasibility import MAX_CODES, OTHERWISE, REASONS_KEPT, Reasons
from cotide_core.placement.label_index import LabelIndex
from cotide_core.placement.node_predicates import MISMATCH, refusal
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.node_columns import ALWAYS, FIRST_CAPACITY, MAX_TYPES, RESOURCE_CELLS, RESOURCES_KEPT
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
    assert len(columns.type_names) <= MAX_TYPES + 1
    assert columns.type_counts.sum() == 0


def test_more_types_at_once_than_there_are_columns_are_counted_without_a_type_and_taken_off_again() -> None:
    state = ClusterState()
    state.apply(node())
    names = [f"p{number}" for number in range(MAX_TYPES + 100)]
    for name in names:
        state.apply(pod(name, type=f"t-{name}", node="n", input_bytes=7))
    assert len(state.columns.type_names) == MAX_TYPES + 1
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
    assert max(codes) < MAX_CODES
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
        for number, label in enumerate(labels):
            state.apply(node(f"n{number}", labels=label))
        if len(labels) == 1:
            state.apply(NodeDeleted("n0"))
            state.apply(node("n9", labels=labels[0]))
        snapshot = Snapshot.of(state)
        found = index.matches(wished, snapshot)
        for row, there in enumerate(snapshot.nodes):
            if there is not None:
                assert found[row] == (refusal(there, wished) != MISMATCH)


def own_resources(number: int, generation: int = 0, size: int = 240) -> NodeUpserted:
    """A node that offers resources of its own."""
    return node(f"n{number}", *((f"x.y/n{number}g{generation}r{n}", 5) for n in range(size)))


def test_resources_that_only_nodes_name_take_few_columns() -> None:
    found = engine()
    found.handle([own_resources(number) for number in range(40)], 0.0)
    assert len(found.state.columns.resources) <= RESOURCES_KEPT
    out = found.handle([pod("p", (("cpu", 100), ("x.y/n39g0r200", 5)))], 1.0)
    assert [one.node for one in out if isinstance(one, Bind)] == ["n39"]


def test_a_node_that_renames_its_resources_changes_no_other_row() -> None:
    state = ClusterState()
    for number in range(40):
        state.apply(own_resources(number))
    versions = state.columns.versions.copy()
    for generation in range(1, 5):
        state.apply(own_resources(7, generation))
    changed = state.columns.versions != versions
    assert [row for row in range(state.columns.size) if changed[row]] == [7]


def test_a_resource_that_comes_back_has_what_its_pods_hold_taken_off() -> None:
    state = ClusterState()
    state.apply(own_resources(0))
    state.apply(pod("held", (("cpu", 100), ("x.y/n0g0r239", 2)), node="n0"))
    assert state.columns.free_of("x.y/n0g0r239", 0) == 3
    state.apply(own_resources(0, 1))
    state.apply(own_resources(0))
    assert state.columns.free_of("x.y/n0g0r239", 0) == 3
    state.apply(PodDeleted("d/held", "u-held"))
    assert state.columns.free_of("x.y/n0g0r239", 0) in (0, 5)  # no pod asks for it, and the column may be another's


def test_resources_that_pods_name_have_columns_up_to_a_bound() -> None:
    state = ClusterState()
    for number in range(FIRST_CAPACITY * 8 + 1):  # the table doubles to 1,024 rows
        state.apply(own_resources(number, size=3))
        state.apply(pod(f"p{number}", tuple((f"x.y/n{number}g0r{n}", 1) for n in range(3)), node=f"n{number}"))
    assert len(state.columns.resources) == len(state.columns.free) == RESOURCE_CELLS // (FIRST_CAPACITY * 8)
    state.apply(own_resources(600, size=1))
    state.apply(pod("further", (("x.y/n600g0r0", 1),)))
    assert "x.y/n600g0r0" not in state.columns.resources


def test_each_of_500_nodes_can_offer_a_resource_of_its_own_that_a_pod_asks_for() -> None:
    state = ClusterState()
    for number in range(500):
        state.apply(own_resources(number, size=1))
    for number in range(500):
        state.apply(pod(f"p{number}", ((f"x.y/n{number}g0r0", 1),)))
    assert all(state.columns.free_of(f"x.y/n{number}g0r0", number) == 5 for number in range(500))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.booleans()), max_size=60))
def test_what_is_free_is_what_nodes_offer_less_what_pods_hold(steps) -> None:
    state, held, offers = ClusterState(), {}, {}
    for row, number, is_pod in steps:
        name, name_of_node = f"x.y/r{number}", f"n{row}"
        if is_pod and held.pop(number, None) is not None:
            state.apply(PodDeleted(f"d/p{number}", f"u-p{number}"))
        elif is_pod:
            held[number] = row
            state.apply(pod(f"p{number}", ((name, 1),), node=name_of_node))
        else:
            offers[row] = sorted({*range(number, number + 30)})
            state.apply(node(name_of_node, *((f"x.y/r{n}", 7) for n in offers[row])))
    for name, column in state.columns.resources.items():
        if name in ALWAYS:
            continue
        number = int(name.removeprefix("x.y/r"))
        for node_name, row in state.columns.row_of.items():
            of_node = int(node_name[1:])
            offered = 7 if number in offers.get(of_node, ()) else 0
            assert state.columns.allocatable[column, row] == offered
            assert state.columns.free[column, row] == offered - (held.get(number) == of_node)
    for number in held:  # whatever a pod asks for and a node offers is counted
        if any(number in found for found in offers.values()):
            assert f"x.y/r{number}" in state.columns.resources
