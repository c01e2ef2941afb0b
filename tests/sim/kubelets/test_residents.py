import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from resident_world import ORIGIN, World, pod

from cotide_kube.objects import PodStatus
from cotide_kube.timestamps import format_timestamp
from cotide_sim.kubelets.actions import RemovePod, WriteStatus
from cotide_sim.kubelets.clock import SimulatedClock


def phases(actions):
    return [(action.key, action.status["phase"]) for action in actions if isinstance(action, WriteStatus)]


def test_a_bound_pod_runs_and_succeeds_after_its_lone_seconds():
    world = World()
    (started,) = world.see(pod())
    assert (started.key, started.uid) == ("d/a", "u-a")
    assert started.status["phase"] == "Running"
    assert {one["type"]: one["status"] for one in started.status["conditions"]}["Ready"] == "True"
    assert started.status["containerStatuses"][0]["state"] == {"running": {"startedAt": format_timestamp(ORIGIN)}}
    assert world.after(9.9) == []
    (ended,) = world.after(0.2)
    assert ended.status["phase"] == "Succeeded"
    state = ended.status["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (0, "Completed")
    assert state["finishedAt"] == format_timestamp(ORIGIN + 10)
    assert world.room.taken["cpu"] == 0


def test_times_are_written_on_the_wall_not_on_the_simulated_clock():
    world = World(speed=20.0)
    world.see(pod())
    (ended,) = world.after(10.0)
    # Ten simulated seconds at twenty times the speed are half a second of the wall.
    assert ended.status["containerStatuses"][0]["state"]["terminated"]["finishedAt"] == format_timestamp(ORIGIN + 0.5)


def test_a_pod_of_another_node_is_none_of_ours():
    world = World()
    assert world.see(pod(node="real-node"), pod(name="b", node="")) == []


def test_echoes_of_what_we_wrote_change_nothing():
    world = World()
    world.see(pod())
    running = pod(status={"phase": "Running", "startTime": format_timestamp(ORIGIN)})
    assert world.see(running, pod(), running) == []
    world.after(10.0)
    assert world.see(running, pod(status={"phase": "Succeeded"}), running) == []
    assert len(world.residents) == 0


def test_a_pod_that_does_not_fit_fails_in_the_kubelets_words():
    world = World()
    world.see(pod("a", cpu="3"))
    (refused,) = world.see(pod("b", cpu="2"))
    assert refused.status["phase"] == "Failed"
    assert refused.status["reason"] == "OutOfcpu"
    assert "requested: 2000, used: 3000, capacity: 4000" in refused.status["message"]
    assert world.see(pod("b", cpu="2")) == []
    world.after(10.0)
    assert phases(world.see(pod("c", cpu="4"))) == [("d/c", "Running")]


def test_a_failing_pod_fails_with_its_exit_code():
    world = World()
    world.see(pod(annotations={"sim.cotide.dev/exit-code": "3"}))
    (ended,) = world.after(10.0)
    assert ended.status["phase"] == "Failed"
    assert ended.status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_on_failure_a_container_is_started_again_after_a_growing_back_off():
    world = World()
    world.see(pod(annotations={"sim.cotide.dev/exit-code": "1"}, spec={"restartPolicy": "OnFailure"}))
    (waiting,) = world.after(10.0)
    status = waiting.status["containerStatuses"][0]
    assert waiting.status["phase"] == "Running"
    assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert (status["restartCount"], status["ready"]) == (1, False)
    assert world.after(9.9) == []
    (again,) = world.after(0.1)
    assert again.status["startTime"] == format_timestamp(ORIGIN)
    status = again.status["containerStatuses"][0]
    assert status["state"]["running"]["startedAt"] == format_timestamp(ORIGIN + 20)
    assert status["lastState"]["terminated"]["finishedAt"] == format_timestamp(ORIGIN + 10)
    assert len(world.after(10.0)) == 1
    # The second back-off is twice the first.
    assert world.after(19.9) == []
    assert len(world.after(0.1)) == 1


def test_on_failure_a_success_is_final():
    world = World()
    world.see(pod(spec={"restartPolicy": "OnFailure"}))
    assert phases(world.after(10.0)) == [("d/a", "Succeeded")]


def test_an_online_pod_runs_until_it_is_deleted():
    world = World()
    online = pod(
        metadata={"labels": {"cotide.dev/class": "online"}, "annotations": {}}, spec={"restartPolicy": "Always"}
    )
    world.see(online)
    assert world.after(1e6) == []
    assert len(world.residents) == 1


def test_a_deleted_pod_stops_within_a_second_says_so_and_is_then_let_go():
    world = World()
    world.see(pod())
    leaving = pod(metadata={"deletionTimestamp": format_timestamp(ORIGIN), "deletionGracePeriodSeconds": 30})
    assert world.see(leaving, leaving) == []
    assert world.room.taken["cpu"] == 1000
    killed, removed = world.after(1.0)
    assert phases([killed]) == [("d/a", "Failed")]
    assert removed == RemovePod("d/a", "u-a")
    assert world.room.taken["cpu"] == 0
    assert world.see(leaving) == []  # a finalizer keeps it in the API: there is nothing more to do


def test_a_deleted_pod_that_runs_again_by_its_policy_is_not_started_while_it_stops():
    world = World()
    world.see(pod(spec={"restartPolicy": "Always"}))
    world.after(9.5)
    world.see(pod(metadata={"deletionTimestamp": format_timestamp(ORIGIN), "deletionGracePeriodSeconds": 30}))
    assert phases(world.after(1.0)[:1]) == [("d/a", "Succeeded")]
    assert world.after(1e3) == []


def test_a_finished_pod_that_is_deleted_is_removed_at_once():
    world = World()
    world.see(pod())
    world.after(10.0)
    leaving = pod(metadata={"deletionTimestamp": format_timestamp(ORIGIN)}, status={"phase": "Succeeded"})
    assert world.see(leaving, leaving) == [RemovePod("d/a", "u-a")]


def test_a_pod_whose_work_is_done_while_it_is_stopping_has_succeeded():
    world = World()
    world.see(pod())
    world.after(9.5)
    world.see(pod(metadata={"deletionTimestamp": format_timestamp(ORIGIN), "deletionGracePeriodSeconds": 30}))
    done, removed = world.after(1.0)
    assert phases([done]) == [("d/a", "Succeeded")]
    assert removed == RemovePod("d/a", "u-a")


def test_a_pod_that_is_gone_frees_its_room_at_once():
    world = World()
    world.see(pod(cpu="4"))
    world.residents.vanish(pod(cpu="4"), world.now)
    assert phases(world.see(pod("b", cpu="4"))) == [("d/b", "Running")]


def test_a_new_pod_of_the_same_name_starts_from_nothing():
    world = World()
    world.see(pod())
    world.after(6.0)
    assert phases(world.see(pod(uid="second"))) == [("d/a", "Running")]
    assert world.after(6.0) == []
    (ended,) = world.after(4.0)
    assert (ended.uid, ended.status["phase"]) == ("second", "Succeeded")


def test_an_active_deadline_fails_the_pod():
    world = World()
    world.see(pod(spec={"activeDeadlineSeconds": 4}))
    (ended,) = world.after(4.0)
    assert (ended.status["phase"], ended.status["reason"]) == ("Failed", "DeadlineExceeded")


def test_a_running_pod_of_an_earlier_process_is_adopted_and_goes_on():
    world = World()
    before = pod(status={"phase": "Running", "startTime": format_timestamp(ORIGIN - 7), "podIP": "10.0.0.9"})
    assert world.see(before) == []
    assert world.room.taken["cpu"] == 1000
    assert world.after(2.9) == []
    (ended,) = world.after(0.1)
    assert ended.status["phase"] == "Succeeded"
    assert ended.status["startTime"] == format_timestamp(ORIGIN - 7)
    assert ended.status["podIP"] == "10.0.0.9"


def test_adoption_knows_the_start_more_exactly_than_the_api_writes_times():
    world = World()
    world.now += 0.75
    (started,) = world.see(pod())
    assert started.status["startTime"] == format_timestamp(ORIGIN)
    later = World()
    later.now += 5.0
    assert later.see(pod(status=started.status)) == []
    # Started at 0.75 and ten seconds long: it ends at 10.75.
    assert later.after(5.74) == []
    assert phases(later.after(0.02)) == [("d/a", "Succeeded")]


def test_an_adopted_pod_keeps_its_count_of_restarts():
    world = World()
    crashing = pod(annotations={"sim.cotide.dev/exit-code": "1"}, spec={"restartPolicy": "OnFailure"})
    world.see(crashing)
    world.after(10.0)
    (again,) = world.after(10.0)
    later = World()
    later.now += 25.0
    assert later.see(msgspec.structs.replace(crashing, status=msgspec.convert(again.status, PodStatus))) == []
    # Its second run began at 20 and ends at 30; the third begins after the second back-off of 20 s.
    (waiting,) = later.after(5.0)
    assert waiting.status["containerStatuses"][0]["restartCount"] == 2
    assert later.after(19.9) == []
    assert len(later.after(0.1)) == 1


def test_a_first_list_keeps_the_room_of_pods_that_run_before_it_admits_others():
    world = World()
    waiting = pod("a", cpu="2", metadata={"creationTimestamp": format_timestamp(ORIGIN - 50)})
    running = pod("z", cpu="3", status={"phase": "Running", "startTime": format_timestamp(ORIGIN - 1)})
    world.residents.observe_all([waiting, running], world.now)
    (refused,) = world.taken()
    assert (refused.key, refused.status["reason"]) == ("d/a", "OutOfcpu")


def test_a_node_that_is_deleted_takes_its_pods_with_it():
    world = World()
    world.see(pod("a"), pod("b"))
    world.residents.remove_node("n0", world.now)
    assert sorted(one.key for one in world.taken()) == ["d/a", "d/b"]
    assert world.see(pod("c")) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sim.cotide.dev/lone-seconds", "soon"),
        ("sim.cotide.dev/lone-seconds", "-1"),
        ("sim.cotide.dev/rates", "1,two"),
        ("sim.cotide.dev/rates-step-seconds", "0"),
        ("sim.cotide.dev/used-millicores", "800,-1"),
        ("cotide.dev/input-size", "big"),
        ("sim.cotide.dev/exit-code", "nan"),
    ],
)
def test_an_annotation_that_can_not_be_read_fails_the_pod_and_is_named(name, value):
    (refused,) = World().see(pod(annotations={name: value}))
    assert (refused.status["phase"], refused.status["reason"]) == ("Failed", "InvalidPod")
    assert name in refused.status["message"]


