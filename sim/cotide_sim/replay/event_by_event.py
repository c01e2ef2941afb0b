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
from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.ordered_jobs import insert, place_of, remove_at
from cotide_core.kernels.time_heap import heap_pop, heap_push
from cotide_sim.traces.batch_jobs import BatchJobs, Integers


class EventRules(NamedTuple):
    """What a simulator does; each is 0 or 1.

    Attributes
    ----------
    together : all events of a moment are handled before one decision, ends first.
    submits_first : else, of the events of a moment, submissions come before ends.
    free_as_planned : processors count as free from the planned end of their job, handled or not.
    beside : a backfilled job may outlast the reservation on processors that this leaves over.
    fixed : the reserved start of the queue's first job is never moved forward.
    """

    together: int = 0
    submits_first: int = 1
    free_as_planned: int = 0
    beside: int = 1
    fixed: int = 0


ONCE_A_MOMENT: Final = EventRules(together=1)
"""As the kernel decides."""
PYSS: Final = EventRules(free_as_planned=1)
"""As pyss and predictsim do."""


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
        # A submission alone changes nothing for the others: pyss looks at the queue only if the new job fits.
        if rules.together == 0 and came >= 0 and demand[came] > free:
            continue
        # 2. The queue's first jobs, then the others behind the first one's reservation.
        shadow: int = -1
        extra: int = 0
        kept = 0
        for at in range(queued):
            job = queue[at]
            starts = demand[job] <= free
            if kept > 0 and starts:
                in_time = now + forecast[job] <= shadow
                if not in_time:
                    starts = rules.beside == 1 and demand[job] <= extra
                    if starts:
                        extra -= demand[job]
            if starts:
                start[job] = now
                free -= demand[job]
                turn_job[turns] = job
                held = insert(plan_time, plan_job, held, now + forecast[job], job)
                running = heap_push(end_time, end_turn, running, now + run[job], turns)
                turns += 1
                continue
            if kept == 0:
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
            queue[kept] = job
            kept += 1
        queued = kept
