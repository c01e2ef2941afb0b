"""Conservative backfilling on one pool: each job is promised a start when it is submitted (Naghshnejad 2019, section
4.2.1).

Called by the trace replay. As in Mu'alem and Feitelson 2001 (Naghshnejad 2019's [104]): a submitted job is reserved the
earliest start that leaves every earlier reservation untouched; when a job ends before its planned end, the waiting
jobs move forward one after another, in order of submission, each to the earliest start now open to it.

Invariant: while forecasts are upper bounds (the user's request), no job starts later than promised. When a running
job outlives its forecast the promises made on it can't all be kept: then all reservations are made anew, in order of
submission.
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
from cotide_sim.trace_replay.kernels.profile import change, earlier_start, earliest_start, first_room, forget_past, move
from cotide_sim.trace_replay.kernels.time_heap import heap_pop, heap_push

Integers = npt.NDArray[np.int64]

STOP: Final = 1
"""Place in ``progress`` that a caller sets to end the replay early; place 0 counts submitted jobs."""


@compiled
def replay_conservative(  # noqa: PLR0912, PLR0915  one compiled loop: a call for each step would pass all its arrays
    submit: Integers,
    run: Integers,
    demand: Integers,
    request: Integers,
    user: Integers,
    past: Past,
    capacity: int,
    mode: int,
    forecast: Integers,
    start: Integers,
    promise: Integers,
    progress: Integers,
    kept: Kept,
) -> int:
    """Replay a log; return the number of rounds. Parameters as in `easy.replay_queue`; ``promise`` is for every job."""
    jobs = submit.shape[0]
    event_time, event_job = kept.heap[0], kept.heap[1]
    end_time, end_job = kept.ends[0], kept.ends[1]
    planned_end = kept.planned_end
    queue = kept.queue[1]
    times = np.empty(256, np.int64)
    free = np.empty(256, np.int64)
    last, before, upper, habits = past.last, past.before, past.upper, past.habits
    waiting, running = kept.counts[WAITING], kept.counts[RUNNING]
    arrived = kept.counts[ARRIVED]
    rounds: int = kept.counts[ROUNDS]
    times[0] = 0
    free[0] = capacity
    size = 1
    next_start: int = -1
    if rounds > 0:
        size = kept.counts[SPARE]
        times = _grown(kept.profile[0, :size], 2 * (running + waiting) + 256)
        free = _grown(kept.profile[1, :size], 2 * (running + waiting) + 256)
        for place in range(waiting):
            if next_start < 0 or start[queue[place]] < next_start:
                next_start = start[queue[place]]
    while (arrived < jobs or running > 0 or waiting > 0) and progress[STOP] == 0:
        now: int = -1
        if arrived < jobs:
            now = submit[arrived]
        if running > 0 and (now < 0 or event_time[0] < now):
            now = event_time[0]
        if waiting > 0 and (now < 0 or next_start < now):
            now = next_start
        if now >= kept.until[0]:
            break
        rounds += 1
        size = forget_past(times, free, size, now)
        # 1. Jobs that end, and jobs that outlive their forecast.
        gained = False
        broken = False
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
                broken = True
            else:
                if planned_end[job] > now:
                    size = change(times, free, size, now, planned_end[job], demand[job])
                    gained = True
                if mode == LAST_TWO:
                    note_last(last, before, run[job], user[job])
                elif mode == LEARNED:
                    note_habit(habits, job, run[job], request[job], forecast[job])
                elif mode != GIVEN:
                    learn(mode, job, run[job], request[job], user[job], forecast[job], past)
        room = 2 * (running + waiting) + 8
        if room > times.shape[0]:
            times = _grown(times, 2 * room)
            free = _grown(free, 2 * room)
        # 2. Reservations: anew after a broken forecast, forward after an early end.
        if broken:
            size = 1
            times[0] = now
            free[0] = capacity
            for place in range(running):
                size = change(times, free, size, now, end_time[place], -demand[end_job[place]])
            next_start = -1
            for place in range(waiting):
                job = queue[place]
                start[job] = earliest_start(times, free, size, now, forecast[job], demand[job])
                size = change(times, free, size, start[job], start[job] + forecast[job], -demand[job])
                if next_start < 0 or start[job] < next_start:
                    next_start = start[job]
        elif gained:
            narrow: int = 0
            until: int = now  # before this moment there is no room for ``narrow`` processors or more
            for place in range(waiting):
                job = queue[place]
                held = start[job]
                if held <= until and demand[job] >= narrow:
                    continue
                opens = times[first_room(free, demand[job])]
                if opens >= held:
                    narrow, until = demand[job], opens
                    continue
                begin = earlier_start(times, free, size, max(now, opens), forecast[job], demand[job], held)
                if begin < held:
                    size = move(times, free, size, held, begin, forecast[job], demand[job])
                    start[job] = begin
                    next_start = min(next_start, begin)
                    until = min(until, max(held, begin + forecast[job]))
        # 3. Submissions.
        while arrived < jobs and submit[arrived] == now:
            job = arrived
            if mode == LAST_TWO:
                forecast[job] = last_two_mean(last, before, request[job], user[job])
            elif mode == LEARNED:
                forecast[job] = foresee(habits, job, request[job])
            elif mode != GIVEN:
                forecast[job] = forecast_at_submit(mode, job, forecast[job], request[job], user[job], past)
            room = 2 * (running + waiting) + 8
            if room > times.shape[0]:
                times = _grown(times, 2 * room)
                free = _grown(free, 2 * room)
            start[job] = earliest_start(times, free, size, now, forecast[job], demand[job])
            promise[job] = start[job]
            if next_start < 0 or start[job] < next_start:
                next_start = start[job]
            size = change(times, free, size, start[job], start[job] + forecast[job], -demand[job])
            queue[waiting] = job
            waiting += 1
            arrived += 1
        progress[0] = arrived
        # 4. Starts.
        if next_start != now:
            continue
        staying = 0
        next_start = -1
        for place in range(waiting):
            job = queue[place]
            if start[job] == now:
                planned_end[job] = now + forecast[job]
                insert(end_time, end_job, running, planned_end[job], job)
                running = heap_push(event_time, event_job, running, now + min(forecast[job], run[job]), job)
                continue
            queue[staying] = job
            staying += 1
            if next_start < 0 or start[job] < next_start:
                next_start = start[job]
        waiting = staying
    kept.counts[WAITING], kept.counts[RUNNING] = waiting, running
    kept.counts[ARRIVED], kept.counts[ROUNDS] = arrived, rounds
    kept.counts[SPARE] = size
    kept.profile[0, :size] = times[:size]
    kept.profile[1, :size] = free[:size]
    return rounds


@compiled
def _grown(values: Integers, size: int) -> Integers:
    made = np.empty(size, np.int64)
    made[: values.shape[0]] = values
    return made
