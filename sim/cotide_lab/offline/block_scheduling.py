"""Block-Scheduling: jobs of similar size packed into blocks, blocks run densest first (Naghshnejad 2019, section
3.2.2).

Called through `algorithms` and by the experiment. A 4 gamma approximation in O(n log n) (Theorem 4, section 3.3.4).
Gamma = 9 + ceil(6 / M): the text prints 6M, but its Lemma 11 needs M (gamma - 1) - 2 - (4M + 2) = 4M + 2, that is
gamma = 9 + 6 / M.

Step k gives each machine in turn the densest unscheduled blocks of sizes up to 2^k, of gamma 2^k in total. "Maximal" is
read as the longest such run of blocks in order of density, not as a knapsack: the proof needs that no block is passed
over for a less dense one. A machine goes on to its next block without a pause.

As printed a machine gets its whole step before the next machine gets any: what fits on one machine runs there, while
the others idle. ``spread`` gives a step (M (gamma - 1) + 1) 2^k for all machines together, each block to the machine
that is free first. Lemma 11 still finds M (gamma - 1) 2^k scheduled in the step, and by list scheduling all of it ends
by 2 (M (gamma - 1) + 1) 2^k / M + (1 - 1/M) 2^k <= 2 gamma 2^k: the guarantee is the same.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Integers
from cotide_core.kernels.compiled import compiled
from cotide_lab.offline.job_list import JobList, require_machines
from cotide_lab.offline.schedule import Schedule
from cotide_lab.trace_replay.kernels.time_heap import heap_pop, heap_push

SIZE_MAX: Final = 1 << 40
"""Largest size taken: a step of all machines together must stay in 64 bits (up to a million machines)."""


def gamma(machines: int) -> int:
    """Return the length of a step over the largest block in it, 9 + ceil(6 / M)."""
    return 9 - (-6 // machines)


def block_schedule(jobs: JobList, machines: int, *, trim: bool = False, spread: bool = False) -> Schedule:
    """Schedule all jobs.

    Parameters
    ----------
    trim : a block lasts as long as its longest job, instead of the next power of two as printed. No job starts later
    because of it, so the guarantee stays. spread : a step is dealt over all machines, see the module.
    """
    require_machines(machines)
    if len(jobs) and int(jobs.sizes.max()) > SIZE_MAX:
        raise InputError(f"{int(jobs.sizes.max())} is above {SIZE_MAX}, the most Block-Scheduling takes", field="sizes")
    classes = size_classes(jobs.sizes)
    order = np.lexsort((jobs.demands, classes))
    block_of, count = _blocks(order, classes, jobs.demands, jobs.capacity)
    block_class = np.zeros(count, np.int64)
    block_class[block_of] = classes
    members = np.bincount(block_of, minlength=count)
    lasts = np.zeros(count, np.int64)
    np.maximum.at(lasts, block_of, jobs.sizes if trim else np.int64(1) << classes)
    # Division by a power of two is exact, so equal densities are equal; ties go to the block formed first.
    by_density = np.lexsort((np.arange(count), -(members / (1 << block_class))))
    rank = np.empty(count, np.int64)
    rank[by_density] = np.arange(count)
    by_class = np.argsort(block_class, kind="stable")
    assign = _spread if spread else _assign
    starts, where = assign(by_class, block_class, rank, lasts, machines, gamma(machines))
    return Schedule(starts[block_of], where[block_of])


def size_classes(sizes: Integers) -> Integers:
    """Return (n,) the least k with size <= 2^k, exactly."""
    _, exponents = np.frexp((sizes - 1).astype(np.float64))
    return exponents.astype(np.int64)


@compiled
def _blocks(order: Integers, classes: Integers, demands: Integers, capacity: int) -> tuple[Integers, int]:
    """Return (n,) the block of each job, and how many there are.

    First-Fit: demands never fall within a class, so a block that refused a job refuses all later ones, and only the
    last block needs a look.
    """
    block_of = np.empty(order.shape[0], np.int64)
    block = -1
    held = 0
    current = -1
    for job in order:
        if classes[job] != current or held + demands[job] > capacity:
            block += 1
            held = 0
            current = classes[job]
        held += demands[job]
        block_of[job] = block
    return block_of, block + 1


@compiled
def _assign(
    by_class: Integers, block_class: Integers, rank: Integers, lasts: Integers, machines: int, factor: int
) -> tuple[Integers, Integers]:
    """Return (blocks,) the start and the machine of each block."""
    count = by_class.shape[0]
    starts = np.empty(count, np.int64)
    where = np.empty(count, np.int64)
    ranks = np.empty(count, np.int64)
    waiting = np.empty(count, np.int64)
    free_from = np.zeros(machines, np.int64)
    size = 0
    formed = 0
    step = 0
    done = 0
    while done < count:
        while formed < count and block_class[by_class[formed]] <= step:
            size = heap_push(ranks, waiting, size, rank[by_class[formed]], by_class[formed])
            formed += 1
        for machine in range(machines):
            left = factor << step
            while size > 0 and (1 << block_class[waiting[0]]) <= left:
                block = waiting[0]
                size = heap_pop(ranks, waiting, size)
                left -= 1 << block_class[block]
                starts[block] = free_from[machine]
                where[block] = machine
                free_from[machine] += lasts[block]
                done += 1
        step += 1
    return starts, where


@compiled
def _spread(
    by_class: Integers, block_class: Integers, rank: Integers, lasts: Integers, machines: int, factor: int
) -> tuple[Integers, Integers]:
    """Return (blocks,) the start and the machine of each block, each step dealt over all machines."""
    count = by_class.shape[0]
    starts = np.empty(count, np.int64)
    where = np.empty(count, np.int64)
    ranks = np.empty(count, np.int64)
    waiting = np.empty(count, np.int64)
    free_from = np.zeros(machines, np.int64)
    numbers = np.arange(machines)
    size = 0
    formed = 0
    step = 0
    done = 0
    while done < count:
        while formed < count and block_class[by_class[formed]] <= step:
            size = heap_push(ranks, waiting, size, rank[by_class[formed]], by_class[formed])
            formed += 1
        left = (machines * (factor - 1) + 1) << step
        while size > 0 and (1 << block_class[waiting[0]]) <= left:
            block = waiting[0]
            size = heap_pop(ranks, waiting, size)
            left -= 1 << block_class[block]
            starts[block] = free_from[0]
            where[block] = numbers[0]
            others = heap_pop(free_from, numbers, machines)
            heap_push(free_from, numbers, others, starts[block] + lasts[block], where[block])
            done += 1
        step += 1
    return starts, where
