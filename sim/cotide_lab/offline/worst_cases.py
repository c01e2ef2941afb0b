"""Table 3.1: instances of one machine where a priority order does badly (Naghshnejad 2019, section 3.3.1).

Called by the tests and the experiment. The printed sizes and demands are fractions; they are scaled to whole numbers
here, which scales every completion time by the same factor. Each comes with the paper's schedule for comparison, with a
cost at or above the optimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.schedule import Schedule


@dataclass(frozen=True, slots=True)
class WorstCase:
    """An instance, the schedule the paper sets against the order, and the growth of their ratio.

    Attributes
    ----------
    order : the order that does badly.
    jobs : type A first.
    better : type B before type A.
    least_ratio : least ratio of the order's cost to the cost of ``better``, by the paper's own estimate.
    """

    order: str
    jobs: JobList
    better: Schedule
    least_ratio: float


def sjf_worst_case(count: int) -> WorstCase:
    """Return sqrt(N) jobs of size 1 and demand 1/2, and N - sqrt(N) of size 1 + 1/1000 and demand 1 / (2 N)."""
    few = math.isqrt(count)
    sizes = np.repeat([1000, 1001], [few, count - few])
    demands = np.repeat([count, 1], [few, count - few])
    # All of type B at once, then type A two by two.
    starts = np.concatenate([1001 + 1000 * (np.arange(few) // 2), np.zeros(count - few, np.int64)])
    least = (count - few) * (few // 2) / ((count - few) * 1.001 + few * ((few + 1) / 2 + 1.001))
    return _case("sjf", sizes, demands, 2 * count, starts, least)


def sdf_worst_case(count: int) -> WorstCase:
    """Return a job of size N and demand 1 - 1/1000, and N - 1 of size 1/N and demand 1; slots of 1/N."""
    sizes = np.repeat([count * count, 1], [1, count - 1])
    demands = np.repeat([999, 1000], [1, count - 1])
    return _case("sdf", sizes, demands, 1000, _small_ones_first(count), (count - 1) / 2)


def svf_worst_case(count: int) -> WorstCase:
    """Return a job of size N and demand 1 / (2 N^2), and N - 1 of size 1/N and demand 1; slots of 1/N."""
    sizes = np.repeat([count * count, 1], [1, count - 1])
    demands = np.repeat([1, 2 * count * count], [1, count - 1])
    return _case("svf", sizes, demands, 2 * count * count, _small_ones_first(count), (count - 1) / 2)


def _small_ones_first(count: int) -> Integers:
    return np.concatenate([[count - 1], np.arange(count - 1)])


def _case(
    order: str,
    sizes: Integers,
    demands: Integers,
    capacity: int,
    starts: Integers,
    least_ratio: float,
) -> WorstCase:
    jobs = JobList(sizes.astype(np.int64), demands.astype(np.int64), capacity)
    return WorstCase(order, jobs, Schedule(starts.astype(np.int64), np.zeros(len(jobs), np.int64)), least_ratio)
