"""The hybrid platform on one pool: plans for jobs of predictable run time, backfilling for the rest (Naghshnejad 2019,
ch. 4).

Called by the trace replay. A job whose forecast has an estimated accuracy of 0.6 or more is predictable (section 4.4).
Predictable jobs hold at most a share alpha of the processors, others all that is free. The seed's eq. 4.1 multiplies
alpha by a ratio <= 1 at every step and so runs to zero; what its text says is done instead: alpha is the share of the
predictable in the processors that recent jobs asked for, each job counting a thousandth less with every job after it,
from 0.6. A job too large for the share counts as unpredictable.

Where this departs from the seed, for what it gains (docs/replay.md has the figures):

- One round plans both: jobs are tried in order of volume, the predictable by their forecast, the others by their upper
  forecast. The processors that the predictable may not hold but nobody else can use are lent to them.
- A job is planned to take its upper forecast if predictable, else what its user asked for.
- Selective reservations (Srinivasan et al. 2002): a job has a start reserved once it has waited `PATIENCE` times as
  long as it is planned to take, the first submitted first, at most `RESERVED` of each kind; what can't be foreseen is
  protected earlier. Before that a job may be overtaken: reserving for everyone, as a plan does, or for whoever is
  first, as EASY does, holds processors idle.

Invariant: a job starts only when its processors are free for as long as it is planned to take, reservations of the
same round left alone; the predictable hold no more than alpha, what they are lent apart.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cotide_core.kernels.compiled import compiled
from cotide_core.kernels.machine_platform import FIRST_DEMAND, FIRST_SHARE, PATIENCE, PREDICTABLE, RECENT_JOBS, RESERVED
from cotide_core.kernels.ordered_jobs import insert, place_of, remove_at
from cotide_predictors.run_time.kernels.run_forecasts import GIVEN, LEARNED, Past, corrected, forecast_at_submit, learn
from cotide_predictors.run_time.kernels.run_habits import foresee, note_habit
from cotide_sim.trace_replay.kernels.kept import ARRIVED, ROUNDS, RUNNING, SPARE, WAITING, Kept
from cotide_sim.trace_replay.kernels.profile import change, earliest_start
from cotide_sim.trace_replay.kernels.time_heap import heap_pop, heap_push

Integers = npt.NDArray[np.int64]

STOP: Final = 1
"""Place in ``progress`` that a caller sets to end the replay early; place 0 counts submitted jobs."""


@compiled
def is_free(times: Integers, free: Integers, size: int, seconds: int, demand: int) -> bool:
    """Return whether ``demand`` processors are free for ``seconds`` from the profile's first moment."""
    end = times[0] + seconds
    for place in range(size):
        if place > 0 and times[place] >= end:
            return True
        if free[place] < demand:
            return False
    return True


