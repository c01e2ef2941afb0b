"""Replays on many machines with vector demands: against the one-pool kernels, and against a slow reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from machine_reference import Slow, as_one_machine, columns_of_gangs, gangs, jobs_with_devices, on_machines
from replay_reference import Job, logs, replay

from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN
from cotide_lab.trace_replay.kernels.conservative import ConservativeRule, replay_conservative
from cotide_lab.trace_replay.kernels.easy import BY_RUN, BY_SUBMIT, BY_VOLUME, NO_BACKFILL, QueueRule, replay_queue
from cotide_lab.trace_replay.kernels.on_machines.gang_lists import WIDTH, _widen, storage_of
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs
from cotide_lab.trace_replay.kernels.plan import PlanRule, replay_plan
from cotide_lab.trace_replay.kernels.replay_state import new_replay_state
from cotide_lab.trace_replay.machine_replay import (
    CONSERVATIVE,
    DRAWN,
    EASY,
    IN_ORDER,
    LEAST_WORK,
    PLAN,
    SLACK,
)


@pytest.mark.parametrize(
    ("order", "backfill"), [(BY_SUBMIT, BY_SUBMIT), (BY_SUBMIT, BY_RUN), (BY_SUBMIT, BY_VOLUME), (BY_VOLUME, BY_VOLUME)]
)
@settings(max_examples=100, deadline=None)
@given(log=logs())
def test_easy_on_one_machine_is_easy_on_one_pool(order, backfill, log):
    jobs, capacity, mode = log
    pool = replay(replay_queue, jobs, QueueRule(capacity, order, backfill), mode)
    assert as_one_machine(jobs, capacity, EASY, order, backfill, mode) == pool


@settings(max_examples=100, deadline=None)
@given(log=logs())
def test_other_policies_on_one_machine_are_those_on_one_pool(log):
    jobs, capacity, mode = log
    strict = replay(replay_queue, jobs, QueueRule(capacity, BY_RUN, NO_BACKFILL), mode)
    assert as_one_machine(jobs, capacity, IN_ORDER, BY_RUN, 0, mode) == strict
    expected = replay(replay_conservative, jobs, ConservativeRule(capacity), mode)
    assert as_one_machine(jobs, capacity, CONSERVATIVE, BY_SUBMIT, 0, mode) == expected
    plan = replay(replay_plan, jobs, PlanRule(capacity, BY_VOLUME), mode)
    assert as_one_machine(jobs, capacity, PLAN, BY_VOLUME, 0, mode)[:2] == plan[:2]


@pytest.mark.parametrize(
    ("rule", "order", "backfill"),
    [
        (IN_ORDER, BY_SUBMIT, 0),
        (IN_ORDER, BY_VOLUME, 0),
        (EASY, BY_SUBMIT, BY_SUBMIT),
        (EASY, BY_SUBMIT, BY_RUN),
        (EASY, BY_RUN, BY_RUN),
        (CONSERVATIVE, BY_SUBMIT, 0),
        (SLACK, BY_SUBMIT, 0),
        (PLAN, BY_VOLUME, 0),
    ],
)
@settings(max_examples=60, deadline=None)
@given(log=gangs())
def test_gangs_on_machines_equal_the_slow_reference_in_starts_promises_and_places(rule, order, backfill, log):
    jobs, machines = log
    if not jobs:
        return
    Slow(jobs, machines, rule, order, backfill).replay()
    found = on_machines(*columns_of_gangs(jobs, machines), rule, order, backfill, GIVEN)
    assert found[0] == [job.start for job in jobs]
    assert found[3] == [job.where for job in jobs]
    assert found[2] == [job.promise for job in jobs]


@pytest.mark.parametrize(
    ("rule", "order", "backfill"),
    [
        (IN_ORDER, BY_SUBMIT, 0),
        (EASY, BY_SUBMIT, BY_SUBMIT),
        (EASY, BY_RUN, BY_RUN),
        (CONSERVATIVE, BY_SUBMIT, 0),
        (SLACK, BY_SUBMIT, 0),
        (PLAN, BY_VOLUME, 0),
    ],
)
@settings(max_examples=80, deadline=None)
@given(log=jobs_with_devices())
def test_jobs_with_devices_equal_the_slow_reference_in_starts_promises_machines_and_devices(rule, order, backfill, log):
    jobs, machines = log
    if not jobs:
        return
    Slow(jobs, machines, rule, order, backfill).replay()
    devices = np.array([job.devices for job in jobs])
    found = on_machines(*columns_of_gangs(jobs, machines), rule, order, backfill, GIVEN, devices=devices)
    assert found[0] == [job.start for job in jobs]
    assert found[3] == [job.where for job in jobs]
    assert found[2] == [job.promise for job in jobs]


@pytest.mark.parametrize("rule", [IN_ORDER, EASY, CONSERVATIVE, SLACK, PLAN, LEAST_WORK, DRAWN])
def test_halves_of_two_devices_are_no_whole_one(rule):
    """A machine of two devices. A and B hold 0.6 of one each; C's 0.6 is on no single device and starts when A ends."""
    log = {name: np.array(values) for name, values in (
        ("submit", [0, 0, 1]), ("run", [10, 20, 10]), ("request", [10, 20, 10]), ("user", [0, 0, 0]),
        ("forecast", [10, 20, 10]),
    )}  # fmt: skip
    ones, need, devices = np.ones(3, dtype=np.int64), np.array([[1, 600]] * 3), np.array([[1, 600]] * 3)
    machine = (np.array([[8, 2000, 1000, 1000]]), np.zeros(1, dtype=np.int64))
    found = on_machines(log, ones, need, ones, *machine, rule, BY_SUBMIT, BY_SUBMIT, GIVEN, devices=devices)
    assert found[0] == [0, 0, 10]
    assert found[3] == [[(0, 1, (0,))], [(0, 1, (1,))], [(0, 1, (0,))]]


