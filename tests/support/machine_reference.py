"""A slow, obvious implementation of the replays on many machines, and random gangs that kernels are held against.

Imported by the kernels' tests. Second by second, everything is worked out from the definition at every moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from replay_reference import columns

from cotide_lab.predictors.run_time.kernels.run_forecasts import LEARNED, past_of
from cotide_lab.trace_replay.kernels.easy import BY_RUN, BY_SUBMIT, BY_VOLUME, NO_BACKFILL
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs
from cotide_lab.trace_replay.kernels.replay_state import Jobs
from cotide_lab.trace_replay.kernels.slack import MIDDLING_PRIORITY, TRIALS, slack_of
from cotide_lab.trace_replay.machine_replay import CONSERVATIVE, EASY, PLAN, SLACK, MachineRule, replay_machines

HORIZON = 400
RESERVING = (CONSERVATIVE, SLACK)


def on_machines(
    log, pieces, need, allowed, capacity, kind, rule, order, backfill, mode, priority=MIDDLING_PRIORITY, devices=None
):
    """Call the kernel; return starts, forecasts, promises, each job's (machine, pieces), and devices where given."""
    jobs = len(log["submit"])
    asked_devices = np.zeros((jobs, 2), np.int64) if devices is None else devices
    start, promise = np.full((2, jobs), -1, dtype=np.int64)
    volume = pieces * need[:, 0]
    like = np.column_stack([allowed, need, asked_devices])
    shape = np.unique(like, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
    past = past_of(LEARNED, 2, log["user"], volume, log["request"])
    asked = Jobs(**{**log, "demand": volume}, start=start, promise=promise)
    gangs = Gangs(pieces, need, shape, allowed, kind, capacity, asked_devices)
    progress = np.zeros(2, dtype=np.int64)
    _, held = replay_machines(asked, gangs, past, mode, MachineRule(rule, order, backfill, priority=priority), progress)
    where = [
        list(zip(held.placed[at : at + some].tolist(), held.counts[at : at + some].tolist(), strict=True))
        for at, some in zip(held.first, held.used, strict=True)
    ]
    if devices is not None:
        where = [[(*part, device_numbers(held.devices[job])) for part in where[job]] for job in range(jobs)]
    return start.tolist(), log["forecast"].tolist(), promise.tolist(), where


def device_numbers(held):
    return tuple(device for device in range(62) if held >> device & 1)


@dataclass
class Gang:
    submit: int
    run: int
    request: int
    forecast: int
    pieces: int
    need: tuple[int, int]
    kinds: frozenset[int]
    devices: tuple[int, int] = (0, 0)
    start: int = -1
    end: int = -1
    promise: int = -1
    where: list[tuple] = field(default_factory=list)

    def takes(self, part, columns):
        """Return what the job takes at a part of it on a machine's (cpu, memory, device 0, device 1, ...)."""
        _, count, *held = part
        of_devices = [self.devices[1] if held and device in held[0] else 0 for device in range(columns - 2)]
        return [count * self.need[0], count * self.need[1], *of_devices]


class Slow:
    """Second by second: what is planned to be free, and everything that follows from it by definition."""

    def __init__(self, gangs, machines, rule, order=BY_SUBMIT, backfill=NO_BACKFILL, priority=MIDDLING_PRIORITY):
        self.gangs, self.machines, self.priority = gangs, machines, priority
        self.rule, self.order, self.backfill = rule, order, backfill
        self.queue, self.running, self.held, self.waits = [], [], [], []
        self.with_devices = any(len(capacity) > 2 for capacity, _ in machines)

    def free(self, machine, second):
        there = [gang for gang in self.running if gang.start <= second < gang.planned]
        there += [gang for gang, begin, end in self.held if begin <= second < end]
        return self.left(machine, there)

    def left(self, machine, there):
        """What some jobs leave of a machine."""
        left = list(self.machines[machine][0])
        for gang in there:
            for part in gang.where:
                if part[0] == machine:
                    left = [have - takes for have, takes in zip(left, gang.takes(part, len(left)), strict=True)]
        return left

    def part_on(self, gang, machine, most, moments):
        """The pieces that fit on a machine that has so much free at each moment, with their devices, or None."""
        fits = min([most, *(free[r] // gang.need[r] for free in moments for r in range(2) if gang.need[r])])
        many, each = gang.devices
        able = [d for d in range(len(moments[0]) - 2) if all(free[2 + d] >= each for free in moments)]
        if fits <= 0 or len(able) < many:
            return None
        return (machine, fits, tuple(able[:many])) if self.with_devices else (machine, fits)

    def machines_for(self, gang, begin):
        """First fit at ``begin`` for as long as forecast, or None."""
        left, where = gang.pieces, []
        for machine, (_, kind) in enumerate(self.machines):
            if kind not in gang.kinds:
                continue
            moments = [self.free(machine, second) for second in range(begin, begin + gang.forecast)]
            part = self.part_on(gang, machine, left, moments) if left else None
            if part is not None:
                where.append(part)
                left -= part[1]
        return where if left == 0 else None

    def earliest(self, gang, now):
        return next(second for second in range(now, HORIZON) if self.machines_for(gang, second) is not None)

    def hold(self, gang, begin):
        gang.where = self.machines_for(gang, begin)
        self.held.append((gang, begin, begin + gang.forecast))

    def begin(self, gang, now):
        if self.rule not in RESERVING:
            gang.where = self.machines_for(gang, now)
        self.held = [held for held in self.held if held[0] is not gang]
        gang.start, gang.planned, gang.end = now, now + gang.forecast, now + gang.run
        self.queue.remove(gang)
        self.running.append(gang)
        self.waits.append(now - gang.submit)

    def sorted(self, order):
        key = {BY_SUBMIT: lambda g: 0, BY_RUN: lambda g: g.forecast, BY_VOLUME: lambda g: g.forecast * g.volume}[order]
        return sorted(self.queue, key=lambda gang: (key(gang), gang.number))

    def replay(self):
        coming = list(self.gangs)
        while coming or self.running or self.queue:
            moments = [gang.submit for gang in coming[:1]]
            moments += [min(gang.end, gang.planned) for gang in self.running]
            moments += [begin for _, begin, _ in self.held if self.rule in RESERVING]
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
            if self.rule in RESERVING and broken:
                self.held = []
            if self.rule in RESERVING and (broken or gained):
                for gang in self.queue:
                    held = [one for one in self.held if one[0] is gang]
                    self.held = [one for one in self.held if one[0] is not gang]
                    begin = self.earliest(gang, now)
                    if held and begin >= held[0][1]:
                        self.held += held
                    else:
                        self.hold(gang, begin)
                    if self.rule == SLACK and broken:
                        gang.promise = max(gang.promise, begin)
            while coming and coming[0].submit == now:
                gang = coming.pop(0)
                self.queue.append(gang)
                if self.rule in RESERVING:
                    begin = self.earliest(gang, now)
                    later = slack_of(self.priority, sum(self.waits), len(self.waits)) if self.rule == SLACK else 0
                    gang.promise = begin + later
                    self.hold(gang, begin)
            self.decide(now)

    def decide(self, now):
        if self.rule == SLACK:
            self.spend(now)
        if self.rule in RESERVING:
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

    def beside(self, gang, now):
        """First fit beside what runs and what starts now, or None."""
        left, where = gang.pieces, []
        there = self.running + [other for other, begin, _ in self.held if begin == now]
        for machine, (_, kind) in enumerate(self.machines):
            usable = left > 0 and kind in gang.kinds
            part = self.part_on(gang, machine, left, [self.left(machine, there)]) if usable else None
            if part is not None:
                where.append(part)
                left -= part[1]
        return where if left == 0 else None

    def spend(self, now):
        """Bring jobs forward, the shortest first, where all promises still hold and the sum of the starts falls."""
        trials = 0
        for gang in sorted(self.queue, key=lambda gang: (gang.forecast, gang.number)):
            starts = {other.number: begin for other, begin, _ in self.held}
            where = self.beside(gang, now)
            if starts[gang.number] == now or where is None or trials == TRIALS:
                continue
            trials += 1
            before, old_machines = list(self.held), [(other, other.where) for other in self.queue]
            end, machines = now + gang.forecast, {part[0] for part in where}
            in_the_way = [
                (begin, other.number, other)
                for other, begin, _ in self.held
                if other is not gang and now < begin < end and machines & {part[0] for part in other.where}
            ]
            out = [gang, *(other for _, _, other in in_the_way)]
            self.held = [one for one in self.held if one[0] not in out]
            gang.where = where
            self.held.append((gang, now, end))
            for _, _, other in sorted(in_the_way, key=lambda one: one[:2]):
                self.hold(other, self.earliest(other, now))
            late = any(begin > other.promise for other, begin, _ in self.held if other in out[1:])
            if late or sum(begin for _, begin, _ in self.held) >= sum(starts.values()):
                self.held = before
                for other, old in old_machines:
                    other.where = old


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


@st.composite
def jobs_with_devices(draw):
    """Single pieces with whole devices and shares, on one or two machines of one to three devices of 4 each."""
    machines = []
    for _ in range(draw(st.integers(1, 2))):
        size = (draw(st.integers(4, 8)), draw(st.integers(4, 8)))
        devices = draw(st.integers(1, 3))
        machines.append(((*size, *(4 if number < devices else 0 for number in range(3))), 0))
    found, now = [], 0
    for number in range(draw(st.integers(2, 10))):
        now += draw(st.sampled_from([0, 0, 1, 2]))
        run = draw(st.sampled_from([1, 3, 3, 5]))
        need = (draw(st.integers(1, 3)), draw(st.integers(0, 2)))
        devices = draw(st.sampled_from([(0, 0), (1, 1), (1, 2), (1, 2), (1, 3), (1, 4), (2, 4)]))
        if all(sum(amount > 0 for amount in capacity[2:]) < devices[0] for capacity, _ in machines):
            continue
        request = run + draw(st.sampled_from([0, 2]))
        forecast = draw(st.sampled_from([request, run, 1]))
        gang = Gang(now, run, request, forecast, 1, need, frozenset({0}), devices)
        gang.number, gang.volume = number, need[0]
        found.append(gang)
    return found, machines


def crowded(seed):
    """Return gangs that queue on a few machines: where slack is spent now and then."""
    draw = np.random.default_rng(seed)
    machines = [((4, 4), int(draw.integers(2))) for _ in range(draw.integers(2, 5))]
    found, now = [], 0
    for number in range(draw.integers(8, 20)):
        now += int(draw.choice([0, 1, 1, 2]))
        run, need = int(draw.choice([1, 2, 4, 6])), (int(draw.integers(1, 5)), int(draw.integers(3)))
        kinds = frozenset(draw.choice(2, size=draw.integers(1, 3), replace=False).tolist())
        room = sum(min(4 // need[r] for r in range(2) if need[r]) for _, kind in machines if kind in kinds)
        if room == 0:
            continue
        request = run + int(draw.choice([0, 0, 0, 3]))
        forecast = int(draw.choice([request, request, run]))
        gang = Gang(now, run, request, forecast, min(int(draw.integers(1, 4)), room), need, kinds)
        gang.number, gang.volume = number, 0
        found.append(gang)
    return found, machines


def as_one_machine(jobs, capacity, rule, order, backfill, mode, priority=MIDDLING_PRIORITY):
    """A job's processors are its pieces, all on the one machine."""
    log = columns(jobs)
    pieces = np.array([job.demand for job in jobs])
    ones = np.ones(len(jobs), dtype=np.int64)
    machine = (np.array([[capacity]]), np.zeros(1, dtype=np.int64))
    found = on_machines(log, pieces, ones[:, None], ones, *machine, rule, order, backfill, mode, priority)
    assert found[3] == [[(0, job.demand)] for job in jobs]
    return found[:3]


def columns_of_gangs(jobs, machines):
    """Return the arguments of `on_machines` that say what there is."""
    names = ("submit", "run", "request", "forecast")
    table = {name: np.array([getattr(job, name) for job in jobs], dtype=np.int64) for name in names}
    table["user"] = np.zeros(len(jobs), dtype=np.int64)
    return (
        table,
        np.array([job.pieces for job in jobs]),
        np.array([job.need for job in jobs]),
        np.array([sum(1 << kind for kind in job.kinds) for job in jobs]),
        np.array([free for free, _ in machines]),
        np.array([kind for _, kind in machines]),
    )
