"""The least energy in which tasks can run that start when they come: below it nobody comes who lets none wait.

Called by `experiment`. Not a plan but a bound: of each step only the mean needs count, tasks may be cut into parts and
moved at no cost, and machines are had in fractions, at once and without a boot. What remains is which type holds whom:
for each step a linear program as eqs. 8, 9 and 13 of Zhang and Boutaba 2014, with the line below each power curve.
Invariant: never above the energy of a controller under which no task waits.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cotide_core.provisioning.capacity_model import MachineType
from cotide_core.provisioning.power import JOULES_PER_KWH, PowerCurve
from cotide_core.provisioning.programs import LinearProgram, Status, Triplets
from cotide_sim.experiments.capacity.scenarios import Scenario
from cotide_solvers.highs import HighsSolver

Floats = NDArray[np.float64]


def energy_floor(scene: Scenario) -> float:
    """Return kWh of the stretch that counts."""
    groups, need = mean_needs(scene)
    solver, kinds, joules = HighsSolver(time_limit_seconds=math.inf), scene.machines, 0.0
    for of_step in need:
        solved = solver.solve(_program(kinds, groups, of_step))
        if solved.status is Status.OPTIMAL:  # else demand is beyond all machines, and somebody waits: no bound
            joules += solved.cost * scene.step_seconds
    return joules / JOULES_PER_KWH


def mean_needs(scene: Scenario) -> tuple[NDArray[np.bool_], Floats]:
    """Return (G, M) which types hold a task of each group, and (steps, G, R) what its tasks need in the mean."""
    run, first = scene.run, scene.warm_up_seconds
    capacity = np.array([kind.capacity for kind in scene.machines])
    held = (run.need[:, None, :] <= capacity[None] + 1e-9).all(axis=2)
    groups, group_of = np.unique(held, axis=0, return_inverse=True)
    steps = round(scene.score_seconds / scene.step_seconds)
    edges: Floats = first + np.arange(steps + 1, dtype=np.float64) * scene.step_seconds
    need = np.zeros((steps, len(groups), run.need.shape[1]))
    for group in range(len(groups)):
        rows = np.flatnonzero(group_of.ravel() == group)
        need[:, group] = np.diff(_work(run.arrival[rows], run.seconds[rows], run.need[rows], edges), axis=0)
    return groups, need / scene.step_seconds


def _work(arrival: Floats, seconds: Floats, need: Floats, edges: Floats) -> Floats:
    """Return (edges, R) need times seconds up to each moment, were no task to wait."""
    done = np.zeros((len(edges), need.shape[1]))
    for times, sign in ((arrival, 1.0), (arrival + seconds, -1.0)):
        order = np.argsort(times, kind="stable")
        before = np.searchsorted(times[order], edges)
        count = np.concatenate((np.zeros((1, need.shape[1])), np.cumsum(need[order], axis=0)))[before]
        weighted = np.cumsum(times[order, None] * need[order], axis=0)
        moment = np.concatenate((np.zeros((1, need.shape[1])), weighted))[before]
        done += sign * (edges[:, None] * count - moment)
    return done


def _program(kinds: tuple[MachineType, ...], groups: NDArray[np.bool_], need: Floats) -> LinearProgram:
    """Columns: (M,) machines on, then for each pair the share of a group's needs that a type serves."""
    pairs = np.argwhere(groups & (need.max(axis=1) > 0)[:, None])
    capacity = np.array([kind.capacity for kind in kinds])
    count, resources = len(kinds), capacity.shape[1]
    lines = [line_below(kind.power) for kind in kinds]
    cost = np.concatenate(([idle for idle, _ in lines], np.zeros(len(pairs))))
    entries, machines = Triplets(), np.arange(count)
    room = np.arange(count * resources).reshape(count, resources)
    entries.add(room, machines[:, None], -capacity)
    served = room.size + np.arange(len(groups))
    if len(pairs):
        group_of, kind_of = pairs.T
        columns = count + np.arange(len(pairs))
        entries.add(room[kind_of], columns[:, None], need[group_of])
        entries.add(served[group_of], columns, 1.0)
        slope = np.array([one for _, one in lines]) / np.maximum(capacity[:, 0], 1e-9)
        cost[count:] = slope[kind_of] * need[group_of, 0]
    rows = room.size + len(groups)
    bottom, top = np.full(rows, -np.inf), np.zeros(rows)
    bottom[served] = top[served] = (need.max(axis=1) > 0).astype(np.float64)
    upper = np.concatenate(([float(kind.count) for kind in kinds], np.ones(len(pairs))))
    return LinearProgram(entries.matrix(rows, len(cost)), cost, np.zeros(len(cost)), upper, bottom, top, None)


def line_below(power: PowerCurve) -> tuple[float, float]:
    """Return watts at no load, and more at full load, of the highest line below a curve that meets it at full load."""
    loads = np.linspace(0.0, 1.0, len(power.watts))[:-1]
    slope = float(((power.watts[-1] - np.array(power.watts[:-1])) / (1.0 - loads)).max())
    return power.watts[-1] - slope, slope
