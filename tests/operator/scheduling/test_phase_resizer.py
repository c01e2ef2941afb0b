"""The resizer against kubelets that put off or refuse, and servers that do not answer."""

from __future__ import annotations

from phased_scene import ENDS, GRANTED, LARGE, NOTE, SINCE, SMALL, START, Scene, annotations_of, size

from cotide_core.errors import ClusterError
from cotide_core.phases.growth import PAUSE_SECONDS
from cotide_core.phases.progress import CLOCKS_APART_SECONDS, READINGS_TO_MOVE, SETTLED_SECONDS, UNSEEN_SECONDS, Usage
from cotide_kube.answers import ApiError
from cotide_kube.timestamps import format_micro_timestamp
from cotide_operator.scheduling.phase_resizer import ECHO_SECONDS, GRANTED_ANYWAY_SECONDS, REFUSED_SECONDS


async def test_a_phase_is_granted_when_its_kubelet_has_set_its_size_and_not_before() -> None:
    scene = Scene()
    scene.see("500m", phase="count")
    assert [size(one) for one in await scene.after(0)] == ["3"]
    assert await scene.after(1) == []  # the answer is on its way
    scene.see("3", "500m", phase="count")
    assert await scene.after(1) == []
    scene.see("3", phase="count")
    (patch,) = await scene.after(1)
    assert annotations_of(patch) == {GRANTED: "count", SINCE: "1970-01-12T13:46:43.000000Z", ENDS: None, NOTE: None}
    assert await scene.after(1) == []  # its echo is on the way
    scene.see("3", phase="count", notes={GRANTED: "count"})
    assert await scene.after(1) == []


async def test_a_phase_that_needs_less_goes_on_at_once_and_gives_back_what_it_needs_no_longer() -> None:
    scene = Scene()
    scene.see("3")
    grant, asked = await scene.after(0)
    assert (annotations_of(grant)[GRANTED], size(asked)) == ("read", "500m")
    scene.see("500m", "3", notes={GRANTED: "read"})
    assert await scene.after(1) == []


async def test_a_container_that_is_given_less_in_a_moment_does_not_have_enough_now() -> None:
    scene = Scene(room=1000)
    scene.see("500m", phase="count")
    assert [size(one) for one in await scene.after(0)] == ["10m"]
    scene.see("500m", phase="read")  # it went back, and the 10m that were asked for are not seen yet
    assert await scene.after(1) == []
    scene.see("10m", "500m", phase="read")
    assert [size(one) for one in await scene.after(1)] == ["500m"]


async def test_a_phase_waits_for_its_kubelet_while_that_sets_a_size_that_was_asked_for_earlier() -> None:
    middle = {"name": "sort", "resources": {"cpu": "2"}}
    scene = Scene(4000, LARGE, SMALL, middle)
    scene.see("500m", "3", phase="sort")  # its kubelet has heard of 500m
    assert [size(one) for one in await scene.after(0)] == ["2"]
    scene.see("2", "3", phase="sort")  # and may be setting it still
    assert await scene.after(1) == []
    scene.see("2", "500m", phase="sort")
    assert await scene.after(1) == []
    scene.see("2", phase="sort")
    (patch,) = await scene.after(1)
    assert annotations_of(patch)[GRANTED] == "sort"


async def test_the_engine_hears_of_a_size_before_it_is_asked_for_and_when_it_is_settled() -> None:
    scene = Scene()
    scene.see("500m", phase="count")
    scene.fault = ClusterError("no answer")
    await scene.after(0)
    assert scene.expected == [(3000, 0)]  # it may have been heard all the same
    scene.fault = None
    scene.see("3", phase="count")
    await scene.after(1)
    assert scene.expected == [(3000, 0), None]


async def test_a_kubelet_that_has_told_nothing_yet_has_set_nothing() -> None:
    scene = Scene()
    scene.see("500m", has_statuses=False)
    assert await scene.after(0) == []
    scene.see("500m")
    assert [annotations_of(one)[GRANTED] for one in await scene.after(1)] == ["read"]


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
    assert annotations_of(granted)[GRANTED] == "count"
    assert "no room" in str(annotations_of(granted)[NOTE])


