"""Nodes that have a pod's images are preferred as kube-scheduler's ImageLocality does, and none is forbidden."""

from __future__ import annotations

import numpy as np
import pytest
from engine_objects import GIB, node, node_upserted, pod, pod_upserted, running_pod
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import Event, Node, NodeDeleted, NodeImage, NodeUpserted, PodDeleted, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Wait
from cotide_core.placement.candidates import Candidates
from cotide_core.placement.constraints.image_locality import image_points
from cotide_core.placement.feasibility import Feasibility
from cotide_core.placement.scoring import LeastAllocated
from cotide_core.placement.top_rows import Ties
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import ShapeTable
from cotide_core.state.snapshot import Snapshot

MIB = 1 << 20


def having(**images: tuple[tuple[str, int], ...]) -> ClusterState:
    """A cluster of these nodes, with images of so many MiB."""
    state = ClusterState()
    for name, held in images.items():
        state.apply(NodeUpserted(node(name, 8000, images=node_images(*held))))
    return state


def node_images(*held: tuple[str, int]) -> tuple[NodeImage, ...]:
    return tuple(sorted(NodeImage(name, size * MIB) for name, size in held))


def points(state: ClusterState, *images: str) -> dict[str, float]:
    """Return what each node has of the images of a pod with so many containers."""
    fit, snapshot = ShapeTable().of(pod(images=tuple(sorted(images))), state).fit, Snapshot.of(state)
    found = image_points(fit, snapshot)
    return {snapshot.name(row): float(found[row]) for row in range(snapshot.size) if snapshot.alive[row]}


def test_an_image_counts_its_size_times_the_share_of_nodes_that_have_it() -> None:
    # 1,000 MiB on 2 of 4 nodes: 500 MiB. 100 x (500 - 23) / (1,000 - 23) = 48.8, whole points of it.
    state = having(a=(("web:1", 1000),), b=(("web:1", 1000), ("db:1", 1000)), c=(), d=())
    assert points(state, "web:1") == {"a": 48, "b": 48, "c": 0, "d": 0}
    # Of two containers 2,000 MiB is the most: 100 x (500 + 250 - 23) / (2,000 - 23) = 36.8, and 24.1 of one image.
    assert points(state, "web:1", "db:1") == {"a": 24, "b": 36, "c": 0, "d": 0}
    # Two containers of one image count it twice: 100 x (1,000 - 23) / 1,977 = 49.4.
    assert points(state, "web:1", "web:1") == {"a": 49, "b": 49, "c": 0, "d": 0}


def test_little_counts_nothing_and_much_no_more_than_all_points() -> None:
    state = having(a=(("small:1", 45), ("large:1", 5000)), b=(("large:1", 5000),))
    assert points(state, "small:1") == {"a": 0, "b": 0}  # 45 MiB on one of two nodes: 22.5, and 23 is the least
    assert points(state, "large:1") == {"a": 100, "b": 100}
    assert points(state, "none:1") == {"a": 0, "b": 0}


def test_an_image_has_the_size_that_was_told_first_as_long_as_anybody_has_it() -> None:
    state = having(a=(("web:1", 500),), b=(("web:1", 1000),))
    assert points(state, "web:1") == {"a": 48, "b": 48}  # 100 x (500 - 23) / 977
    state.apply(NodeUpserted(node("a", 8000)))
    assert points(state, "web:1") == {"a": 0, "b": 23}  # still 500, on half of the nodes
    state.apply(NodeUpserted(node("b", 8000)))
    state.apply(NodeUpserted(node("b", 8000, images=node_images(("web:1", 1000)))))
    assert points(state, "web:1") == {"a": 0, "b": 48}


def engine(*events: Event) -> Scheduler:
    scheduler = Scheduler(SchedulerConfig(policy="fifo"), HeuristicCatalogue())
    scheduler.handle(events, 0.0)
    return scheduler


def bound(scheduler: Scheduler, *events: Event, now: float = 1.0) -> list[str]:
    return [one.node for one in scheduler.handle(events, now) if isinstance(one, Bind)]


