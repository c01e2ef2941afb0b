"""Algorithm 2 of Zhang and Boutaba 2014: on a node's report, grant the phases of the highest utility that fit.

Called by the simulator's world on each report. Candidates are the first phases of all open groups, which may start on
any node, and the next phases of the tasks that pause on this node. All tasks of a group are alike, so one row
represents its candidates. After a grant only rows of that job are weighed again.

The paper bounds no wait; four rules are added to it. A grant leaves the node safe (`safe_state`). No task starts on a
node if its tasks will need more, in the mean of the time they have left, than `Weights.overcommit` allows. Once a pause
is longer than its bound, the node starts no new task and continues its pauses by age. A group that started nothing for
longer than its bound has a node kept free for it. Invariants: a node never holds more than its capacity. A pause lasts
at most its bound plus the remaining run time of the tasks on that node.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.kernels.compiled import compiled
from cotide_lab.phases.safe_state import holding, stays_safe
from cotide_lab.phases.tables import (
    DONE,
    MAX_TASKS,
    NONE,
    NOT_DONE,
    OPEN,
    PAUSED,
    RUNNING,
    Nodes,
    Work,
)
from cotide_lab.phases.utility import (
    ARRIVAL,
    DOMINANT_SHARE,
    Weights,
    dominant_share,
    fairness_gain,
    parallelism_gain,
    shortness_gain,
    wait_penalty,
)

_OUT: Final = -1e300
"""The utility of a row that is no longer a candidate."""


class Desk(NamedTuple):
    """Room to work in: ``granted`` (`MAX_TASKS`,) tasks; ``rows`` groups, or -1 - task; ``worth`` their utility."""

    granted: Integers
    rows: Integers
    worth: Floats


def desk(work: Work) -> Desk:
    """Return room enough for any report."""
    most = len(work.job) + MAX_TASKS
    return Desk(np.zeros(MAX_TASKS, np.int64), np.zeros(most, np.int64), np.zeros(most))


@compiled
def open_group(work: Work, group: int, now: int) -> None:
    """Allow the tasks of a group to start from now on (milliseconds)."""
    if work.position[group] == NONE and work.waiting[group] > 0:
        work.position[group] = work.counts[OPEN]
        work.open[work.counts[OPEN]] = group
        work.counts[OPEN] += 1
        work.since[group] = now


@compiled
def end_phase(work: Work, nodes: Nodes, task: int, now: int) -> int:
    """Advance a task after the end of its phase; return its new state: running, paused or done."""
    phase, node, group = work.phase[task], work.node[task], work.group[task]
    job = work.job[group]
    if work.last[phase]:
        for resource in range(nodes.free.shape[1]):
            nodes.free[node, resource] += work.need[phase, resource]
            work.held[job, resource] -= work.need[phase, resource]
            nodes.expected[node, resource] -= work.mean[phase, resource]
        nodes.held[node] -= 1
        slot = 0
        while nodes.tasks[node, slot] != task:
            slot += 1
        nodes.tasks[node, slot] = nodes.tasks[node, nodes.held[node]]
        work.state[task] = DONE
        work.left[job] -= work.cost[group]
        work.running[group] -= 1
        return DONE
    more = False
    for resource in range(nodes.free.shape[1]):
        more = more or work.need[phase + 1, resource] > work.need[phase, resource]
    work.phase[task] = phase + 1
    work.state[task] = PAUSED if more else RUNNING
    work.paused[task] = now
    for resource in range(nodes.free.shape[1]):
        back = work.need[phase, resource] - holding(work, work.state[task], phase + 1, resource)
        nodes.free[node, resource] += back
        work.held[job, resource] -= back
        nodes.expected[node, resource] += work.mean[phase + 1, resource] - work.mean[phase, resource]
    return int(work.state[task])


@compiled
def grant_paused(work: Work, nodes: Nodes, task: int) -> None:
    """Continue a paused task."""
    phase, node = work.phase[task], work.node[task]
    for resource in range(nodes.free.shape[1]):
        more = work.need[phase, resource] - holding(work, PAUSED, phase, resource)
        nodes.free[node, resource] -= more
        work.held[work.job[work.group[task]], resource] += more
    work.state[task] = RUNNING


@compiled
def grant_start(work: Work, nodes: Nodes, group: int, node: int, now: int) -> int:
    """Start the group's next task on a node; return the task."""
    task = work.next_task[group]
    work.next_task[group] += 1
    work.waiting[group] -= 1
    work.running[group] += 1
    work.since[group] = now
    work.state[task], work.node[task] = RUNNING, node
    for resource in range(nodes.free.shape[1]):
        nodes.free[node, resource] -= work.need[work.first[group], resource]
        work.held[work.job[group], resource] += work.need[work.first[group], resource]
        nodes.expected[node, resource] += work.mean[work.first[group], resource]
    nodes.tasks[node, nodes.held[node]] = task
    nodes.held[node] += 1
    kept = work.reserved[group]
    if kept != NONE:
        nodes.kept_for[kept] = NONE
        work.reserved[group] = NONE
    if work.waiting[group] == 0:
        work.counts[OPEN] -= 1
        moved = work.open[work.counts[OPEN]]
        work.open[work.position[group]] = moved
        work.position[moved] = work.position[group]
        work.position[group] = NONE
    return int(task)


