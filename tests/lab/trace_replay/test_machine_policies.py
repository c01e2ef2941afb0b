"""LW, RANDOM, HYBRID and the hybrid platform on many machines: the offline schedules, and the kernels on one pool."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_reference import columns, columns_of, logs, replay

from cotide_core.policies.catalogue import Runner
from cotide_lab.offline.hybrid import hybrid
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.lists.list_scheduling import list_schedule, on_given
from cotide_lab.offline.orders import ORDERS
from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN, LAST_TWO, LEARNED, past_of
from cotide_lab.trace_replay.kernels.easy import BY_RUN, BY_VOLUME
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs
from cotide_lab.trace_replay.kernels.plan import PlanRule, replay_plan
from cotide_lab.trace_replay.kernels.platform import platform_rule, replay_platform
from cotide_lab.trace_replay.kernels.replay_state import Jobs, new_replay_state
from cotide_lab.trace_replay.machine_jobs import MachineJobs
from cotide_lab.trace_replay.machine_replay import DRAWN, LEAST_WORK, PLATFORM, MachineRule, replay_machines
from cotide_lab.trace_replay.machine_runner import machine_faults_of, run_on_machines
from cotide_lab.trace_replay.policies import policy_of
from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.machines import Machines


def on_alike(submit, run, need, pieces, capacity, machines, kinds=1) -> MachineJobs:
    """Return jobs on machines of one size; ``need`` is of a piece, (n, R)."""
    submit, run, pieces = (np.array(one, np.int64) for one in (submit, run, pieces))
    need = np.array(need, np.int64).reshape(len(run), -1)
    sizes = np.tile(np.array(capacity, np.int64).reshape(1, -1), (machines, 1))
    ones = np.ones(len(run), np.int64)
    jobs = BatchJobs(
        "", int(sizes[:, 0].sum()), np.arange(len(run)), submit, run, pieces * need[:, 0], run.copy(), ones * 0
    )
    kind = np.arange(machines) % kinds
    none = np.zeros(machines, np.int64)
    asked = Machines(("cpu", "memory")[: need.shape[1]], sizes, none, kind, tuple(map(str, range(kinds))), "")
    return MachineJobs(jobs, pieces, need, np.zeros((len(run), 2), np.int64), ones * ((1 << kinds) - 1), asked)


def placed(given_jobs: MachineJobs, name: str, seed: int = 0):
    """Return the starts and the machines of the jobs, of which each is one piece."""
    found = run_on_machines(given_jobs, policy_of(name, Runner.MACHINES), seed=seed)
    assert machine_faults_of(given_jobs, found) == []
    return found.schedule.start.tolist(), found.machine[found.first].tolist()


INSTANCES = st.tuples(st.integers(2, 8), st.integers(2, 5)).flatmap(
    lambda two: st.tuples(
        st.lists(st.tuples(st.integers(1, 12), st.integers(1, two[0])), min_size=1, max_size=14), st.just(two)
    )
)


def instance(drawn):
    jobs, (capacity, machines) = drawn
    sizes, demands = np.array(jobs, np.int64).T
    zeros, ones = np.zeros(len(jobs), np.int64), np.ones(len(jobs), np.int64)
    return JobList(sizes.copy(), demands.copy(), capacity), on_alike(zeros, sizes, demands, ones, capacity, machines)


@pytest.mark.parametrize("order", ["sjf", "sdf", "svf"])
@settings(max_examples=40, deadline=None)
@given(drawn=INSTANCES)
def test_least_work_with_all_jobs_there_from_the_start_is_that_of_list_scheduling(order, drawn):
    listed, asked = instance(drawn)
    schedule = list_schedule(listed, drawn[1][1], order, "lw")
    assert placed(asked, f"{order}-lw") == (schedule.starts.tolist(), schedule.machines.tolist())


@settings(max_examples=40, deadline=None)
@given(drawn=INSTANCES, seed=st.integers(0, 9))
def test_on_drawn_machines_the_starts_are_those_of_list_scheduling_there(drawn, seed):
    listed, asked = instance(drawn)
    starts, where = placed(asked, "svf-random", seed)
    assert starts == on_given(listed, drawn[1][1], ORDERS["svf"](listed), np.array(where)).starts.tolist()


@settings(max_examples=60, deadline=None)
@given(drawn=INSTANCES)
def test_hybrid_machines_with_all_jobs_there_from_the_start_are_those_of_the_paper(drawn):
    listed, asked = instance(drawn)
    schedule = hybrid(listed, drawn[1][1])
    assert placed(asked, "hybrid-machines") == (schedule.starts.tolist(), schedule.machines.tolist())


def one_machine(jobs, capacity, rule, mode):
    """Call the kernel; a job's processors are its pieces, all on the one machine."""
    log, ones = columns(jobs), np.ones(len(jobs), np.int64)
    start, promise = np.full((2, len(jobs)), -1, np.int64)
    past = past_of(LEARNED, 2, log["user"], log["demand"], log["request"])
    if rule.code == PLATFORM:
        upper, known = (np.array([getattr(job, name) for job in jobs]) for name in ("upper", "predictable"))
        rule = rule._replace(platform=platform_rule(capacity, mode, past, upper, known))
    gangs = Gangs(
        log["demand"],
        ones[:, None],
        ones * 0,
        ones,
        np.zeros(1, np.int64),
        np.array([[capacity]]),
        np.zeros((len(jobs), 2), np.int64),
    )
    replay_machines(Jobs(**log, start=start, promise=promise), gangs, past, mode, rule, np.zeros(2, np.int64))
    return start.tolist()


