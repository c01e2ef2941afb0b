"""Online plans on one pool in an order that only all waiting jobs together have: SINGLE and Block-Scheduling
(Naghshnejad 2019, sections 3.3.3 and 3.2.2).

Called by the trace replay. The thesis knows all jobs at time 0. Here each submission orders the waiting jobs again, as
the algorithm would start them on an empty pool. Then they are planned as in `plan`: each at the earliest start that
running jobs and earlier plans leave. Between submissions an order stays. With all jobs there from the start, and run
times as forecast, the schedule is that of the algorithm, where no job waits for those behind it.

- ``BY_PARTS``: for L = 1, 2, 4, ... as many jobs as any schedule could complete by L, packed by levels, longest first.
- ``BY_BLOCK``: jobs of one power of two fill a block; step k takes blocks of up to 2^k, densest first, gamma 2^k long.

A pool is one machine. Invariant: an order holds each waiting job once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled, inlined, uncounted, with_steps
from cotide_core.kernels.ordered_jobs import index_of, insert, remove_at
from cotide_lab.trace_replay.kernels.event_loop import replay, start_job
from cotide_lab.trace_replay.kernels.profile import change, earliest_start, profile_of
from cotide_lab.trace_replay.kernels.replay_state import RUNNING, SPARE, TAKEN, WAITING, Jobs, ReplayState
from cotide_lab.trace_replay.kernels.time_heap import heap_pop, heap_push

BY_PARTS: Final = 10
BY_BLOCK: Final = 11
STALE: Final = SPARE
"""Index of 1 where a job was submitted since the last ordering."""
GAMMA: Final = 15
"""Length of a step over its largest block on one machine: 9 + 6 / M (Naghshnejad 2019, Lemma 11)."""
DENSITY_BITS: Final = 40
"""Blocks are compared by jobs x 2^(this - class): exact for forecasts up to 2^40 s and four million jobs (chosen)."""


class SetPlanRule(NamedTuple):
    """Plans of sets on one pool.

    Attributes
    ----------
    capacity, order : processors, and one of the codes above (none of `easy`'s).
    volumes : (2, n) keys and jobs of the waiting, in order of volume; of ``BY_PARTS``.
    heap : (2, n) keys and jobs or blocks that are being ordered.
    part : (n,) the part or the block of a job.
    blocks : (3, n) of each block its class, its jobs and its start.
    """

    capacity: int
    order: int
    volumes: Integers
    heap: Integers
    part: Integers
    blocks: Integers


def set_plan_rule(capacity: int, order: int, jobs: int) -> SetPlanRule:
    """Return the rule for a log of so many jobs."""
    volumes, heap = np.empty((2, jobs), np.int64), np.empty((2, jobs), np.int64)
    return SetPlanRule(capacity, order, volumes, heap, np.empty(jobs, np.int64), np.empty((3, jobs), np.int64))


@compiled
def size_class(seconds: int) -> int:
    """Return the least k with seconds <= 2^k."""
    found = 0
    while (1 << found) < seconds:
        found += 1
    return found


@inlined
def _pile_key(job: int, jobs: Jobs, rule: SetPlanRule) -> int:
    """Return the order of packing: longest and widest first, or by class, narrowest first."""
    width = rule.capacity + 1
    longest: int = -(jobs.forecast[job] * width + jobs.demand[job])
    by_class: int = size_class(jobs.forecast[job]) * width + jobs.demand[job]
    return by_class if rule.order == BY_BLOCK else longest


@inlined
def _submitted(now: int, job: int, jobs: Jobs, state: ReplayState, rule: SetPlanRule) -> SetPlanRule:
    counts, waiting = state.counts, state.counts[WAITING]
    if rule.order == BY_PARTS:
        insert(rule.volumes[0], rule.volumes[1], waiting, jobs.forecast[job] * jobs.demand[job], job)
    counts[WAITING] = insert(state.queues[1, 0], state.queues[1, 1], waiting, _pile_key(job, jobs, rule), job)
    counts[STALE] = 1
    return rule


@inlined
def _decide(now: int, jobs: Jobs, state: ReplayState, rule: SetPlanRule) -> SetPlanRule:
    counts, demand, forecast = state.counts, jobs.demand, jobs.forecast
    line_key, line = state.queues[0, 0], state.queues[0, 1]
    times, levels = state.profile[0], state.profile[1]
    free = rule.capacity - counts[TAKEN]
    if counts[WAITING] == 0 or free == 0:
        return rule
    if counts[STALE] == 1:
        counts[STALE] = 0
        _arrange(jobs, state, rule)
    size = profile_of(times, levels, now, free, state.ends[0], state.ends[1], counts[RUNNING], demand)
    index = 0
    while index < counts[WAITING] and free > 0:
        job = line[index]
        begin = earliest_start(times, levels, size, now, forecast[job], demand[job])
        size = change(times, levels, size, begin, begin + forecast[job], -demand[job])
        if begin > now:
            index += 1
            continue
        _forget(job, jobs, state, rule)
        counts[WAITING] = remove_at(line_key, line, counts[WAITING], index)
        free -= demand[job]
        start_job(now, job, forecast[job], jobs, state)
    return rule


@inlined
def _forget(job: int, jobs: Jobs, state: ReplayState, rule: SetPlanRule) -> None:
    """Take a job that starts out of the lists that are ordered by request."""
    waiting, keys, pile = state.counts[WAITING], state.queues[1, 0], state.queues[1, 1]
    remove_at(keys, pile, waiting, index_of(keys, pile, waiting, _pile_key(job, jobs, rule), job))
    if rule.order == BY_PARTS:
        keys, by_volume = rule.volumes[0], rule.volumes[1]
        index = index_of(keys, by_volume, waiting, jobs.forecast[job] * jobs.demand[job], job)
        remove_at(keys, by_volume, waiting, index)


@uncounted
def _arrange(jobs: Jobs, state: ReplayState, rule: SetPlanRule) -> None:
    """Order all that wait by the start that the algorithm would give them, then by submission."""
    waiting, keys, items = state.counts[WAITING], rule.heap[0], rule.heap[1]
    if rule.order == BY_BLOCK:
        _start_blocks(_form_blocks(jobs, state, rule), rule)
        for index in range(waiting):
            job = state.queues[1, 1, index]
            heap_push(keys, items, index, rule.blocks[2, rule.part[job]], job)
    else:
        _pack_parts(jobs, state, rule)
    for index in range(waiting):
        state.queues[0, 0, index] = index
        state.queues[0, 1, index] = items[0]
        heap_pop(keys, items, waiting - index)


@uncounted
def _pack_parts(jobs: Jobs, state: ReplayState, rule: SetPlanRule) -> None:
    """Put all that wait on the heap by their starts in partial schedules of doubling length."""
    waiting, pile, by_volume = state.counts[WAITING], state.queues[1, 1], rule.volumes[1]
    forecast, demand, part = jobs.forecast, jobs.demand, rule.part
    for index in range(waiting):
        part[pile[index]] = -1
    packed = 0
    begin = 0
    step = 0
    while packed < waiting:
        length = 1 << step
        volume = 0
        fresh = 0
        for index in range(waiting):
            job = by_volume[index]
            if forecast[job] > length:
                continue
            volume += forecast[job] * demand[job]
            if volume > length * rule.capacity:
                break
            if part[job] < 0:
                part[job] = step
                fresh += 1
        if fresh > 0:
            begin = _pack_levels(begin, step, packed, jobs, state, rule)
            packed += fresh
        step += 1


@inlined
def _pack_levels(begin: int, step: int, packed: int, jobs: Jobs, state: ReplayState, rule: SetPlanRule) -> int:
    """Pack one part, longest jobs first, side by side on a level while they fit; return when its last level ends."""
    pile, size = state.queues[1, 1], packed
    start = begin
    end = begin
    held = 0
    for index in range(state.counts[WAITING]):
        job = pile[index]
        if rule.part[job] != step:
            continue
        if held + jobs.demand[job] > rule.capacity:
            start = end
            held = 0
        if held == 0:
            end = start + jobs.forecast[job]
        held += jobs.demand[job]
        size = heap_push(rule.heap[0], rule.heap[1], size, start, job)
    return end


@uncounted
def _form_blocks(jobs: Jobs, state: ReplayState, rule: SetPlanRule) -> int:
    """Fill blocks with jobs of one class, narrowest first; return how many there are."""
    pile, blocks = state.queues[1, 1], rule.blocks
    block = -1
    held = 0
    current = -1
    for index in range(state.counts[WAITING]):
        job = pile[index]
        own = size_class(jobs.forecast[job])
        if own != current or held + jobs.demand[job] > rule.capacity:
            block += 1
            held = 0
            current = own
            blocks[0, block] = own
            blocks[1, block] = 0
        held += jobs.demand[job]
        blocks[1, block] += 1
        rule.part[job] = block
    return block + 1


@uncounted
def _start_blocks(count: int, rule: SetPlanRule) -> None:
    """Give each block its start: step k runs the densest of those up to 2^k that are left, for gamma 2^k."""
    keys, items, blocks = rule.heap[0], rule.heap[1], rule.blocks
    size = 0
    formed = 0
    step = 0
    begin = 0
    done = 0
    while done < count:
        while formed < count and blocks[0, formed] <= step:
            density = blocks[1, formed] << max(0, DENSITY_BITS - blocks[0, formed])
            size = heap_push(keys, items, size, -density, formed)
            formed += 1
        left = GAMMA << step
        while size > 0 and (1 << blocks[0, items[0]]) <= left:
            block = items[0]
            lasts = 1 << blocks[0, block]
            size = heap_pop(keys, items, size)
            blocks[2, block] = begin
            begin += lasts
            left -= lasts
            done += 1
        step += 1


replay_set_plan = with_steps(replay, "replay_set_plan", submitted=_submitted, decide=_decide)
"""Replays a log under plans of sets, see `event_loop.replay`."""
