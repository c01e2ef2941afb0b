"""Data learned from the part before the run, and the resulting model of capacity: the same for all contenders.

Called by `experiment`; read by `controllers`. Invariant: nothing of the run is in the forecasts or the model; `peaks`,
the true future, is read by the oracle only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.provisioning.capacity_model import CapacityModel, ContainerClass
from cotide_core.provisioning.containers import container_sizes, groups_per_machine
from cotide_core.provisioning.overprovisioning import PAPER
from cotide_lab.experiments.capacity.scenarios import Scenario
from cotide_predictors.capacity.calibration import calibrated_demand, occupancy_peaks
from cotide_predictors.capacity.container_demand import ContainerDemand
from cotide_predictors.capacity.task_classes import TaskClasses

Floats = NDArray[np.float64]

HORIZON: Final = 12
"""Steps: an hour of five-minute steps (chosen)."""
FIT_PROBABILITY: Final = 0.9
"""Probability that a group of containers holds its tasks (chosen)."""
HOSTED: Final = 0.9
"""Share of a label's tasks that a machine type must hold to be planned for it (chosen)."""


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """Data learned from the training part, shared by all controllers of a scenario; forecasts are copied before use.

    Attributes
    ----------
    label : (n,) size class of the run's tasks.
    peaks : (steps, S) most tasks of each size class in each step of the run if no task waits: the true future.
    yesterday : (steps, S) the same for the day before, at the same time of day.
    sizes, shares : (S, R) mean needs, (S,) share of each class.
    hosts : (M, K) whether machines of a type hold nine in ten tasks of a label.
    """

    classes: TaskClasses
    demand: ContainerDemand
    label: NDArray[np.int64]
    peaks: Floats
    yesterday: Floats
    sizes: Floats
    shares: Floats
    hosts: NDArray[np.bool_]


def learn(scene: Scenario, seed: int) -> Learned:
    """Fit classes and forecasts on the training part."""
    step = scene.step_seconds
    train, run = scene.train, scene.run
    classes = TaskClasses(random_state=seed).fit(train.need, train.priority, train.seconds)
    count = len(classes.sizes_)
    label = classes.at_arrival(train.need, train.priority)
    steps = round(scene.train_seconds / step)
    peaks = occupancy_peaks(label, train.arrival, train.seconds, count, step, steps)
    demand = calibrated_demand(
        classes, train.need, train.priority, train.arrival, train.seconds,
        step_seconds=step, horizon=HORIZON, until=scene.train_seconds,
    )  # fmt: skip
    run_label = classes.at_arrival(run.need, run.priority)
    run_steps = int(np.ceil((scene.warm_up_seconds + scene.score_seconds) / step)) + HORIZON + 1
    truth = occupancy_peaks(run_label, run.arrival, run.seconds, count, step, run_steps)
    day = round(86_400.0 / step)
    before = peaks[-day:] if steps >= day else peaks
    yesterday = before[np.arange(run_steps) % len(before)]
    sizes = np.stack([size.mean[0] * _short(size) + size.mean[1] * (1 - _short(size)) for size in classes.sizes_])
    shares = np.array([size.share for size in classes.sizes_])
    hosts = _hosts(scene, demand, label)
    return Learned(classes, demand, run_label, truth, yesterday, sizes, shares, hosts)


def _hosts(scene: Scenario, demand: ContainerDemand, label: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return (M, K): a mean that fits is not enough where sizes differ; at least the best type of each label."""
    capacity = np.array([kind.capacity for kind in scene.machines])
    share = np.zeros((len(capacity), len(demand.labels_)))
    long = demand.classes.is_long(label, scene.train.seconds)
    for column, (group, is_long) in enumerate(demand.labels_):
        need = scene.train.need[(label == group) & (long == is_long)]
        if len(need):
            share[:, column] = (need[None] <= capacity[:, None] + 1e-9).all(axis=2).mean(axis=1)
    enough: NDArray[np.bool_] = (share >= HOSTED) | (share >= share.max(axis=0, keepdims=True) - 1e-9)
    return enough


def _short(size: object) -> float:
    seconds, limit = size.seconds, size.long_after  # type: ignore[attr-defined]  # a SizeClass
    return float((seconds < limit).mean())


def capacity_model(
    scene: Scenario, learned: Learned, *, horizon: int = HORIZON, switching: bool = True, level: float = 0.95
) -> CapacityModel:
    """Return the model of eqs. 6-13 for a scenario: container sizes from the classes' distributions."""
    capacity = np.array([kind.capacity for kind in scene.machines])
    mean, deviation, largest = (
        np.stack([getattr(learned.classes.sizes_[group], part)[int(long)] for group, long in learned.demand.labels_])
        for part in ("mean", "deviation", "largest")
    )
    groups = groups_per_machine(mean, deviation, capacity, FIT_PROBABILITY, learned.hosts)
    sizes = container_sizes(mean, deviation, largest, groups, FIT_PROBABILITY)
    machines = scene.machines
    if not switching:
        machines = tuple(replace(kind, on_cost=0.0, off_cost=0.0, boot_steps=0) for kind in machines)
    classes = tuple(
        ContainerClass(f"{group}{'L' if long else ''}", tuple(map(float, size)), PAPER)
        for (group, long), size in zip(learned.demand.labels_, sizes, strict=True)
    )
    return CapacityModel(machines, classes, scene.step_seconds, horizon, level, learned.hosts)