@compiled
def replay_platform(  # noqa: PLR0912, PLR0915  one compiled loop: a call for each step would pass all its arrays
    submit: Integers,
    run: Integers,
    demand: Integers,
    request: Integers,
    user: Integers,
    past: Past,
    capacity: int,
    mode: int,
    forecast: Integers,
    upper: Integers,
    predictable: Integers,
    start: Integers,
    progress: Integers,
    kept: Kept,
) -> int:
    """Replay a log; return the number of rounds.

    Parameters as in `easy.replay_queue`, but:

    upper, predictable : (n,) the seconds that few runs outlive, and 1 or 0; read, or filled where forecasts are
        learned. A job too large for the share is set to 0 either way.
    """
    jobs = submit.shape[0]
    most = min(jobs, capacity)
    event_time, event_job = kept.heap[0], kept.heap[1]
    end_time, end_job = kept.ends[0], kept.ends[1]
    planned_end, volume = kept.planned_end, kept.volume
    # Waiting: all in order of submission; the predictable (kind 1) and the others (kind 0) in order of volume.
    no_keys, queue = kept.queue[0], kept.queue[1]
    line_key, line = kept.keys, kept.lines
    lengths = kept.counts[SPARE + 1 :]
    times = np.empty(256, np.int64)
    levels = np.empty(256, np.int64)
    past_upper, reliability, habits = past.upper, past.reliability, past.habits
    waiting, running = kept.counts[WAITING], kept.counts[RUNNING]
    arrived = kept.counts[ARRIVED]
    rounds: int = kept.counts[ROUNDS]
    held = kept.counts[SPARE]
    free = capacity
    for place in range(running):
        free -= demand[end_job[place]]
    asked_by_predictable, asked = kept.shares[0], kept.shares[1]
    if rounds == 0:
        asked_by_predictable = FIRST_SHARE * FIRST_DEMAND
        asked = FIRST_DEMAND
        no_keys[:] = 0
    while (arrived < jobs or running > 0) and progress[STOP] == 0:
        now = submit[arrived] if arrived < jobs else event_time[0]
        if running > 0 and event_time[0] < now:
            now = event_time[0]
        if now >= kept.until[0]:
            break
        rounds += 1
        # 1. Jobs that end, and jobs that outlive what they were planned to take.
        events = running
        while events > 0 and event_time[0] == now:
            job = event_job[0]
            events = heap_pop(event_time, event_job, events)
            place = place_of(end_time, end_job, running, planned_end[job], job)
            running = remove_at(end_time, end_job, running, place)
            if start[job] + run[job] > now:
                planned_end[job] = start[job] + corrected(mode, job, request[job], now - start[job], past_upper)
                running = insert(end_time, end_job, running, planned_end[job], job)
                next_event = min(planned_end[job], start[job] + run[job])
                events = heap_push(event_time, event_job, events, next_event, job)
            else:
                free += demand[job]
                held -= demand[job] * predictable[job]
                if mode == LEARNED:
                    note_habit(habits, job, run[job], request[job], forecast[job])
                elif mode != GIVEN:
                    learn(mode, job, run[job], request[job], user[job], forecast[job], past)
        # 2. Submissions: forecast, kind, share.
        while arrived < jobs and submit[arrived] == now:
            job = arrived
            if mode == LEARNED:
                forecast[job] = foresee(habits, job, request[job])
            elif mode != GIVEN:
                forecast[job] = forecast_at_submit(mode, job, forecast[job], request[job], user[job], past)
            if mode >= LEARNED:
                upper[job] = past_upper[job]
                predictable[job] = 1 if reliability[job] >= PREDICTABLE else 0
            asked += demand[job] - asked / RECENT_JOBS
            asked_by_predictable += demand[job] * predictable[job] - asked_by_predictable / RECENT_JOBS
            if demand[job] > int(capacity * asked_by_predictable / asked):
                predictable[job] = 0
            kind = predictable[job]
            volume[job] = (forecast[job] if kind == 1 else upper[job]) * demand[job]
            insert(line_key[kind], line[kind], lengths[kind], volume[job], job)
            lengths[kind] += 1
            queue[waiting] = job
            waiting += 1
            arrived += 1
        progress[0] = arrived
        if waiting == 0 or free == 0:
            continue
        share = int(capacity * asked_by_predictable / asked)
        room = 2 * (running + 2 * RESERVED + most) + 8
        if room > times.shape[0]:
            times = np.empty(room, np.int64)
            levels = np.empty(room, np.int64)
        size = 1
        times[0] = now
        levels[0] = free
        for place in range(running):
            if end_time[place] != times[size - 1]:
                times[size] = end_time[place]
                levels[size] = levels[size - 1]
                size += 1
            levels[size - 1] += demand[end_job[place]]
        # 3. Three passes: the overdue in order of submission, all in order of volume, the predictable beyond the share.
        for step in range(3):
            first = 0
            second = 0
            places = np.zeros(2, np.int64)
            while free > 0:
                if step == 0:
                    if first == waiting or (places[0] == RESERVED and places[1] == RESERVED):
                        break
                    job = queue[first]
                    kind = predictable[job]
                    length = upper[job] if kind == 1 else request[job]
                    if places[kind] == RESERVED or now - submit[job] < PATIENCE[kind] * length:
                        first += 1
                        continue
                    begin = earliest_start(times, levels, size, now, length, demand[job])
                    size = change(times, levels, size, begin, begin + length, -demand[job])
                    if begin > now:
                        places[kind] += 1
                        first += 1
                        continue
                else:
                    more = first < lengths[1]
                    others = step == 1 and second < lengths[0]
                    if not more and not others:
                        break
                    kind = 1
                    if not more or (
                        others and (line_key[0, second], line[0, second]) < (line_key[1, first], line[1, first])
                    ):
                        kind = 0
                    job = line[1, first] if kind == 1 else line[0, second]
                    length = upper[job] if kind == 1 else request[job]
                    if (
                        demand[job] > free
                        or (step == 1 and kind == 1 and held + demand[job] > share)
                        or not is_free(times, levels, size, length, demand[job])
                    ):
                        first += kind
                        second += 1 - kind
                        continue
                    size = change(times, levels, size, now, now + length, -demand[job])
                place = place_of(no_keys, queue, waiting, 0, job)
                waiting = remove_at(no_keys, queue, waiting, place)
                place = place_of(line_key[kind], line[kind], lengths[kind], volume[job], job)
                remove_at(line_key[kind], line[kind], lengths[kind], place)
                lengths[kind] -= 1
                start[job] = now
                free -= demand[job]
                held += demand[job] * kind
                planned_end[job] = now + length
                insert(end_time, end_job, running, planned_end[job], job)
                running = heap_push(event_time, event_job, running, now + min(length, run[job]), job)
    kept.counts[WAITING], kept.counts[RUNNING] = waiting, running
    kept.counts[ARRIVED], kept.counts[ROUNDS] = arrived, rounds
    kept.counts[SPARE] = held
    kept.shares[0], kept.shares[1] = asked_by_predictable, asked
    return rounds