@compiled
def fits(work: Work, room: Integers, phase: int) -> bool:
    """Return whether a phase fits into the free amounts, (R,)."""
    for resource in range(len(room)):  # noqa: SIM110 - kernels know no generators
        if work.need[phase, resource] > room[resource]:
            return False
    return True


@compiled
def starts_in(work: Work, weights: Weights, room: Integers, phase: int) -> bool:
    """Return whether a task may start in the free amounts, (R,)."""
    if weights.whole == 0:
        return fits(work, room, phase)
    for resource in range(len(room)):  # noqa: SIM110 - kernels know no generators
        if work.rest[phase, resource] > room[resource]:
            return False
    return True


@compiled
def _paused_fits(work: Work, room: Integers, task: int) -> bool:
    phase = work.phase[task]
    for resource in range(len(room)):
        if work.need[phase, resource] - holding(work, PAUSED, phase, resource) > room[resource]:
            return False
    return True


@compiled
def _worth(work: Work, nodes: Nodes, weights: Weights, row: int, now: int) -> float:
    """Return eq. 14 for a row, plus the gain by the job's shortness."""
    if row >= 0:
        job, phase = work.job[row], work.first[row]
        removed = nodes.total * 0
        added = work.need[phase]
    else:
        task = -1 - row
        job, phase = work.job[work.group[task]], work.phase[task]
        removed = np.minimum(work.need[phase], work.need[phase - 1]) * work.kept
        added = work.need[phase]
    before = dominant_share(work.held[job], removed, removed, nodes.total)
    if weights.rule == DOMINANT_SHARE:
        return 2.0 - before
    if weights.rule == ARRIVAL:
        return 1.0 / (1.0 + float(job))  # jobs are numbered as they come
    after = dominant_share(work.held[job], added, removed, nodes.total)
    gain = fairness_gain(before, after, work.counts[NOT_DONE], weights.measure)
    gain += weights.shortness * shortness_gain(work.left[job])
    if row >= 0:
        return gain + weights.alpha * parallelism_gain(work.waiting[row] + work.running[row], work.running[row])
    seconds = (now - work.paused[-1 - row]) / 1000.0
    return gain + weights.alpha * wait_penalty(seconds, weights.wait_square, weights.wait_constant)


@compiled
def _paused_rows(work: Work, nodes: Nodes, weights: Weights, node: int, now: int, room: Desk) -> tuple[int, bool]:
    """Write the node's pauses; return how many can continue, and whether one is longer than its bound."""
    rows, overdue = 0, False
    for index in range(nodes.held[node]):
        task = nodes.tasks[node, index]
        if work.state[task] == PAUSED:
            overdue = overdue or now - work.paused[task] > weights.pause_milliseconds
            if _paused_fits(work, nodes.free[node], task):
                room.rows[rows] = -1 - task
                rows += 1
    return rows, overdue


@compiled
def _within(work: Work, nodes: Nodes, weights: Weights, node: int, phase: int) -> bool:
    """Return whether a node that starts this phase can expect to serve all its tasks."""
    if nodes.held[node] == 0:
        return True
    for resource in range(nodes.free.shape[1]):
        most = weights.overcommit * nodes.capacity[node, resource]
        if nodes.expected[node, resource] + work.mean[phase, resource] > most:
            return False
    return True