def test_a_start_time_that_is_no_time_fails_that_pod_only():
    world = World()
    (refused,) = world.see(pod(status={"phase": "Running", "startTime": "noon"}))
    assert refused.status["reason"] == "InvalidPod"
    assert "noon" in refused.status["message"]


def test_a_finite_pod_without_class_is_one_that_is_not_restarted():
    world = World()
    plain = pod(metadata={"labels": {}, "annotations": {}})
    world.see(plain)
    # No lone seconds and no type: thirty seconds.
    assert phases(world.after(30.0)) == [("d/a", "Succeeded")]


def test_a_busy_service_slows_batch_beside_it():
    world = World(cpu=2000)
    rates = {"sim.cotide.dev/rates": "150000"}
    online = pod("web", metadata={"labels": {"cotide.dev/class": "online"}, "annotations": rates})
    world.see(replace_spec(online, "Always"), pod("job", cpu="1"))
    alone = World(cpu=2000)
    alone.see(pod("job", cpu="1"))
    assert phases(alone.after(10.0)) == [("d/job", "Succeeded")]
    assert phases(world.after(10.0)) == []
    assert phases(world.after(200.0)) == [("d/job", "Succeeded")]


def test_an_online_pod_uses_what_its_annotation_says_and_not_what_it_asks_for():
    # It asks for two cores and uses 500 m rising to 1500 m in 20 s: 1000 m at 10 s, told of its own container.
    world = World()
    course = {"sim.cotide.dev/used-millicores": "500,1500", "sim.cotide.dev/rates-step-seconds": "20"}
    notes = {"labels": {"cotide.dev/class": "online"}, "annotations": course}
    world.see(replace_spec(pod("web", cpu="2", metadata=notes), "Always"))
    (used,) = world.park.pod_usage(ORIGIN + 10.0)
    assert (used.key, used.container, used.cpu_millicores) == ("d/web", "c", pytest.approx(1000.0))
    assert used.cpu_core_seconds == pytest.approx(7.5)


