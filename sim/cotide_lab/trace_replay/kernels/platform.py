"""The hybrid platform on one pool: plans for jobs of predictable run time, backfilling for the rest (Naghshnejad 2019,
ch. 4).

Called by the trace replay. A job whose forecast has an estimated accuracy of 0.6 or more is predictable (section 4.4).
Predictable jobs hold at most a share alpha of the processors, others all that is free. Eq. 4.1 of the thesis multiplies
alpha by a ratio <= 1 at every step and so runs to zero. The code follows its text instead: alpha is the share of
predictable jobs in the processors that recent jobs requested. Each later job lowers the weight of a job by a
thousandth; alpha starts at 0.6. A job too large for the share counts as unpredictable.

Where this departs from the seed, for what it gains (docs/design/live-plans.md has the figures):

- One round plans both: jobs are tried in order of volume, the predictable by their forecast, the others by their upper
  forecast. Processors outside their share that no other job can use are lent to the predictable jobs.
- A job is planned to take its upper forecast if predictable, else what its user asked for. Before a reservation, every
job is planned by its upper forecast: many users request days and run for minutes, and by their requests the processors
before a reservation stay idle.
- Selective reservations (Srinivasan et al. 2002): a job gets a reserved start once it has waited `PATIENCE` times its
planned length, or ten days. The first submitted comes first, with at most `RESERVED` of each kind. Jobs that are not
predictable are protected earlier (see `PlatformSettings`). Before that a job may be overtaken: reserving for everyone,
as
  a plan does, or for whoever is first, as EASY does, holds processors idle.

Invariants: a job starts only when its processors are free for its planned length, without touching reservations of the
same round. Predictable jobs hold at most alpha, apart from lent processors.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import compiled, inlined, with_steps
from cotide_core.kernels.machine_platform import (
    FIRST_DEMAND,
    FIRST_SHARE,
    PATIENCE,
    PATIENCE_SECONDS,
    PREDICTABLE,
    RECENT_JOBS,
    RESERVED,
)
from cotide_core.kernels.ordered_jobs import index_of, insert, remove_at
from cotide_lab.predictors.run_time.kernels.run_forecasts import LEARNED, Past
from cotide_lab.trace_replay.kernels.event_loop import replay, start_job
from cotide_lab.trace_replay.kernels.profile import change, earliest_start, profile_of
from cotide_lab.trace_replay.kernels.replay_state import ROUNDS, RUNNING, SPARE, TAKEN, WAITING, Jobs, ReplayState

HELD: Final = SPARE + 3
"""Index of the processors that the predictable hold."""
NONE_LEFT: Final = -1
"""In place of a kind of jobs."""
LENGTHS: Final = SPARE + 4
"""Index of the number of waiting jobs that are not predictable; the next index has the number of those that are."""


class PlatformSettings(NamedTuple):
    """What can be chosen of the platform; the defaults are those of the live engine.

    Attributes
    ----------
    patience : times its planned length that an unpredictable and a predictable job waits for a reservation.
    patience_seconds : after which it has one in any case.
    reserved : reservations of each kind that a round makes.
    first_share : alpha before the first job.
    """

    patience: tuple[int, int] = PATIENCE
    patience_seconds: int = PATIENCE_SECONDS
    reserved: int = RESERVED
    first_share: float = FIRST_SHARE


class PlatformRule(NamedTuple):
    """The hybrid platform on one pool.

    Attributes
    ----------
    capacity : processors.
    settings : of the platform.
    mode : of `run_forecasts`.
    threshold : estimated accuracy from which a job counts as predictable; read from `LEARNED` on.
    learned_upper, reliability : of `Past`; read from `LEARNED` on.
    upper, predictable : (n,) the seconds that few runs outlive, and 1 or 0; read, or filled where forecasts are
        learned. A job too large for the share is set to 0 either way.
    keys, lines : (2, n) the others (row 0) and the predictable (row 1) that wait, in order of volume.
    volume : (n,) by which they are ordered.
    shares : (2,) processors that recent predictable jobs asked for, and all recent jobs.
    """

    capacity: int
    settings: PlatformSettings
    mode: int
    threshold: float
    learned_upper: Integers
    reliability: Floats
    upper: Integers
    predictable: Integers
    keys: Integers
    lines: Integers
    volume: Integers
    shares: Floats


def platform_rule(
    capacity: int,
    mode: int,
    past: Past,
    upper: Integers,
    predictable: Integers,
    *,
    threshold: float = PREDICTABLE,
    settings: PlatformSettings | None = None,
) -> PlatformRule:
    """Return the rule for the jobs of these columns, with empty lists."""
    keys, lines = (np.empty((2, len(upper)), np.int64) for _ in range(2))
    chosen = settings or PlatformSettings()
    volume, shares = np.empty(len(upper), np.int64), np.array([chosen.first_share * FIRST_DEMAND, FIRST_DEMAND])
    return PlatformRule(
        capacity,
        chosen,
        mode,
        threshold,
        past.upper,
        past.reliability,
        upper,
        predictable,
        keys,
        lines,
        volume,
        shares,
    )


@compiled
def is_free(times: Integers, free: Integers, size: int, seconds: int, demand: int) -> bool:
    """Return whether ``demand`` processors are free for ``seconds`` from the profile's first moment."""
    end = times[0] + seconds
    for index in range(size):
        if index > 0 and times[index] >= end:
            return True
        if free[index] < demand:
            return False
    return True


