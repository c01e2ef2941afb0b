"""How many phased pods are looked at, when, and what one of them can spoil."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from phased_scene import GRANTED, Scene, annotations_of, size

from cotide_kube.answers import ApiError
from cotide_operator.scheduling import phase_resizer
from cotide_operator.scheduling.phase_resizer import REFUSED_SECONDS, WRITES_AT_ONCE


def five_pods(cpu: str) -> Scene:
    scene = Scene()
    for number in range(5):
        scene.see(cpu, name=f"p{number}")
    return scene


async def test_a_pod_at_which_the_resizer_fails_is_quarantined_and_the_others_go_on() -> None:
    scene = Scene()
    for name in ("p", "q"):
        scene.see("2", name=name)
    scene.trips = {"d/p"}
    assert [size(one) for one in await scene.after(0) if one[0] == "resize"] == ["500m"]  # of q
    aside = scene.cache.quarantine.get("pods", "d/p")
    assert aside is not None
    assert "phases" in aside.part
    assert len(scene.cache.quarantine) == 1


async def test_of_very_many_pods_some_are_looked_at_in_each_cycle_and_all_of_them_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(phase_resizer, "EXAMINED_AT_ONCE", 2)
    scene = five_pods("2")
    sizes = []
    while scene.resizer.wants():
        before = len(scene.patches)
        scene.resizer.take_room()
        await scene.resizer.written()
        sizes.append(len([patch for patch in scene.patches[before:] if patch[0] == "resize"]))
    assert sizes == [2, 2, 1]


async def test_waiting_pods_of_one_tenant_on_a_node_where_something_always_changes_hold_up_no_other_tenants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(phase_resizer, "EXAMINED_AT_ONCE", 2)
    scene = Scene(room=0)
    scene.see_job("e")
    for number in range(5):
        scene.see("500m", phase="count", name=f"p{number}")
    while scene.resizer.wants():
        scene.resizer.take_room()
    scene.see("500m", name="q", namespace="e")
    for _ in range(3):
        scene.see("500m", phase="count", name="p0")
        scene.resizer.take_room()
        await scene.resizer.written()
    assert "q" in scene.tried


async def test_where_nothing_changes_a_bounded_number_of_pods_is_looked_at_each_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(phase_resizer, "EXAMINED_A_PERIOD", 2)
    scene = five_pods("500m")
    await scene.after(0)
    examined = []
    for _ in range(3):
        scene.resizer.look_at_some()
        examined.append([key for key in scene.cache.pods if key in scene.resizer._touched])
        scene.resizer.take_room()
    assert examined == [["d/p0", "d/p1"], ["d/p2", "d/p3"], ["d/p4"]]


async def test_annotations_that_are_refused_hold_up_no_size_and_are_written_again_after_pauses() -> None:
    scene = Scene()
    scene.see("3")
    scene.refused = {"p": ApiError(422, "Invalid", "metadata.annotations: Too long", "PATCH")}
    assert [size(one) for one in await scene.after(0)] == ["500m"]
    assert not scene.resizer.wants()  # no change of the pod, and no time that passed, is a reason to look again
    scene.see("500m")
    assert await scene.after(REFUSED_SECONDS - 1) == []
    scene.refused = {}
    assert [annotations_of(one)[GRANTED] for one in await scene.after(1)] == ["read"]


async def test_a_refused_size_whose_note_is_refused_too_costs_no_more_requests_than_the_pauses_allow() -> None:
    scene = Scene()
    scene.see("500m", phase="count")
    scene.refused = {part: ApiError(403, "Forbidden", "by policy", "PATCH") for part in ("p", "resize")}
    await scene.after(0)
    for _ in range(10):
        scene.resizer.take_room()
        await scene.resizer.written()
    assert scene.tried == ["resize", "p"]


class OneWithoutAnswers(Scene):
    """No patch of a pod in namespace d is answered."""

    async def patch(self, path: str, body: Any, kind: str = "merge") -> None:
        if path.startswith("/api/v1/namespaces/d/"):
            await asyncio.Event().wait()
        await super().patch(path, body, kind)


async def test_a_tenant_whose_many_pods_get_no_answer_holds_up_no_other_tenants_phase() -> None:
    scene = OneWithoutAnswers()
    scene.see_job("e")
    for number in range(3 * WRITES_AT_ONCE):
        scene.see("2", name=f"p{number}")
    scene.see("2", name="q", namespace="e")
    scene.resizer.take_room()
    for _ in range(10):
        await asyncio.sleep(0)
    assert [size(patch) for patch in scene.patches if patch[0] == "resize"] == ["500m"]
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await scene.resizer.written()
