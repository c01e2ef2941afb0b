"""Online plans on one pool: at each event all waiting jobs are planned anew, in order of a key (Naghshnejad 2019,
section 4.2.1).

Called by the trace replay for online-SJF and online-SVF (and any other order). A round takes place whenever a job is
submitted, ends or outlives its forecast: the waiting jobs, shortest or smallest in volume first, are each given the
earliest feasible start on top of the running jobs and of the jobs planned before; those planned for now start.

Invariant: a job never starts where it would delay the planned start of a job ahead of it in the same plan. Only
starts at the round's own moment are carried out, since the next round plans anew; so planning stops once nothing is
free now.
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
from cotide_sim.trace_replay.kernels.easy import order_key
from cotide_sim.trace_replay.kernels.kept import ARRIVED, ROUNDS, RUNNING, SPARE, WAITING, Kept
from cotide_sim.trace_replay.kernels.profile import change, earliest_start
from cotide_sim.trace_replay.kernels.time_heap import heap_pop, heap_push

Integers = npt.NDArray[np.int64]

STOP: Final = 1
"""Place in ``progress`` that a caller sets to end the replay early; place 0 counts submitted jobs."""


@compiled
def replay_plan(  # noqa: PLR0912, PLR0915  one compiled loop: a call for each step would pass all its arrays
    submit: Integers,
    run: Integers,
    demand: Integers,
    request: Integers,
    user: Integers,
    past: Past,
    capacity: int,
    order: int,
    mode: int,
    forecast: Integers,
    start: Integers,
    progress: Integers,
    kept: Kept,
) -> int:
    """Replay a log; return the number of rounds. Parameters as in `easy.replay_queue`."""
    jobs = submit.shape[0]
    event_time, event_job = kept.heap[0], kept.heap[1]
    end_time, end_job = kept.ends[0], kept.ends[1]
    planned_end = kept.planned_end
    queue_key, queue = kept.queue[0], kept.queue[1]
    times = np.empty(256, np.int64)
    levels = np.empty(256, np.int64)
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
        events = running
        while events > 0 and event_time[0] == now:
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
        while arrived < jobs and submit[arrived] == now:
            job = arrived
            if mode == LAST_TWO:
                forecast[job] = last_two_mean(last, before, request[job], user[job])
            elif mode == LEARNED:
                forecast[job] = foresee(habits, job, request[job])
            elif mode != GIVEN:
                forecast[job] = forecast_at_submit(mode, job, forecast[job], request[job], user[job], past)
            key = order_key(order, forecast[job], demand[job])
            waiting = insert(queue_key, queue, waiting, key, job)
            arrived += 1
        progress[0] = arrived
        if waiting == 0 or free == 0:
            continue
        room = 2 * (running + waiting) + 8
        if room > times.shape[0]:
            times = np.empty(2 * room, np.int64)
            levels = np.empty(2 * room, np.int64)
        size = 1
        times[0] = now
        levels[0] = free
        for place in range(running):
            if end_time[place] == times[size - 1]:
                levels[size - 1] += demand[end_job[place]]
            else:
                times[size] = end_time[place]
                levels[size] = levels[size - 1] + demand[end_job[place]]
                size += 1
        place = 0
        while place < waiting and free > 0:
            job = queue[place]
            begin = earliest_start(times, levels, size, now, forecast[job], demand[job])
            size = change(times, levels, size, begin, begin + forecast[job], -demand[job])
            if begin > now:
                place += 1
                continue
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