@compiled
def _start_rows(work: Work, nodes: Nodes, weights: Weights, node: int, now: int, room: Desk, rows: int) -> int:
    """Write the open groups that fit after ``rows``; keep the node for the group that has waited too long."""
    oldest = nodes.kept_for[node]
    if oldest == NONE:
        for index in range(work.counts[OPEN]):
            group = work.open[index]
            late = now - work.since[group] > weights.start_milliseconds and work.reserved[group] == NONE
            if late and (oldest == NONE or work.since[group] < work.since[oldest]):
                phase, possible = work.first[group], True
                for resource in range(nodes.free.shape[1]):
                    possible = possible and work.rest[phase, resource] <= nodes.capacity[node, resource]
                if possible:
                    oldest = group
        if oldest != NONE:
            nodes.kept_for[node] = oldest
            work.reserved[oldest] = node
    if oldest != NONE:
        if starts_in(work, weights, nodes.free[node], work.first[oldest]):
            room.rows[rows] = oldest
            rows += 1
        return rows
    for index in range(work.counts[OPEN]):
        phase = work.first[work.open[index]]
        if starts_in(work, weights, nodes.free[node], phase) and _within(work, nodes, weights, node, phase):
            room.rows[rows] = work.open[index]
            rows += 1
    return rows


@compiled
def _possible(work: Work, nodes: Nodes, weights: Weights, node: int, row: int) -> bool:
    if row < 0:
        return _paused_fits(work, nodes.free[node], -1 - row) and stays_safe(work, nodes, node, -1 - row, NONE)
    if work.waiting[row] == 0 or nodes.held[node] == MAX_TASKS:
        return False
    phase = work.first[row]
    if nodes.kept_for[node] != row and not _within(work, nodes, weights, node, phase):
        return False
    return starts_in(work, weights, nodes.free[node], phase) and stays_safe(work, nodes, node, NONE, phase)


@compiled
def report(work: Work, nodes: Nodes, weights: Weights, node: int, now: int, room: Desk, starts: int = MAX_TASKS) -> int:
    """Grant phases on a node, and return how many.

    Parameters
    ----------
    work, nodes : read and changed.
    now : milliseconds.
    room : ``granted`` is written: the tasks that run from now on, by falling utility.
    starts : the most tasks to start.
    """
    rows, overdue = _paused_rows(work, nodes, weights, node, now, room)
    nodes.declined[node] = 0
    if not overdue:
        rows = _start_rows(work, nodes, weights, node, now, room, rows)
    for row in range(rows):
        room.worth[row] = _worth(work, nodes, weights, room.rows[row], now)
        if overdue:
            room.worth[row] = 1.0 + now - work.paused[-1 - room.rows[row]]
    count = 0
    while count < MAX_TASKS:
        best = _best(room, rows)
        if best == NONE:
            break
        chosen = room.rows[best]
        if (chosen >= 0 and starts == 0) or not _possible(work, nodes, weights, node, chosen):
            room.worth[best] = _OUT
            continue
        kept = chosen >= 0 and nodes.kept_for[node] == chosen
        if room.worth[best] <= 0.0 and not kept:
            nodes.declined[node] = 1  # the following ones are worth no more
            break
        task = -1 - chosen
        if chosen >= 0:
            task = grant_start(work, nodes, chosen, node, now)
            starts -= 1
        else:
            grant_paused(work, nodes, task)
        if chosen < 0 or kept:
            room.worth[best] = _OUT
        room.granted[count] = task
        count += 1
        if not overdue:
            _weigh_again(work, nodes, weights, room, rows, work.job[work.group[task]], now)
    return count


@compiled
def _best(room: Desk, rows: int) -> int:
    best = NONE
    for row in range(rows):
        if room.worth[row] > _OUT and (best == NONE or room.worth[row] > room.worth[best]):
            best = row
    return best


@compiled
def _weigh_again(work: Work, nodes: Nodes, weights: Weights, room: Desk, rows: int, job: int, now: int) -> None:
    """Weigh the candidates of a job again, since it holds more now."""
    for row in range(rows):
        candidate = room.rows[row]
        group = candidate if candidate >= 0 else work.group[-1 - candidate]
        if work.job[group] == job and room.worth[row] > _OUT:
            room.worth[row] = _worth(work, nodes, weights, candidate, now)
