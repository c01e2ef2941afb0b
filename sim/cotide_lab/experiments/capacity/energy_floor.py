"""The least energy for tasks that start on arrival: a lower bound for every controller without waiting tasks.

Called by `experiment`. A bound, not a plan: only the mean needs of each step count. Tasks may be cut into parts and
moved at no cost, and fractions of machines are available at once without a boot. The assignment of tasks to types
remains. For each step it is a linear program as eqs. 8, 9 and 13 of Zhang and Boutaba 2014, with the line below each
power curve. Invariant: never above the energy of a controller under which no task waits.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.provisioning.capacity_model import MachineType
from cotide_core.provisioning.power import JOULES_PER_KWH, PowerCurve
from cotide_core.provisioning.programs import LinearProgram, Status, Triplets
from cotide_lab.experiments.capacity.scenarios import Scenario
from cotide_solvers.highs import HighsSolver

Floats = NDArray[np.float64]

LEAST_NEED: Final = 1e-9
"""Share of a machine; smaller values are rounding errors of subtractions."""


def energy_floor(scene: Scenario) -> float:
    """Return kWh of the stretch that counts."""
    groups, need = mean_needs(scene)
    solver, kinds, joules = HighsSolver(time_limit_seconds=math.inf), scene.machines, 0.0
    for of_step in need:
        needed = of_step.max(axis=1) > LEAST_NEED
        solved = solver.solve(_program(kinds, groups[needed], of_step[needed]))
        if solved.status is Status.OPTIMAL:  # else demand exceeds all machines, and tasks wait: no bound
            joules += solved.cost * scene.step_seconds
    return joules / JOULES_PER_KWH


def mean_needs(scene: Scenario) -> tuple[NDArray[np.bool_], Floats]:
    """Return (G, M) the types that fit each group, and (steps, G, R) the mean needs of its tasks.

    A group contains tasks with the same needs. A controller may give a type the tasks of a suitable mix, heavy in cpu
    or in memory. A bound that gives a type a share of all tasks, with the mix of all, would not hold.
    """
    run, first = scene.run, scene.warm_up_seconds
    capacity = np.array([kind.capacity for kind in scene.machines])
    shapes, shape_of = np.unique(run.need, axis=0, return_inverse=True)
    groups = np.asarray(np.all(shapes[:, None, :] <= capacity[None] + 1e-9, axis=2))
    steps = round(scene.score_seconds / scene.step_seconds)
    edges: Floats = first + np.arange(steps + 1, dtype=np.float64) * scene.step_seconds
    running = np.zeros((steps, len(shapes)))
    by_shape = np.argsort(shape_of.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(shape_of.ravel(), minlength=len(shapes)))
    for shape, rows in enumerate(np.split(by_shape, ends[:-1])):
        running[:, shape] = np.diff(_task_seconds(run.arrival[rows], run.seconds[rows], edges))
    return groups, np.maximum(running / scene.step_seconds, 0.0)[:, :, None] * shapes


def _task_seconds(arrival: Floats, seconds: Floats, edges: Floats) -> Floats:
    """Return (edges,) seconds that tasks have run up to each moment if no task waits."""
    done = np.zeros(len(edges))
    for times, sign in ((arrival, 1.0), (arrival + seconds, -1.0)):
        ordered = np.sort(times)
        before = np.searchsorted(ordered, edges)
        done += sign * (edges * before - np.concatenate(([0.0], np.cumsum(ordered)))[before])
    return done


def _program(kinds: tuple[MachineType, ...], groups: NDArray[np.bool_], need: Floats) -> LinearProgram:
    """Columns: (M,) machines on, then for each pair the served share of a group's needs, all > 0."""
    pairs = np.argwhere(groups)
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
        slope = np.array([value for _, value in lines]) / np.maximum(capacity[:, 0], 1e-9)
        cost[count:] = slope[kind_of] * need[group_of, 0]
    rows = room.size + len(groups)
    bottom, top = np.full(rows, -np.inf), np.zeros(rows)
    bottom[served] = top[served] = 1.0
    upper = np.concatenate(([float(kind.count) for kind in kinds], np.ones(len(pairs))))
    return LinearProgram(entries.matrix(rows, len(cost)), cost, np.zeros(len(cost)), upper, bottom, top, None)


def line_below(power: PowerCurve) -> tuple[float, float]:
    """Return watts at no load, and the additional watts at full load.

    They describe the highest line below a power curve that meets the curve at full load.
    """
    loads = np.linspace(0.0, 1.0, len(power.watts))[:-1]
    slope = float(((power.watts[-1] - np.array(power.watts[:-1])) / (1.0 - loads)).max())
    return power.watts[-1] - slope, slope