@pytest.mark.parametrize("choice", [LEAST_WORK, DRAWN])
@pytest.mark.parametrize("order", [BY_RUN, BY_VOLUME])
@settings(max_examples=60, deadline=None)
@given(log=logs())
def test_on_one_machine_every_choice_is_the_plan_of_one_pool(order, choice, log):
    jobs, capacity, mode = log
    expected = replay(replay_plan, jobs, PlanRule(capacity, order), mode)[0]
    assert one_machine(jobs, capacity, MachineRule(choice, order), mode) == expected


@settings(max_examples=120, deadline=None)
@given(log=logs())
def test_the_hybrid_platform_on_one_machine_is_that_of_one_pool(log):
    jobs, capacity, mode = log
    mode = GIVEN if mode == LAST_TWO else mode
    pool = columns_of(jobs)
    past = past_of(LEARNED, 2, pool.user, pool.demand, pool.request)
    upper, known = (np.array([getattr(job, name) for job in jobs]) for name in ("upper", "predictable"))
    rule = platform_rule(capacity, mode, past, upper, known)
    replay_platform(pool, past, mode, 0, np.zeros(2, np.int64), new_replay_state(len(jobs)), rule)
    assert one_machine(jobs, capacity, MachineRule(PLATFORM, BY_VOLUME), mode) == pool.start.tolist()


def test_least_work_counts_what_is_left_of_running_jobs():
    """Two machines of 4. A (1 wide, 100 s) and B (1 wide, 30 s) start at 0 on one each. At 10 the machines have 90 / 4
    and 20 / 4 s to do: C, a whole machine, goes behind B, and makes it 5 + 40 = 45 s. So D goes behind A, to 100."""
    asked = on_alike([0, 0, 10, 11], [100, 30, 40, 50], [1, 1, 4, 4], [1, 1, 1, 1], 4, 2)
    starts, where = placed(asked, "sjf-lw")
    assert where[2] == where[1]
    assert where[3] == where[0]
    assert starts == [0, 0, 30, 100]


