"""In which order the pods of a node are put back while it is tried what suffices, and whether any may go at all."""

from __future__ import annotations

import itertools

from engine_objects import node_upserted
from preemption_scene import BATCH, GRATIS, ONLINE, comes, engine, evicted, leaves, runs

from cotide_core.config import HierarchicalConfig
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.preemption.dry_run import PodsByRow
from cotide_core.state.cluster_state import ClusterState


def state_of(*pods: object) -> ClusterState:
    state = ClusterState()
    for event in (node_upserted("a", 10_000), *pods):
        state.apply(event)  # type: ignore[arg-type]
    return state


def test_pods_are_put_back_by_class_then_priority_then_start_then_name() -> None:
    pods = [
        runs("online", "a", 10, priority=-5, cls=ONLINE, started_seconds=9.0),
        runs("batch-high", "a", 10, priority=7, cls=BATCH, started_seconds=9.0),
        runs("batch-low-early", "a", 10, priority=3, cls=BATCH, started_seconds=1.0),
        runs("batch-low-late", "a", 10, priority=3, cls=BATCH, started_seconds=2.0),
        runs("batch-low-unstarted", "a", 10, priority=3, cls=BATCH, started_seconds=None),
        runs("gratis-a", "a", 10, priority=99, cls=GRATIS),
        runs("gratis-b", "a", 10, priority=99, cls=GRATIS),
    ]
    names = [event.pod.key for event in pods]
    for order in itertools.islice(itertools.permutations(pods), 0, 5040, 360):
        found = PodsByRow(state_of(*order), Evictions(HierarchicalConfig()), early=False).of(0, 10.0)
        assert [record.pod.key for record in found.open] == names
        assert found.leaving == []


def test_a_pod_on_its_way_out_is_counted_on_and_is_not_asked_again() -> None:
    going = runs("going", "a", 10)
    state = state_of(going, leaves(going), runs("stays", "a", 10))
    found = PodsByRow(state, Evictions(HierarchicalConfig()), early=False).of(0, 1.0)
    assert [record.pod.key for record in found.leaving] == ["d/going"]
    assert [record.pod.key for record in found.open] == ["d/stays"]


def test_of_equal_pods_the_one_that_began_last_leaves() -> None:
    scheduler = engine(
        node_upserted("a", 1000),
        runs("first", "a", 500, 1, started_seconds=-9.0),
        runs("last", "a", 500, 1, started_seconds=-1.0),
    )
    assert evicted(scheduler.handle([comes("p", 500, 9)], 1.0)) == ["last"]


def test_whether_any_pod_may_be_displaced_depends_on_its_importance_alone() -> None:
    for placed, priority, expected in ((1, 9, True), (9, 9, False), (20, 9, False)):
        scheduler = engine(node_upserted("a", 1000), runs("there", "a", 1000, placed))
        preemption = scheduler._capacity._preemption  # type: ignore[union-attr]  # asked by gangs, before a trial
        assert preemption.has_victims(comes("p", 500, priority).pod, 1.0) is expected
    empty = engine(node_upserted("a", 1000))
    assert empty._capacity._preemption.has_victims(comes("p", 500, 9).pod, 1.0) is False  # type: ignore[union-attr]