@pytest.mark.parametrize("rule", [IN_ORDER, EASY, CONSERVATIVE, SLACK, PLAN, LEAST_WORK, DRAWN])
def test_a_job_of_several_devices_waits_for_whole_ones(rule):
    """Three devices, 0.1 of the first in use until 10: two whole ones start beside it, three do not."""
    log = {name: np.array(values) for name, values in (
        ("submit", [0, 1, 2]), ("run", [10, 5, 5]), ("request", [10, 5, 5]), ("user", [0, 0, 0]),
        ("forecast", [10, 5, 5]),
    )}  # fmt: skip
    ones, need = np.ones(3, dtype=np.int64), np.array([[1, 100], [1, 2000], [1, 3000]])
    devices = np.array([[1, 100], [2, 1000], [3, 1000]])
    machine = (np.array([[8, 3000, 1000, 1000, 1000]]), np.zeros(1, dtype=np.int64))
    found = on_machines(log, ones, need, ones, *machine, rule, BY_SUBMIT, BY_SUBMIT, GIVEN, devices=devices)
    assert found[0] == [0, 1, 10]
    assert found[3] == [[(0, 1, (0,))], [(0, 1, (1, 2))], [(0, 1, (0, 1, 2))]]


def test_memory_on_one_machine_is_no_help_on_another():
    """Two machines of 4 cores and 8 GiB. Jobs of 2 cores and 5 GiB: one a machine, where one pool would hold three."""
    log = {name: np.array(values) for name, values in (
        ("submit", [0, 0, 0]), ("run", [10, 10, 10]), ("request", [10, 10, 10]), ("user", [0, 0, 0]),
        ("forecast", [10, 10, 10]),
    )}  # fmt: skip
    ones, need = np.ones(3, dtype=np.int64), np.array([[2, 5]] * 3)
    machines = (np.array([[4, 8], [4, 8]]), np.zeros(2, dtype=np.int64))
    start, _, promise, where = on_machines(log, ones, need, ones, *machines, EASY, BY_SUBMIT, BY_SUBMIT, GIVEN)
    assert (start, promise) == ([0, 0, 10], [-1, -1, 10])
    assert where == [[(0, 1)], [(1, 1)], [(0, 1)]]


def test_a_place_beside_a_reservation_is_given_away_once_on_whatever_machine():
    """Nine machines of 2 cores, the ninth in a block of its own; every piece takes a machine.

    A holds the first eight until 10, and B, eight pieces, has them reserved then. C takes the ninth for 100 s. D, just
    like C, finds nothing beside the reservation and starts when B ends.
    """
    log = {name: np.array(values) for name, values in (
        ("submit", [0, 1, 1, 1]), ("run", [10, 10, 100, 100]), ("request", [10, 10, 100, 100]), ("user", [0, 0, 0, 0]),
        ("forecast", [10, 10, 100, 100]),
    )}  # fmt: skip
    pieces, need = np.array([8, 8, 1, 1]), np.array([[2, 0]] * 4)
    machines = (np.array([[2, 1]] * 9), np.zeros(9, dtype=np.int64))
    ones = np.ones(4, dtype=np.int64)
    start, _, promise, where = on_machines(log, pieces, need, ones, *machines, EASY, BY_SUBMIT, BY_SUBMIT, GIVEN)
    assert (start, promise) == ([0, 10, 1, 20], [-1, 10, -1, 20])
    assert where[2:] == [[(8, 1)], [(0, 1)]]


@pytest.mark.parametrize("rule", [CONSERVATIVE, SLACK, PLAN])
def test_a_machine_has_room_for_as_many_planned_jobs_as_wait(rule):
    """Forty jobs of 1 s that fill the only machine, submitted at once: they start at 0, 1, ... 39."""
    jobs = [Job(number, 0, 1, 4, 1, 0, 1) for number in range(40)]
    start, _, promise = as_one_machine(jobs, 4, rule, BY_SUBMIT, NO_BACKFILL, GIVEN)
    assert start == list(range(40))
    assert promise == ([-1] * 40 if rule == PLAN else start)


def test_profiles_that_outgrow_their_storage_end_the_replay():
    """Eight segments a machine at first, room for none beyond: the ninth has no place."""
    gangs = Gangs(*(np.ones(shape, np.int64) for shape in (3, (3, 1), 3, 3, 1, (1, 1), (3, 2))))
    storage = storage_of(gangs)._replace(times=np.zeros(8, np.int64), free=np.zeros(8, np.int64))
    state = new_replay_state(3)
    state.counts[WIDTH] = 8
    with pytest.raises(MemoryError, match="more jobs planned at once"):
        _widen(storage, state)
