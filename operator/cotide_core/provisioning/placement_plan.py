"""A plan of placement: servers by service, data centre and step, the split of requests, and the worth of one more.

Made by `plan_placement` from a program and a solver; only its first step is carried out (Zhang and Boutaba 2014,
Algorithm 1). Invariants: servers are whole. In the first step they fit next to the running ones; if all servers that
the split needs fit, none of them is missing. Requests are split in shares that sum to 1 for every served network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.provisioning.placement_model import PlacementOutlook
from cotide_core.provisioning.placement_program import PlacementProgram
from cotide_core.provisioning.placement_rounding import fitted, moving, rounded_up, too_full
from cotide_core.provisioning.programs import Booleans, Floats, QuadraticProgram, QuadraticSolver, Solution, Status

ATTEMPTS: Final = 6
"""Attempts at whole servers that fit; each attempt narrows the program. Chosen: the rest is cut off then."""


@dataclass(frozen=True, slots=True, eq=False)
class ServicePlan:
    """The servers that the controller wants for one service.

    Attributes
    ----------
    servers : (W, L) whole servers.
    exact : (W, L) before rounding up.
    split : (L, V) share of a network's requests that goes to each data centre at the first step.
    unserved : (W, V) requests per second that find no server.
    cost : of the horizon, in money, without the cost of servers beyond a capacity.
    """

    servers: Floats
    exact: Floats
    split: Floats
    unserved: Floats
    cost: float


@dataclass(frozen=True, slots=True, eq=False)
class PlacementPlan:
    """The servers that the controller wants.

    Attributes
    ----------
    services : S plans.
    worth_of_server : (L,) money that one more server of capacity here would save over the horizon.
    scarce : (L,) where services rise in the first step into room that becomes free only when others fall.
    cost : of the horizon, in money.
    steps : iterations of the solver.
    """

    services: tuple[ServicePlan, ...]
    worth_of_server: Floats
    scarce: Booleans
    cost: float
    steps: int


def plan_placement(
    program: PlacementProgram,
    solver: QuadraticSolver,
    servers: Floats,
    outlook: PlacementOutlook,
    waits: Booleans | None = None,
) -> PlacementPlan:
    """Fill, solve, round up.

    Parameters
    ----------
    servers : (S, L) that run now.
    waits : (S,) services that lose no server in this step; a service that is to grow elsewhere loses none anyway.

    Raises
    ------
    InputError
        When the input is invalid, or the solver found no optimum: the caller keeps its last plan.
    """
    filled = program.fill(servers, outlook)
    waiting = np.zeros(len(servers), np.bool_) if waits is None else waits
    solved, first, scarce, steps = _in_whole(program, solver, filled, servers, waiting)
    x, n, _, _, short, _ = (np.maximum(solved.x[block], 0.0) for block in program.blocks)
    model = program.model
    rates = np.zeros((len(model.services), len(model.centres), len(model.networks)))
    rates[tuple(program.triples.T)] = x[0] * program.rate
    total = rates.sum(axis=1, keepdims=True)
    # Less than a thousandth of a request per second is a solver's noise.
    split = np.divide(rates, total, out=np.zeros_like(rates), where=total > 1e-3)
    whole = rounded_up(n)
    whole[0] = first
    money = filled.cost * solved.x + filled.quadratic * solved.x**2 / 2.0
    costs = np.bincount(program.owner, money).tolist()
    plans = [
        ServicePlan(whole[:, number], n[:, number], split[number], short[:, number], costs[number])
        for number in range(len(model.services))
    ]
    worth = np.maximum(-solved.row_duals[program.capacity], 0.0).sum(axis=0)
    worth += np.maximum(-solved.row_duals[program.added], 0.0)
    return PlacementPlan(tuple(plans), worth, scarce, solved.cost, steps)


def _in_whole(
    program: PlacementProgram, solver: QuadraticSolver, filled: QuadraticProgram, now: Floats, waits: Booleans
) -> tuple[Solution, Floats, Booleans, int]:
    """Return the solution, (S, L) whole servers of its first step that fit, where not all can stay, and iterations.

    Where they do not fit, the program is solved again. Falling services are held to their counts, and others rise only
    into the room that is free then. What had to be rounded down is held there, so that others take over its load.
    """
    room, sizes = program.room(filled), program.sizes
    most, added = np.full(now.shape, np.inf), np.full(len(room), np.inf)
    solved = _solved(solver, filled)
    steps = solved.steps
    counts = rounded_up(solved.x[program.blocks[1][0]])
    scarce = too_full(counts, now, np.ones_like(waits), sizes, room)
    stays = moving(counts, now, waits)
    for attempt in range(ATTEMPTS):
        full = too_full(counts, now, stays, sizes, room)
        if not full.any():
            break
        if attempt:
            exact = np.maximum(solved.x[program.blocks[1][0]], 0.0)
            fit = fitted(exact, now, stays, sizes, room, _worth(program, solved))
            if attempt == ATTEMPTS - 1:
                counts = fit
                break
            most = np.where(fit < counts, fit, most)
        most = np.where(full & (counts < now), np.minimum(counts, most), most)
        held = np.where(stays[:, None], now, np.minimum(counts, now))
        added = np.minimum(added, np.maximum(room - sizes @ held, 0.0))
        solved = _solved(solver, program.narrow(filled, most, added))
        steps += solved.steps
        counts = rounded_up(solved.x[program.blocks[1][0]])
        stays = stays | moving(counts, now, waits)
    return solved, counts, scarce, steps


def _solved(solver: QuadraticSolver, program: QuadraticProgram) -> Solution:
    solved = solver.solve(program)
    if solved.status is not Status.OPTIMAL:
        raise InputError(f"the solver found no plan: the program is {solved.status.value}", field="placement plan")
    return solved


def _worth(program: PlacementProgram, solved: Solution) -> Floats:
    """Return (S, L) money that a server saves in the first step by the requests that it would serve."""
    service_of, centre_of, network_of = program.triples.T
    x = np.maximum(solved.x[program.blocks[0][0]], 0.0)
    saved = np.maximum(-solved.row_duals[program.demand[0]], 0.0)[service_of, network_of] * program.rate
    shape = (len(program.model.services), len(program.model.centres))
    money, there = np.zeros(shape), np.zeros(shape)
    np.add.at(money, (service_of, centre_of), x * saved)
    np.add.at(there, (service_of, centre_of), x)
    worth: Floats = np.divide(money, there, out=np.zeros(shape), where=there > 0)
    return worth


def hold(before: Floats, wanted: Floats, needed: Floats, band: Floats | float) -> Floats:
    """Return (L,) servers with hysteresis: small changes are skipped, unless more is needed than is there.

    Parameters
    ----------
    before, wanted : (L,) servers now and in the plan.
    needed : (L,) servers that requests need in order not to wait.
    band : share of ``before``; smaller changes are not made; >= 0, of all or (L,); beyond the paper.
    """
    small = np.abs(wanted - before) <= band * before
    return np.where(small & (before >= needed), before, wanted)
