"""Simulated machines: progress under changing speed, nothing lost and nothing worked twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_sim.cluster.machine import STEP_SECONDS, MachinePark, PodLoad
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.workloads.rates import Course, rate_at


class PlainInterference:
    """A job beside a service runs at half speed, neighbours cost nothing; a core takes 1000 requests/s."""

    types = ("work",)
    saturation_requests_per_second = 1000.0

    def p95_milliseconds(self, mixes):
        return mixes.requests_per_second / 100.0 + mixes.cpu_pressure

    def slowdown(self, types, requests_per_second, cpu_pressure):
        del types, cpu_pressure
        return np.where(np.asarray(requests_per_second) > 0, 2.0, 1.0)

    def isolated_seconds(self, types, input_bytes):
        return np.array(
            [size / 1e9 if name == "work" else np.nan for name, size in zip(types, input_bytes, strict=True)]
        )

    def to_json(self):
        return "{}"


def job_load(key="job", seconds: float | None = 10.0, millicores=1000, **more) -> PodLoad:
    return PodLoad(key, WorkloadClass.BATCH, millicores, 1 << 30, isolated_seconds=seconds, **more)


def service(key="web", rates=(500.0,), **more) -> PodLoad:
    return PodLoad(key, WorkloadClass.ONLINE, 1000, 1 << 30, rates=tuple(rates), **more)


def park(millicores=2000, interference=None, **more) -> MachinePark:
    machines = MachinePark(interference or PlainInterference(), **more)
    machines.add_node("node", millicores, 8 << 30)
    return machines


def test_a_job_alone_takes_its_lone_seconds():
    machines = park()
    machines.start_pod("node", job_load(seconds=10.0), 100.0)
    assert machines.next_finish() == 110.0
    assert [(f.key, f.at_seconds) for f in machines.advance(200.0)] == [("job", 110.0)]
    assert machines.next_finish() is None


def test_a_service_on_one_of_two_cores_slows_a_job_to_three_quarters():
    # q = 1 of 2 cores is the service's; there the job runs at 1/2, elsewhere at 1: 0.5 + 0.5 / 2 = 0.75.
    machines = park()
    machines.start_pod("node", service(), 0.0)
    machines.start_pod("node", job_load(seconds=7.5), 0.0)
    assert machines.advance(100.0)[0].at_seconds == pytest.approx(10.0)


def test_progress_adds_up_when_the_speed_changes():
    # 4 s alone at speed 1 leave 6 of 10; then 4 s beside a service at 0.75 leave 3; then alone again: 3 s. 11 in all.
    machines = park()
    machines.start_pod("node", job_load(seconds=10.0), 0.0)
    machines.start_pod("node", service(), 4.0)
    assert machines.remaining_lone_seconds("job") == pytest.approx(6.0)
    machines.stop_pod("web", 8.0)
    assert machines.remaining_lone_seconds("job") == pytest.approx(3.0)
    assert machines.advance(100.0)[0].at_seconds == pytest.approx(11.0)


def test_cpu_asked_for_beyond_capacity_slows_all_jobs_in_proportion():
    # 4 jobs of one core on two cores: each gets half, so 10 s take 20.
    machines = park()
    for number in range(4):
        machines.start_pod("node", job_load(f"job-{number}"), 0.0)
    assert {f.at_seconds for f in machines.advance(100.0)} == {20.0}


def test_a_finish_speeds_up_those_that_stay():
    # Three jobs of one core on two cores run at 2/3. The short one (2 s) ends at 3; the others have worked 2 of 10
    # and go on at full speed: 3 + 8 = 11.
    machines = park()
    for key, seconds in (("short", 2.0), ("a", 10.0), ("b", 10.0)):
        machines.start_pod("node", job_load(key, seconds), 0.0)
    finished = [(f.key, round(f.at_seconds, 9)) for f in machines.advance(100.0)]
    assert finished == [("short", 3.0), ("a", 11.0), ("b", 11.0)]


def test_a_job_without_work_ends_at_the_moment_at_which_it_starts():
    machines = park()
    machines.advance(50.0)
    machines.start_pod("node", job_load("nothing", seconds=0.0), 50.0)
    machines.start_pod("node", job_load("something", seconds=5.0), 50.0)
    assert machines.next_finish() == 50.0
    assert [(f.key, f.at_seconds) for f in machines.advance(50.0)] == [("nothing", 50.0)]
    assert machines.next_finish() == 55.0


def test_run_time_comes_from_the_type_or_the_default():
    machines = park(8000)
    machines.start_pod("node", job_load("typed", None, type="work", input_bytes=5_000_000_000), 0.0)
    machines.start_pod("node", job_load("unknown", None, type="other"), 0.0)
    assert [(f.key, f.at_seconds) for f in machines.advance(100.0)] == [("typed", 5.0), ("unknown", 30.0)]


def test_online_pods_never_finish_and_exit_codes_are_kept():
    machines = park()
    machines.start_pod("node", service(isolated_seconds=1.0), 0.0)
    machines.start_pod("node", job_load(exit_code=3), 0.0)
    assert [(f.key, f.exit_code) for f in machines.advance(1e5)] == [("job", 3)]
    assert machines.service_samples(1e5)[0].key == "web"


def test_samples_show_rate_and_latency_of_the_moment():
    machines = park()
    machines.start_pod("node", service(rates=(100.0, 300.0), rates_step_seconds=10.0), 0.0)
    machines.start_pod("node", job_load(millicores=500, seconds=1e6), 0.0)
    sample = machines.service_samples(5.0)[0]
    # Half way from 100 to 300; latency 200 / 100 + 500 / 2000.
    assert (sample.requests_per_second, sample.latency_p95_milliseconds) == (200.0, 2.25)


def test_usage_is_the_service_s_rate_plus_what_jobs_ask_for_up_to_capacity():
    machines = park()
    machines.start_pod("node", service(rates=(500.0,)), 0.0)
    machines.start_pod("node", job_load(millicores=500, seconds=1e6), 0.0)
    usage = machines.node_usage(1.0)[0]
    assert (usage.cpu_millicores, usage.memory_bytes) == (1000.0, 2 << 30)
    machines.start_pod("node", job_load("more", millicores=2000, seconds=1e6), 1.0)
    assert machines.node_usage(1.0)[0].cpu_millicores == 2000.0


def test_the_same_pod_started_twice_runs_once():
    machines = park()
    machines.start_pod("node", job_load(seconds=10.0), 0.0)
    machines.start_pod("node", job_load(seconds=10.0), 5.0)
    assert [f.at_seconds for f in machines.advance(100.0)] == [10.0]


def test_a_removed_node_takes_its_pods_with_it():
    machines = park()
    machines.start_pod("node", job_load(), 0.0)
    assert machines.remove_node("node") == ("job",)
    assert machines.next_finish() is None
    assert machines.advance(100.0) == []
    assert not machines.stop_pod("job", 100.0)


def test_noise_is_seeded_and_off_by_default():
    def latency(**more):
        machines = park(**more)
        machines.start_pod("node", service(), 0.0)
        return machines.service_samples(1.0)[0].latency_p95_milliseconds

    assert latency() == 5.0
    assert latency(noise=0.2, seed=1) == latency(noise=0.2, seed=1) != latency(noise=0.2, seed=2)


starts = st.lists(
    st.tuples(st.floats(0, 50), st.floats(0.1, 40), st.integers(1, 30), st.integers(0, 1)), min_size=1, max_size=12
)


@settings(max_examples=60, deadline=None)
@given(starts, st.lists(st.floats(0, 400), max_size=25))
def test_what_happens_does_not_depend_on_how_often_time_is_advanced(jobs, moments):
    def finishes(moments):
        machines = park(4000, GeneratedInterference())
        machines.add_node("other", 8000, 8 << 30)
        machines.start_pod("node", service(rates=(20e3, 120e3, 60e3), rates_step_seconds=20.0), 0.0)
        done = []
        todo = sorted(
            [(at, number, job_load(f"job-{number}", seconds, 100 * hundreds), ("node", "other")[where])
             for number, (at, seconds, hundreds, where) in enumerate(jobs)],
            key=lambda entry: entry[:2],
        )  # fmt: skip
        for moment in sorted([*moments, 5000.0]):
            while todo and todo[0][0] <= moment:
                at, _, load, node = todo.pop(0)
                done += machines.advance(at)
                machines.start_pod(node, load, at)
            done += machines.advance(moment)
        return {f.key: f.at_seconds for f in done}

    few, many = finishes([]), finishes(moments)
    assert few.keys() == many.keys() == {f"job-{number}" for number in range(len(jobs))}
    assert all(many[key] == pytest.approx(at, abs=1e-6) for key, at in few.items())


@settings(max_examples=60, deadline=None)
@given(starts)
def test_each_job_works_off_its_lone_seconds_exactly_once(jobs):
    """Sum the work seen in small slices of time: it must come to the lone seconds, no more and no less."""
    machines = park(4000, GeneratedInterference())
    machines.start_pod("node", service(rates=(20e3, 120e3), rates_step_seconds=20.0), 0.0)
    lone = {f"job-{number}": seconds for number, (_, seconds, _, _) in enumerate(jobs)}
    for number, (_, seconds, hundreds, _) in enumerate(jobs):
        machines.start_pod("node", job_load(f"job-{number}", seconds, 100 * hundreds), 0.0)
    left, worked, finished = dict(lone), dict.fromkeys(lone, 0.0), set()
    now = 0.0
    while left:
        now += STEP_SECONDS / 2
        finished |= {f.key for f in machines.advance(now)}
        for key in list(left):
            rest = machines.remaining_lone_seconds(key)
            assert (rest is None) == (key in finished)
            assert (rest or 0.0) <= left[key] + 1e-9
            worked[key] += left[key] - (rest or 0.0)
            left[key] = rest or 0.0
            if rest is None:
                del left[key]
    assert worked == pytest.approx(lone)


def test_rates_are_linear_between_steps_and_start_again():
    rates = (100.0, 200.0, 400.0)
    assert [rate_at(rates, 10.0, at) for at in (0, 5, 10, 15, 25, 30, 35)] == [100, 150, 200, 300, 250, 100, 150]
    assert rate_at(rates, 10.0, -5.0) == 250.0
    assert rate_at((), 10.0, 3.0) == 0.0
    assert rate_at((7.0,), 10.0, 123.4) == 7.0


def test_request_rates_are_read_anew_at_every_step():
    # The rate is 0 at 0, 20, 40 and above 0 between, read every 5 s: speed 1 in 0-5, .75 in 5-20, 1 in 20-25, then .75.
    # 5 + 15 x .75 + 5 + 10 x .75 = 28.75 lone seconds are worked by 35.
    machines = park()
    machines.start_pod("node", service(rates=(0.0, 600.0), rates_step_seconds=10.0), 0.0)
    machines.start_pod("node", job_load(seconds=28.75), 0.0)
    assert machines.advance(100.0)[0].at_seconds == pytest.approx(35.0)


def test_the_area_under_a_course_is_exact_wherever_it_begins():
    # 100 -> 200 in 10 s is 1500, back to 100 again 1500; 5 s on from the first step: 100 -> 150 is 625.
    course = Course((100.0, 200.0), 10.0)
    assert [course.area(0.0, at) for at in (5.0, 10.0, 20.0, 25.0)] == [625.0, 1500.0, 3000.0, 3625.0]
    assert course.area(15.0, 25.0) == 625.0 + 625.0
    assert course.area(5.0, 45.0) == pytest.approx(6000.0)
    assert Course((), 10.0).area(0.0, 10.0) == 0.0


@given(
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=5),
    st.floats(0.5, 100.0),
    st.floats(-500.0, 500.0),
    st.floats(0.0, 300.0),
)
def test_the_area_is_the_sum_of_its_parts_and_lies_between_lowest_and_highest(values, step, start, length):
    course = Course(values, step)
    whole = course.area(start, start + length)
    middle = start + length / 3.0
    parts = course.area(start, middle) + course.area(middle, start + length)
    slack = 1e-6 * (1.0 + max(values)) * (1.0 + length + abs(start) + step)
    assert whole == pytest.approx(parts, abs=slack)
    assert min(values) * length - slack <= whole <= max(values) * length + slack


def test_what_the_pods_of_a_node_use_adds_up_to_what_the_node_uses():
    # Two cores: a service that could use 2.5 keeps 1.9, since 5 % of the node are the job's whatever comes.
    machines = park()
    machines.start_pod("node", service(used_millicores=(2500.0,)), 0.0)
    machines.start_pod("node", job_load(seconds=1e6, millicores=1500), 0.0)
    used = {usage.key: usage.cpu_millicores for usage in machines.pod_usage(10.0)}
    assert used == pytest.approx({"web": 1900.0, "job": 100.0})
    node = machines.node_usage(10.0)[0]
    assert (node.cpu_millicores, node.online_millicores) == pytest.approx((2000.0, 1900.0))


def test_a_service_may_use_more_than_it_asks_for_and_slows_the_jobs_beside_it_only_where_there_is_no_room():
    # Four cores, a job of two: 1.5 cores for a service that asks for one leave it its two, 3 cores leave it one.
    for used, left in ((1500.0, 1.0), (3000.0, 0.5)):
        machines = park(millicores=4000)
        machines.start_pod("node", service(rates=(), used_millicores=(used,)), 0.0)
        machines.start_pod("node", job_load(seconds=1e6, millicores=2000), 0.0)
        usage = {one.key: one for one in machines.pod_usage(10.0)}
        assert usage["job"].cpu_millicores == pytest.approx(2000.0 * left)
        assert usage["job"].cpu_core_seconds == pytest.approx(20.0 * left)
        assert usage["web"].cpu_core_seconds == pytest.approx(used / 100.0)


def test_looking_at_use_changes_nothing_that_happens():
    def finish(advance):
        machines = park(interference=GeneratedInterference())
        machines.start_pod("node", service(rates=(1e5, 2e4, 9e4), rates_step_seconds=7.0), 0.0)
        machines.start_pod("node", job_load(seconds=50.0, type="sort"), 1.0)
        for second in range(2, 40):
            if advance:
                machines.pod_usage(second + 0.3)
                machines.node_usage(second + 0.7)
        return machines.advance(1000.0)

    assert finish(advance=True) == finish(advance=False)
