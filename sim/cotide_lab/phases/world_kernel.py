"""The event loop of the world of phases: jobs arrive, phases end, nodes report.

Called by `world.run`. A node reports when a phase on it has ended, when a stage opens that fits on it, and every
heartbeat while it left room unused that it might fill later. Times are milliseconds. Invariants: as `node_report`'s;
the same arguments give the same run, since ties go by the number of the task.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import compiled
from cotide_lab.phases.node_report import Desk, end_phase, open_group, report, starts_in
from cotide_lab.phases.tables import DONE, MAX_TASKS, NONE, NOT_DONE, RUNNING, Nodes, Work
from cotide_lab.phases.utility import Weights
from cotide_lab.trace_replay.kernels.time_heap import heap_pop, heap_push

HEARTBEAT: Final = 3000
"""Hadoop's tasktrackers report every 3 s (mapred-default.xml, HEARTBEAT_INTERVAL_MIN of 0.20)."""
SIZE: Final = 0
REPORTS: Final = 1
TURN: Final = 2


class Plan(NamedTuple):
    """When jobs come and what follows what.

    Attributes
    ----------
    submitted, first : (J,) milliseconds, rising; the job's first group.
    follower : (G,) the group that opens when all tasks of this one are done; -1 after the last.
    left : (G,) tasks that are not done.
    factor : (T,) how many times as long a task takes.
    growing : milliseconds from when a task that paused has what it needs until it goes on.
    """

    submitted: Integers
    first: Integers
    follower: Integers
    left: Integers
    factor: Floats
    growing: int


class Seen(NamedTuple):
    """What happened: ``started`` and ``finished`` (J,), -1 at first; ``paused``, ``longest`` (T,); the event heap.

    ``tried`` (N,) is the number of the last opened group that a node would not start a task of.
    """

    started: Integers
    finished: Integers
    paused: Integers
    longest: Integers
    times: Integers
    events: Integers
    beating: Integers
    tried: Integers
    scalar: Integers


@compiled
def _start_clock(work: Work, plan: Plan, seen: Seen, task: int, now: int) -> None:
    length = max(1, int(work.milliseconds[work.phase[task]] * plan.factor[task]))
    seen.scalar[SIZE] = heap_push(seen.times, seen.events, seen.scalar[SIZE], now + length, task)


@compiled
def _report(
    work: Work, nodes: Nodes, weights: Weights, plan: Plan, seen: Seen, room: Desk, node: int, now: int, most: int
) -> int:
    granted = report(work, nodes, weights, node, now, room, most)
    seen.scalar[REPORTS] += 1
    for index in range(granted):
        task = room.granted[index]
        group, starts = work.group[task], now
        if work.phase[task] == work.first[group]:
            if seen.started[work.job[group]] == NONE:
                seen.started[work.job[group]] = now
        else:
            pause = now - work.paused[task]
            seen.paused[task] += pause
            seen.longest[task] = max(seen.longest[task], pause)
            starts += plan.growing
        _start_clock(work, plan, seen, task, starts)
    if (nodes.declined[node] or nodes.kept_for[node] != NONE) and not seen.beating[node]:
        seen.beating[node] = 1
        event = len(work.group) + node
        seen.scalar[SIZE] = heap_push(seen.times, seen.events, seen.scalar[SIZE], now + HEARTBEAT, event)
    return int(granted)


@compiled
def _least_expected(work: Work, nodes: Nodes, weights: Weights, seen: Seen, group: int) -> int:
    """Return the node with room for a group's first phase that expects the least of its tasks; -1 for none."""
    best, least = NONE, 0.0
    for node in range(len(nodes.held)):
        is_out = seen.tried[node] == seen.scalar[TURN] or nodes.kept_for[node] != NONE
        if is_out or not starts_in(work, weights, nodes.free[node], work.first[group]):
            continue
        share = np.max(nodes.expected[node] / np.maximum(nodes.capacity[node], 1))
        if best == NONE or share < least:
            best, least = node, share
    return int(best)


@compiled
def _opened(
    work: Work, nodes: Nodes, weights: Weights, plan: Plan, seen: Seen, room: Desk, group: int, now: int
) -> None:
    """Open a group and deal its tasks to nodes that have room, one after the other: alike, they would grow together."""
    open_group(work, group, now)
    seen.scalar[TURN] += 1
    while work.waiting[group] > 0:
        node = _least_expected(work, nodes, weights, seen, group)
        if node == NONE:
            return
        if _report(work, nodes, weights, plan, seen, room, node, now, 1) == 0:
            seen.tried[node] = seen.scalar[TURN]


@compiled
def play(work: Work, nodes: Nodes, weights: Weights, plan: Plan, seen: Seen, room: Desk) -> int:
    """Run all jobs to their end; return the last moment (milliseconds)."""
    coming, now, tasks = 0, 0, len(work.group)
    while coming < len(plan.submitted) or seen.scalar[SIZE] > 0:
        if coming < len(plan.submitted) and (seen.scalar[SIZE] == 0 or plan.submitted[coming] <= seen.times[0]):
            now = plan.submitted[coming]
            work.counts[NOT_DONE] += 1
            _opened(work, nodes, weights, plan, seen, room, plan.first[coming], now)
            coming += 1
            continue
        now = seen.times[0]
        event = seen.events[0]
        seen.scalar[SIZE] = heap_pop(seen.times, seen.events, seen.scalar[SIZE])
        if event >= tasks:
            node = event - tasks
            seen.beating[node] = 0
            _report(work, nodes, weights, plan, seen, room, node, now, MAX_TASKS)
            continue
        group, opens = work.group[event], NONE
        node = work.node[event]
        state = end_phase(work, nodes, event, now)
        if state == RUNNING:
            _start_clock(work, plan, seen, event, now)
        elif state == DONE:
            plan.left[group] -= 1
            if plan.left[group] == 0:
                opens = plan.follower[group]
                if opens == NONE:
                    seen.finished[work.job[group]] = now
                    work.counts[NOT_DONE] -= 1
        _report(work, nodes, weights, plan, seen, room, node, now, MAX_TASKS)
        if opens != NONE:
            _opened(work, nodes, weights, plan, seen, room, opens, now)
    return int(now)
