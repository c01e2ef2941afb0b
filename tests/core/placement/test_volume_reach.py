"""What volumes leave to a pod: for all nodes at once as for one, and what is attached as a recount has it."""

from __future__ import annotations

from engine_objects import node, node_upserted, pod_upserted, running_pod
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.events import (
    NodeDeleted,
    NodeTerm,
    OpenClaim,
    PodDeleted,
    PodUpserted,
    Requirement,
    VolumeChoice,
)
from cotide_core.placement.constraints.volume_reach import refused_by_volumes
from cotide_core.placement.feasibility import FITS, Feasibility
from cotide_core.placement.label_index import LabelIndex
from cotide_core.placement.node_predicates import (
    NO_ROOM,
    NO_VOLUME,
    NOT_MADE,
    VOLUME_MISMATCH,
    volume_refusal,
    volumes_for,
)
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import Constraints, ShapeTable
from cotide_core.state.snapshot import Snapshot

DRIVER = "disk.example.com"


def zone(*names: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm((Requirement("zone", "In", names),)),)


def here(zones: str) -> tuple[ClusterState, Snapshot]:
    """One node for each letter, in the zone of that name."""
    state = ClusterState()
    for number, name in enumerate(zones):
        state.apply(node_upserted(f"n{number}", labels=(("zone", name),)))
    return state, Snapshot.of(state)


REACH = st.lists(st.sampled_from("abc"), max_size=2).map(lambda names: zone(*names) if names else ())
VOLUMES = st.lists(
    st.builds(VolumeChoice, st.sampled_from(["v1", "v2", "v3"]), REACH), max_size=3, unique_by=lambda v: v[0]
)
CLAIMS = st.lists(
    st.builds(
        OpenClaim,
        VOLUMES.map(tuple),
        st.booleans(),
        REACH,
        st.sampled_from(["", "", "n0", "gone"]),
        st.sampled_from([(), ("n1",), ("n0", "gone")]),
        REACH,
    ),
    max_size=3,
).map(tuple)


@given(
    st.text("abc", min_size=1, max_size=5), CLAIMS, st.lists(st.sampled_from([zone("a"), zone("a", "b")]), max_size=2)
)
def test_all_nodes_at_once_are_told_what_each_is_told(
    zones: str, claims: tuple[OpenClaim, ...], bound: list[tuple[NodeTerm, ...]]
) -> None:
    state, snapshot = here(zones)
    wished = Constraints(volume_terms=tuple(bound), open_claims=claims)
    found = refused_by_volumes(wished, LabelIndex(), snapshot)
    wanted = [volume_refusal(one, wished) for name in snapshot.columns.row_of if (one := state.node(name)) is not None]
    assert found == wanted


def test_each_claim_takes_the_first_volume_that_is_left() -> None:
    small, large = VolumeChoice("small", zone("a")), VolumeChoice("large", zone("a", "b"))
    one, two = OpenClaim((small, large)), OpenClaim((small, large))
    labelled = node(labels=(("zone", "a"),))
    assert volumes_for(labelled, (one, two)) == ["small", "large"]
    assert volumes_for(node(labels=(("zone", "b"),)), (one,)) == ["large"]
    assert volumes_for(node(labels=(("zone", "b"),)), (one, two)) is None  # one volume reaches b, and two are asked for


def test_a_node_is_refused_for_the_first_of_its_reasons() -> None:
    _, snapshot = here("abcd")
    wished = Constraints(
        volume_terms=(zone("a", "b", "c"),),
        open_claims=(OpenClaim((VolumeChoice("v", zone("a")),), avoided=("n1",)),),
    )
    assert refused_by_volumes(wished, LabelIndex(), snapshot) == ["", NOT_MADE, NO_VOLUME, VOLUME_MISMATCH]


def test_a_volume_is_made_where_its_driver_has_room_and_one_that_is_there_needs_none() -> None:
    _, snapshot = here("abcd")
    claim = OpenClaim(
        (VolumeChoice("v", zone("a")),), provisions=True, topologies=zone("a", "b", "c"), rooms=zone("b", "d")
    )
    wished = Constraints(open_claims=(claim,))
    assert refused_by_volumes(wished, LabelIndex(), snapshot) == ["", "", NO_ROOM, NO_VOLUME]
    assert volumes_for(node(labels=(("zone", "b"),)), (claim,)) == [""]
    assert volumes_for(node(labels=(("zone", "c"),)), (claim,)) is None


def codes(state: ClusterState, *attachments: tuple[str, str]) -> list[bool]:
    """Whether each node takes a pod with these volumes."""
    waiting = pod_upserted("waiting", 10, attachments=attachments)
    state.apply(waiting)
    snapshot = Snapshot.of(state)
    found = Feasibility().codes(ShapeTable().of(waiting.pod, state).fit, snapshot, slice(0, snapshot.size))
    return [code == FITS for code in found.tolist()]


