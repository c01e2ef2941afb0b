"""Replays on many machines with vector demands: against the one-pool kernels, and against a slow reference."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_reference import Job, columns, logs, replay

from cotide_predictors.run_time.kernels.run_forecasts import GIVEN, LEARNED, past_of
from cotide_sim.trace_replay.kernels.conservative import ConservativeRule, replay_conservative
from cotide_sim.trace_replay.kernels.easy import BY_RUN, BY_SUBMIT, BY_VOLUME, NO_BACKFILL, QueueRule, replay_queue
from cotide_sim.trace_replay.kernels.kept import Jobs, kept_of
from cotide_sim.trace_replay.kernels.on_machines.gang_lists import WIDTH, _widen, storage_of
from cotide_sim.trace_replay.kernels.on_machines.gangs import Gangs
from cotide_sim.trace_replay.kernels.plan import PlanRule, replay_plan
from cotide_sim.trace_replay.machine_replay import CONSERVATIVE, EASY, IN_ORDER, PLAN, MachineRule, replay_machines

HORIZON = 400


def on_machines(log, pieces, need, allowed, capacity, kind, rule, order, backfill, mode):
    """Call the kernel; return starts, forecasts, promises, and each job's (machine, pieces)."""
    jobs = len(log["submit"])
    start, promise = np.full((2, jobs), -1, dtype=np.int64)
    volume = pieces * need[:, 0]
    shape = np.unique(np.column_stack([allowed, need]), axis=0, return_inverse=True)[1].ravel().astype(np.int64)
    past = past_of(LEARNED, 2, log["user"], volume, log["request"])
    asked = Jobs(**{**log, "demand": volume}, start=start, promise=promise)
    gangs, progress = Gangs(pieces, need, shape, allowed, kind, capacity), np.zeros(2, dtype=np.int64)
    _, held = replay_machines(asked, gangs, past, mode, MachineRule(rule, order, backfill), progress)
    where = [
        list(zip(held.placed[at : at + some].tolist(), held.counts[at : at + some].tolist(), strict=True))
        for at, some in zip(held.first, held.used, strict=True)
    ]
    return start.tolist(), log["forecast"].tolist(), promise.tolist(), where


def as_one_machine(jobs, capacity, rule, order, backfill, mode):
    """A job's processors are its pieces, all on the one machine."""
    log = columns(jobs)
    pieces = np.array([job.demand for job in jobs])
    ones = np.ones(len(jobs), dtype=np.int64)
    machine = (np.array([[capacity]]), np.zeros(1, dtype=np.int64))
    found = on_machines(log, pieces, ones[:, None], ones, *machine, rule, order, backfill, mode)
    assert found[3] == [[(0, job.demand)] for job in jobs]
    return found[:3]


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
    kept = replay(replay_conservative, jobs, ConservativeRule(capacity), mode)
    assert as_one_machine(jobs, capacity, CONSERVATIVE, BY_SUBMIT, 0, mode) == kept
    plan = replay(replay_plan, jobs, PlanRule(capacity, BY_VOLUME), mode)
    assert as_one_machine(jobs, capacity, PLAN, BY_VOLUME, 0, mode)[:2] == plan[:2]


@dataclass
class Gang:
    submit: int
    run: int
    request: int
    forecast: int
    pieces: int
    need: tuple[int, int]
    kinds: frozenset[int]
    start: int = -1
    end: int = -1
    promise: int = -1
    where: list[tuple[int, int]] = field(default_factory=list)