def test_a_job_stays_where_it_was_drawn_though_another_machine_is_empty():
    """Twenty jobs that fill a machine on two machines: were they not drawn, no machine would idle beside a queue."""
    asked = on_alike([0] * 20, [10] * 20, [4] * 20, [1] * 20, 4, 2)
    lasts = []
    for seed in range(4):
        starts, where = placed(asked, "sjf-random", seed=seed)
        assert max(starts) == 10 * (max(where.count(0), where.count(1)) - 1)
        lasts.append(max(starts))
    assert max(lasts) > 90


def test_drawn_machines_and_orders_go_by_the_seed():
    asked = on_alike([0] * 30, range(1, 31), [1] * 30, [1] * 30, 2, 5)
    for name in ("sjf-random", "random-ef", "random-lw"):
        assert placed(asked, name, seed=1) == placed(asked, name, seed=1) != placed(asked, name, seed=2)


def test_pieces_of_a_gang_are_spread_by_work_and_none_goes_where_the_empty_machine_is_too_small():
    """Two machines of 4; A holds three of the first until 100. B's four pieces of 2 find room for two on each: all four
    start together once A has ended, whatever has less work before."""
    asked = on_alike([0, 1], [100, 10], [[3], [2]], [1, 4], 4, 2)
    found = run_on_machines(asked, policy_of("sjf-lw", Runner.MACHINES))
    assert found.schedule.start.tolist() == [0, 100]
    entries = slice(found.first[1], found.first[1] + found.used[1])
    assert (found.machine[entries].tolist(), found.count[entries].tolist()) == ([0, 1], [2, 2])


def test_who_waits_behind_a_job_that_outlives_its_forecast_is_given_another_machine():
    """A fills the first machine and is forecast to end at 5, B the second until 50. C waits for A, which runs on: its
    planned end doubles at 5, 10, 20. At 40 A has 40 s to go and B 10, so C is given B's machine and starts at 50."""
    log = {"submit": [0, 0, 1], "run": [100, 50, 10], "demand": [4, 4, 4], "request": [5, 50, 10], "user": [0, 0, 0]}
    table = {name: np.array(values) for name, values in log.items()}
    start, promise = np.full((2, 3), -1, np.int64)
    jobs = Jobs(**table, forecast=table["request"].copy(), start=start, promise=promise)
    ones = np.ones(3, np.int64)
    gangs = Gangs(
        ones,
        np.full((3, 1), 4),
        ones * 0,
        ones,
        np.zeros(2, np.int64),
        np.array([[4], [4]]),
        np.zeros((3, 2), np.int64),
    )
    past = past_of(LEARNED, 1, table["user"], table["demand"], table["request"])
    replay_machines(jobs, gangs, past, GIVEN, MachineRule(LEAST_WORK, BY_RUN), np.zeros(2, np.int64))
    assert start.tolist() == [0, 0, 50]


def test_a_job_of_much_demand_that_its_part_cannot_hold_may_run_anywhere():
    """Of four machines one is for pieces of more than half. Two such pieces at once need two machines."""
    asked = on_alike([0, 0, 0], [10, 5, 20], [[3], [3], [1]], [2, 1, 1], 4, 4)
    found = run_on_machines(asked, policy_of("hybrid-machines", Runner.MACHINES))
    assert machine_faults_of(asked, found) == []
    assert found.schedule.start.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["sjf-lw", "svf-random", "random-random", "random-ef", "hybrid", "hybrid-machines"])
@settings(max_examples=25, deadline=None)
@given(
    drawn=st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(0, 4), st.integers(1, 4), st.integers(1, 3)),
        min_size=1,
        max_size=15,
    )
)
def test_no_machine_of_any_kind_is_overfilled_in_any_resource(name, drawn):
    submit, run, cpu, memory, pieces = (np.array(one) for one in zip(*drawn, strict=True))
    asked = on_alike(np.sort(submit), run, np.stack([cpu, memory], axis=1), pieces, [4, 4], 3, kinds=2)
    assert machine_faults_of(asked, run_on_machines(asked, policy_of(name, Runner.MACHINES))) == []
