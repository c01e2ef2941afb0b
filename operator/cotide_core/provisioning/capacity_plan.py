"""A plan of capacity: machines by type and step, rounded up, the shares of each type, and the worth of one more.

Made by `plan_capacity` from a program and a solver. The simulator and the operator execute its first step only (model
predictive control). Invariant: a plan never asks for more machines than are available, and its first step holds every
machine that may not be stopped yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_core.errors import InputError
from cotide_core.provisioning.capacity_model import Outlook, Park
from cotide_core.provisioning.capacity_program import CapacityProgram
from cotide_core.provisioning.programs import Floats, LinearSolver, Status

ROUNDING = 1e-6
"""A solver's 3.0000001 machines are three."""


@dataclass(frozen=True, slots=True, eq=False)
class CapacityPlan:
    """The machines and containers that the controller wants.

    Attributes
    ----------
    machines : (W, M) machines powered, whole numbers.
    containers : (W, M, K) containers by type, rounded up; `round_robin.type_shares` makes them weights.
    unserved : (W, K) containers of the highest quantile that were not worth serving, or had no room.
    cost : of the horizon, in money: energy, rent and switching, without the worth of serving.
    worth_of_machine : (M,) money that one more machine of each type would save over the horizon, from the duals.
    steps : iterations of the solver.
    """

    machines: Floats
    containers: Floats
    unserved: Floats
    cost: float
    worth_of_machine: Floats
    steps: int


def round_up(values: Floats) -> Floats:
    """Return the next whole numbers, apart from a solver's noise."""
    raised: Floats = np.ceil(values - ROUNDING)
    return np.maximum(raised, 0.0)


def plan_capacity(program: CapacityProgram, solver: LinearSolver, park: Park, outlook: Outlook) -> CapacityPlan:
    """Fill, solve, round up.

    Raises
    ------
    InputError
        When the input is invalid, or the solver found no optimum: the caller keeps its last plan.
    """
    filled = program.fill(park, outlook)
    solved = solver.solve(filled)
    if solved.status is not Status.OPTIMAL:
        raise InputError(f"the solver found no plan: the program is {solved.status.value}", field="capacity plan")
    z, _, _, containers, served = program.split(solved.x)
    least = np.minimum(park.held, park.available[:, None]).T
    machines = np.clip(round_up(z), least, np.floor(park.available)[None])
    return CapacityPlan(
        machines=machines,
        containers=round_up(containers),
        unserved=np.maximum(outlook.demand[:, :, -1] - served, 0.0),
        cost=program.spent(filled, solved.x),
        worth_of_machine=np.maximum(-program.machine_columns(solved.bound_duals), 0.0).sum(axis=0),
        steps=solved.steps,
    )
