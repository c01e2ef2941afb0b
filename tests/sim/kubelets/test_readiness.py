"""Readiness that somebody else took from a pod that runs: its kubelet gives it back."""

import msgspec
from resident_world import ORIGIN, World, pod

from cotide_kube.objects import ContainerStatus
from cotide_kube.timestamps import format_timestamp


def unready(name="a", **more):
    """A pod that runs, and is shown as not ready."""
    return pod(name, status={"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}, **more)


def test_readiness_that_somebody_took_is_given_back_once_within_ten_seconds():
    """The node controller takes it when a node seems dead; a kubelet that is back tells what is so."""
    world = World()
    world.see(pod(annotations={"sim.cotide.dev/lone-seconds": "100"}))
    assert world.see(unready(), unready()) == []
    assert world.after(9.9) == []
    (again,) = world.after(0.2)
    ready = {one["type"]: one for one in again.status["conditions"]}["Ready"]
    assert (again.status["phase"], ready["status"]) == ("Running", "True")
    assert ready["lastTransitionTime"] == format_timestamp(ORIGIN + 10)
    assert again.status["containerStatuses"][0]["state"] == {"running": {"startedAt": format_timestamp(ORIGIN)}}
    assert world.after(60.0) == []


def test_no_readiness_is_given_to_a_container_that_waits_nor_told_again_when_all_is_well():
    """Thirty seconds of work, ten until the next run, and what was written while it waited is shown late."""
    world = World()
    again = {"spec": {"restartPolicy": "Always"}, "annotations": {"sim.cotide.dev/lone-seconds": "30"}}
    world.see(pod(**again))
    world.after(30.1)
    assert world.see(unready(**again)) == []
    (restarted,) = world.after(10.0)
    assert restarted.status["containerStatuses"][0]["restartCount"] == 1
    assert world.see(unready(**again), pod(**again)) == []
    assert world.after(15.0) == []


def test_a_kubelet_that_begins_anew_gives_readiness_back_to_what_it_adopts():
    world = World()
    states = [{"name": "c", "state": {"running": {"startedAt": format_timestamp(ORIGIN - 5)}}}]
    shown = unready(annotations={"sim.cotide.dev/lone-seconds": "100"})
    status = msgspec.structs.replace(
        shown.status,
        start_time=format_timestamp(ORIGIN - 5),
        container_statuses=tuple(msgspec.convert(state, ContainerStatus) for state in states),
    )
    assert world.see(msgspec.structs.replace(shown, status=status)) == []
    (again,) = world.after(10.1)
    assert {one["type"]: one["status"] for one in again.status["conditions"]}["Ready"] == "True"