def test_a_node_takes_as_many_different_volumes_of_a_driver_as_it_says() -> None:
    state = ClusterState()
    state.apply(node_upserted("a", 4000, attach_limits=((DRIVER, 2),)))
    state.apply(node_upserted("b", 4000))
    for number in range(2):
        state.apply(PodUpserted(running_pod(f"p{number}", "a", 10, attachments=((DRIVER, "shared"),))))
    # One volume is attached, by two pods: there is room for one more.
    assert codes(state, (DRIVER, "new")) == [True, True]
    assert codes(state, (DRIVER, "new"), (DRIVER, "newer")) == [False, True]
    assert codes(state, (DRIVER, "shared"), (DRIVER, "new")) == [True, True]
    state.apply(PodUpserted(running_pod("q", "a", 10, attachments=((DRIVER, "other"),))))
    assert codes(state, (DRIVER, "new")) == [False, True]
    assert codes(state, (DRIVER, "other")) == [True, True]  # it is there already
    assert codes(state, ("unlimited", "new")) == [True, True]
    state.apply(PodDeleted("d/q", "u-q"))
    assert codes(state, (DRIVER, "new")) == [True, True]
    state.apply(node_upserted("a", 4000, attach_limits=((DRIVER, 1),)))
    assert codes(state, (DRIVER, "new")) == [False, True]


def test_what_hangs_on_a_node_without_a_pod_counts_and_what_its_pods_use_counts_once() -> None:
    state = ClusterState()

    def emit(*volumes: str) -> None:
        hanging = tuple((DRIVER, volume) for volume in volumes)
        state.apply(node_upserted("a", 4000, attach_limits=((DRIVER, 2),), attached=hanging))

    emit("used", "left")
    assert codes(state, (DRIVER, "new")) == [False]
    state.apply(PodUpserted(running_pod("p", "a", 10, attachments=((DRIVER, "used"),))))
    assert codes(state, (DRIVER, "used")) == [True]
    assert codes(state, (DRIVER, "new")) == [False]
    emit("used")
    assert codes(state, (DRIVER, "new")) == [True]
    # As kube-scheduler: a volume that hangs there without a pod counts twice for the pod that comes with it.
    emit("used", "left")
    assert codes(state, (DRIVER, "left")) == [False]
    state.apply(PodDeleted("d/p", "u-p"))
    emit()
    assert codes(state, (DRIVER, "new"), (DRIVER, "newer")) == [True]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["place", "go", "node goes", "node comes", "node tells"]),
        st.integers(0, 3),
        st.sampled_from("ab"),
        st.sets(st.sampled_from("xyz"), max_size=2),
    ),
    max_size=12,
)


@given(STEPS)
def test_what_is_attached_is_what_a_recount_finds(steps: list[tuple[str, int, str, set[str]]]) -> None:
    state = ClusterState()
    for name in "ab":
        state.apply(node_upserted(name, 9000, attach_limits=((DRIVER, 3),)))
    for step, number, at, volumes in steps:
        known = state.pod(f"d/p{number}")
        if step == "place" and (known is None or known.node == at):
            attachments = tuple((DRIVER, volume) for volume in sorted(volumes))
            state.apply(PodUpserted(running_pod(f"p{number}", at, 10, attachments=attachments)))
        elif step == "go":
            state.apply(PodDeleted(f"d/p{number}", f"u-p{number}"))
        elif step == "node goes":
            state.apply(NodeDeleted(at))
        elif step == "node tells":
            hanging = tuple((DRIVER, volume) for volume in sorted(volumes))
            state.apply(node_upserted(at, 9000, attach_limits=((DRIVER, 3),), attached=hanging))
        else:
            state.apply(node_upserted(at, 9000, attach_limits=((DRIVER, 3),)))
        attached: dict[int, set[str]] = {}
        for record in state.records():
            if record.row >= 0 and record.pod.attachments:
                attached.setdefault(record.row, set()).update(volume for _, volume in record.pod.attachments)
        both = {row: set(there) for row, there in attached.items()}
        for row, entry in enumerate(state.columns.nodes):
            if entry is not None and entry.attached:
                both.setdefault(row, set()).update(volume for _, volume in entry.attached)
        assert dict(state.matches.attached.used(DRIVER)) == {row: len(there) for row, there in both.items()}
        for volume in "xyz":
            rows = set(state.matches.attached.rows_of(DRIVER, volume))
            assert rows == {row for row, there in attached.items() if volume in there}
