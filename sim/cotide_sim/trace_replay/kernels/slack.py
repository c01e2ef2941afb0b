"""Slack-based backfilling on one pool: a promise is a reservation and some slack, and slack may be spent on others.

Called by the trace replay. After Talby and Feitelson 1999 (Naghshnejad 2019's [138]): a submitted job is reserved the
earliest start and promised to start no later than that plus its slack. The slack is the mean wait of the jobs that
started so far, times 2 - priority / 50: none for priority 100, the mean wait for 50, twice that for 0. A job that would
fit beside the running ones may then be brought forward to this moment by moving reservations that stand in its way, as
long as each of those still starts by its promise and the starts of all together become earlier; the shortest is tried
first. The paper prices every legal order of the queue and takes the cheapest, which it cuts short by rules as well;
here a round tries at most `TRIALS` such moves and prices a schedule by the sum of its starts.

Invariant: there always is a plan that keeps every promise, and it is held explicitly. While forecasts are upper bounds
no job starts later than promised. When a running job outlives its forecast all reservations are made anew, in order
of submission, and what has become impossible is promised anew.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.machine_slack import TRIALS
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
from cotide_sim.trace_replay.kernels.profile import change, earlier_start, earliest_start, forget_past, move
from cotide_sim.trace_replay.kernels.time_heap import heap_pop, heap_push

Integers = npt.NDArray[np.int64]

STOP: Final = 1
"""Place in ``progress`` that a caller sets to end the replay early; place 0 counts submitted jobs."""


@compiled
def slack_of(priority: int, waited: int, started: int) -> int:
    """Return the seconds a promise may lie behind the reservation; ``waited`` is the sum over ``started`` jobs."""
    if started == 0:
        return 0
    return (100 - priority) * waited // (50 * started)


@compiled
def replay_slack(  # noqa: PLR0912, PLR0915  one compiled loop: a call for each step would pass all its arrays
    submit: Integers,
    run: Integers,
    demand: Integers,
    request: Integers,
    user: Integers,
    past: Past,
    capacity: int,
    priority: Integers,
    mode: int,
    forecast: Integers,
    start: Integers,
    promise: Integers,
    progress: Integers,
    kept: Kept,
) -> int:
    """Replay a log; return the number of rounds.

    Parameters as in `easy.replay_queue`, but ``priority``: (n,) from 0 to 100, and ``promise``: the latest start that
    each job is promised.
    """
    jobs = submit.shape[0]
    event_time, event_job = kept.heap[0], kept.heap[1]
    end_time, end_job = kept.ends[0], kept.ends[1]
    planned_end = kept.planned_end
    queue = kept.queue[1]
    line_key, line = kept.line[0], kept.line[1]
    trial = np.empty(jobs, np.int64)
    times = np.empty(256, np.int64)
    free = np.empty(256, np.int64)
    other_times = np.empty(256, np.int64)
    other_free = np.empty(256, np.int64)
    last, before, upper, habits = past.last, past.before, past.upper, past.habits
    waiting, running = kept.counts[WAITING], kept.counts[RUNNING]
    arrived = kept.counts[ARRIVED]
    rounds: int = kept.counts[ROUNDS]
    waited, started = kept.counts[SPARE + 1], kept.counts[SPARE + 2]
    times[0] = 0
    free[0] = capacity
    size = 1
    idle = capacity
    next_start: int = -1
    if rounds > 0:
        size = kept.counts[SPARE]
        times = _grown(kept.profile[0, :size], 2 * (running + waiting) + 256)
        free = _grown(kept.profile[1, :size], 2 * (running + waiting) + 256)
        for place in range(running):
            idle -= demand[end_job[place]]
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
                idle += demand[job]
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
        for place in range(waiting):
            job = queue[place]
            if broken:
                start[job] = earliest_start(times, free, size, now, forecast[job], demand[job])
                promise[job] = max(promise[job], start[job])
                size = change(times, free, size, start[job], start[job] + forecast[job], -demand[job])
            elif gained:
                held = start[job]
                begin = earlier_start(times, free, size, now, forecast[job], demand[job], held)
                if begin < held:
                    size = move(times, free, size, held, begin, forecast[job], demand[job])
                    start[job] = begin
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
            promise[job] = start[job] + slack_of(priority[job], waited, started)
            size = change(times, free, size, start[job], start[job] + forecast[job], -demand[job])
            queue[waiting] = job
            waiting = insert(line_key, line, waiting, forecast[job], job)
            arrived += 1
        progress[0] = arrived
        # 4. Slack is spent: the shortest that fit beside the running are tried at this moment.
        room_now = idle
        for place in range(waiting):
            if start[queue[place]] == now:
                room_now -= demand[queue[place]]
        if times.shape[0] > other_times.shape[0]:
            other_times = np.empty(times.shape[0], np.int64)
            other_free = np.empty(times.shape[0], np.int64)
        trials = 0
        for place in range(waiting):
            job = line[place]
            if room_now == 0 or trials == TRIALS:
                break
            if start[job] == now or demand[job] > room_now:
                continue
            trials += 1
            other_times[:size] = times[:size]
            other_free[:size] = free[:size]
            found = _brought_forward(
                job, now, queue, waiting, demand, forecast, start, promise, trial, other_times, other_free, size
            )
            if found > 0:
                size = found
                times, other_times = other_times, times
                free, other_free = other_free, free
                for at in range(waiting):
                    moved = queue[at]
                    if trial[moved] == now and start[moved] > now:
                        room_now -= demand[moved]
                    start[moved] = trial[moved]
        # 5. Starts.
        staying = 0
        next_start = -1
        for place in range(waiting):
            job = queue[place]
            if start[job] == now:
                planned_end[job] = now + forecast[job]
                insert(end_time, end_job, running, planned_end[job], job)
                running = heap_push(event_time, event_job, running, now + min(forecast[job], run[job]), job)
                idle -= demand[job]
                waited += now - submit[job]
                started += 1
                left = waiting - place + staying
                remove_at(line_key, line, left, place_of(line_key, line, left, forecast[job], job))
                continue
            queue[staying] = job
            staying += 1
            if next_start < 0 or start[job] < next_start:
                next_start = start[job]
        waiting = staying
    kept.counts[WAITING], kept.counts[RUNNING] = waiting, running
    kept.counts[ARRIVED], kept.counts[ROUNDS] = arrived, rounds
    kept.counts[SPARE], kept.counts[SPARE + 1], kept.counts[SPARE + 2] = size, waited, started
    kept.profile[0, :size] = times[:size]
    kept.profile[1, :size] = free[:size]
    return rounds


@compiled
def _brought_forward(
    job: int,
    now: int,
    queue: Integers,
    waiting: int,
    demand: Integers,
    forecast: Integers,
    start: Integers,
    promise: Integers,
    trial: Integers,
    times: Integers,
    free: Integers,
    size: int,
) -> int:
    """Plan ``job`` at ``now`` in place of its reservation; return the profile's new size, or 0 when that won't do.

    ``trial`` receives the starts of all waiting jobs. Reservations that begin after now and before the job would end
    are taken out and laid anew, in the order in which they stood.
    """
    for place in range(waiting):
        trial[queue[place]] = start[queue[place]]
    end = now + forecast[job]
    size = change(times, free, size, start[job], start[job] + forecast[job], demand[job])
    moved = 0
    keys = np.empty(waiting, np.int64)
    others = np.empty(waiting, np.int64)
    for place in range(waiting):
        other = queue[place]
        if other != job and now < start[other] < end:
            size = change(times, free, size, start[other], start[other] + forecast[other], demand[other])
            moved = insert(keys, others, moved, start[other], other)
    size = change(times, free, size, now, end, -demand[job])
    trial[job] = now
    gain = start[job] - now
    for place in range(moved):
        other = others[place]
        begin = earliest_start(times, free, size, now, forecast[other], demand[other])
        if begin > promise[other]:
            return 0
        gain += start[other] - begin
        size = change(times, free, size, begin, begin + forecast[other], -demand[other])
        trial[other] = begin
    return size if gain > 0 else 0


@compiled
def _grown(values: Integers, size: int) -> Integers:
    made = np.empty(size, np.int64)
    made[: values.shape[0]] = values
    return made
