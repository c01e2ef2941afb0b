"""Forecasts of containers taught by tasks that have ended: arrivals replayed, errors gathered over the last day.

Called by the capacity experiment and by `cotide capacity`. Invariant: each step of the replay sees only earlier
arrivals.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_predictors.capacity.container_demand import ContainerDemand
from cotide_predictors.capacity.task_classes import TaskClasses

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

CALIBRATION_STEPS: Final = 300
"""Last steps for the forecast's errors (chosen: a day of five-minute steps)."""
PROBABILITIES: Final = (0.5,)
"""The quantiles during calibration; any values do."""


def occupancy_peaks(
    label: Integers, arrival: Floats, seconds: Floats, classes: int, step_seconds: float, steps: int
) -> Floats:
    """Return (steps, classes): the largest number of tasks of each class at one time within each step, if no task
    waited.

    The true future: an oracle plans with it, and forecasts are calibrated against it.
    """
    peaks = np.zeros((steps, classes))
    for index in range(classes):
        chosen = label == index
        times = np.concatenate((arrival[chosen], arrival[chosen] + seconds[chosen]))
        change = np.concatenate((np.ones(chosen.sum()), -np.ones(chosen.sum())))
        order = np.lexsort((change, times))  # ends before arrivals at the same time
        times, count = times[order], np.cumsum(change[order])
        step = np.floor(times / step_seconds).astype(np.int64)
        inside = (step >= 0) & (step < steps)
        np.maximum.at(peaks[:, index], step[inside], count[inside])
        # Tasks that run when a step begins count, too.
        begins = np.searchsorted(times, np.arange(steps) * step_seconds, side="right") - 1
        carried = np.where(begins >= 0, np.concatenate((count, [0.0]))[begins], 0.0)
        peaks[:, index] = np.maximum(peaks[:, index], carried)
    return peaks


def calibrated_demand(
    classes: TaskClasses,
    need: Floats,
    priority: Floats,
    arrival: Floats,
    seconds: Floats,
    *,
    step_seconds: float,
    horizon: int,
    until: float | None = None,
) -> ContainerDemand:
    """Return forecasts at a time, else at that of the last arrival; tasks need not be sorted.

    Steps are counted back from that time, so that the day before starts a whole day of steps back. Arrivals before the
    first whole step count only where they still run.
    """
    label = classes.at_arrival(need, priority)
    last = arrival.max() if until is None else max(until, arrival.max())
    steps = max(1, int((last - arrival.min()) // step_seconds))
    arrival = arrival - (last - steps * step_seconds)
    count = len(classes.sizes_)
    peaks = occupancy_peaks(label, arrival, seconds, count, step_seconds, steps)
    demand = ContainerDemand(classes=classes, step_seconds=step_seconds, horizon=horizon)
    came = np.zeros((steps, count))
    inside = arrival >= 0
    at = np.minimum((arrival[inside] // step_seconds).astype(int), steps - 1)
    np.add.at(came, (at, label[inside]), 1.0)
    ends = arrival + seconds
    for index in range(steps):
        if index >= steps - CALIBRATION_STEPS:
            now = index * step_seconds
            rows = np.flatnonzero((arrival <= now) & (ends > now))
            demand.predict(label[rows], now - arrival[rows], np.zeros(count), PROBABILITIES)
        demand.update(came[index], peaks[index])
    return demand
