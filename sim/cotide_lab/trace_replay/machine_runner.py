"""One trace under one policy on many machines: calls the kernel, checks the machines, adds up what was used.

Called by `cotide simulate --machines` and the benchmarks. Middle of the flow: jobs to start times and machines.
Invariant: the same jobs, machines, policy and forecasts give the same schedule, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Integers
from cotide_core.policies.catalogue import Runner, entry_of
from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN, LAST_TWO, LEARNED, past_of
from cotide_lab.predictors.run_time.sequential.catalogue import SEQUENTIAL
from cotide_lab.trace_replay.check import faults_of
from cotide_lab.trace_replay.kernels.easy import BY_DEMAND, NO_BACKFILL
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs
from cotide_lab.trace_replay.kernels.platform import platform_rule
from cotide_lab.trace_replay.kernels.replay_state import Jobs
from cotide_lab.trace_replay.machine_jobs import MachineJobs
from cotide_lab.trace_replay.machine_replay import (
    CONSERVATIVE,
    DRAWN,
    EASY,
    IN_ORDER,
    LEAST_WORK,
    PLAN,
    PLATFORM,
    SLACK,
    MachineRule,
    replay_machines,
)
from cotide_lab.trace_replay.machines_apart import asked_apart
from cotide_lab.trace_replay.policies import PLATFORMS, ReplayPolicy
from cotide_lab.trace_replay.runner import Reliability, Runtime, Schedule, run_watched
from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.machines import Machines

RULES: Final = {
    "conservative": CONSERVATIVE, "plan": PLAN, "apart": PLAN, "least-work": LEAST_WORK, "drawn": DRAWN,
    "platform": PLATFORM, "slack": SLACK,
}  # fmt: skip
MODES: Final[dict[Runtime, int]] = {"last-two": LAST_TWO, "learned": LEARNED}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the jobs of a schedule ran.

    Attributes
    ----------
    schedule : start times.
    first, used : (n,) where a job's entries begin, and how many there are.
    machine, count : (p,) of each entry: the machine, and the job's pieces on it.
    devices : (n,) the devices that a job held, bit d for device d of its machine.
    """

    schedule: Schedule
    first: Integers
    used: Integers
    machine: Integers
    count: Integers
    devices: Integers


def run_on_machines(
    given: MachineJobs,
    policy: ReplayPolicy,
    runtime: Runtime = "request",
    *,
    seed: int = 0,
    watch: Callable[[int], None] | None = None,
) -> Placement:
    """Replay a trace.

    Parameters
    ----------
    runtime : where forecasts come from; neither ``trees`` nor any of `SEQUENTIAL`. ``hybrid`` always learns, unless
        clairvoyant.
    seed : of drawn machines and orders.
    watch : called now and then and at the end, in this thread, with the number of jobs submitted so far.

    Raises
    ------
    InputError
        When the policy knows no machines, or forecasts are made at pauses.
    """
    entry_of(policy.name, Runner.MACHINES)
    if runtime == "trees":
        raise InputError("trees are not grown in replays on machines; learned is there", field="--runtime")
    if runtime in SEQUENTIAL:
        raise InputError(f"replays on machines don't pause for {runtime}; learned is there", field="--runtime")
    _run(_SMALL, policy, runtime, seed, np.zeros(2, dtype=np.int64))
    progress = np.zeros(2, dtype=np.int64)
    if watch is None:
        return _run(given, policy, runtime, seed, progress)
    return run_watched(lambda: _run(given, policy, runtime, seed, progress), progress, watch)


def _run(given: MachineJobs, policy: ReplayPolicy, runtime: Runtime, seed: int, progress: Integers) -> Placement:
    jobs = given.jobs
    if policy.kernel in PLATFORMS and runtime != "clairvoyant":
        runtime = "learned"  # it needs forecasts with an estimated accuracy, whatever forecasts the other policies use
    numbers, user = np.unique(jobs.user, return_inverse=True)
    user = np.where(jobs.user < 0, -1, user).astype(np.int64)
    forecast = (jobs.run if runtime == "clairvoyant" else jobs.request).copy()
    mode = MODES.get(runtime, GIVEN)
    start, promise = np.full((2, len(jobs)), -1, dtype=np.int64)
    past = past_of(mode, len(numbers), user, jobs.demand, jobs.request)
    demand, order = jobs.demand, policy.order
    if policy.shuffled:  # a drawn number takes the place of the demand
        demand, order = np.random.default_rng(seed).permutation(len(jobs)).astype(np.int64) + 1, BY_DEMAND
    allowed, kind = given.allowed, given.machines.kind
    if policy.kernel == "apart":
        demand, allowed, kind = asked_apart(given)
    _, shape = np.unique(np.column_stack([allowed, given.need, given.devices]), axis=0, return_inverse=True)
    columns, devices = given.machines.columns(), given.devices
    gangs = Gangs(given.pieces, given.need, shape.astype(np.int64).ravel(), allowed, kind, columns, devices)
    platform = None
    if policy.kernel in PLATFORMS:
        known = np.full_like(jobs.submit, runtime == "clairvoyant")
        platform = platform_rule(jobs.processors, mode, past, forecast.copy(), known, settings=policy.platform)
    code = RULES.get(policy.kernel, IN_ORDER if policy.backfill == NO_BACKFILL else EASY)
    rule = MachineRule(code, order, policy.backfill, seed, platform)
    asked = Jobs(jobs.submit, jobs.run, demand, jobs.request, user, forecast, start, promise)
    begin = time.perf_counter()
    rounds, held = replay_machines(asked, gangs, past, mode, rule, progress)
    wall = time.perf_counter() - begin
    reliability: Reliability | None = "mixture" if platform is not None and runtime == "learned" else None
    schedule = Schedule(policy.name, runtime, start, forecast, promise, int(rounds), wall, reliability)
    return Placement(schedule, held.first, held.used, held.placed, held.counts, held.devices)


