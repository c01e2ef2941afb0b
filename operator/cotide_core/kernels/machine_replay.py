"""Replay of a log on many machines with vector demands: strict order, EASY, conservative, and plans (seed 002, 4.2.1).

Called by the trace replay. The same policies and the same rounds as in `easy`, `conservative` and `plan`, where a
processor was like any other: here each piece of a job needs all its resources on one machine (`gangs`). Rounds take
place at each moment at which a job is submitted, ends or outlives its forecast: first ends, then submissions, then
decisions.

- ``IN_ORDER``: the first of the queue starts as soon as it fits; nobody overtakes.
- ``EASY``: the first that does not fit has its machines reserved at the earliest start; any other job that fits now,
  and leaves those machines alone at that time, may start.
- ``CONSERVATIVE``: machines are reserved for every job at its submission; after an early end the waiting move
  forward, in order of submission, each to the earliest start now open to it. When a job outlives its forecast all
  reservations are made anew.
- ``PLAN``: all waiting jobs are planned anew in each round, in order; those planned for now start.

Invariants: no machine is ever overfilled in any resource; on one machine with one resource the schedules are those
of the kernels named above.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.easy import order_key
from cotide_core.kernels.gang_lists import book_gang, laid_at, laid_now
from cotide_core.kernels.gangs import earliest_gang, earliest_unreserved, room_of, still_fits
from cotide_core.kernels.machines import NEVER
from cotide_core.kernels.ordered_jobs import insert, place_of, remove_at
from cotide_core.kernels.run_forecasts import GIVEN, Past, corrected, forecast_at_submit, learn
from cotide_core.kernels.time_heap import heap_pop, heap_push

Integers = npt.NDArray[np.int64]

IN_ORDER: Final = 0
EASY: Final = 1
CONSERVATIVE: Final = 2
PLAN: Final = 3

STOP: Final = 1
"""Place in ``progress`` that a caller sets to end the replay early; place 0 counts submitted jobs."""
SEGMENTS: Final = 8
"""Segments of a machine that there is room for at first; doubled when that is not enough (chosen)."""


@compiled
def replay_machines(  # noqa: PLR0912, PLR0915  one compiled loop: a call for each step would pass all its arrays
    submit: Integers,
    run: Integers,
    pieces: Integers,
    need: Integers,
    allowed: Integers,
    shape: Integers,
    request: Integers,
    user: Integers,
    past: Past,
    capacity: Integers,
    kind: Integers,
    rule: int,
    order: int,
    backfill: int,
    mode: int,
    volume: Integers,
    forecast: Integers,
    start: Integers,
    promise: Integers,
    first: Integers,
    used: Integers,
    progress: Integers,
) -> tuple[int, Integers, Integers]:
    """Replay a log; return the number of rounds, and for all jobs end to end the machines and the pieces on each.

    Parameters
    ----------
    submit, run, request, user, past, mode, forecast, start, progress : as in `easy.replay_queue`.
    pieces, need : (n,) and (n, R): a job is so many pieces, each of which needs its row on one machine.
    shape : (n,) jobs of one number need the same on the same kinds of machines; numbered from 0.
    allowed, kind : (n,) and (N,): bit k of a job's number is set when it may use machines of kind k, k < 62.
    capacity : (N, R). Every job must fit the empty machines.
    rule, order, backfill : see above; order of the queue, and of the jobs tried behind a reservation.
    volume : (n,) what stands for processors where jobs are ordered by volume.
    promise : (n,) out: under EASY the first reserved start of a job, under conservative that at submission; else -1.
    first, used : (n,) out: where a job's machines begin in what is returned, and how many there are.
    """
    jobs = submit.shape[0]
    machines = capacity.shape[0]
    event_time = np.empty(jobs, np.int64)
    event_job = np.empty(jobs, np.int64)
    planned_end = np.empty(jobs, np.int64)
    ends = np.empty(jobs, np.int64)
    queue_key = np.empty(jobs, np.int64)
    queue = np.empty(jobs, np.int64)
    line_key = np.empty(jobs, np.int64)
    line = np.empty(jobs, np.int64)
    held_job = np.empty(jobs, np.int64)
    held_start = np.empty(jobs, np.int64)
    # The fewest pieces of each shape that failed, and when: beside what is free now, and beside a reservation.
    shapes = shape.max() + 1
    failed = np.empty((2, shapes), np.int64)
    since = np.full((2, shapes), -1, np.int64)
    failed_length = np.empty(shapes, np.int64)
    room = np.zeros((2, capacity.shape[1]), np.int64)
    version = 0
    roomed: int = -1
    times = np.zeros((machines, SEGMENTS), np.int64)
    free = np.zeros((machines, SEGMENTS, capacity.shape[1]), np.int64)
    for at in range(machines):
        for resource in range(capacity.shape[1]):
            free[at, 0, resource] = capacity[at, resource]
    sizes = np.ones(machines, np.int64)
    present = capacity.copy()
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
                if rule != IN_ORDER:
                    times, free = book_gang(times, free, sizes, now, now, planned_end[job], need[job], on, of, taken)
                next_event = min(planned_end[job], start[job] + run[job])
                running = heap_push(event_time, event_job, running, next_event, job)
                broken = True
                continue
            version += 1
            for place in range(on.shape[0]):
                for resource in range(capacity.shape[1]):
                    present[on[place], resource] += need[job, resource] * of[place]
            if planned_end[job] > now and rule != IN_ORDER:
                times, free = book_gang(times, free, sizes, now, now, planned_end[job], need[job], on, of, given)
                gained = True
            if mode != GIVEN:
                learn(mode, job, run[job], request[job], user[job], forecast[job], past)
        # 2. Kept reservations: all taken out and made anew, or moved forward one after another.
        if rule == CONSERVATIVE and broken:
            for place in range(waiting):
                job = queue[place]
                on = placed[first[job] : first[job] + used[job]]
                of = counts[first[job] : first[job] + used[job]]
                end = start[job] + forecast[job]
                times, free = book_gang(times, free, sizes, now, start[job], end, need[job], on, of, given)
        for place in range(waiting if rule == CONSERVATIVE and (broken or gained) else 0):
            job = queue[place]
            limit = never
            if not broken:
                limit = start[job]
                on = placed[first[job] : first[job] + used[job]]
                of = counts[first[job] : first[job] + used[job]]
                times, free = book_gang(times, free, sizes, now, limit, limit + forecast[job], need[job], on, of, given)
            begin = earliest_gang(
                times, free, sizes, now, forecast[job], need[job], pieces[job], allowed[job], kind, limit
            )
            if begin < limit:
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
            promise[job] = -1
            used[job] = 0
            if rule == CONSERVATIVE:
                begin = earliest_gang(
                    times, free, sizes, now, forecast[job], need[job], pieces[job], allowed[job], kind, never
                )
                start[job] = begin
                promise[job] = begin
                filled, placed, counts = laid_at(
                    times, free, sizes, begin, forecast[job], need[job], pieces[job], allowed[job], kind, job, arrived,
                    first, used, filled, placed, counts,
                )  # fmt: skip
                on, of = placed[first[job] : filled], counts[first[job] : filled]
                end = begin + forecast[job]
                times, free = book_gang(times, free, sizes, now, begin, end, need[job], on, of, taken)
            if rule == EASY:
                insert(line_key, line, waiting, order_key(backfill, forecast[job], volume[job]), job)
            waiting = insert(queue_key, queue, waiting, order_key(order, forecast[job], volume[job]), job)
        progress[0] = arrived
        if roomed != version:
            room_of(present, room)
            roomed = version
        # 4. Starts, and under EASY and in plans the reservations of this round.
        next_start = -1
        held = 0
        last = waiting
        while (
            rule == PLAN
            and last > 0
            and not still_fits(
                present,
                need[queue[last - 1]],
                pieces[queue[last - 1]],
                allowed[queue[last - 1]],
                kind,
                shape[queue[last - 1]],
                failed[0],
                since[0],
                version,
                room,
            )
        ):
            last -= 1  # it can't start now, nor can any behind it, so no plan is needed from here on
        place = 0
        while place < last:
            behind = rule == EASY and held > 0
            job = line[place] if behind else queue[place]
            begin = now
            if rule == CONSERVATIVE:
                begin = start[job]
                if begin > now and (next_start < 0 or begin < next_start):
                    next_start = begin
            elif not still_fits(
                present, need[job], pieces[job], allowed[job], kind, shape[job], failed[0], since[0], version, room
            ) or (
                behind
                and since[1, shape[job]] == rounds
                and pieces[job] >= failed[1, shape[job]]
                and forecast[job] >= failed_length[shape[job]]
            ):
                begin = now + 1
            elif held > 0 and not (behind and now + forecast[job] <= held_start[0]):
                begin = earliest_gang(
                    times, free, sizes, now, forecast[job], need[job], pieces[job], allowed[job], kind, now + 1
                )
                if behind and begin > now:
                    since[1, shape[job]] = rounds
                    failed[1, shape[job]] = pieces[job]
                    failed_length[shape[job]] = forecast[job]
            if begin > now:
                if rule == IN_ORDER:
                    break
                place += 1
                if rule == CONSERVATIVE or behind:
                    continue
                if rule == EASY:
                    for at in range(running):
                        ends[at] = planned_end[event_job[at]]
                    begin = earliest_unreserved(
                        times, free, sizes, forecast[job], need[job], pieces[job], allowed[job], kind,
                        np.sort(ends[:running]),
                    )  # fmt: skip
                else:
                    begin = earliest_gang(
                        times, free, sizes, now, forecast[job], need[job], pieces[job], allowed[job], kind, never
                    )
                filled, placed, counts = laid_at(
                    times, free, sizes, begin, forecast[job], need[job], pieces[job], allowed[job], kind, job, arrived,
                    first, used, filled, placed, counts,
                )  # fmt: skip
                on, of = placed[first[job] : filled], counts[first[job] : filled]
                times, free = book_gang(times, free, sizes, now, begin, begin + forecast[job], need[job], on, of, taken)
                held_job[held] = job
                held_start[held] = begin
                held += 1
                if rule == EASY:
                    place = 0
                    if promise[job] < 0:
                        promise[job] = begin
                continue
            if rule != CONSERVATIVE:
                if rule == IN_ORDER:
                    filled, placed, counts = laid_now(
                        present, need[job], pieces[job], allowed[job], kind, job, arrived, first, used, filled, placed,
                        counts,
                    )  # fmt: skip
                else:
                    filled, placed, counts = laid_at(
                        times, free, sizes, now, forecast[job], need[job], pieces[job], allowed[job], kind, job,
                        arrived, first, used, filled, placed, counts,
                    )  # fmt: skip
                    on, of = placed[first[job] : filled], counts[first[job] : filled]
                    times, free = book_gang(times, free, sizes, now, now, now + forecast[job], need[job], on, of, taken)
            for at in range(first[job], first[job] + used[job]):
                for resource in range(capacity.shape[1]):
                    present[placed[at], resource] -= need[job, resource] * counts[at]
            start[job] = now
            planned_end[job] = now + forecast[job]
            running = heap_push(event_time, event_job, running, now + min(forecast[job], run[job]), job)
            if rule == EASY:
                at = place_of(line_key, line, waiting, order_key(backfill, forecast[job], volume[job]), job)
                remove_at(line_key, line, waiting, at)
            at = place_of(queue_key, queue, waiting, order_key(order, forecast[job], volume[job]), job)
            waiting = remove_at(queue_key, queue, waiting, at)
            last -= 1
        for at in range(held):
            job = held_job[at]
            on = placed[first[job] : first[job] + used[job]]
            of = counts[first[job] : first[job] + used[job]]
            end = held_start[at] + forecast[job]
            times, free = book_gang(times, free, sizes, now, held_start[at], end, need[job], on, of, given)
            used[job] = 0
    return rounds, placed[:filled], counts[:filled]
