"""Priority orders: which job is placed next (Naghshnejad 2019, section 3.2.2).

Called by `list_scheduling` and the algorithms built on it. Invariant: equal keys stay in the order of the jobs, so that
an order depends on the instance alone (RANDOM: on the generator passed in too).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_lab.offline.job_list import JobList


def shortest_job_first(jobs: JobList) -> Integers:
    """Return (n,) jobs by size (SJF)."""
    return np.argsort(jobs.sizes, kind="stable")


def smallest_demand_first(jobs: JobList) -> Integers:
    """Return (n,) jobs by demand (SDF)."""
    return np.argsort(jobs.demands, kind="stable")


def smallest_volume_first(jobs: JobList) -> Integers:
    """Return (n,) jobs by size times demand (SVF)."""
    return np.argsort(jobs.volumes, kind="stable")


ORDERS: Final[dict[str, Callable[[JobList], Integers]]] = {
    "sjf": shortest_job_first,
    "sdf": smallest_demand_first,
    "svf": smallest_volume_first,
}
RANDOM: Final = "random"
"""The order that is drawn; it needs a generator and so stands outside the table."""