def machine_faults_of(given: MachineJobs, placement: Placement) -> list[str]:
    """Return what is impossible or broken about a schedule on machines, a sentence each with the first job concerned.

    Checks beyond `check.faults_of`: all pieces of a job are placed, on machines that it may use, each with its devices.
    No machine ever holds more of any resource than it has, and no device holds more than one.
    """
    faults = faults_of(given.jobs, placement.schedule)
    job = np.repeat(np.arange(len(given)), placement.used)
    entry = np.arange(len(job)) - np.repeat(np.cumsum(placement.used) - placement.used, placement.used)
    entry += placement.first[job]
    machine, count = placement.machine[entry], placement.count[entry]
    short = np.bincount(job, count, minlength=len(given)) != given.pieces
    if short.any():
        faults.append(f"job {given.jobs.numbers[int(np.argmax(short))]} has not all its pieces placed, or more")
    wrong = (given.allowed[job] >> given.machines.kind[machine]) & 1 == 0
    if wrong.any():
        faults.append(f"job {given.jobs.numbers[job[int(np.argmax(wrong))]]} is on a machine that it may not use")
    devices = placement.devices[job]
    bits = (devices[:, None] >> np.arange(int(given.machines.devices.max(initial=0)))) & 1
    amiss = (bits.sum(axis=1) != given.devices[job, 0]) | (devices >> given.machines.devices[machine] != 0)
    if amiss.any():
        faults.append(f"job {given.jobs.numbers[job[int(np.argmax(amiss))]]} has not the devices that it asks for")
    start = placement.schedule.start[job]
    times = np.concatenate([start + given.jobs.run[job], start])
    kinds = np.repeat(np.array([0, 1]), len(job))
    where = np.tile(machine, 2)
    order = np.lexsort((kinds, times, where))
    names = [*given.machines.resources, *(f"of device {number}" for number in range(bits.shape[1]))]
    taken = np.hstack([count[:, None] * given.need[job], bits * given.devices[job, 1:]])
    capacity = given.machines.columns()
    for at, name in enumerate(names):
        amounts = taken[:, at]
        # A machine's amounts add up to nothing by its last end, so one running sum serves all machines in turn.
        held = np.cumsum(np.concatenate([-amounts, amounts])[order])
        over = held > capacity[where[order], at]
        if over.any():
            index = order[int(np.argmax(over))]
            faults.append(f"machine {where[index]} holds too much {name} at {times[index]} s")
    return faults


def use_of_resources(given: MachineJobs, placement: Placement) -> dict[str, float]:
    """Return the share of each resource that was in use from the first submission to the last end, by name."""
    jobs, start = given.jobs, placement.schedule.start
    span = float((start + jobs.run).max() - jobs.submit[0])
    used = (given.pieces * jobs.run).astype(np.float64) @ given.need.astype(np.float64)
    total = given.machines.capacity.sum(axis=0).astype(np.float64) * span
    return {
        name: float(used[at] / total[at]) if total[at] > 0 else 0.0 for at, name in enumerate(given.machines.resources)
    }


def _few() -> MachineJobs:
    """Return two jobs: enough to have the kernel compiled before the clock starts."""
    two, table = np.ones(2, dtype=np.int64), np.ones((2, 1), dtype=np.int64)
    none = np.zeros(1, dtype=np.int64)
    machines = Machines(("cpu",), table[:1].copy(), none, none, ("",), "")
    devices = np.zeros((2, 2), dtype=np.int64)
    return MachineJobs(BatchJobs("", 1, two, two, two, two, two, two), two, table, devices, two, machines)


_SMALL: Final = _few()
