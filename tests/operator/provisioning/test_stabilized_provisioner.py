"""The window of `scaleDownStabilizationSeconds`: nodes are let go when they were not wanted for so long."""

from __future__ import annotations

from provisioner_scene import Scene

from cotide_core.consolidation.removal.watching import Mark


async def falls(section: dict[str, float]) -> list[int]:
    """Return how many nodes may go, minute after minute: two are wanted, then three pods of four are gone."""
    scene, left = Scene(section={**section, "intervalSeconds": 60}), []
    scene.has("n", "m")
    scene.runs(6)
    for minute in range(5):
        if minute == 1:
            for key in list(scene.pods)[1:]:
                del scene.pods[key]
        await scene.look()
        left.append(scene.provisioner.allowed().left["a"])
        assert scene.asked == []
    assert scene.wanted("pods") + scene.wanted("forecast") + scene.wanted("kept") == 2 - left[-1]
    return left


async def test_without_a_window_what_is_not_wanted_may_go_at_once() -> None:
    assert await falls({}) == [0, 1, 1, 1, 1]


async def test_within_the_window_it_is_kept_and_shown_as_kept() -> None:
    assert await falls({"scaleDownStabilizationSeconds": 180}) == [0, 0, 0, 1, 1]
    assert await falls({"scaleDownStabilizationSeconds": 3600}) == [0] * 5


async def test_no_node_is_started_for_what_was_wanted_before() -> None:
    """A node vanishes while it is wanted by the window alone."""
    scene = Scene(section={"scaleDownStabilizationSeconds": 3600, "intervalSeconds": 60})
    scene.has("n", "m")
    scene.runs(6)
    await scene.look()
    for key in list(scene.pods)[1:]:
        del scene.pods[key]
    await scene.look()
    scene.cache.apply("nodes", "DELETED", scene.cache.nodes["m"])
    await scene.look(3)
    assert scene.asked == []
    assert scene.provisioner.allowed().left == {"a": 0}


async def left_after_a_restart(section: dict[str, float], **marks: Mark) -> list[int]:
    """Return how many nodes may go, minute after minute: one is wanted, as it was not before the operator started."""
    scene, left = Scene(section={**section, "intervalSeconds": 60}), []
    scene.has("n", "m", **marks)
    scene.runs(2)
    for _ in range(4):
        await scene.look()
        left.append(scene.provisioner.allowed().left["a"])
    assert not any(what == "give back" for what, _ in scene.frees.did)
    return left


async def test_who_takes_over_lets_nothing_go_that_may_have_been_wanted_within_the_window() -> None:
    assert await left_after_a_restart({"scaleDownStabilizationSeconds": 120}) == [0, 0, 1, 1]


async def test_what_the_one_before_had_freed_is_not_taken_back() -> None:
    """Two are open, and the third was let go when the window was over."""
    section = {"scaleDownStabilizationSeconds": 3600}
    assert await left_after_a_restart(section, z=Mark.FREED) == [0] * 4


async def test_without_a_window_a_restart_keeps_nothing() -> None:
    assert await left_after_a_restart({}) == [1] * 4
