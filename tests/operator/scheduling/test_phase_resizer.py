"""The resizer against kubelets that put off or refuse, and servers that do not answer."""

from __future__ import annotations

from typing import Any

import msgspec

from cotide_core.errors import ClusterError
from cotide_core.phases.growth import PAUSE_SECONDS
from cotide_kube.answers import ApiError
from cotide_kube.objects import PodObject
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.scheduling.phase_resizer import ECHO_SECONDS, GRANTED_ANYWAY_SECONDS, PhaseResizer

SMALL = {"name": "read", "resources": {"cpu": "500m"}}
LARGE = {"name": "count", "resources": {"cpu": "3"}}
Patch = tuple[str, Any]


class Scene:
    """One phased pod, what was patched, and the time."""

    def __init__(self, room: int = 4000) -> None:
        self.mirror, self.patches, self.now, self.room = ObjectCache(), [], 0.0, room
        self.fault: Exception | None = None
        job = {"metadata": {"namespace": "d", "name": "j", "uid": "u"}, "spec": {"phases": [SMALL, LARGE]}}
        self.mirror.apply("jobs", "ADDED", msgspec.convert(job, CustomObject))
        self.resizer = PhaseResizer(self, self.mirror, lambda _: self.room, lambda: self.now)  # type: ignore[arg-type]

    async def patch(self, path: str, body: Any, kind: str = "merge") -> None:
        del kind
        if self.fault is not None:
            raise self.fault
        self.patches.append((path.rpartition("/")[2], body))

    def see(self, asks: str, set_: str | None = None, *, phase: str = "", pending: str = "", granted: str = "") -> None:
        notes = {"cotide.dev/phase": phase, "cotide.dev/granted-phase": granted}
        owner = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        metadata = {"namespace": "d", "name": "p", "uid": "up", "annotations": notes, "ownerReferences": [owner]}
        conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
        statuses = [{"name": "c", "resources": {"requests": {"cpu": set_ or asks}}}]
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": asks}}}
        pod = {
            "metadata": metadata,
            "spec": {"nodeName": "n", "containers": [container]},
            "status": {"phase": "Running", "conditions": conditions, "containerStatuses": statuses},
        }
        self.mirror.apply("pods", "MODIFIED", msgspec.convert(pod, PodObject))

    async def after(self, seconds: float) -> list[Patch]:
        self.now += seconds
        self.patches.clear()
        await self.resizer.look()
        return self.patches


def size(patch: Patch) -> str:
    assert patch[0] == "resize"
    cpu: str = patch[1]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return cpu


def told(patch: Patch) -> dict[str, str | None]:
    annotations: dict[str, str | None] = patch[1]["metadata"]["annotations"]
    return annotations


async def test_a_phase_is_granted_when_its_kubelet_has_set_its_size_and_not_before() -> None:
    scene = Scene()
    scene.see("3")
    assert [size(one) for one in await scene.after(0)] == ["500m"]
    assert await scene.after(1) == []  # the answer is on its way
    scene.see("500m", "3")
    assert await scene.after(1) == []
    scene.see("500m")
    assert [told(one) for one in await scene.after(1)] == [
        {"cotide.dev/granted-phase": "read", "cotide.dev/phase-note": None}
    ]
    scene.see("500m", granted="read")
    assert await scene.after(1) == []


async def test_what_does_not_come_back_is_asked_for_again() -> None:
    scene = Scene()
    scene.see("3")
    await scene.after(0)
    assert [size(one) for one in await scene.after(ECHO_SECONDS)] == ["500m"]


async def test_a_server_that_does_not_answer_is_asked_again() -> None:
    scene = Scene()
    scene.see("3")
    scene.fault = ClusterError("no answer")
    assert await scene.after(0) == []
    scene.fault = None
    assert [size(one) for one in await scene.after(ECHO_SECONDS)] == ["500m"]


async def test_a_wait_is_held_small_then_kept_room_for_and_granted_at_last() -> None:
    scene = Scene(room=1000)
    scene.see("500m", phase="count")
    assert [size(one) for one in await scene.after(0)] == ["10m"]
    scene.see("10m", phase="count")
    assert await scene.after(1) == []
    assert [size(one) for one in await scene.after(PAUSE_SECONDS)] == ["3"]
    scene.see("3", "10m", phase="count", pending="Deferred")
    assert await scene.after(60) == []
    (granted,) = await scene.after(GRANTED_ANYWAY_SECONDS)
    assert told(granted)["cotide.dev/granted-phase"] == "count"
    assert "no room" in str(told(granted)["cotide.dev/phase-note"])


async def test_an_infeasible_wish_is_taken_back_and_the_phase_granted_with_the_reason() -> None:
    scene = Scene()
    scene.see("3", "500m", phase="count", pending="Infeasible")
    assert [size(one) for one in await scene.after(0)] == ["500m"]
    scene.see("500m", phase="count")
    (granted,) = await scene.after(1)
    assert told(granted)["cotide.dev/granted-phase"] == "count"
    assert "infeasible" in str(told(granted)["cotide.dev/phase-note"])


async def test_a_refusal_for_good_is_not_repeated_and_is_said() -> None:
    scene = Scene()
    scene.see("3")
    scene.fault = ApiError(422, "Invalid", "Pod QOS Class may not change", "PATCH")
    await scene.after(0)
    scene.fault = None
    (granted,) = await scene.after(1)
    assert "QOS" in str(told(granted)["cotide.dev/phase-note"])


async def test_pods_that_run_no_more_are_left_alone() -> None:
    scene = Scene()
    scene.see("3")
    pod = scene.mirror.pods["d/p"]
    scene.mirror.apply("pods", "DELETED", pod)
    assert await scene.after(0) == []
