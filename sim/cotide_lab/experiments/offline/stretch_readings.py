"""Table 3.2 of Naghshnejad 2019 under each way of placing lists: distance from the printed averages of stretch.

Called by `offline.readings`. The table's nine lists on its 5,000 jobs and ten machines, of SYNTH1 by its text and of
SYNTH2 by section 3.4.1. Each schedule passes the feasibility judge. Invariant: same settings, same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.errors import CotideError
from cotide_lab.experiments.offline.claims import TABLE_3_2, table_distance
from cotide_lab.experiments.offline.hybrids import WAYS, ListRule
from cotide_lab.job_logs.synthetic import Synthetic, synthetic_jobs
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.lists.least_work import least_work_machines
from cotide_lab.offline.orders import ORDERS
from cotide_lab.offline.schedule import first_fault, stretches

WORKLOADS: Final[tuple[Synthetic, ...]] = ("synth1", "synth2")


@dataclass(frozen=True, slots=True)
class StretchReading:
    """One workload under one way of placing lists.

    Attributes
    ----------
    averages : mean stretch over all jobs by list, named as in the table.
    distance : factor by which the nine averages are off the printed ones, geometric mean, >= 1.
    distance_in_order : the same over the six lists that have an order, without RANDOM.
    """

    workload: str
    way: str
    averages: Mapping[str, float]
    distance: float
    distance_in_order: float


def stretch_readings(jobs: int, machines: int, seed: int) -> list[StretchReading]:
    """Return a row for each workload and way.

    Parameters
    ----------
    jobs, machines : of each instance; the table has 5,000 and ten.
    """
    rows = []
    for workload in WORKLOADS:
        drawn = synthetic_jobs(workload, jobs, seed)
        for way, rule in WAYS.items():
            averages = _averages(drawn, machines, rule, seed)
            in_order = {name: value for name, value in averages.items() if not name.startswith("random")}
            row = StretchReading(workload, way, averages, table_distance(averages), table_distance(in_order))
            rows.append(row)
    return rows


def _averages(jobs: JobList, machines: int, rule: ListRule, seed: int) -> dict[str, float]:
    generator = np.random.default_rng([seed, len(jobs)])
    orders = {name: ORDERS[name](jobs) for name in ("sjf", "svf")} | {"random": generator.permutation(len(jobs))}
    drawn = generator.integers(0, machines, len(jobs))
    found = {}
    for name in TABLE_3_2:
        order_name, assignment = name.split("-")
        order = orders[order_name]
        given = {"ef": None, "random": drawn, "lw": least_work_machines(order, jobs.volumes, machines)}
        schedule = rule(jobs, machines, order, given[assignment])
        fault = first_fault(jobs, machines, schedule)
        if fault is not None:
            raise CotideError(f"{name} gave a schedule that can't run: {fault}")
        found[name] = float(stretches(jobs, schedule).mean())
    return found
