"""Forecasts of the containers of each class: tasks that still run, tasks that wait, and tasks to come.

Called by the capacity planner, once a step. The tasks of a size class that need a container h steps on are

    sum over running tasks of S(age + h) / S(age)  +  waiting x S(h)  +  sum over steps j < h of arrivals_j x I(h - j),

S the share of tasks that outlive an age, I its integral over a step: the transient of a queue with as many servers as
tasks. Tasks older than the age that parts short from long count in the class of long ones. Its spread is learned: the
largest need within each step is compared with the forecast. Quantiles of the error, scaled by the square root of the
forecast, are added. Invariant: quantiles rise, are finite and >= 0.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_predictors.capacity.arrival_rates import ArrivalRates
from cotide_predictors.capacity.task_classes import TaskClasses

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

GRID: Final = 400
"""Points at which the survival of a class is kept (chosen)."""
ERRORS_KEPT: Final = 400
"""Errors of each class and lead, as the sample for quantiles (chosen: a day and a half of five-minute steps)."""
LEADS: Final = (1, 2, 4, 8)
"""Steps ahead of the gathered errors; a step uses those of the lead before it (chosen)."""
FIRST_SPREAD: Final = (-0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
"""Scaled errors before any were seen (chosen: Poisson's, a little wider)."""


class ContainerDemand:
    """Forecasts containers by class, on line.

    Each size class is split into short and long where run times part: ``labels_`` holds pairs of size class and whether
    it is long.
    """

    def __init__(
        self, *, classes: TaskClasses, step_seconds: float, horizon: int, day_seconds: float = 86_400.0
    ) -> None:
        """Take fitted classes and the time step of the plan."""
        self.classes, self.step_seconds, self.horizon = classes, step_seconds, horizon
        self.labels_ = tuple(
            (index, long)
            for index, size in enumerate(classes.sizes_)
            for long in ((False, True) if np.isfinite(size.long_after) else (False,))
        )
        self.rates_ = ArrivalRates(classes=len(classes.sizes_), day_steps=round(day_seconds / step_seconds))
        self._sums = np.zeros((len(self.labels_), len(classes.sizes_)))
        for column, (index, _) in enumerate(self.labels_):
            self._sums[column, index] = 1.0
        self._column = {pair: index for index, pair in enumerate(self.labels_)}
        self._survival = [_Survival(size.seconds, step_seconds) for size in classes.sizes_]
        self._arriving = self._arriving_parts()
        self._pending: list[list[tuple[int, Floats]]] = [[] for _ in LEADS]
        first = np.tile(np.array(FIRST_SPREAD)[:, None], (1, len(classes.sizes_)))
        self._errors = [list(first) for _ in LEADS]
        self._now = 0

    def update(self, arrivals: Floats, peak: Floats) -> None:
        """Take the arrivals and peaks of the step that has ended.

        Parameters
        ----------
        arrivals : (S,) tasks that came, by size class.
        peak : (S,) most tasks of each size class that ran or waited at one time in the step.
        """
        self.rates_.update(arrivals)
        self._now += 1
        for pending, errors in zip(self._pending, self._errors, strict=True):
            while pending and pending[0][0] <= self._now:
                due, mean = pending.pop(0)
                if due == self._now:
                    errors.append((peak - mean) / np.sqrt(mean + 1.0))
                    del errors[:-ERRORS_KEPT]

    def mean(self, label: Integers, age_seconds: Floats, waiting: Floats, rates: Floats | None = None) -> Floats:
        """Return (W, K) containers needed on average at the end of each step to come.

        Parameters
        ----------
        label, age_seconds : (n,) size class and age of the tasks that run.
        waiting : (S,) tasks that wait, by size class.
        rates : (W, S) arrivals per step; None for the forecast.
        """
        steps = np.arange(1, self.horizon + 1)
        coming = self.rates_.predict(self.horizon) if rates is None else rates
        needed = np.zeros((self.horizon, len(self.labels_)))
        for index, (size, survival) in enumerate(zip(self.classes.sizes_, self._survival, strict=True)):
            ages = age_seconds[label == index]
            later = ages[None, :] + steps[:, None] * self.step_seconds
            alive = survival.share(later) / np.maximum(survival.share(ages), 1e-6)[None]
            parts = [(alive, later >= size.long_after)]
            fresh = (steps * self.step_seconds).astype(np.float64)
            parts.append((waiting[index] * survival.share(fresh)[:, None], (fresh >= size.long_after)[:, None]))
            for count, long in parts:
                self._add(needed, index, np.where(long, 0.0, count).sum(axis=1), np.where(long, count, 0.0).sum(axis=1))
        for column, kernel in enumerate(self._arriving):
            index = self.labels_[column][0]
            for lag in range(self.horizon):
                needed[lag:, column] += coming[: self.horizon - lag, index] * kernel[lag]
        return needed

    def predict(
        self, label: Integers, age_seconds: Floats, waiting: Floats, probabilities: tuple[float, ...]
    ) -> Floats:
        """Return (W, K, J) quantiles of the containers needed; keeps the means, to learn from the outcomes.

        Tasks that run and wait when the first step begins need their containers in it, so no quantile is below them.
        """
        mean = self.mean(label, age_seconds, waiting)
        for lead, pending in zip(LEADS, self._pending, strict=True):
            if lead <= self.horizon:
                pending.append((self._now + lead, mean[lead - 1] @ self._sums))
        least = np.bincount(label, minlength=len(waiting)) + waiting
        return self.spread(mean, probabilities, least)

    def spread(self, mean: Floats, probabilities: tuple[float, ...], least: Floats | None = None) -> Floats:
        """Return (W, K, J): a mean with the quantiles of the errors seen; labels share the need of their size class.

        ``least``: (S,) the least that the first step needs; None for 0.
        """
        by_lead = [np.quantile(np.array(errors), probabilities, axis=0).T for errors in self._errors]
        indices = np.searchsorted(np.array(LEADS), np.arange(1, len(mean) + 1), side="right") - 1
        scaled = np.stack([by_lead[index] for index in indices])
        of_size = mean @ self._sums
        found = np.maximum(of_size[:, :, None] + scaled * np.sqrt(of_size + 1.0)[:, :, None], 0.0)
        if least is not None:
            found[0] = np.maximum(found[0], least[:, None])
        found = np.maximum.accumulate(found, axis=2)
        return self.by_label(found, mean)

    def by_label(self, of_size: Floats, mean: Floats) -> Floats:
        """Return (W, K, J) for labels: (W, S, J) of the size classes, parted as the (W, K) means are."""
        indices = [index for index, _ in self.labels_]
        total = (mean @ self._sums)[:, indices]
        first = np.array([0.0 if long else 1.0 for _, long in self.labels_])
        share = np.where(total > 1e-9, mean / np.maximum(total, 1e-9), first[None])
        parted: Floats = of_size[:, indices] * share[:, :, None]
        return parted

    def _add(self, needed: Floats, index: int, short: Floats, long: Floats) -> None:
        needed[:, self._column[(index, False)]] += short
        if (index, True) in self._column:
            needed[:, self._column[(index, True)]] += long

    def _arriving_parts(self) -> list[Floats]:
        """Return for each label (W,): share of a step's arrivals that still run so many steps on, as that label."""
        parts = []
        for index, long in self.labels_:
            size, survival = self.classes.sizes_[index], self._survival[index]
            inside = (np.arange(20) + 0.5) / 20.0
            ages = (np.arange(self.horizon)[:, None] + inside[None]) * self.step_seconds
            alive = survival.share(ages) * ((ages >= size.long_after) == long)
            parts.append(alive.mean(axis=1))
        return parts


class _Survival:
    """The share of tasks that outlive an age, from observed tasks; beyond the longest it halves every step."""

    def __init__(self, seconds: Floats, step_seconds: float) -> None:
        indices = np.linspace(0, len(seconds) - 1, min(GRID, len(seconds))).astype(int)
        self._ages = np.concatenate(([0.0], seconds[indices]))
        above = 1.0 - (indices + 1) / (len(seconds) + 1)
        self._shares = np.concatenate(([1.0], above))
        self._step = step_seconds

    def share(self, ages: Floats) -> Floats:
        inside = np.interp(ages, self._ages, self._shares)
        beyond = np.maximum(ages - self._ages[-1], 0.0) / self._step
        shares: Floats = inside * 0.5**beyond
        return shares
