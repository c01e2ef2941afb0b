"""A list of jobs kept in order of (key, job), in two int64 arrays.

Called by the replay kernels for the waiting queue and for the running jobs by planned end. Invariant: keys never fall;
equal keys are in job order, which is order of submission. A list is short compared with the log (the waiting or running
jobs at one moment), so an insertion that moves the tail beats a tree.
"""

from __future__ import annotations

from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled


@compiled
def index_of(keys: Integers, jobs: Integers, size: int, key: int, job: int) -> int:
    """Return the first index with a pair that is not smaller than (key, job)."""
    low = 0
    high = size
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key or (keys[middle] == key and jobs[middle] < job):
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def insert(keys: Integers, jobs: Integers, size: int, key: int, job: int) -> int:
    """Put a pair where it belongs; return the new size. The arrays must have room."""
    index = index_of(keys, jobs, size, key, job)
    for at in range(size, index, -1):
        keys[at] = keys[at - 1]
        jobs[at] = jobs[at - 1]
    keys[index] = key
    jobs[index] = job
    return size + 1


@compiled
def remove_at(keys: Integers, jobs: Integers, size: int, index: int) -> int:
    """Take the pair at an index out; return the new size."""
    for at in range(index, size - 1):
        keys[at] = keys[at + 1]
        jobs[at] = jobs[at + 1]
    return size - 1
