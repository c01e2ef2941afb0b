"""How many phased pods are looked at, when, and what one of them can spoil."""

from __future__ import annotations

import pytest
from phased_scene import Scene, size

from cotide_operator.scheduling import phase_resizer


def five_pods(cpu: str) -> Scene:
    scene = Scene()
    for number in range(5):
        scene.see(cpu, name=f"p{number}")
    return scene


async def test_a_pod_at_which_the_resizer_fails_is_set_aside_and_the_others_go_on() -> None:
    scene = Scene()
    for name in ("p", "q"):
        scene.see("2", name=name)
    scene.trips = {"d/p"}
    assert [size(one) for one in await scene.after(0) if one[0] == "resize"] == ["500m"]  # of q
    aside = scene.mirror.quarantine.get("pods", "d/p")
    assert aside is not None
    assert "phases" in aside.part
    assert len(scene.mirror.quarantine) == 1


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
        sizes.append(len([one for one in scene.patches[before:] if one[0] == "resize"]))
    assert sizes == [2, 2, 1]


async def test_where_nothing_changes_a_bounded_number_of_pods_is_looked_at_each_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(phase_resizer, "EXAMINED_A_PERIOD", 2)
    scene = five_pods("500m")
    await scene.after(0)
    examined = []
    for _ in range(3):
        scene.resizer.look_at_some()
        examined.append(sorted(scene.resizer._touched))
        scene.resizer.take_room()
    assert examined == [["d/p0", "d/p1"], ["d/p2", "d/p3"], ["d/p4"]]
