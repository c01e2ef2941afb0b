"""Queue policies on one pool: strict order, and EASY backfilling in several orders (Naghshnejad 2019, section 4.2.1).

Called by the trace replay. Arrays in, start times out. Rounds take place at each moment at which a job is submitted,
ends or outlives its forecast: first ends, then submissions, then decisions. Invariant: a job starts only when its
processors are free; with EASY, no backfilled job is planned to hold what the first of the queue needs at its reserved
time.

EASY as in Lifka 1995 and Mu'alem and Feitelson 2001 (Naghshnejad 2019's [128] and [104]): the queue's first job, when
blocked, gets the earliest time at which the planned ends of running jobs leave it enough (the shadow time); any other
job that fits now may start if it is planned to end by then, or asks for no more than what is left over at that time.

Only a round in which processors came free, a forecast changed, a first job started or another became first can let a
job start that could not before: in any other the submitted jobs alone are looked at. That is what makes a round cheap
while the machine is full.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.ordered_jobs import insert, place_of, remove_at
from cotide_predictors.run_time.kernels.run_forecasts import (
    GIVEN,
    LAST_TWO,
    LEARNED,
    Past,
    corrected,
    forecast_at_submit,
    last_two_mean,
    learn,
    note_last,
)
from cotide_predictors.run_time.kernels.run_habits import foresee, note_habit
from cotide_sim.trace_replay.kernels.kept import ARRIVED, ROUNDS, RUNNING, SPARE, WAITING, Kept
from cotide_sim.trace_replay.kernels.time_heap import heap_pop, heap_push

Integers = npt.NDArray[np.int64]

NO_BACKFILL: Final = -1
BY_SUBMIT: Final = 0
BY_RUN: Final = 1
BY_VOLUME: Final = 2
BY_DEMAND: Final = 3

STOP: Final = 1
"""Place in ``progress`` that a caller sets to end the replay early; place 0 counts submitted jobs."""


@compiled
def order_key(order: int, forecast: int, demand: int) -> int:
    """Return the number a job is ordered by, smallest first; ties go by submission."""
    if order == BY_RUN:
        return forecast
    if order == BY_VOLUME:
        return forecast * demand
    if order == BY_DEMAND:
        return demand
    return 0


@compiled
def replay_queue(  # noqa: PLR0912, PLR0915  one compiled loop: a call for each step would pass all its arrays
    submit: Integers,
    run: Integers,
    demand: Integers,
    request: Integers,
    user: Integers,
    past: Past,
    capacity: int,
    order: int,
    backfill: int,
    mode: int,
    one_by_one: int,
    forecast: Integers,
    start: Integers,
    promise: Integers,
    progress: Integers,
    kept: Kept,
) -> int:
    """Replay a log; return the number of rounds.

    Parameters
    ----------
    submit, run, demand, request : (n,) seconds or processors; submit never falls, 1 <= demand <= capacity, run >= 1.
    user : (n,) numbers from 0, or -1 for unknown.
    past : of `run_forecasts.past_of`, for this log and mode; used up by the call.
    order, backfill : order of the queue, and of the jobs tried behind its first; `NO_BACKFILL` for none.
    mode : of `run_forecasts`.
    one_by_one : 0: a round handles all that happens at its moment. 1: it handles one event, submissions before ends.
        (What published figures rest on frees processors by planned end, too: `cotide_sim.trace_replay.event_by_event`.)
    forecast : (n,) seconds; read if given, else filled with what was forecast at submission.
    start : (n,) out.
    promise : (n,) out: the first reserved start a job was given as the queue's first, else -1.
    progress : (2,) jobs submitted so far; the caller's wish to stop.
    kept : of `kept.kept_of`; after a pause, as the call before left it.
    """
    jobs = submit.shape[0]
    event_time, event_job = kept.heap[0], kept.heap[1]
    end_time, end_job = kept.ends[0], kept.ends[1]
    planned_end = kept.planned_end
    queue_key, queue = kept.queue[0], kept.queue[1]
    two = backfill not in (NO_BACKFILL, order)
    line_key = kept.line[0] if two else queue_key
    line = kept.line[1] if two else queue
    last, before, upper, habits = past.last, past.before, past.upper, past.habits
    waiting, running = kept.counts[WAITING], kept.counts[RUNNING]
    arrived = kept.counts[ARRIVED]
    rounds: int = kept.counts[ROUNDS]
    free = capacity - kept.counts[SPARE]
    while (arrived < jobs or running > 0) and progress[STOP] == 0:
        now = submit[arrived] if arrived < jobs else event_time[0]
        if running > 0 and event_time[0] < now:
            now = event_time[0]
        if now >= kept.until[0]:
            break
        rounds += 1
        everything = waiting == 0
        first_before = queue[0] if waiting > 0 else -1
        # 1. Jobs that end, and jobs that outlive their forecast.
        submits_first = one_by_one == 1 and arrived < jobs and submit[arrived] == now
        events = running
        while events > 0 and event_time[0] == now and not submits_first:
            everything = True
            job = event_job[0]
            events = heap_pop(event_time, event_job, events)
            place = place_of(end_time, end_job, running, planned_end[job], job)
            running = remove_at(end_time, end_job, running, place)
            if start[job] + run[job] > now:
                planned_end[job] = start[job] + corrected(mode, job, request[job], now - start[job], upper)
                running = insert(end_time, end_job, running, planned_end[job], job)
                next_event = min(planned_end[job], start[job] + run[job])
                events = heap_push(event_time, event_job, events, next_event, job)
            else:
                free += demand[job]
                if mode == LAST_TWO:
                    note_last(last, before, run[job], user[job])
                elif mode == LEARNED:
                    note_habit(habits, job, run[job], request[job], forecast[job])
                elif mode != GIVEN:
                    learn(mode, job, run[job], request[job], user[job], forecast[job], past)
            if one_by_one == 1:
                break
        # 2. Submissions.
        new_from = arrived
        while (
            arrived < jobs and submit[arrived] == now and (one_by_one == 0 or (submits_first and arrived == new_from))
        ):
            job = arrived
            guess = forecast[job]
            if mode == LAST_TWO:
                guess = last_two_mean(last, before, request[job], user[job])
            elif mode == LEARNED:
                guess = foresee(habits, job, request[job])
            elif mode != GIVEN:
                guess = forecast_at_submit(mode, job, guess, request[job], user[job], past)
            forecast[job] = guess
            promise[job] = -1
            if two:
                insert(line_key, line, waiting, order_key(backfill, guess, demand[job]), job)
            waiting = insert(queue_key, queue, waiting, order_key(order, guess, demand[job]), job)
            arrived += 1
        progress[0] = arrived
        # 3. The queue's first jobs, as long as they fit.
        while waiting > 0 and demand[queue[0]] <= free:
            everything = True  # what starts ahead of the first blocked job may move that job's reserved start
            job = queue[0]
            if two:
                place = place_of(line_key, line, waiting, order_key(backfill, forecast[job], demand[job]), job)
                remove_at(line_key, line, waiting, place)
            waiting = remove_at(queue_key, queue, waiting, 0)
            start[job] = now
            free -= demand[job]
            planned_end[job] = now + forecast[job]
            insert(end_time, end_job, running, planned_end[job], job)
            running = heap_push(event_time, event_job, running, now + min(forecast[job], run[job]), job)
        if waiting == 0 or backfill == NO_BACKFILL:
            continue
        # 4. Backfilling behind the reservation of the queue's first.
        first = queue[0]
        if first != first_before:
            everything = True
        shadow: int = -1
        extra: int = 0
        if promise[first] < 0 or free > 0:
            level = free
            ends = 0
            while level < demand[first]:
                shadow = end_time[ends]
                level += demand[end_job[ends]]
                ends += 1
            while ends < running and end_time[ends] == shadow:
                level += demand[end_job[ends]]
                ends += 1
            extra = level - demand[first]
            if promise[first] < 0:
                promise[first] = shadow
        place = 0
        while free > 0 and place < waiting:
            job = line[place]
            if job == first or demand[job] > free or not (everything or job >= new_from):
                place += 1
                continue
            ends_in_time = now + forecast[job] <= shadow
            if not ends_in_time and demand[job] > extra:
                place += 1
                continue
            if not ends_in_time:
                extra -= demand[job]
            if two:
                remove_at(line_key, line, waiting, place)
                place_in_queue = place_of(queue_key, queue, waiting, order_key(order, forecast[job], demand[job]), job)
                waiting = remove_at(queue_key, queue, waiting, place_in_queue)
            else:
                waiting = remove_at(queue_key, queue, waiting, place)
            start[job] = now
            free -= demand[job]
            planned_end[job] = now + forecast[job]
            insert(end_time, end_job, running, planned_end[job], job)
            running = heap_push(event_time, event_job, running, now + min(forecast[job], run[job]), job)
    kept.counts[WAITING], kept.counts[RUNNING] = waiting, running
    kept.counts[ARRIVED], kept.counts[ROUNDS] = arrived, rounds
    kept.counts[SPARE] = capacity - free
    return rounds
