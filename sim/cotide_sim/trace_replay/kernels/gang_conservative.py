"""Conservative backfilling for gangs on many machines with vector demands (Naghshnejad 2019, section 4.2.1).

Called by `machine_replay`. The rounds and rules are those of `conservative`, where a processor was like any other: here
each piece of a job needs all its resources on one machine (`gangs`). Machines are reserved for every job at its
submission; after an early end the waiting move forward, in order of submission, each to the earliest start now open to
it. When a job outlives its forecast all reservations are made anew.

A waiting job is looked at again only if something that it may use was given back since it was looked at last, by an
early end or by another that moved: otherwise nothing before its start can have opened. Invariants: no machine is ever
overfilled in any resource; on one machine with one resource the schedules are those of `conservative`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.machines import NEVER
from cotide_predictors.run_time.kernels.run_forecasts import GIVEN, Past, corrected, forecast_at_submit, learn
from cotide_sim.trace_replay.kernels.event_loop import STOP
from cotide_sim.trace_replay.kernels.gang_lists import SEGMENTS, book_gang, laid_at
from cotide_sim.trace_replay.kernels.gangs import earliest_gang
from cotide_sim.trace_replay.kernels.time_heap import heap_pop, heap_push

Integers = npt.NDArray[np.int64]


@compiled
def replay_gang_conservative(  # noqa: PLR0912, PLR0915  one compiled loop: a call for each step would pass all arrays
    submit: Integers,
    run: Integers,
    pieces: Integers,
    need: Integers,
    allowed: Integers,
    request: Integers,
    user: Integers,
    past: Past,
    capacity: Integers,
    kind: Integers,
    mode: int,
    forecast: Integers,
    start: Integers,
    promise: Integers,
    first: Integers,
    used: Integers,
    progress: Integers,
) -> tuple[int, Integers, Integers]:
    """Replay a log; parameters and results as in `machine_replay.replay_machines`."""
    jobs = submit.shape[0]
    machines = capacity.shape[0]
    event_time = np.empty(jobs, np.int64)
    event_job = np.empty(jobs, np.int64)
    planned_end = np.empty(jobs, np.int64)
    queue = np.empty(jobs, np.int64)
    times = np.zeros((machines, SEGMENTS), np.int64)
    free = np.zeros((machines, SEGMENTS, capacity.shape[1]), np.int64)
    free[:, 0] = capacity
    sizes = np.ones(machines, np.int64)
    # When something was last given back on each machine, and when each job was last looked at.
    moment: int = 1
    opened = np.zeros(machines, np.int64)
    looked = np.zeros(jobs, np.int64)
    placed = np.empty(4 * machines, np.int64)
    counts = np.empty(4 * machines, np.int64)
    # Numbers from an array: a literal given to a function would have it compiled once more, which takes seconds.
    zeros = np.zeros(5, np.int64)
    filled, waiting, running, arrived = zeros[0], zeros[1], zeros[2], zeros[3]
    rounds: int = zeros[4]
    taken, given, never = zeros[0] + 1, zeros[0] - 1, zeros[0] + NEVER
    next_start: int = -1
    while (arrived < jobs or running > 0 or waiting > 0) and progress[STOP] == 0:
        rounds += 1
        now: int = -1
        if arrived < jobs:
            now = submit[arrived]
        if running > 0 and (now < 0 or event_time[0] < now):
            now = event_time[0]
        if next_start >= 0 and (now < 0 or next_start < now):
            now = next_start
        # 1. Jobs that end, and jobs that outlive their forecast.
        gained = False
        broken = False
        while running > 0 and event_time[0] == now:
            job = event_job[0]
            running = heap_pop(event_time, event_job, running)
            on = placed[first[job] : first[job] + used[job]]
            of = counts[first[job] : first[job] + used[job]]
            if start[job] + run[job] > now:
                planned_end[job] = start[job] + corrected(mode, job, request[job], now - start[job], past.upper)
                times, free = book_gang(times, free, sizes, now, now, planned_end[job], need[job], on, of, taken)
                next_event = min(planned_end[job], start[job] + run[job])
                running = heap_push(event_time, event_job, running, next_event, job)
                broken = True
                continue
            if planned_end[job] > now:
                times, free = book_gang(times, free, sizes, now, now, planned_end[job], need[job], on, of, given)
                gained = True
                moment += 1
                for at in on:
                    opened[at] = moment
            if mode != GIVEN:
                learn(mode, job, run[job], request[job], user[job], forecast[job], past)
        # 2. Reservations: all taken out and made anew, or moved forward one after another.
        for place in range(waiting if broken else 0):
            job = queue[place]
            on = placed[first[job] : first[job] + used[job]]
            of = counts[first[job] : first[job] + used[job]]
            end = start[job] + forecast[job]
            times, free = book_gang(times, free, sizes, now, start[job], end, need[job], on, of, given)
        for place in range(waiting if broken or gained else 0):
            job = queue[place]
            limit = never
            on = placed[first[job] : first[job] + used[job]]
            of = counts[first[job] : first[job] + used[job]]
            if not broken:
                if not opened_for(opened, looked[job], allowed[job], kind):
                    continue
                limit = start[job]
                times, free = book_gang(times, free, sizes, now, limit, limit + forecast[job], need[job], on, of, given)
            looked[job] = moment
            begin = earliest_gang(
                times, free, sizes, now, forecast[job], need[job], pieces[job], allowed[job], kind, limit
            )
            if begin < limit:
                moment += 1
                looked[job] = moment
                for at in on:
                    opened[at] = moment
                start[job] = begin
                filled, placed, counts = laid_at(
                    times, free, sizes, begin, forecast[job], need[job], pieces[job], allowed[job], kind, job, arrived,
                    first, used, filled, placed, counts,
                )  # fmt: skip
            on = placed[first[job] : first[job] + used[job]]
            of = counts[first[job] : first[job] + used[job]]
            end = start[job] + forecast[job]
            times, free = book_gang(times, free, sizes, now, start[job], end, need[job], on, of, taken)
        # 3. Submissions.
        while arrived < jobs and submit[arrived] == now:
            job = arrived
            arrived += 1
            if mode != GIVEN:
                forecast[job] = forecast_at_submit(mode, job, forecast[job], request[job], user[job], past)
            used[job] = 0
            begin = earliest_gang(
                times, free, sizes, now, forecast[job], need[job], pieces[job], allowed[job], kind, never
            )
            start[job] = begin
            promise[job] = begin
            looked[job] = moment
            filled, placed, counts = laid_at(
                times, free, sizes, begin, forecast[job], need[job], pieces[job], allowed[job], kind, job, arrived,
                first, used, filled, placed, counts,
            )  # fmt: skip
            on, of = placed[first[job] : filled], counts[first[job] : filled]
            end = begin + forecast[job]
            times, free = book_gang(times, free, sizes, now, begin, end, need[job], on, of, taken)
            queue[waiting] = job
            waiting += 1
        progress[0] = arrived
        # 4. Starts.
        next_start = -1
        staying = 0
        for place in range(waiting):
            job = queue[place]
            if start[job] == now:
                planned_end[job] = now + forecast[job]
                running = heap_push(event_time, event_job, running, now + min(forecast[job], run[job]), job)
                continue
            queue[staying] = job
            staying += 1
            if next_start < 0 or start[job] < next_start:
                next_start = start[job]
        waiting = staying
    return rounds, placed[:filled], counts[:filled]


@compiled
def opened_for(opened: Integers, looked: int, allowed: int, kind: Integers) -> bool:
    """Return whether something was given back since a job was looked at, on a machine that it may use."""
    at = 0
    while at < opened.shape[0] and not (opened[at] > looked and (allowed >> kind[at]) & 1):
        at += 1
    found: bool = at < opened.shape[0]
    return found
