"""Ridge regression of rates on their own last steps and the days before, on line, with a model for each step ahead.

Updated by `arrival_rates`, as one more forecast of the mean. The target is a rate's change from now, as a share of its
last day's mean. The features are its changes in the last hours and after the same time of the days before, and its
distance from its mean. Columns of a group share their coefficients, so that a few days teach a model. An untrained
model repeats the present rate. Direct models by lead are plain linear regression (Hyndman and Athanasopoulos 2021, ch.
7 and 13). The lags are chosen. Invariant: rates are finite and >= 0, with any history.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LAGS: Final = (1, 2, 3, 4, 6, 8, 12)
"""Steps back that are compared with now (chosen, as all constants here, on seeds 101 to 103 of the placement
experiment: three hours of quarters).
"""
DAYS: Final = (1, 2, 7)
"""Days back for the same time of day."""
FORGET: Final = 0.999
"""Weight of old knowledge after a step: some ten days of quarters count."""
RIDGE: Final = 0.01
"""Added to the squares of the features: it lessens the weight of few steps."""
LARGEST_CHANGE: Final = 10.0
"""Limit of features and targets, as a share of the last day's mean: a rise from zero has no more weight than this."""
MOST: Final = 5.0
"""Largest forecast, as a multiple of the largest remembered rate."""
SMALLEST: Final = 1e-9
"""Smaller means count as zero."""
FEATURES: Final = len(LAGS) + 3 * len(DAYS) + 1


class LagRegression:
    """Models of each group of columns and each step ahead."""

    def __init__(self, groups: tuple[int, ...], *, day_steps: int, leads: int) -> None:
        """Take the group of each of K columns, from 0 on, the steps of a day, and the L >= 1 steps ahead of its
        models.
        """
        self.leads, self._day = leads, max(1, day_steps)
        self._members = [np.flatnonzero(np.array(groups) == group) for group in range(max(groups) + 1)]
        self._squares = np.zeros((len(self._members), leads, FEATURES, FEATURES))
        self._products = np.zeros((len(self._members), leads, FEATURES))
        self._kept = max(*LAGS, max(DAYS) * self._day + 1) + 1
        self._rows = np.zeros((2 * self._kept, len(groups)))
        self._count = 0
        self._asked: list[tuple[Floats, Floats, Floats]] = []
        """Of the last L steps, the oldest first: (L, K, F) features, (K,) rate at that step, (K,) the mean of its
        day.
        """

    def update(self, rates: Floats) -> LagRegression:
        """Take the (K,) rates of the step that has ended, >= 0."""
        self._squares *= FORGET
        self._products *= FORGET
        for lead in range(min(self.leads, len(self._asked))):
            features, then, scale = self._asked[-1 - lead]
            target = np.clip((rates - then) / scale, -LARGEST_CHANGE, LARGEST_CHANGE)
            for group, members in enumerate(self._members):
                seen = features[lead, members]
                self._squares[group, lead] += seen.T @ seen
                self._products[group, lead] += seen.T @ target[members]
        if self._count == len(self._rows):
            self._rows[: self._kept] = self._rows[-self._kept :]
            self._count = self._kept
        self._rows[self._count] = rates
        self._count += 1
        self._asked.append(self._features())
        del self._asked[: -self.leads]
        return self

    def predict(self, steps: int) -> Floats:
        """Return (steps, K) rates; beyond the last lead the last one holds. At least one step must have come."""
        leads = min(steps, self.leads)
        features, now, scale = self._asked[-1]
        found = np.empty((steps, len(now)))
        ridge = RIDGE * np.eye(FEATURES)
        for group, members in enumerate(self._members):
            weights = np.linalg.solve(self._squares[group, :leads] + ridge, self._products[group, :leads, :, None])
            change = (features[:leads, members] @ weights)[:, :, 0]
            found[:leads, members] = now[members] + change * scale[members]
        found[leads:] = found[leads - 1]
        most = MOST * self._remembered().max(axis=0)
        bounded: Floats = np.clip(np.nan_to_num(found), 0.0, most)
        return bounded

    def _remembered(self) -> Floats:
        return self._rows[max(0, self._count - self._kept) : self._count]

    def _features(self) -> tuple[Floats, Floats, Floats]:
        """Return (L, K, F) features of now, and by column the present rate and the mean of the last day."""
        rows, leads = self._remembered(), self.leads
        last, now = len(rows) - 1, rows[-1]
        mean = rows[-self._day :].mean(axis=0)
        features = np.zeros((leads, len(now), FEATURES))
        for index, lag in enumerate(LAGS):
            features[:, :, index] = now - rows[max(last - lag, 0)]
        for index, days in enumerate(DAYS):
            same = last - days * self._day
            if same < 1:
                continue  # unknown yet: the change stays 0
            at = len(LAGS) + 3 * index
            then = rows[same - 1 : same + 2].mean(axis=0)
            # A day of few steps is shorter than the horizon: the last known step replaces the missing ones.
            later = np.minimum(same + 1 + np.arange(leads), last)
            around = rows[later - 1] + rows[later] + rows[np.minimum(later + 1, last)]
            features[:, :, at] = rows[later] - then
            features[:, :, at + 1] = around / 3.0 - then
            features[:, :, at + 2] = then - now
        features[:, :, -1] = mean - now
        scale = np.maximum(mean, SMALLEST)
        return np.clip(features / scale[:, None], -LARGEST_CHANGE, LARGEST_CHANGE), now.copy(), scale
