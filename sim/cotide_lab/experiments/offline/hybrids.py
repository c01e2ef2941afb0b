"""Readings of HYBRID's text, and the ways of placing lists (Naghshnejad 2019, sections 3.2.2 and 3.3.3).

Called by the experiment on readings. The first five keep the two sets of jobs on separate machines.
`bounds.apart_floor` holds for these with any order inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_core.planning.high_demand_partition import machine_shares
from cotide_lab.offline.hybrid import high_demand
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.lists.list_scheduling import earliest_feasible, on_given
from cotide_lab.offline.lists.whatever_fits import whatever_fits
from cotide_lab.offline.lists.without_overtaking import in_order, in_order_within
from cotide_lab.offline.orders import shortest_job_first, smallest_volume_first
from cotide_lab.offline.schedule import Schedule

ListRule = Callable[[JobList, int, Integers, "Integers | None"], Schedule]
"""Jobs, machines, order and the machine of each job (None for EF) to a schedule."""


def _holes(jobs: JobList, machines: int, order: Integers, chosen: Integers | None) -> Schedule:
    return earliest_feasible(jobs, machines, order) if chosen is None else on_given(jobs, machines, order, chosen)


def _list_order(jobs: JobList, machines: int, order: Integers, chosen: Integers | None) -> Schedule:
    return in_order(jobs, machines, order, chosen, across=True)


HOLES: Final = "any hole is filled"
WAYS: Final[dict[str, ListRule]] = {
    HOLES: _holes,
    "no overtaking on a machine (Algorithm 1)": in_order,
    "no overtaking at all": _list_order,
    "whatever fits starts": whatever_fits,
}
"""The ways of placing a list: the project's reading of EF first, which is the text's definition."""


@dataclass(frozen=True, slots=True)
class HybridReading:
    """One reading.

    Attributes
    ----------
    schedule : of jobs, machines and a way to place lists; None where the reading does not apply.
    """

    name: str
    schedule: Callable[[JobList, int, ListRule], Schedule | None]


def apart(jobs: JobList, machines: int, rule: ListRule, high_machines: int, *, from_half: bool = False) -> Schedule:
    """Return the schedule with ``high_machines`` for the high-demand jobs and the others for the rest.

    Parameters
    ----------
    from_half : a demand of just half a machine is high, too.
    """
    is_high = high_demand(jobs, from_half=from_half)
    schedule = Schedule(np.empty(len(jobs), np.int64), np.empty(len(jobs), np.int64))
    for some, first, share, ordered in (
        (np.flatnonzero(is_high), 0, high_machines, shortest_job_first),
        (np.flatnonzero(~is_high), high_machines, machines - high_machines, smallest_volume_first),
    ):
        part = jobs.taken(some)
        placed = rule(part, share, ordered(part), None)
        schedule.starts[some] = placed.starts
        schedule.machines[some] = placed.machines + first
    return schedule


def _spare_to_high(jobs: JobList, machines: int, rule: ListRule) -> Schedule | None:
    low_machines = 3 * (machines - 2) // 4 + 1
    if machines - low_machines == machine_shares(machines)[0]:
        return None
    return apart(jobs, machines, rule, machines - low_machines)


def _best_split(jobs: JobList, machines: int, rule: ListRule) -> Schedule:
    tried = [apart(jobs, machines, rule, high) for high in range(1, machines)]
    return min(tried, key=lambda schedule: int(schedule.starts.sum()))


def _half_is_high(jobs: JobList, machines: int, rule: ListRule) -> Schedule:
    return apart(jobs, machines, rule, machine_shares(machines)[0], from_half=True)


def _one_list(jobs: JobList, machines: int, rule: ListRule) -> Schedule:
    keys = np.where(high_demand(jobs), jobs.sizes * jobs.capacity, jobs.volumes)
    return rule(jobs, machines, np.argsort(keys, kind="stable"), None)


def _lent(jobs: JobList, machines: int, rule: ListRule) -> Schedule | None:
    """High-demand jobs also go to the others' machines, behind all of theirs; bound and proof stay valid."""
    if rule not in (in_order, _list_order):
        return None
    is_high = high_demand(jobs)
    high, low = np.flatnonzero(is_high), np.flatnonzero(~is_high)
    order = np.concatenate([low[smallest_volume_first(jobs.taken(low))], high[shortest_job_first(jobs.taken(high))]])
    first = np.where(is_high, 0, machine_shares(machines)[0])
    clocks = is_high.astype(np.int64) if rule is _list_order else None
    return in_order_within(jobs, machines, order, first, np.full(len(jobs), machines), clocks)


def _once_more(jobs: JobList, machines: int, rule: ListRule, *, by_end: bool) -> Schedule:
    times = apart(jobs, machines, rule, machine_shares(machines)[0]).starts
    if by_end:
        times = times + jobs.sizes
    return rule(jobs, machines, np.argsort(times, kind="stable"), None)


READINGS: Final[tuple[HybridReading, ...]] = (
    HybridReading("as printed, a spare machine to low demand", lambda j, m, p: apart(j, m, p, machine_shares(m)[0])),
    HybridReading("a spare machine to high demand", _spare_to_high),
    HybridReading("half a machine is high demand", _half_is_high),
    HybridReading("shares swapped", lambda j, m, p: apart(j, m, p, max(1, m - machine_shares(m)[0]))),
    HybridReading("the best of all splits", _best_split),
    HybridReading("as printed, and low demand's machines help when they are done", _lent),
    HybridReading("all jobs once more over all machines, by its starts", partial(_once_more, by_end=False)),
    HybridReading("all jobs once more over all machines, by its ends", partial(_once_more, by_end=True)),
    HybridReading("one list, high demand ordered as a whole machine", _one_list),
)
"""As printed comes first."""