class Slow:
    """Second by second: what is planned to be free, and everything that follows from it by definition."""

    def __init__(self, gangs, machines, rule, order, backfill):
        self.gangs, self.machines = gangs, machines
        self.rule, self.order, self.backfill = rule, order, backfill
        self.queue, self.running, self.held = [], [], []

    def free(self, machine, second):
        taken = [0, 0]
        for gang, begin, end in [(gang, gang.start, gang.planned) for gang in self.running] + self.held:
            for at, count in gang.where:
                if at == machine and begin <= second < end:
                    taken = [taken[r] + count * gang.need[r] for r in range(2)]
        return [self.machines[machine][0][r] - taken[r] for r in range(2)]

    def machines_for(self, gang, begin):
        """First fit at ``begin`` for as long as forecast, or None."""
        left, where = gang.pieces, []
        for machine, (_, kind) in enumerate(self.machines):
            if kind not in gang.kinds:
                continue
            fits = left
            for second in range(begin, begin + gang.forecast):
                free = self.free(machine, second)
                fits = min([fits, *(free[r] // gang.need[r] for r in range(2) if gang.need[r])])
            if fits > 0:
                where.append((machine, fits))
                left -= fits
        return where if left == 0 else None

    def earliest(self, gang, now):
        return next(second for second in range(now, HORIZON) if self.machines_for(gang, second) is not None)

    def hold(self, gang, begin):
        gang.where = self.machines_for(gang, begin)
        self.held.append((gang, begin, begin + gang.forecast))

    def begin(self, gang, now):
        if self.rule != CONSERVATIVE:
            gang.where = self.machines_for(gang, now)
        self.held = [held for held in self.held if held[0] is not gang]
        gang.start, gang.planned, gang.end = now, now + gang.forecast, now + gang.run
        self.queue.remove(gang)
        self.running.append(gang)

    def sorted(self, order):
        key = {BY_SUBMIT: lambda g: 0, BY_RUN: lambda g: g.forecast, BY_VOLUME: lambda g: g.forecast * g.volume}[order]
        return sorted(self.queue, key=lambda gang: (key(gang), gang.number))

    def replay(self):
        coming = list(self.gangs)
        while coming or self.running or self.queue:
            moments = [gang.submit for gang in coming[:1]]
            moments += [min(gang.end, gang.planned) for gang in self.running]
            moments += [begin for _, begin, _ in self.held if self.rule == CONSERVATIVE]
            now = min(moments)
            broken = gained = False
            for gang in list(self.running):
                if gang.end == now:
                    self.running.remove(gang)
                    gained = gained or gang.planned > now  # as on one pool: only an early end moves the waiting forward
                elif gang.planned == now:
                    age = now - gang.start
                    gang.planned = gang.start + (gang.request if gang.request > age else 2 * age)
                    broken = True
            if self.rule == CONSERVATIVE and broken:
                self.held = []
            if self.rule == CONSERVATIVE and (broken or gained):
                for gang in self.queue:
                    held = [one for one in self.held if one[0] is gang]
                    self.held = [one for one in self.held if one[0] is not gang]
                    begin = self.earliest(gang, now)
                    if held and begin >= held[0][1]:
                        self.held += held
                    else:
                        self.hold(gang, begin)
            while coming and coming[0].submit == now:
                gang = coming.pop(0)
                self.queue.append(gang)
                if self.rule == CONSERVATIVE:
                    gang.promise = self.earliest(gang, now)
                    self.hold(gang, gang.promise)
            self.decide(now)

    def decide(self, now):
        if self.rule == CONSERVATIVE:
            for gang, begin, _ in list(self.held):
                if begin == now:
                    self.begin(gang, now)
            return
        behind = []
        for gang in self.sorted(self.order):
            if self.machines_for(gang, now) is not None and (self.rule == PLAN or not behind):
                self.begin(gang, now)
            elif self.rule == PLAN:
                self.hold(gang, self.earliest(gang, now))
            else:
                behind.append(gang)
        if self.rule == EASY and behind:
            first = behind[0]
            begin = self.earliest(first, now)
            first.promise = begin if first.promise < 0 else first.promise
            self.hold(first, begin)
            for gang in self.sorted(self.backfill):
                if gang is not first and self.machines_for(gang, now) is not None:
                    self.begin(gang, now)
        self.held = []


@st.composite
def gangs(draw):
    machines = [
        ((draw(st.integers(2, 5)), draw(st.integers(2, 5))), draw(st.integers(0, 1)))
        for _ in range(draw(st.sampled_from([1, 2, 3, 10])))  # ten are two blocks of `gang_counts`
    ]
    most = 4 if len(machines) < 10 else 16
    found, now = [], 0
    for number in range(draw(st.integers(2, 9))):
        now += draw(st.sampled_from([0, 0, 1, 2]))
        run = draw(st.sampled_from([1, 3, 3, 5]))
        need = (draw(st.integers(0, 3)), draw(st.integers(0, 3)))
        need = need if any(need) else (1, 0)
        kinds = draw(st.sampled_from([frozenset({0}), frozenset({1}), frozenset({0, 1})]))
        room = sum(
            min([16, *(free[r] // need[r] for r in range(2) if need[r])]) for free, kind in machines if kind in kinds
        )
        if room == 0:
            continue
        request = run + draw(st.sampled_from([0, 2]))
        forecast = draw(st.sampled_from([request, run, 1]))
        gang = Gang(now, run, request, forecast, min(draw(st.integers(1, most)), room), need, kinds)
        gang.number, gang.volume = number, gang.pieces * need[0]
        found.append(gang)
    return found, machines


@pytest.mark.parametrize(
    ("rule", "order", "backfill"),
    [
        (IN_ORDER, BY_SUBMIT, 0),
        (IN_ORDER, BY_VOLUME, 0),
        (EASY, BY_SUBMIT, BY_SUBMIT),
        (EASY, BY_SUBMIT, BY_RUN),
        (EASY, BY_RUN, BY_RUN),
        (CONSERVATIVE, BY_SUBMIT, 0),
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
    names = ("submit", "run", "request", "forecast")
    table = {name: np.array([getattr(job, name) for job in jobs], dtype=np.int64) for name in names}
    table["user"] = np.zeros(len(jobs), dtype=np.int64)
    found = on_machines(
        table,
        np.array([job.pieces for job in jobs]),
        np.array([job.need for job in jobs]),
        np.array([sum(1 << kind for kind in job.kinds) for job in jobs]),
        np.array([free for free, _ in machines]),
        np.array([kind for _, kind in machines]),
        rule,
        order,
        backfill,
        GIVEN,
    )
    assert found[0] == [job.start for job in jobs]
    assert found[3] == [job.where for job in jobs]
    assert found[2] == [job.promise for job in jobs]


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


@pytest.mark.parametrize("rule", [CONSERVATIVE, PLAN])
def test_a_machine_has_room_for_as_many_planned_jobs_as_wait(rule):
    """Forty jobs of 1 s that fill the only machine, submitted at once: they start at 0, 1, ... 39."""
    jobs = [Job(number, 0, 1, 4, 1, 0, 1) for number in range(40)]
    start, _, promise = as_one_machine(jobs, 4, rule, BY_SUBMIT, NO_BACKFILL, GIVEN)
    assert start == list(range(40))
    assert promise == (start if rule == CONSERVATIVE else [-1] * 40)


def test_profiles_that_outgrow_their_storage_end_the_replay():
    """Eight segments a machine at first, room for none beyond: the ninth has no place."""
    gangs = Gangs(*(np.ones(shape, np.int64) for shape in (3, (3, 1), 3, 3, 1, (1, 1))))
    storage = storage_of(gangs)._replace(times=np.zeros(8, np.int64), free=np.zeros(8, np.int64))
    kept = kept_of(3)
    kept.counts[WIDTH] = 8
    with pytest.raises(MemoryError, match="more jobs planned at once"):
        _widen(storage, kept)
