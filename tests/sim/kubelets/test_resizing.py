"""In-place resizes on fake nodes: granted, put off, refused, and never above the node."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import pod_object

from cotide_kube.objects import PodObject
from cotide_sim.cluster.machine import MachinePark
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.actions import Action
from cotide_sim.kubelets.admission import NodeRoom
from cotide_sim.kubelets.clock import SimulatedClock
from cotide_sim.kubelets.residents import Residents
from cotide_sim.kubelets.resizing import RESIZE_SECONDS

ORIGIN = 1_000_000.0


def pod(name: str, cpu: int, status: Any = None, restart: str = "Never") -> PodObject:
    """A pod of 100 lone seconds."""
    spec = {"nodeName": "n0", "restartPolicy": restart}
    notes = {"sim.cotide.dev/lone-seconds": "100"}
    return pod_object(name, f"{cpu}m", namespace="d", annotations=notes, spec=spec, status=status or {})


class Node:
    """A fake node of four cores."""

    def __init__(self) -> None:
        self.now = ORIGIN
        self.clock = SimulatedClock(ORIGIN, 1.0, wall=lambda: ORIGIN)
        park = MachinePark(GeneratedInterference(), origin_seconds=ORIGIN)
        self.residents = Residents(park, self.clock)
        self.room = NodeRoom("n0", {"cpu": 4000, "memory": 2**33, "pods": 110})
        park.add_node("n0", 4000, 2**33)
        self.residents.add_node(self.room, "198.18.0.1")

    def see(self, *pods: PodObject) -> list[Action]:
        for one in pods:
            self.residents.observe(one, self.now)
        return self.taken()

    def after(self, seconds: float) -> list[Action]:
        self.now += seconds
        self.residents.advance(self.now)
        return self.taken()

    def taken(self) -> list[Action]:
        actions, self.residents.outbox = self.residents.outbox, []
        return actions


def refusal_of(action: Any) -> tuple[str, dict[str, str]]:
    """What a status says is set, and its conditions of resizes with their reasons."""
    shown = {
        one["type"]: one.get("reason", "")
        for one in action.status["conditions"]
        if one["type"].startswith("PodResize") and "$patch" not in one
    }
    return action.status["containerStatuses"][0]["resources"]["requests"]["cpu"], shown


def test_a_running_pod_tells_what_is_set_for_it() -> None:
    (action,) = Node().see(pod("a", 1000))
    assert refusal_of(action) == ("1000m", {})


def test_a_wish_that_fits_is_put_aside_at_once_and_set_a_moment_later() -> None:
    node = Node()
    node.see(pod("a", 1000))
    (granted,) = node.see(pod("a", 3000))
    assert refusal_of(granted) == ("1000m", {"PodResizeInProgress": ""})
    assert node.room.taken["cpu"] == 3000
    (done,) = node.after(RESIZE_SECONDS)
    assert refusal_of(done) == ("3000m", {})


def test_a_wish_beside_others_is_deferred_and_granted_when_room_is_given_back() -> None:
    node = Node()
    node.see(pod("a", 1000), pod("b", 2000))
    (deferred,) = node.see(pod("a", 3000))
    assert refusal_of(deferred) == ("1000m", {"PodResizePending": "Deferred"})
    message = next(one["message"] for one in deferred.status["conditions"] if one["type"] == "PodResizePending")
    assert message == "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
    assert node.room.taken["cpu"] == 3000
    smaller, granted = node.see(pod("b", 500))
    assert (smaller.key, granted.key) == ("d/b", "d/a")
    assert refusal_of(granted) == ("1000m", {"PodResizeInProgress": ""})
    assert node.room.taken["cpu"] == 3500


def test_a_wish_beyond_the_node_is_infeasible_and_changes_nothing() -> None:
    node = Node()
    node.see(pod("a", 1000))
    (refused,) = node.see(pod("a", 5000))
    assert refusal_of(refused) == ("1000m", {"PodResizePending": "Infeasible"})
    assert node.room.taken["cpu"] == 1000
    assert node.see(pod("a", 5000)) == []  # an echo
    (back,) = node.see(pod("a", 1000))
    assert refusal_of(back)[1] in ({}, {"PodResizeInProgress": ""})


def test_a_pod_that_is_found_running_holds_what_its_status_says_and_its_wish_is_tried_again() -> None:
    node = Node()
    status = {
        "phase": "Running",
        "startTime": "1970-01-12T13:46:40Z",
        "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "1000m"}}}],
    }
    (granted,) = node.see(pod("a", 2000, status))
    assert refusal_of(granted) == ("1000m", {"PodResizeInProgress": ""})
    assert node.room.taken["cpu"] == 2000


def test_a_pod_that_ends_takes_its_conditions_back() -> None:
    node = Node()
    node.see(pod("a", 1000))
    node.see(pod("a", 5000))
    ended = node.after(200)[-1]
    assert refusal_of(ended)[1] == {}
    assert {one["type"] for one in ended.status["conditions"] if "$patch" in one} == {  # type: ignore[union-attr]
        "PodResizePending",
        "PodResizeInProgress",
    }


@settings(max_examples=100, deadline=None)
@given(
    preferences=st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(1, 50), st.sampled_from([0.0, 0.5, 30.0])), max_size=25
    )
)
def test_a_node_never_grants_more_than_it_has(preferences: list[tuple[str, int, float]]) -> None:
    node = Node()
    for name, hundreds, seconds in preferences:
        node.see(pod(name, 100 * hundreds, restart="Always"))
        node.after(seconds)
        assert 0 <= node.room.taken["cpu"] <= 4000