async def test_an_infeasible_wish_is_taken_back_and_the_phase_granted_with_the_reason() -> None:
    scene = Scene()
    scene.see("3", "500m", phase="count", pending="Infeasible")
    assert [size(one) for one in await scene.after(0)] == ["500m"]
    scene.see("500m", phase="count")
    (granted,) = await scene.after(1)
    assert annotations_of(granted)[GRANTED] == "count"
    assert "infeasible" in str(annotations_of(granted)[NOTE])


async def test_an_infeasible_wish_whose_taking_back_was_lost_is_taken_back_again() -> None:
    scene = Scene()
    scene.see("3", "500m", phase="count", pending="Infeasible")
    scene.fault = ClusterError("no answer")
    await scene.after(0)
    scene.fault = None
    assert [size(one) for one in await scene.after(ECHO_SECONDS)] == ["500m"]
    assert (scene.counted("unanswered"), scene.counted("infeasible")) == (1, 1)


async def test_after_an_infeasible_phase_the_next_one_is_sized_again() -> None:
    scene = Scene()
    scene.see("3", "500m", phase="count", pending="Infeasible")
    await scene.after(0)
    scene.see("500m", phase="read", pending="Infeasible")  # its kubelet has not looked yet
    assert await scene.after(1) == []
    scene.see("500m", phase="read")
    (granted,) = await scene.after(1)
    assert (annotations_of(granted)[GRANTED], annotations_of(granted)[NOTE]) == ("read", None)


async def test_a_refusal_is_said_and_asked_for_again_after_pauses_that_double() -> None:
    scene = Scene()
    scene.see("10m", phase="count")  # held small when a quota was used up
    scene.fault = ApiError(403, "Forbidden", "exceeded quota: q", "PATCH")
    await scene.after(0)
    scene.fault = None
    (granted,) = await scene.after(1)
    assert "stays at 10m of cpu" in str(annotations_of(granted)[NOTE])
    assert "quota" in str(annotations_of(granted)[NOTE])
    notes = {name: value for name, value in annotations_of(granted).items() if value is not None}
    scene.see("10m", phase="count", notes=notes)
    assert await scene.after(REFUSED_SECONDS - 2) == []
    scene.fault = ApiError(403, "Forbidden", "exceeded quota: q", "PATCH")
    await scene.after(2)
    scene.fault = None
    assert await scene.after(2 * REFUSED_SECONDS - 1) == []
    ((subresource, _),) = await scene.after(1)
    assert subresource == "resize"


async def test_pods_that_run_no_more_are_left_alone() -> None:
    scene = Scene()
    scene.see("3")
    pod = scene.cache.pods["d/p"]
    scene.cache.apply("pods", "DELETED", pod)
    assert await scene.after(0) == []


async def test_work_that_says_nothing_goes_on_when_the_stated_seconds_are_over_and_they_are_scored() -> None:
    scene = Scene(4000, {**SMALL, "seconds": 60}, LARGE)
    notes = await scene.granted("500m")
    assert notes == {GRANTED: "read", SINCE: "1970-01-12T13:46:41.000000Z", ENDS: "1970-01-12T13:47:41.000000Z"}
    assert await scene.after(59) == []
    assert [size(one) for one in await scene.after(1)] == ["3"]
    assert scene.metrics.registry.get_sample_value("cotide_phase_length_ratio_sum") == 1.0


async def test_a_new_operator_goes_on_where_the_last_one_left_a_phase() -> None:
    scene = Scene(4000, {**SMALL, "seconds": 60}, LARGE)
    await scene.granted("500m")
    await scene.after(40)
    scene.restart()
    assert await scene.after(19) == []
    assert [size(one) for one in await scene.after(1)] == ["3"]


async def test_a_container_that_begins_anew_begins_with_the_first_phase() -> None:
    scene = Scene(4000, SMALL, LARGE)
    scene.see("3", notes={GRANTED: "count", SINCE: "1970-01-12T13:46:40Z"})
    assert await scene.after(0) == []
    scene.see("3", notes={GRANTED: "count", SINCE: "1970-01-12T13:46:40Z"}, restarts=1)
    grant, asked = await scene.after(1)
    assert (annotations_of(grant)[GRANTED], size(asked)) == ("read", "500m")


