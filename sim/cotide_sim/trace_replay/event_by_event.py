"""EASY with what simulators disagree on as options: what is decided on at once, and when processors are free.

Called by the experiment `easy_variants`, not by live policies or `cotide simulate`, which use the kernel. Arrays in,
start times out. Invariant: with `ONCE_A_MOMENT` the schedule is the kernel's, job by job (a test holds it to that).

pyss, whose published figures others compare with, decides after every single event, submissions before ends, and keeps
a timetable of processors by *planned* end. A job killed at its request ends when its plan does; so at that second its
processors count as free in every decision, whether or not its end was handled yet, while those of a job that ended
early wait for their turn. Ends of one second are handled in the order in which the jobs were started.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.ordered_jobs import insert, place_of, remove_at
from cotide_sim.trace_replay.kernels.time_heap import heap_pop, heap_push
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
        When a job runs longer than forecast: none of these rules says what happens then.
    """
    planned = jobs.request if forecast is None else forecast
    late = jobs.run > planned
    if late.any():
        place = int(np.argmax(late))
        raise InputError(
            f"job {jobs.numbers[place]} runs {jobs.run[place]} s, longer than the {planned[place]} s planned",
            field="forecast",
        )
    start = np.full(len(jobs), -1, dtype=np.int64)
    _replay(jobs.submit, jobs.run, jobs.demand, planned, jobs.processors, rules, start)
    return start


@compiled
def _replay(  # noqa: PLR0912, PLR0915  one compiled loop, as in the kernel
    submit: Integers,
    run: Integers,
    demand: Integers,
    forecast: Integers,
    capacity: int,
    rules: EventRules,
    start: Integers,
) -> None:
    jobs = submit.shape[0]
    most = min(jobs, capacity) + 1
    end_time = np.empty(most, np.int64)
    end_turn = np.empty(most, np.int64)
    turn_job = np.empty(jobs, np.int64)
    plan_time = np.empty(most, np.int64)
    plan_job = np.empty(most, np.int64)
    queue = np.empty(jobs, np.int64)
    tried = np.empty(jobs, np.int64)
    gone = np.zeros(jobs, np.bool_)
    queued = 0
    running = 0
    held = 0
    turns = 0
    free = capacity
    arrived = 0
    promised: int = -1
    promised_to: int = -1
    while arrived < jobs or running > 0:
        now = submit[arrived] if arrived < jobs else end_time[0]
        if running > 0 and end_time[0] < now:
            now = end_time[0]
        if rules.free_as_planned == 1:
            while held > 0 and plan_time[0] <= now:
                free += demand[plan_job[0]]
                held = remove_at(plan_time, plan_job, held, 0)
        # 1. One event, or all of the moment: ends, then submissions.
        submits = arrived < jobs and submit[arrived] == now
        ends = running > 0 and end_time[0] == now and (rules.together == 1 or not (submits and rules.submits_first))
        came: int = -1
        if ends:
            while running > 0 and end_time[0] == now:
                job = turn_job[end_turn[0]]
                running = heap_pop(end_time, end_turn, running)
                place = place_of(plan_time, plan_job, held, start[job] + forecast[job], job)
                if place < held and plan_job[place] == job:
                    free += demand[job]
                    held = remove_at(plan_time, plan_job, held, place)
                if rules.together == 0:
                    break
        if submits and (rules.together == 1 or not ends):
            while arrived < jobs and submit[arrived] == now:
                came = arrived
                queue[queued] = arrived
                queued += 1
                arrived += 1
                if rules.together == 0:
                    break
        if rules.newcomer_only == 1 and rules.together == 0 and came >= 0 and demand[came] > free:
            continue
        # 2. The queue's first jobs, then the others behind the reservation of the first that has to wait.
        shadow: int = -1
        extra: int = 0
        blocked = False
        for at in range(queued):
            tried[at] = at
        for turn in range(queued):
            at = tried[turn]
            job = queue[at]
            starts = demand[job] <= free
            if blocked and starts and now + forecast[job] > shadow:
                starts = rules.beside == 1 and demand[job] <= extra
                if starts:
                    extra -= demand[job]
            if starts:
                gone[at] = True
                start[job] = now
                free -= demand[job]
                turn_job[turns] = job
                held = insert(plan_time, plan_job, held, now + forecast[job], job)
                running = heap_push(end_time, end_turn, running, now + run[job], turns)
                turns += 1
            if starts or blocked:
                continue
            blocked = True
            level = free
            place = 0
            while level < demand[job]:
                shadow = plan_time[place]
                level += demand[plan_job[place]]
                place += 1
            if rules.fixed == 1:
                if promised_to == job:
                    shadow = max(shadow, promised)
                promised = shadow
                promised_to = job
            while place < held and plan_time[place] <= shadow:
                level += demand[plan_job[place]]
                place += 1
            extra = level - demand[job]
            if rules.shortest_first == 1 and free > 0:
                rest = np.argsort(forecast[queue[turn + 1 : queued]], kind="mergesort")
                for other in range(rest.shape[0]):
                    tried[turn + 1 + other] = turn + 1 + rest[other]
        kept = 0
        for at in range(queued):
            if gone[at]:
                gone[at] = False
                continue
            queue[kept] = queue[at]
            kept += 1
        queued = kept
