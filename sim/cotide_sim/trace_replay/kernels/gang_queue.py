"""Strict order and EASY backfilling for gangs on many machines with vector demands (Naghshnejad 2019, section 4.2.1).

Called by `machine_replay`. The rounds and rules are those of `easy`, where a processor was like any other: here each
piece of a job needs all its resources on one machine (`gangs`). The first of the queue that does not fit has its
machines reserved at the earliest planned end that leaves it enough; any other job that fits now may start if it is
planned to end by then, or takes nothing that is reserved.

What is planned to be free only grows with time, as long as nothing but running jobs is planned. So a reservation needs
no profile over time: it is found by giving back what runs, in order of planned end, and whoever is planned to run
beyond it may use, of each machine, the less of what is free now and of what is left over then.

Only a round in which something came free, a forecast changed, a first job started or another became first can let a
job start that could not before: in any other the reservation stays what it is, and the submitted jobs alone are looked
at. Invariants: no machine is ever overfilled in any resource; on one machine with one resource the schedules are those
of `easy`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.ordered_jobs import insert, place_of, remove_at
from cotide_predictors.run_time.kernels.run_forecasts import GIVEN, Past, corrected, forecast_at_submit, learn
from cotide_sim.trace_replay.kernels.easy import NO_BACKFILL, order_key
from cotide_sim.trace_replay.kernels.event_loop import STOP
from cotide_sim.trace_replay.kernels.gang_counts import BLOCK_BITS, all_fit, blocks_of, most_pieces
from cotide_sim.trace_replay.kernels.gang_lists import laid_now
from cotide_sim.trace_replay.kernels.gangs import fitting_on, room_of
from cotide_sim.trace_replay.kernels.time_heap import heap_pop, heap_push

Integers = npt.NDArray[np.int64]


@compiled
def replay_gang_queue(  # noqa: PLR0912, PLR0915  one compiled loop: a call for each step would pass all its arrays
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
    """Replay a log; parameters and results as in `machine_replay.replay_machines`, ``backfill`` as in `easy`."""
    jobs = submit.shape[0]
    machines = capacity.shape[0]
    resources = capacity.shape[1]
    event_time = np.empty(jobs, np.int64)
    event_job = np.empty(jobs, np.int64)
    end_time = np.empty(jobs, np.int64)
    end_job = np.empty(jobs, np.int64)
    planned_end = np.empty(jobs, np.int64)
    queue_key = np.empty(jobs, np.int64)
    queue = np.empty(jobs, np.int64)
    line_key = np.empty(jobs, np.int64)
    line = np.empty(jobs, np.int64)
    # How many pieces of each shape fit into what is free now, and beside a reservation: see `gang_counts`.
    most = most_pieces(shape, pieces)
    inside_now, inside_beside = np.zeros((2, most.shape[0], blocks_of(machines)), np.int64)
    total_now, total_beside = np.zeros((2, most.shape[0]), np.int64)
    seen_now, seen_beside = np.zeros((2, most.shape[0]), np.int64)
    changed_now, changed_beside = np.ones((2, blocks_of(machines)), np.int64)
    moment: int = 1
    roomed: int = 0
    gained_now: int = 1
    gained_beside: int = 1
    room_now, room_beside = np.zeros((2, 2, resources), np.int64)
    present = capacity.copy()
    later = capacity.copy()  # planned to be free when the reservation begins, and not reserved
    beside = capacity.copy()  # for who runs beyond that: the less of the two
    placed = np.empty(4 * machines, np.int64)
    counts = np.empty(4 * machines, np.int64)
    # Numbers from an array: a literal given to a function would have it compiled once more, which takes seconds.
    zeros = np.zeros(5, np.int64)
    filled, waiting, running, arrived = zeros[0], zeros[1], zeros[2], zeros[3]
    rounds: int = zeros[4]
    shadow: int = -1
    while (arrived < jobs or running > 0) and progress[STOP] == 0:
        rounds += 1
        now = submit[arrived] if arrived < jobs else event_time[0]
        if running > 0 and event_time[0] < now:
            now = event_time[0]
        everything = waiting == 0
        first_before = queue[0] if waiting > 0 else -1
        # 1. Jobs that end, and jobs that outlive their forecast.
        while running > 0 and event_time[0] == now:
            everything = True
            job = event_job[0]
            place = place_of(end_time, end_job, running, planned_end[job], job)
            remove_at(end_time, end_job, running, place)
            running = heap_pop(event_time, event_job, running)
            if start[job] + run[job] > now:
                planned_end[job] = start[job] + corrected(mode, job, request[job], now - start[job], past.upper)
                insert(end_time, end_job, running, planned_end[job], job)
                next_event = min(planned_end[job], start[job] + run[job])
                running = heap_push(event_time, event_job, running, next_event, job)
                continue
            moment += 1
            gained_now = moment
            for place in range(first[job], first[job] + used[job]):
                changed_now[placed[place] >> BLOCK_BITS] = moment
                for resource in range(resources):
                    present[placed[place], resource] += need[job, resource] * counts[place]
            if mode != GIVEN:
                learn(mode, job, run[job], request[job], user[job], forecast[job], past)
        # 2. Submissions.
        new_from = arrived
        while arrived < jobs and submit[arrived] == now:
            job = arrived
            arrived += 1
            if mode != GIVEN:
                forecast[job] = forecast_at_submit(mode, job, forecast[job], request[job], user[job], past)
            promise[job] = -1
            used[job] = 0
            if backfill != NO_BACKFILL:
                insert(line_key, line, waiting, order_key(backfill, forecast[job], volume[job]), job)
            waiting = insert(queue_key, queue, waiting, order_key(order, forecast[job], volume[job]), job)
        progress[0] = arrived
        if gained_now > roomed:
            room_of(present, room_now)
            roomed = moment
        # 3. The queue's first jobs as long as they fit, then those behind the reservation of its first.
        place = 0
        reserved = False
        while place < waiting:
            job = line[place] if reserved else queue[0]
            beyond = reserved and now + forecast[job] > shadow
            skipped = reserved and not everything and job < new_from
            like = shape[job]
            if skipped:
                fits = False
            elif beyond:
                fits = all_fit(
                    beside, room_beside, need, job, pieces[job], most[like], allowed[job], kind, like, inside_beside,
                    changed_beside, seen_beside, total_beside, moment, gained_beside,
                )  # fmt: skip
            else:
                fits = all_fit(
                    present, room_now, need, job, pieces[job], most[like], allowed[job], kind, like, inside_now,
                    changed_now, seen_now, total_now, moment, gained_now,
                )  # fmt: skip
            if not fits:
                if backfill == NO_BACKFILL:
                    break
                if reserved:
                    place += 1
                    continue
                everything = everything or job != first_before
                if everything:
                    later[:] = present
                    shadow = reserve(
                        later, need[job], pieces[job], allowed[job], kind, end_time, end_job, running, first, used,
                        placed, counts, need,
                    )  # fmt: skip
                    moment += 1
                    gained_beside = moment
                    for at in range(machines):
                        for resource in range(resources):
                            left = min(present[at, resource], later[at, resource])
                            if left != beside[at, resource]:
                                beside[at, resource] = left
                                changed_beside[at >> BLOCK_BITS] = moment
                    room_of(beside, room_beside)
                if promise[job] < 0:
                    promise[job] = shadow
                reserved = True
                continue
            filled, placed, counts = laid_now(
                beside if beyond else present, need[job], pieces[job], allowed[job], kind, job, arrived, first, used,
                filled, placed, counts,
            )  # fmt: skip
            start[job] = now
            planned_end[job] = now + forecast[job]
            moment += 1
            for at in range(first[job], filled):
                on = placed[at]
                changed_now[on >> BLOCK_BITS] = moment
                changed_beside[on >> BLOCK_BITS] = moment
                for resource in range(resources):
                    takes = need[job, resource] * counts[at]
                    present[on, resource] -= takes
                    if beyond:
                        later[on, resource] -= takes
                    beside[on, resource] = min(present[on, resource], later[on, resource])
            insert(end_time, end_job, running, planned_end[job], job)
            running = heap_push(event_time, event_job, running, now + min(forecast[job], run[job]), job)
            if backfill != NO_BACKFILL:
                at = place_of(line_key, line, waiting, order_key(backfill, forecast[job], volume[job]), job)
                remove_at(line_key, line, waiting, at)
            at = place_of(queue_key, queue, waiting, order_key(order, forecast[job], volume[job]), job)
            waiting = remove_at(queue_key, queue, waiting, at)
            everything = everything or not reserved
    return rounds, placed[:filled], counts[:filled]


@compiled
def reserve(
    later: Integers,
    need: Integers,
    pieces: int,
    allowed: int,
    kind: Integers,
    end_time: Integers,
    end_job: Integers,
    running: int,
    first: Integers,
    used: Integers,
    placed: Integers,
    counts: Integers,
    needs: Integers,
) -> int:
    """Return the earliest planned end from which all pieces of a job fit; at the last all machines are empty.

    Parameters
    ----------
    later : (N, R) in: what is free now; out: what is planned to be free then, less what the job takes.
    end_time, end_job : (running,) the running jobs by planned end.
    first, used, placed, counts : what these hold, see `gang_lists`.
    needs : (n, R) of a piece of each job.
    """
    fits = 0
    for at in range(later.shape[0]):
        if (allowed >> kind[at]) & 1:
            fits += fitting_on(later, at, need, pieces)
    place = 0
    shadow: int = end_time[0]
    while place < running and (fits < pieces or end_time[place] == shadow):
        job = end_job[place]
        shadow = end_time[place]
        for entry in range(first[job], first[job] + used[job]):
            at = placed[entry]
            usable = (allowed >> kind[at]) & 1
            if usable:
                fits -= fitting_on(later, at, need, pieces)
            for resource in range(needs.shape[1]):
                later[at, resource] += needs[job, resource] * counts[entry]
            if usable:
                fits += fitting_on(later, at, need, pieces)
        place += 1
    left = pieces
    for at in range(later.shape[0]):
        if left > 0 and (allowed >> kind[at]) & 1:
            here = fitting_on(later, at, need, left)
            left -= here
            for resource in range(need.shape[0]):
                later[at, resource] -= need[resource] * here
    return shadow
