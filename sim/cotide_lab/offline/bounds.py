"""What no schedule can beat, and what each algorithm promises (Naghshnejad 2019, Theorems 2 to 4).

Called by the tests and the experiment, on the instance alone. Invariant: `optimum_floor` is at most the optimum, which
is NP-hard to find. Each promise follows from the proof of its theorem for the instance, and is at most the theorem's
factor times the optimum.
"""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.planning.high_demand_partition import machine_shares
from cotide_lab.offline.block_scheduling import gamma, size_classes
from cotide_lab.offline.hybrid import high_demand
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.single_machine import completable

PERIOD: Final = 0.02
"""Share by which a period of `alive_area` is longer than its start is late; chosen, 2 % of accuracy."""


def compressed_starts(lengths: Integers, machines: int) -> Integers:
    """Return (n,) starts when each job has a machine to itself for ``lengths``, shortest first: optimal (Lemma 1)."""
    starts = np.empty(len(lengths), np.int64)
    free_from = [0] * machines
    for job in np.argsort(lengths, kind="stable"):
        starts[job] = free_from[0]
        heapq.heapreplace(free_from, free_from[0] + int(lengths[job]))
    return starts


def optimum_floor(jobs: JobList, machines: int) -> float:
    """Return a lower bound of the optimal total completion time.

    The largest of: all sizes; the optimum with every job squeezed to a whole machine for its volume (Lemma 1); the
    relaxation of section 3.3.4; and `volume_floor`.
    """
    volumes = jobs.volumes
    squeezed = float((compressed_starts(volumes, machines) + volumes).sum()) / jobs.capacity
    return max(float(jobs.sizes.sum()), squeezed, alive_area(jobs, machines), volume_floor(jobs, machines))


def alive_area(jobs: JobList, machines: int, *, above: bool = False) -> float:
    """Return the least total completion where each moment may choose its completed jobs again.

    By t, jobs of sizes up to t can be completed, of no more volume than all machines have by t (section 3.3.4). The
    number still alive never rises; its sum over time bounds the objective from below. It is summed over periods of
    about `PERIOD` of their start, each taken at its end, or, ``above``, at its start: the sum lies between the two.
    """
    order = np.argsort(jobs.volumes, kind="stable")
    volumes, sizes = jobs.volumes[order], jobs.sizes[order]
    alive = len(jobs)
    total, now = 0.0, 0
    while alive:
        then = now + max(1, int(now * PERIOD))
        left = len(jobs) - _completed(volumes[sizes <= then], jobs.capacity * machines, then)
        total += (then - now) * (alive if above or now == 0 else left)
        now, alive = then, left
    return total


def _completed(volumes: Integers, speed: int, by: int) -> int:
    # Whole slots on both sides: speed times time could leave 64 bits, the quotient cannot.
    return int(np.count_nonzero(-(-np.cumsum(volumes) // speed) <= by))


def volume_floor(jobs: JobList, machines: int) -> float:
    """Return a lower bound of the optimum from volumes and sizes together.

    A job's mean busy date is its completion less half its size. The sum over all jobs is least when one machine of all
    capacity runs them by volume, smallest first (Goemans' bound; unit weights).
    """
    volumes = np.sort(jobs.volumes).astype(np.float64) / (jobs.capacity * machines)
    return float((np.cumsum(volumes) - volumes / 2).sum()) + float(jobs.sizes.sum()) / 2


def apart_floor(jobs: JobList, machines: int, high_machines: int) -> float:
    """Return the least that any schedule can cost that runs high-demand jobs on so many machines, and only there.

    No two of them ever share a machine: SJF is optimal. The others cost `optimum_floor` at least on what is left.
    """
    is_high = high_demand(jobs)
    sizes = jobs.sizes[is_high]
    low = jobs.taken(np.flatnonzero(~is_high))
    return float((compressed_starts(sizes, high_machines) + sizes).sum()) + optimum_floor(low, machines - high_machines)


def svf_ef_promise(jobs: JobList, machines: int) -> float:
    """Return the most SVF-EF can cost (Theorem 2, its sharper form): infinite if a job needs a whole machine.

    sum(S*) / (1 - a) + 2 sum(p) / (1 - a), with a the largest demand and S* the starts of the squeezed jobs.
    """
    if not len(jobs):
        return 0.0
    rest = 1.0 - int(jobs.demands.max()) / jobs.capacity
    if rest == 0.0:
        return float("inf")
    starts = float(compressed_starts(jobs.volumes, machines).sum()) / jobs.capacity
    return (starts + 2.0 * float(jobs.sizes.sum())) / rest


def hybrid_promise(jobs: JobList, machines: int) -> float:
    """Return the most HYBRID can cost (Lemmas 7 and 9, summed over the jobs)."""
    high_machines, low_machines = machine_shares(machines)
    is_high = high_demand(jobs)
    low, high = jobs.taken(np.flatnonzero(~is_high)), jobs.taken(np.flatnonzero(is_high))
    low_starts = float(compressed_starts(low.volumes, machines).sum()) / jobs.capacity
    low_cost = 2 * machines / low_machines * low_starts + ((machines - 1) / low_machines + 1) * float(low.sizes.sum())
    high_ends = compressed_starts(high.sizes, machines) + high.sizes
    starts_share = machines / high_machines * float((high_ends - high.sizes).sum())
    high_cost = starts_share + ((machines - 1) / high_machines + 1) * float(high.sizes.sum())
    return low_cost + high_cost


def block_promise(jobs: JobList, machines: int) -> float:
    """Return the most Block-Scheduling can cost: 4 gamma times `alive_area` (Theorem 4, Lemma 10).

    Of Proposition 1's instance for the optimum: each size rounded down to half of its class's power of two, at least 1.
    """
    halved = np.maximum((np.int64(1) << size_classes(jobs.sizes)) // 2, 1)
    return 4.0 * gamma(machines) * alive_area(JobList(halved, jobs.demands, jobs.capacity), machines, above=True)


def single_machine_promise(jobs: JobList) -> float:
    """Return the most the single-machine algorithm can cost: expression 3.1 with epsilon = 0.

    At most 12 times `single_machine_floor`.
    """
    alive, total, length = len(jobs), 0.0, 1
    while alive:
        total += 3.0 * length * alive
        alive = len(jobs) - len(completable(jobs, length))
        length *= 2
    return total


def single_machine_floor(jobs: JobList) -> float:
    """Return a lower bound of the optimum on one machine, expression 3.2: N + sum of 2^(l-1) (N - N_l) over l >= 1."""
    total, length, alive = float(len(jobs)), 2, len(jobs)
    while alive:
        alive = len(jobs) - len(completable(jobs, length))
        total += length / 2 * alive
        length *= 2
    return total
