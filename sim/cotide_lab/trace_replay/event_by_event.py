"""EASY with options where simulators disagree: which events one decision covers, and when processors are free.

Called by the experiment `easy_variants`, not by live policies or `cotide simulate`, which use the kernel. Arrays in,
start times out. Invariant: with `ONCE_A_MOMENT` the schedule is the kernel's, job by job (a test holds it to that).

Others compare with the published figures of pyss. It decides after every single event, submissions before ends, and
keeps a timetable of processors by *planned* end. A job killed at its request ends when its plan does. At that second
its processors count as free in every decision, even before its end is handled. Those of a job that ended early wait for
their turn. Ends of one second are handled in the order of the jobs' starts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Booleans, Integers
from cotide_core.kernels.compiled import compiled, inlined, uncounted
from cotide_core.kernels.ordered_jobs import index_of, insert, remove_at
from cotide_lab.trace_replay.kernels.time_heap import heap_pop, heap_push
from cotide_sim.traces.jobs.batch_jobs import BatchJobs


class EventRules(NamedTuple):
    """What a simulator does; each is 0 or 1.

    Attributes
    ----------
    together : all events of a moment are handled before one decision, ends first.
    submits_first : else, of the events of a moment, submissions come before ends.
    free_as_planned : processors count as free from the planned end of their job, handled or not.
    beside : a backfilled job may outlast the reservation on processors that this leaves over.
    fixed : the reserved start of the queue's first job is never moved forward.
    newcomer_only : a submission alone has the queue looked at only if the new job fits.
    shortest_first : behind the reservation the shortest planned is tried first, else in order of submission.
    """

    together: int = 0
    submits_first: int = 1
    free_as_planned: int = 0
    beside: int = 1
    fixed: int = 0
    newcomer_only: int = 0
    shortest_first: int = 0


ONCE_A_MOMENT: Final = EventRules(together=1)
"""As the kernel decides."""
PYSS: Final = EventRules(free_as_planned=1, newcomer_only=1)
"""As pyss and predictsim run EASY."""
PYSS_SHORTEST_FIRST: Final = EventRules(free_as_planned=1, shortest_first=1)
"""As predictsim runs EASY with shortest-job backfill (its "EASY++")."""


def replay_events(jobs: BatchJobs, rules: EventRules, forecast: Integers | None = None) -> Integers:
    """Return the (n,) start times of EASY.

    Parameters
    ----------
    forecast : (n,) seconds, no less than the run times; the requests when None.

    Raises
    ------
    InputError
        When a job runs longer than forecast: none of these rules covers that case.
    """
    planned = jobs.request if forecast is None else forecast
    late = jobs.run > planned
    if late.any():
        index = int(np.argmax(late))
        raise InputError(
            f"job {jobs.numbers[index]} runs {jobs.run[index]} s, longer than the {planned[index]} s planned",
            field="forecast",
        )
    kept = _kept(jobs, planned)
    _replay(kept, rules)
    return kept.start


class _Kept(NamedTuple):
    """The log, and what is known of it at a moment.

    Attributes
    ----------
    end_time, end_turn : heap of the ends of running jobs, by time and then by turn; ``counts[RUNNING]`` of them.
    turn_job : the job that was started as the n-th.
    plan_time, plan_job : planned ends in order, of jobs whose processors don't count as free; ``counts[HELD]`` of them.
    queue : waiting jobs in order of submission; ``counts[QUEUED]`` of them.
    tried : their indices, in the order of the search.
    gone : whether the job at an index of the queue was started in this round.
    counts : (8,) see the constants.
    """

    submit: Integers
    run: Integers
    demand: Integers
    forecast: Integers
    start: Integers
    end_time: Integers
    end_turn: Integers
    turn_job: Integers
    plan_time: Integers
    plan_job: Integers
    queue: Integers
    tried: Integers
    gone: Booleans
    counts: Integers


_FREE: Final = 0
_QUEUED: Final = 1
_RUNNING: Final = 2
_HELD: Final = 3
_TURNS: Final = 4
_ARRIVED: Final = 5
_PROMISED: Final = 6
_PROMISED_TO: Final = 7


def _kept(jobs: BatchJobs, forecast: Integers) -> _Kept:
    total = len(jobs)
    # Where processors are free before their job has ended, more jobs run than there are processors.
    times, plans, lists = (np.full((2, total + 1), -1, dtype=np.int64) for _ in range(3))
    return _Kept(
        jobs.submit,
        jobs.run,
        jobs.demand,
        forecast,
        start=np.full(total, -1, dtype=np.int64),
        end_time=times[0],
        end_turn=times[1],
        turn_job=np.full(total, -1, dtype=np.int64),
        plan_time=plans[0],
        plan_job=plans[1],
        queue=lists[0],
        tried=lists[1],
        gone=np.zeros(total, np.bool_),
        counts=np.array([jobs.processors, 0, 0, 0, 0, 0, -1, -1], dtype=np.int64),
    )


@uncounted
def _replay(kept: _Kept, rules: EventRules) -> None:
    counts, submit, end_time = kept.counts, kept.submit, kept.end_time
    jobs = submit.shape[0]
    while counts[_ARRIVED] < jobs or counts[_RUNNING] > 0:
        arrived = counts[_ARRIVED]
        now = submit[arrived] if arrived < jobs else end_time[0]
        if counts[_RUNNING] > 0 and end_time[0] < now:
            now = end_time[0]
        if rules.free_as_planned == 1:
            while counts[_HELD] > 0 and kept.plan_time[0] <= now:
                _free(kept, 0)
        # One event, or all of the moment: ends, then submissions.
        submits = arrived < jobs and submit[arrived] == now
        ends = (
            counts[_RUNNING] > 0
            and end_time[0] == now
            and (rules.together == 1 or not (submits and rules.submits_first))
        )
        came: int = -1
        if ends:
            _end(now, kept, rules)
        if submits and (rules.together == 1 or not ends):
            came = _submit(now, kept, rules)
        passed_over = rules.newcomer_only == 1 and rules.together == 0 and came >= 0
        if not passed_over or kept.demand[came] <= counts[_FREE]:
            _decide(now, kept, rules)
            _close_up(kept)


@inlined
def _free(kept: _Kept, index: int) -> None:
    """Count the processors of a planned end as free."""
    kept.counts[_FREE] += kept.demand[kept.plan_job[index]]
    kept.counts[_HELD] = remove_at(kept.plan_time, kept.plan_job, kept.counts[_HELD], index)


@inlined
def _end(now: int, kept: _Kept, rules: EventRules) -> None:
    """End the jobs of a moment, or the first of them."""
    counts = kept.counts
    while counts[_RUNNING] > 0 and kept.end_time[0] == now:
        job = kept.turn_job[kept.end_turn[0]]
        counts[_RUNNING] = heap_pop(kept.end_time, kept.end_turn, counts[_RUNNING])
        held = counts[_HELD]
        index = index_of(kept.plan_time, kept.plan_job, held, kept.start[job] + kept.forecast[job], job)
        if index < held and kept.plan_job[index] == job:
            _free(kept, index)
        if rules.together == 0:
            break


@inlined
def _submit(now: int, kept: _Kept, rules: EventRules) -> int:
    """Queue the jobs of a moment, or the first of them; return the last one queued."""
    counts = kept.counts
    while counts[_ARRIVED] < kept.submit.shape[0] and kept.submit[counts[_ARRIVED]] == now:
        kept.queue[counts[_QUEUED]] = counts[_ARRIVED]
        counts[_QUEUED] += 1
        counts[_ARRIVED] += 1
        if rules.together == 0:
            break
    return int(counts[_ARRIVED]) - 1


@inlined
def _decide(now: int, kept: _Kept, rules: EventRules) -> None:
    """Start the queue's first jobs, then others behind the reservation of the first that has to wait."""
    counts, queue, tried = kept.counts, kept.queue, kept.tried
    shadow: int = -1
    extra: int = 0
    blocked = False
    for at in range(counts[_QUEUED]):
        tried[at] = at
    for turn in range(counts[_QUEUED]):
        job = queue[tried[turn]]
        starts = kept.demand[job] <= counts[_FREE]
        if blocked and starts and now + kept.forecast[job] > shadow:
            starts = rules.beside == 1 and kept.demand[job] <= extra
            if starts:
                extra -= kept.demand[job]
        if starts:
            kept.gone[tried[turn]] = True
            _begin(now, job, kept)
        elif not blocked:
            blocked = True
            shadow, extra = _reserve(job, kept, rules)
            if rules.shortest_first == 1 and counts[_FREE] > 0:
                _order_by_plan(kept.forecast, queue, tried, turn + 1, counts[_QUEUED])


