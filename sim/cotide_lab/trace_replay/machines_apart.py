"""Machines of their own for jobs of much demand: HYBRID (Naghshnejad 2019, section 3.3.3) on a trace's machines.

Called by `machine_runner`; the replay's counterpart of the live `planning.high_demand_partition`. Two pieces of more
than half a machine never share one, so they run shortest first on M1 of the M machines, the largest; all others by
smallest volume on the rest. A machine is as large as the largest. A job that the empty machines of its part don't hold
is planned on all of them, in the line of those of little demand. Invariant: on two or more alike machines, with all
jobs there from the start and run times as forecast, the schedule is that of `offline.hybrid`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Integers
from cotide_core.planning.high_demand_partition import machine_shares
from cotide_lab.trace_replay.machine_jobs import MachineJobs, fit_empty

LEAST_MACHINES: Final = 2
"""HYBRID needs two machines or more; a single one serves all jobs."""
MOST_KINDS: Final = 31
"""Kinds of machines. Each becomes two of the 62 kinds that the bits of a job's number can hold."""


def asked_apart(given: MachineJobs) -> tuple[Integers, Integers, Integers]:
    """Return (n,) the factor of each job's forecast in its order key, (n,) the kinds it may use and (N,) the new kinds.

    Jobs of much demand are ordered by their forecast alone. The two parts share no machine, so it does not matter how
    their jobs stand to each other.

    Raises
    ------
    InputError
        When there are too many kinds of machines.
    """
    machines = given.machines
    if len(machines.kind) < LEAST_MACHINES:
        return given.jobs.demand, given.allowed, machines.kind
    kinds = len(machines.kinds)
    if kinds > MOST_KINDS:
        raise InputError(f"hybrid-machines takes {MOST_KINDS} kinds of machines; here are {kinds}", field="policy")
    largest = machines.capacity.max(axis=0)
    share = (machines.capacity / np.maximum(1, largest)).min(axis=1)
    by_size = np.lexsort((np.arange(len(share)), -share))
    apart = np.zeros(len(share), dtype=np.int64)
    apart[by_size[: machine_shares(len(share))[0]]] = 1
    kind = machines.kind + kinds * apart
    is_high = (2 * given.need > largest).any(axis=1)
    allowed = np.where(is_high, given.allowed << kinds, given.allowed)
    fits = fit_empty(given.pieces, given.need, given.devices, allowed, replace(machines, kind=kind))
    allowed = np.where(fits, allowed, given.allowed | given.allowed << kinds)
    return np.where(is_high & fits, 1, given.jobs.demand), allowed, kind