def test_a_pod_goes_where_its_image_is_and_elsewhere_where_that_is_full() -> None:
    large = node_images(("job:1", 900))
    nodes = [node_upserted(name, 2000, images=large if name == "c" else ()) for name in "abc"]
    scheduler = engine(*nodes)
    # 900 MiB on one of three: 300, 28 points, .28 beside the free share that a pod of 500 leaves. c .75 + .28 before
    # .75 elsewhere; then .5 + .28 before .75; then .25 + .28 after .75.
    pods = [
        pod_upserted(name, 500, memory=4 * GIB, images=("job:1",), created_seconds=float(n))
        for n, name in enumerate("xyz")
    ]
    *first, last = bound(scheduler, *pods)
    assert first == ["c", "c"]
    assert last in ("a", "b")


def test_a_pod_that_waits_follows_an_image_that_came_meanwhile() -> None:
    nodes = [node_upserted(name, 1000) for name in "abcd"]
    full = [PodUpserted(running_pod(f"r{name}", name, 1000)) for name in "abcd"]
    scheduler = engine(*nodes, *full)
    assert bound(scheduler, pod_upserted("p", 1000, images=("job:1",))) == []
    pulled = [node_upserted(name, 1000, images=node_images(("job:1", 1000))) for name in "cd"]
    relieved = scheduler.state.columns.relief_clock
    assert scheduler.handle(pulled, 2.0) == []
    assert scheduler.state.columns.relief_clock == relieved  # an image lets nobody in: nobody is tried again for it
    gone = [PodDeleted(f"d/r{name}", f"u-r{name}") for name in "abcd"]
    assert bound(scheduler, *gone, now=60.0) in (["c"], ["d"])


def test_a_refusal_is_the_same_whatever_images_there_are() -> None:
    scheduler = engine(node_upserted("a", 1000, images=node_images(("job:1", 900))))
    (wait,) = scheduler.handle([pod_upserted("p", 2000, images=("job:1",))], 1.0)
    assert isinstance(wait, Wait)
    assert wait.message == "0/1 nodes are available: 1 Insufficient cpu"


NAMES = ("x:1", "y:1", "z:1")


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Nodes that come, change, lose images and go, and pods that take room."""
    events: list[Event] = []
    for number in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from("abcd"))
        match draw(st.integers(0, 4)):
            case 0:
                events.append(NodeDeleted(name))
            case 1:
                events.append(PodUpserted(running_pod(f"p{number}", name, 100)))
            case _:
                held = draw(st.lists(st.sampled_from(NAMES), unique=True))
                images = node_images(*((one, draw(st.integers(100, 2000))) for one in held))
                events.append(NodeUpserted(node(name, draw(st.sampled_from((4000, 8000))), images=images)))
    return events


@given(histories(), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3))
def test_what_is_kept_is_what_a_look_at_all_nodes_finds(events: list[Event], asked: list[str]) -> None:
    state, feasibility, table = ClusterState(), Feasibility(), ShapeTable()
    waiting = pod("waiting", 200, images=tuple(sorted(asked)))
    kept: dict[object, Candidates] = {}
    for event in events:
        state.apply(event)
        fit, snapshot = table.of(waiting, state).fit, Snapshot.of(state)
        candidates = kept.setdefault(fit, Candidates(fit, feasibility, LeastAllocated(), Ties(0)))
        candidates.refresh(snapshot)
        anew = Candidates(fit, Feasibility(), LeastAllocated(), Ties(0))
        anew.refresh(snapshot)
        assert np.array_equal(candidates.scores, anew.scores)
        assert {name: rows_of(state, name) for name in NAMES} == {name: recount(state, name) for name in NAMES}


def rows_of(state: ClusterState, name: str) -> set[int]:
    held = state.images.get(name)
    return set() if held is None else held.rows


def recount(state: ClusterState, name: str) -> set[int]:
    present: list[tuple[int, Node | None]] = list(enumerate(state.columns.nodes))
    return {row for row, one in present if one is not None and name in {image.name for image in one.images}}


@pytest.mark.parametrize("policy", ["fifo", "random", "qpsm", "easy"])
def test_every_policy_places_pods_with_images(policy: str) -> None:
    scheduler = Scheduler(SchedulerConfig(policy=policy), HeuristicCatalogue())
    held = node_images(("job:1", 900))
    scheduler.handle([node_upserted(name, 2000, images=held if name == "b" else ()) for name in "abc"], 0.0)
    pods = [pod_upserted(f"p{number}", 500, images=("job:1",), requested_seconds=60.0) for number in range(12)]
    assert len(bound(scheduler, *pods)) == 12