@compiled
def _order_by_plan(forecast: Integers, queue: Integers, tried: Integers, first: int, end: int) -> None:
    """Try the indices from ``first`` on from the shortest planned to the longest."""
    rest = np.argsort(forecast[queue[first:end]], kind="mergesort")
    for other in range(rest.shape[0]):
        tried[first + other] = first + rest[other]


@inlined
def _begin(now: int, job: int, kept: _Kept) -> None:
    """Start a job."""
    counts = kept.counts
    kept.start[job] = now
    counts[_FREE] -= kept.demand[job]
    kept.turn_job[counts[_TURNS]] = job
    counts[_HELD] = insert(kept.plan_time, kept.plan_job, counts[_HELD], now + kept.forecast[job], job)
    counts[_RUNNING] = heap_push(kept.end_time, kept.end_turn, counts[_RUNNING], now + kept.run[job], counts[_TURNS])
    counts[_TURNS] += 1


@inlined
def _reserve(job: int, kept: _Kept, rules: EventRules) -> tuple[int, int]:
    """Return the reserved start of the first job that has to wait, and the processors that it leaves over then."""
    counts = kept.counts
    level = counts[_FREE]
    index = 0
    shadow: int = -1
    while level < kept.demand[job]:
        shadow = kept.plan_time[index]
        level += kept.demand[kept.plan_job[index]]
        index += 1
    if rules.fixed == 1:
        if counts[_PROMISED_TO] == job:
            shadow = max(shadow, counts[_PROMISED])
        counts[_PROMISED] = shadow
        counts[_PROMISED_TO] = job
    while index < counts[_HELD] and kept.plan_time[index] <= shadow:
        level += kept.demand[kept.plan_job[index]]
        index += 1
    return shadow, level - kept.demand[job]


@inlined
def _close_up(kept: _Kept) -> None:
    """Close the gaps that jobs which were started leave in the queue."""
    left = 0
    for at in range(kept.counts[_QUEUED]):
        if kept.gone[at]:
            kept.gone[at] = False
            continue
        kept.queue[left] = kept.queue[at]
        left += 1
    kept.counts[_QUEUED] = left