def replace_spec(found, restart_policy):
    spec = msgspec.structs.replace(found.spec, restart_policy=restart_policy)
    return msgspec.structs.replace(found, spec=spec)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["bind", "delete", "gone", "time"]), st.integers(0, 5), st.integers(1, 3), st.floats(0.1, 20.0)
    ),
    max_size=40,
)


@given(STEPS)
def test_the_room_taken_is_always_that_of_the_residents(steps):
    world = World()
    current = {}
    for count, (what, number, cpu, seconds) in enumerate(steps):
        name = f"p{number}"
        if what == "bind" and name not in current:
            current[name] = pod(name, cpu=str(cpu), uid=f"u{count}")
            world.see(current[name])
        elif what == "delete" and name in current:
            metadata = msgspec.structs.replace(current[name].metadata, deletion_timestamp=format_timestamp(ORIGIN))
            world.see(msgspec.structs.replace(current[name], metadata=metadata))
        elif what == "gone" and name in current:
            world.residents.vanish(current.pop(name), world.now)
        else:
            world.after(seconds)
        held = world.residents._residents.values()
        assert world.room.taken["cpu"] == sum(one.requests["cpu"] for one in held) <= 4000
        assert world.room.taken["pods"] == len(world.residents)


def test_a_clock_that_is_set_back_does_not_run_back():
    wall = [ORIGIN]
    clock = SimulatedClock(ORIGIN, 2.0, wall=lambda: wall[0])
    wall[0] += 10
    assert clock.now() == ORIGIN + 20
    wall[0] -= 5
    assert clock.now() == ORIGIN + 20
    assert clock.wait_seconds(ORIGIN + 30) == 10.0