async def test_work_that_says_its_phase_is_believed_whatever_the_clock_says() -> None:
    scene = Scene(4000, {**SMALL, "seconds": 60}, LARGE)
    scene.see("500m", phase="read")
    await scene.after(0)
    scene.see("500m", phase="read", notes={GRANTED: "read"})
    assert await scene.after(600) == []


async def test_a_pod_that_is_no_longer_ready_wants_its_next_phase() -> None:
    scene = Scene(4000, {**SMALL, "seconds": 60}, LARGE)
    scene.see("500m", ready=(False, START - 10))  # its file says "read", and nothing is granted yet
    (granted,) = await scene.after(0)
    notes = {GRANTED: str(annotations_of(granted)[GRANTED])}
    scene.see("500m", ready=(False, START - 10), notes=notes)  # its kubelet has not shown it the grant
    assert await scene.after(10) == []
    scene.see("500m", ready=(True, START + 11), notes=notes)
    assert await scene.after(600) == []  # it is believed, whatever the clock says
    scene.see("500m", ready=(False, START + 700), notes=notes)
    assert [size(one) for one in await scene.after(1)] == ["3"]
    scene.see("3", ready=(False, START + 700), notes=notes)
    (granted,) = await scene.after(1)
    assert annotations_of(granted)[GRANTED] == "count"


async def test_a_new_operator_takes_readiness_that_ended_after_the_grant_for_the_next_phase() -> None:
    notes = {GRANTED: "read", SINCE: format_micro_timestamp(START)}
    for ended, sizes in ((START + CLOCKS_APART_SECONDS - 1, []), (START + CLOCKS_APART_SECONDS + 1, ["3"])):
        scene = Scene()
        scene.see("500m", ready=(False, ended), notes=notes)
        assert [size(one) for one in await scene.after(20)] == sizes


async def test_a_phase_that_was_over_before_the_probe_looked_ends_all_the_same() -> None:
    scene = Scene()
    notes = {GRANTED: "read", SINCE: format_micro_timestamp(START)}
    scene.see("500m", ready=(False, START - 10), notes=notes)
    assert await scene.after(UNSEEN_SECONDS - 1) == []
    assert [size(one) for one in await scene.after(1)] == ["3"]


async def test_a_container_that_does_not_run_says_nothing_by_not_being_ready() -> None:
    scene = Scene()
    notes = {GRANTED: "read", SINCE: format_micro_timestamp(START)}
    scene.see("500m", ready=(True, START), notes=notes)
    await scene.after(0)
    scene.see("500m", ready=(False, START + 60), notes=notes, state={"waiting": {"reason": "CrashLoopBackOff"}})
    assert await scene.after(60) == []


async def test_readiness_without_a_probe_is_passed_over_and_said() -> None:
    scene = Scene()
    scene.see("500m", ready=(True, START), probe=False)
    (granted,) = await scene.after(0)
    assert "has no readinessProbe" in str(annotations_of(granted)[NOTE])


async def test_a_phase_is_seen_from_usage() -> None:
    scene = Scene()
    await scene.granted("500m")
    for _ in range(READINGS_TO_MOVE - 1):
        scene.usage = Usage(2000, 0, scene.clock.wall + SETTLED_SECONDS)
        assert await scene.after(SETTLED_SECONDS) == []
    scene.usage = Usage(2000, 0, scene.clock.wall + SETTLED_SECONDS)
    assert [size(one) for one in await scene.after(SETTLED_SECONDS)] == ["3"]


async def test_memory_that_no_later_phase_needs_is_given_back_once_it_is_free() -> None:
    sort = {"name": "sort", "resources": {"cpu": "500m", "memory": "2Gi"}}
    write = {"name": "write", "resources": {"cpu": "500m", "memory": "1Gi"}}
    scene = Scene(4000, sort, write)
    scene.see("500m", phase="write", memory="2Gi")
    (granted,) = await scene.after(0)  # nobody measured it: it keeps its memory, and may go on
    assert annotations_of(granted)[GRANTED] == "write"
    scene.see("500m", phase="write", memory="2Gi", notes={GRANTED: "write"})
    scene.usage = Usage(100, 0.5 * 2**30, scene.clock.wall)
    (patch,) = await scene.after(1)
    assert patch[1]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}
