"""Simple baselines of capacity plans: each rule chooses machines by type from the visible state.

Called by the capacity experiment, in the same run as `capacity_plan`. All work on machines in one fixed order, the most
energy-efficient first, and know no classes. Zhang and Boutaba 2014, sec. III, call this heterogeneity-oblivious.
Invariant: no rule asks for more machines than exist.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotide_core.provisioning.first_step import pack_waiting
from cotide_core.provisioning.programs import Floats

Order = NDArray[np.int64]

ADD_ABOVE = 0.7
DROP_BELOW = 0.4
"""Utilisations at which the reactive rule acts (chosen: usual targets of horizontal autoscaling lie between)."""
STEP = 0.1
"""Share of machines that the reactive rule adds or drops at a time (chosen)."""


class Fleet(NamedTuple):
    """The input of a rule: (M, R) capacity, (M,) existing machines and machines on, (M,) types by efficiency."""

    capacity: Floats
    there: Floats
    on: Floats
    order: Order


def oblivious(fleet: Fleet, demand: Floats) -> Floats:
    """Return (M,) machines that together hold ``demand`` (R,), the most efficient types first.

    The paper's baseline greedily switches machines by energy efficiency; a machine counts by its capacity, whether or
    not any task fits its free part.
    """
    wanted = np.zeros(len(fleet.there))
    left = np.maximum(demand, 0.0).astype(np.float64)
    for kind in fleet.order:
        helps = (fleet.capacity[kind] > 0) & (left > 1e-9)
        if not helps.any():
            continue
        needed = np.ceil((left[helps] / fleet.capacity[kind][helps]).max() - 1e-9)
        wanted[kind] = min(needed, fleet.there[kind])
        left = left - wanted[kind] * fleet.capacity[kind]
    return wanted


def reactive(fleet: Fleet, used: Floats, waiting: Floats, power: Floats, reserve: float = 1.0) -> Floats:
    """Return (M,) machines by thresholds on utilisation, and no fewer than the waiting tasks need in addition.

    Parameters
    ----------
    used : (R,) resources in use. waiting : (n, R) needs of the tasks that wait.
    power : (M,) idle watts; a waiting task starts the type that holds it at the least watts.
    reserve : lowers both thresholds by this factor.
    """
    up = fleet.on @ fleet.capacity
    with np.errstate(divide="ignore", invalid="ignore"):
        load = float(np.nan_to_num(np.where(up > 0, used / up, np.inf * (used > 0)), nan=0.0, posinf=2.0).max())
    total = fleet.on.sum()
    wanted = fleet.on.copy()
    if load > ADD_ABOVE / reserve:
        wanted = _shifted(fleet, max(1.0, np.ceil(STEP * total)))
    elif load < DROP_BELOW / reserve and total > 0 and not len(waiting):
        wanted = _shifted(fleet, -max(1.0, np.floor(STEP * total)))
    if len(waiting):
        wanted = np.maximum(wanted, fleet.on + for_waiting(fleet, power, waiting))
    return wanted


def for_waiting(fleet: Fleet, power: Floats, tasks: Floats) -> Floats:
    """Return (M,) further machines that hold waiting tasks, as power-aware packing would start them.

    Parameters
    ----------
    power : (M,) idle watts; the type that holds a task at the least watts is started.
    tasks : (n, R) needs of the tasks that wait.
    """
    return pack_waiting(fleet.capacity, power, np.maximum(fleet.there - fleet.on, 0.0), tasks).more


def _shifted(fleet: Fleet, change: float) -> Floats:
    """Return the machines that are on and ``change`` more, the most efficient first; or fewer, the least efficient
    first.
    """
    wanted = fleet.on.copy()
    for kind in fleet.order if change > 0 else fleet.order[::-1]:
        step = min(change, fleet.there[kind] - wanted[kind]) if change > 0 else max(change, -wanted[kind])
        wanted[kind] += step
        change -= step
    return wanted
