"""The pods that may be tried come in the order of their keys, however often they were looked at ahead."""

from __future__ import annotations

import heapq

import pytest
from engine_objects import pod
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.queueing.active_pods import MOST_IN_FRONT, ActivePods, HeapByNamespace, Item, OneHeap
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.fair_usage import FairUsage
from cotide_core.state.shapes import ShapeTable

POD = pod("p")
SHAPE = ShapeTable().of(POD, ClusterState())


def item(number: int, ticket: int) -> Item:
    return (number,), ticket, QueuedPod(POD, SHAPE, ticket, ticket=ticket)


def by_namespace() -> HeapByNamespace:
    return HeapByNamespace(FairUsage(3600.0))


@pytest.mark.parametrize("made", [OneHeap, by_namespace])
@given(st.lists(st.tuples(st.sampled_from(("push", "pop", "ahead", "stale")), st.integers(0, 20)), max_size=200))
def test_a_look_ahead_names_those_that_come_and_takes_none(
    made: type[ActivePods], steps: list[tuple[str, int]]
) -> None:
    pods, valid = made(), list[Item]()
    for ticket, (what, number) in enumerate(steps):
        if what == "push":
            pods.push(item(number, ticket))
            heapq.heappush(valid, item(number, ticket))
        elif what == "stale" and valid:
            valid.sort(key=lambda one: one[:2])
            _, gone, _ = valid.pop(number % len(valid))
            for _, held, entry in pods.ahead(1000):
                entry.ticket = -1 if held == gone else entry.ticket
        elif what == "ahead":
            assert [one[:2] for one in pods.ahead(number)] == sorted(one[:2] for one in valid)[:number]
        elif what == "pop":
            found, first = pods.pop(), heapq.nsmallest(1, valid)
            assert (found and found[:2]) == (first[0][:2] if first else None)
            valid = [one for one in valid if found is None or one[1] != found[1]]


def test_many_who_come_before_those_that_were_looked_at_do_not_all_stay_in_front() -> None:
    pods = OneHeap()
    numbers = range(10 * MOST_IN_FRONT, 0, -1)
    for number in numbers:
        pods.push(item(number, number))
        pods.ahead(1)
    assert len(pods._front) <= MOST_IN_FRONT
    assert [pods.pop()[0][0] for _ in numbers] == sorted(numbers)  # type: ignore[index]  # as many as were pushed
