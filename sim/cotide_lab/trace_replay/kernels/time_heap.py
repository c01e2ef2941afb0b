"""A binary heap of (time, job) in two int64 arrays.

Called by the replay kernels for the events of running jobs. Invariant: the pair at index 0 is the smallest, by time
and then by job, so that the order of events never depends on how they came in.
"""

from __future__ import annotations

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled


@compiled
def heap_push(times: Integers, jobs: Integers, size: int, time: int, job: int) -> int:
    """Put a pair in; return the new size. The arrays must have room."""
    index = size
    while index > 0:
        parent = (index - 1) >> 1
        if times[parent] < time or (times[parent] == time and jobs[parent] <= job):
            break
        times[index] = times[parent]
        jobs[index] = jobs[parent]
        index = parent
    times[index] = time
    jobs[index] = job
    return size + 1


@compiled
def heap_pop(times: Integers, jobs: Integers, size: int) -> int:
    """Take the smallest pair out, which the caller has read at index 0; return the new size."""
    size -= 1
    time = times[size]
    job = jobs[size]
    index = 0
    while True:
        child = 2 * index + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            times[right] < times[child] or (times[right] == times[child] and jobs[right] < jobs[child])
        ):
            child = right
        if times[child] > time or (times[child] == time and jobs[child] > job):
            break
        times[index] = times[child]
        jobs[index] = jobs[child]
        index = child
    times[index] = time
    jobs[index] = job
    return size
