"""Plans of all waiting gangs on many machines with vector demands, made anew in each round (Naghshnejad 2019, section
4.2.1).

Called by `machine_replay`. The rounds and rules are those of `plan`, where a processor was like any other: here each
piece of a job needs all its resources on one machine (`gangs`). All waiting jobs are planned in order; those planned
for now start.

A plan is made only as far as it can matter: to the last job that fits into what is free now and is not kept out by the
reservations made so far. Within a round there is less and less, so a shape that found its earliest start finds none
before it for as many pieces and as long a time. Invariants: no machine is ever overfilled in any resource; on one
machine with one resource the schedules are those of `plan`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.machines import NEVER
from cotide_core.kernels.ordered_jobs import insert, remove_at
from cotide_predictors.run_time.kernels.run_forecasts import GIVEN, Past, corrected, forecast_at_submit, learn
from cotide_sim.trace_replay.kernels.easy import order_key
from cotide_sim.trace_replay.kernels.event_loop import STOP
from cotide_sim.trace_replay.kernels.gang_counts import BLOCK_BITS, all_fit, blocks_of, most_pieces
from cotide_sim.trace_replay.kernels.gang_lists import SEGMENTS, book_gang, laid_at
from cotide_sim.trace_replay.kernels.gangs import earliest_gang, fits_through, room_of, tidy
from cotide_sim.trace_replay.kernels.time_heap import heap_pop, heap_push

Integers = npt.NDArray[np.int64]


@compiled
def replay_gang_plan(  # noqa: PLR0912, PLR0915  one compiled loop: a call for each step would pass all its arrays
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
    order: int,
    mode: int,
    volume: Integers,
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
    resources = capacity.shape[1]
    event_time = np.empty(jobs, np.int64)
    event_job = np.empty(jobs, np.int64)
    planned_end = np.empty(jobs, np.int64)
    queue_key = np.empty(jobs, np.int64)
    queue = np.empty(jobs, np.int64)
    # How many pieces of each shape fit into what is free now; see `gang_counts`.
    most = most_pieces(shape, pieces)
    inside = np.zeros((most.shape[0], blocks_of(machines)), np.int64)
    total = np.zeros(most.shape[0], np.int64)
    seen = np.zeros(most.shape[0], np.int64)
    changed = np.ones(blocks_of(machines), np.int64)
    moment: int = 1
    gained: int = 1
    roomed: int = 0
    room = np.zeros((2, resources), np.int64)
    present = capacity.copy()
    times = np.zeros((machines, SEGMENTS), np.int64)
    free = np.zeros((machines, SEGMENTS, resources), np.int64)
    free[:, 0] = capacity
    sizes = np.ones(machines, np.int64)
    held_job = np.empty(jobs, np.int64)
    held_start = np.empty(jobs, np.int64)
    # What a shape found in this round: the pieces and the length, and the start before which there is none.
    bound_round, bound_pieces, bound_length, bound_start = np.full((4, most.shape[0]), -1, np.int64)
    placed = np.empty(4 * machines, np.int64)
    counts = np.empty(4 * machines, np.int64)
    # Numbers from an array: a literal given to a function would have it compiled once more, which takes seconds.
    zeros = np.zeros(5, np.int64)
    filled, waiting, running, arrived = zeros[0], zeros[1], zeros[2], zeros[3]
    rounds: int = zeros[4]
    taken, given, never = zeros[0] + 1, zeros[0] - 1, zeros[0] + NEVER
    while (arrived < jobs or running > 0) and progress[STOP] == 0:
        rounds += 1
        now = submit[arrived] if arrived < jobs else event_time[0]
        if running > 0 and event_time[0] < now:
            now = event_time[0]
        # 1. Jobs that end, and jobs that outlive their forecast.
        while running > 0 and event_time[0] == now:
            job = event_job[0]
            running = heap_pop(event_time, event_job, running)
            mine = placed[first[job] : first[job] + used[job]]
            each = counts[first[job] : first[job] + used[job]]
            if start[job] + run[job] > now:
                planned_end[job] = start[job] + corrected(mode, job, request[job], now - start[job], past.upper)
                times, free = book_gang(times, free, sizes, now, now, planned_end[job], need[job], mine, each, taken)
                next_event = min(planned_end[job], start[job] + run[job])
                running = heap_push(event_time, event_job, running, next_event, job)
                continue
            moment += 1
            gained = moment
            for place in range(mine.shape[0]):
                changed[mine[place] >> BLOCK_BITS] = moment
                for resource in range(resources):
                    present[mine[place], resource] += need[job, resource] * each[place]
            if planned_end[job] > now:
                times, free = book_gang(times, free, sizes, now, now, planned_end[job], need[job], mine, each, given)
            if mode != GIVEN:
                learn(mode, job, run[job], request[job], user[job], forecast[job], past)
        # 2. Submissions.
        while arrived < jobs and submit[arrived] == now:
            job = arrived
            arrived += 1
            if mode != GIVEN:
                forecast[job] = forecast_at_submit(mode, job, forecast[job], request[job], user[job], past)
            promise[job] = -1
            used[job] = 0
            waiting = insert(queue_key, queue, waiting, order_key(order, forecast[job], volume[job]), job)
        progress[0] = arrived
        if gained > roomed:
            room_of(present, room)
            roomed = moment
        # 3. The plan, as far as somebody waits who fits into what is free now and beside the reservations so far.
        place = 0
        last = waiting
        held = 0
        tail = True
        while place < last:
            job = queue[last - 1] if tail else queue[place]
            like = shape[job]
            length = forecast[job]
            could = all_fit(
                present, room, need, job, pieces[job], most[like], allowed[job], kind, like, inside, changed, seen,
                total, moment, gained,
            )  # fmt: skip
            if could and held > 0:
                could = fits_through(times, free, sizes, now, now + length, need[job], pieces[job], allowed[job], kind)
            if tail:
                tail = not could
                last -= 0 if could else 1
                continue
            tail = True
            begin = now
            if not could:
                begin += 1
                if bound_round[like] == rounds and pieces[job] >= bound_pieces[like] and length >= bound_length[like]:
                    begin = bound_start[like]
                begin = earliest_gang(
                    times, free, sizes, begin, length, need[job], pieces[job], allowed[job], kind, never
                )
                bound_round[like] = rounds
                bound_pieces[like], bound_length[like], bound_start[like] = pieces[job], length, begin
            filled, placed, counts = laid_at(
                times, free, sizes, begin, length, need[job], pieces[job], allowed[job], kind, job, arrived, first,
                used, filled, placed, counts,
            )  # fmt: skip
            mine, each = placed[first[job] : filled], counts[first[job] : filled]
            times, free = book_gang(times, free, sizes, now, begin, begin + length, need[job], mine, each, taken)
            if begin > now:
                held_job[held] = job
                held_start[held] = begin
                held += 1
                place += 1
                continue
            moment += 1
            for at in range(mine.shape[0]):
                changed[mine[at] >> BLOCK_BITS] = moment
                for resource in range(resources):
                    present[mine[at], resource] -= need[job, resource] * each[at]
            start[job] = now
            planned_end[job] = now + length
            running = heap_push(event_time, event_job, running, now + min(length, run[job]), job)
            waiting = remove_at(queue_key, queue, waiting, place)
            last -= 1
        # 4. The reservations go, and with them the seams that they leave in the profiles.
        for at in range(held):
            job = held_job[at]
            mine = placed[first[job] : first[job] + used[job]]
            each = counts[first[job] : first[job] + used[job]]
            end = held_start[at] + forecast[job]
            times, free = book_gang(times, free, sizes, now, held_start[at], end, need[job], mine, each, given)
            used[job] = 0
        if held > 0:
            for on in range(machines):
                sizes[on] = tidy(times[on], free[on], sizes[on], now)
    return rounds, placed[:filled], counts[:filled]