@inlined
def is_among(job: int, listed: Integers, count: int) -> bool:
    """Return whether a job is one of the first ``count`` of a list."""
    found = False
    for index in range(count):
        found |= listed[index] == job
    return found


@inlined
def share_of(rule: PlatformRule) -> int:
    """Return the processors that the predictable may hold."""
    return int(rule.capacity * rule.shares[0] / rule.shares[1])


@inlined
def prepare_platform(jobs: Jobs, state: ReplayState, rule: PlatformRule) -> PlatformRule:
    """Have no order among the waiting but that of submission."""
    if state.counts[ROUNDS] == 0:
        state.queues[0, 0, :] = 0  # all in order of submission
    return rule


@inlined
def ended_on_platform(now: int, job: int, jobs: Jobs, state: ReplayState, rule: PlatformRule) -> PlatformRule:
    """Release what a predictable job held."""
    state.counts[HELD] -= jobs.demand[job] * rule.predictable[job]
    return rule


@inlined
def submitted_to_platform(now: int, job: int, jobs: Jobs, state: ReplayState, rule: PlatformRule) -> PlatformRule:
    """Decide whether a job is predictable, update the share, and add the job to the queue of its kind."""
    counts, shares, predictable, demand = state.counts, rule.shares, rule.predictable, jobs.demand[job]
    if rule.mode >= LEARNED:
        rule.upper[job] = rule.learned_upper[job]
        predictable[job] = 1 if rule.reliability[job] >= rule.threshold else 0
    shares[1] += demand - shares[1] / RECENT_JOBS
    shares[0] += demand * predictable[job] - shares[0] / RECENT_JOBS
    if demand > share_of(rule):
        predictable[job] = 0
    kind = predictable[job]
    rule.volume[job] = (jobs.forecast[job] if kind == 1 else rule.upper[job]) * demand
    insert(rule.keys[kind], rule.lines[kind], counts[LENGTHS + kind], rule.volume[job], job)
    counts[LENGTHS + kind] += 1
    state.queues[0, 1, counts[WAITING]] = job
    counts[WAITING] += 1
    return rule


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: PlatformRule) -> PlatformRule:
    counts = state.counts
    free = rule.capacity - counts[TAKEN]
    if counts[WAITING] == 0 or free == 0:
        return rule
    share = share_of(rule)
    times, levels = state.profile[0], state.profile[1]
    size = profile_of(times, levels, now, free, state.ends[0], state.ends[1], counts[RUNNING], jobs.demand)
    size, reserved = _overdue(now, size, jobs, state, rule)
    size = _by_volume(now, size, share, True, reserved, jobs, state, rule)
    _by_volume(now, size, rule.capacity, False, reserved, jobs, state, rule)
    return rule


@inlined
def planned_on_platform(job: int, jobs: Jobs, rule: PlatformRule) -> int:
    """Return the seconds that a job is planned to take."""
    length: int = rule.upper[job] if rule.predictable[job] == 1 else jobs.request[job]
    return length


@inlined
def backfilled_on_platform(job: int, beside: bool, jobs: Jobs, rule: PlatformRule) -> int:
    """Return the seconds that a job in order of volume is planned to take, ``beside`` a reservation or without one."""
    length: int = rule.upper[job] if beside else planned_on_platform(job, jobs, rule)
    return length


@inlined
def is_overdue(now: int, job: int, length: int, jobs: Jobs, rule: PlatformRule) -> bool:
    """Return whether a job, planned to take ``length`` seconds, has waited long enough for a reservation."""
    patience = min(rule.settings.patience[rule.predictable[job]] * length, rule.settings.patience_seconds)
    overdue: bool = now - jobs.submit[job] >= patience
    return overdue


