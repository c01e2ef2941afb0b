"""All algorithms of Naghshnejad 2019, chapter 3, by the names that the experiment and its tables use.

Called by the experiment, the benchmark and the tests. ``single`` runs on one machine only and ``hybrid`` on two or
more; they refuse anything else with one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_lab.offline.block_scheduling import block_schedule
from cotide_lab.offline.hybrid import hybrid
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.lists.list_scheduling import ASSIGNMENTS, Assignment, list_schedule
from cotide_lab.offline.orders import ORDERS, RANDOM
from cotide_lab.offline.schedule import Schedule
from cotide_lab.offline.single_machine import single_machine

Algorithm = Callable[[JobList, int, np.random.Generator], Schedule]


def _listed(order: str, assignment: Assignment) -> Algorithm:
    return lambda jobs, machines, generator: list_schedule(jobs, machines, order, assignment, generator)


def _single(jobs: JobList, machines: int, generator: np.random.Generator) -> Schedule:
    del generator
    if machines != 1:
        raise InputError(f"the single-machine algorithm can't use {machines} machines", field="machines")
    return single_machine(jobs)


ALGORITHMS: Final[dict[str, Algorithm]] = {
    **{f"{order}-{rule}": _listed(order, rule) for order in (*ORDERS, RANDOM) for rule in ASSIGNMENTS},
    "hybrid": lambda jobs, machines, _: hybrid(jobs, machines),
    "hybrid-relisted": lambda jobs, machines, _: hybrid(jobs, machines, relist=True),
    "block": lambda jobs, machines, _: block_schedule(jobs, machines),
    "block-trimmed": lambda jobs, machines, _: block_schedule(jobs, machines, trim=True),
    "block-spread": lambda jobs, machines, _: block_schedule(jobs, machines, spread=True),
    "block-spread-trimmed": lambda jobs, machines, _: block_schedule(jobs, machines, trim=True, spread=True),
    "single": _single,
}
