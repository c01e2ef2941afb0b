"""Whether the tasks of a node can all come to their end: the banker's algorithm (Dijkstra 1965).

Called by `node_report` before a phase is granted. Tasks that hold some resources and wait for more could otherwise wait
for each other for ever. Safe means that some order of the tasks exists. In this order each task can have the most it
will ever need: from the free amounts and the amounts that those before it gave back. What a pause gives back, as cpu,
comes back from each task by itself: each task alone must find enough of it on the node. Invariant: a grant leaves a
node safe; a phase that ends leaves it safe.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.compiled import compiled
from cotide_lab.phases.tables import MAX_TASKS, NONE, PAUSED, RUNNING, Nodes, Work


@compiled
def holding(work: Work, state: int, phase: int, resource: int) -> int:
    """Return what a task in this state holds of a resource (`tables`)."""
    need = work.need[phase, resource]
    if state != PAUSED:
        return int(need)
    return int(min(need, work.need[phase - 1, resource]) * work.kept[resource])


@compiled
def stays_safe(work: Work, nodes: Nodes, node: int, task: int, first: int) -> bool:
    """Return whether a node stays safe when a phase is granted.

    Parameters
    ----------
    task : the paused task that owns it; -1 for the first phase of a new task.
    first : that phase, of a new task; -1 otherwise.
    """
    count, resources = nodes.held[node], nodes.free.shape[1]
    left = nodes.free[node].copy()
    for resource in range(resources):
        if task == NONE:
            left[resource] -= work.need[first, resource]
        else:
            phase = work.phase[task]
            left[resource] -= work.need[phase, resource] - holding(work, PAUSED, phase, resource)
    is_done = np.zeros(MAX_TASKS + 1, np.int64)
    todo = count + (task == NONE)
    moved = True
    while moved and todo > 0:
        moved = False
        for index in range(count + (task == NONE)):
            if is_done[index]:
                continue
            phase, state = first, RUNNING
            if index < count:
                other = nodes.tasks[node, index]
                phase = work.phase[other]
                state = RUNNING if other == task else work.state[other]
            fits = True
            for resource in range(resources):
                most = work.rest[phase, resource]
                if not work.kept[resource]:
                    fits = fits and most <= nodes.capacity[node, resource]
                elif most - holding(work, state, phase, resource) > left[resource]:
                    fits = False
            if fits:
                for resource in range(resources):
                    left[resource] += holding(work, state, phase, resource)
                is_done[index] = 1
                todo -= 1
                moved = True
    return bool(todo == 0)
