"""A plan of placement: servers by data centre and step, how requests are split, and what one more server would save.

Made by `plan_placement` from a program and a solver; its first step only is carried out (Zhang and Boutaba 2014,
Algorithm 1). Invariant: servers are whole and never below what the split needs; requests are split in shares that sum
to 1 for every network that is served at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_core.errors import InputError
from cotide_core.provisioning.placement_model import PlacementOutlook
from cotide_core.provisioning.placement_program import PlacementProgram
from cotide_core.provisioning.programs import Floats, QuadraticSolver, Status

ROUNDING = 1e-4
"""An interior-point solver's 3.00005 servers are three."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacementPlan:
    """What the controller wants.

    Attributes
    ----------
    servers : (W, L) whole servers.
    exact : (W, L) before rounding up.
    split : (L, V) share of a network's requests that goes to each data centre at the first step.
    unserved : (W, V) requests per second that find no server.
    worth_of_server : (L,) money that one more server of capacity here would save over the horizon.
    cost : of the horizon, in money.
    """

    servers: Floats
    exact: Floats
    split: Floats
    unserved: Floats
    worth_of_server: Floats
    cost: float
    steps: int


def plan_placement(
    program: PlacementProgram, solver: QuadraticSolver, servers: Floats, outlook: PlacementOutlook
) -> PlacementPlan:
    """Fill, solve, round up.

    Raises
    ------
    InputError
        When the input can't be planned for, or the solver found no optimum: the caller keeps its last plan.
    """
    filled = program.fill(servers, outlook)
    solved = solver.solve(filled)
    if solved.status is not Status.OPTIMAL:
        raise InputError(f"the solver found no plan: the program is {solved.status.value}", field="placement plan")
    x, n, _, _, short, _ = (np.maximum(solved.x[block], 0.0) for block in program.blocks)
    model = program.model
    rates = np.zeros((len(model.centres), len(model.networks)))
    rates[program.pairs[:, 0], program.pairs[:, 1]] = x[0] * program.rate
    total = rates.sum(axis=0, keepdims=True)
    # What serves less than a thousandth of a request per second is a solver's noise.
    split = np.divide(rates, total, out=np.zeros_like(rates), where=total > 1e-3)
    return PlacementPlan(
        servers=np.ceil(n - ROUNDING).clip(min=0.0),
        exact=n,
        split=split,
        unserved=short,
        worth_of_server=np.maximum(-solved.row_duals[program.capacity], 0.0).sum(axis=0),
        cost=solved.cost,
        steps=solved.steps,
    )


def hold(before: Floats, wanted: Floats, needed: Floats, band: float) -> Floats:
    """Return (L,) servers with hysteresis: small changes are left alone, unless more is needed than is there.

    Parameters
    ----------
    before, wanted : (L,) servers now and in the plan.
    needed : (L,) servers without which requests would wait.
    band : share of ``before`` within which a change is not worth making, >= 0; beyond the paper.
    """
    small = np.abs(wanted - before) <= band * before
    return np.where(small & (before >= needed), before, wanted)
