"""A size that a kubelet is about to set: until it was seen, what a container holds may be less in a moment."""

from __future__ import annotations

from phased_scene import GRANTED, Scene, annotations_of, size

from cotide_operator.scheduling.phase_resizer import ECHO_SECONDS

PHASES = (
    {"name": "read", "resources": {"cpu": "500m"}},
    {"name": "wait", "resources": {"cpu": "200m"}},
    {"name": "write", "resources": {"cpu": "500m"}},
)


async def shrinking() -> Scene:
    """A pod that was to have 200 and wants 500 again, before its kubelet told of either."""
    scene = Scene(4000, *PHASES)
    scene.see("200m", "500m", phase="write", notes={GRANTED: "wait"})
    assert [size(one) for one in await scene.after(0)] == ["500m"]
    scene.see("500m", phase="write", notes={GRANTED: "wait"})  # what it asks for, and what its kubelet has set, is 500
    return scene


async def test_a_phase_is_not_granted_while_a_kubelet_may_be_about_to_set_less() -> None:
    scene = await shrinking()
    assert await scene.after(0.1) == []
    scene.see("500m", "200m", phase="write", notes={GRANTED: "wait"})  # as it had been told
    assert await scene.after(0.1) == []
    scene.see("500m", phase="write", notes={GRANTED: "wait"})
    (patch,) = await scene.after(0.1)
    assert annotations_of(patch)[GRANTED] == "write"


async def test_a_smaller_size_that_is_never_set_holds_up_a_phase_for_the_time_of_an_echo() -> None:
    scene = await shrinking()
    assert await scene.after(ECHO_SECONDS - 0.1) == []
    (patch,) = await scene.after(0.2)
    assert annotations_of(patch)[GRANTED] == "write"


async def test_an_operator_that_comes_later_waits_for_what_an_earlier_one_may_have_asked_for() -> None:
    scene = await shrinking()
    scene.restart()
    assert await scene.after(0) == []
    assert await scene.after(ECHO_SECONDS - 0.1) == []
    (patch,) = await scene.after(0.2)
    assert annotations_of(patch)[GRANTED] == "write"


async def test_a_kubelet_that_tells_which_spec_it_has_taken_in_is_waited_for_by_that_and_not_by_time() -> None:
    scene = Scene(4000, *PHASES)
    scene.see("500m", phase="write", notes={GRANTED: "wait"}, generation=3, observed=2)
    assert await scene.after(0) == []
    assert await scene.after(2 * ECHO_SECONDS) == []
    scene.see("500m", phase="write", notes={GRANTED: "wait"}, generation=3, observed=3)
    (patch,) = await scene.after(0)
    assert annotations_of(patch)[GRANTED] == "write"