@inlined
def start_on_platform(now: int, job: int, length: int, jobs: Jobs, state: ReplayState, rule: PlatformRule) -> None:
    """Start a waiting job, which is planned to take ``length`` seconds."""
    counts, kind = state.counts, rule.predictable[job]
    no_keys, queue = state.queues[0, 0], state.queues[0, 1]
    index = index_of(no_keys, queue, counts[WAITING], no_keys[0], job)
    counts[WAITING] = remove_at(no_keys, queue, counts[WAITING], index)
    waiting = counts[LENGTHS + kind]
    index = index_of(rule.keys[kind], rule.lines[kind], waiting, rule.volume[job], job)
    counts[LENGTHS + kind] = remove_at(rule.keys[kind], rule.lines[kind], waiting, index)
    counts[HELD] += jobs.demand[job] * kind
    start_job(now, job, length, jobs, state)


@inlined
def _overdue(now: int, size: int, jobs: Jobs, state: ReplayState, rule: PlatformRule) -> tuple[int, int]:
    """Start or reserve the overdue in order of submission; return the profile's segments, and the reservations.

    The reserved jobs are the first in ``state.queues[1, 1]``, which this rule needs for nothing else.
    """
    counts, queue, demand = state.counts, state.queues[0, 1], jobs.demand
    times, levels = state.profile[0], state.profile[1]
    most = rule.settings.reserved
    index = 0
    reserved_others = 0
    reserved_predictable = 0
    while counts[TAKEN] < rule.capacity and index < counts[WAITING]:
        if reserved_others == most and reserved_predictable == most:
            break
        job = queue[index]
        kind = rule.predictable[job]
        length = planned_on_platform(job, jobs, rule)
        reserved = reserved_predictable if kind == 1 else reserved_others
        if reserved == most or not is_overdue(now, job, length, jobs, rule):
            index += 1
            continue
        begin = earliest_start(times, levels, size, now, length, demand[job])
        size = change(times, levels, size, begin, begin + length, -demand[job])
        if begin > now:
            state.queues[1, 1, reserved_predictable + reserved_others] = job
            reserved_predictable += kind
            reserved_others += 1 - kind
            index += 1
            continue
        start_on_platform(now, job, length, jobs, state, rule)
    return size, reserved_others + reserved_predictable


@inlined
def next_by_volume(first: int, second: int, with_others: bool, state: ReplayState, rule: PlatformRule) -> int:
    """Return the kind of the smallest of the jobs that are left in order of volume, or `NONE_LEFT`.

    Parameters
    ----------
    first, second : how many of the predictable and of the others were passed over.
    with_others : whether the jobs that are not predictable are tried, too.
    """
    keys, lines = rule.keys, rule.lines
    more = first < state.counts[LENGTHS + 1]
    others = with_others and second < state.counts[LENGTHS]
    if not more:
        return 0 if others else NONE_LEFT
    if others and (keys[0, second], lines[0, second]) < (keys[1, first], lines[1, first]):
        return 0
    return 1


@inlined
def _by_volume(
    now: int,
    size: int,
    share: int,
    with_others: bool,
    reserved: int,
    jobs: Jobs,
    state: ReplayState,
    rule: PlatformRule,
) -> int:
    """Start what fits in order of volume; return the profile's segments.

    Parameters
    ----------
    share : processors that the predictable may hold.
    with_others : whether jobs that are not predictable are tried, too.
    reserved : reservations of this round.
    """
    counts, demand = state.counts, jobs.demand
    times, levels = state.profile[0], state.profile[1]
    first = 0
    second = 0
    while counts[TAKEN] < rule.capacity:
        kind = next_by_volume(first, second, with_others, state, rule)
        if kind == NONE_LEFT:
            break
        job = rule.lines[kind, first if kind == 1 else second]
        length = backfilled_on_platform(job, reserved > 0, jobs, rule)
        if (
            demand[job] > rule.capacity - counts[TAKEN]
            or (kind == 1 and counts[HELD] + demand[job] > share)
            or is_among(job, state.queues[1, 1], reserved)
            or not is_free(times, levels, size, length, demand[job])
        ):
            first += kind
            second += 1 - kind
            continue
        size = change(times, levels, size, now, now + length, -demand[job])
        start_on_platform(now, job, length, jobs, state, rule)
    return size


replay_platform = with_steps(
    replay,
    "replay_platform",
    prepare=prepare_platform,
    ended=ended_on_platform,
    submitted=submitted_to_platform,
    decide=_decide,
)
"""Replays a log under the hybrid platform, see `event_loop.replay`."""
