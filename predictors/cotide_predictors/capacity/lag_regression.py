"""Ridge regression of rates on their own last steps and the days before, on line, a model for each step ahead.

Updated by `arrival_rates`, for whom it is one more forecast of the mean. What is foreseen is how much a rate changes
against now, as a share of its last day's mean, from how it changed in the last hours, how it changed after the same
time of the days before, and how far it is from its mean. Columns of a group share their coefficients, so that a few
days teach a model; with nothing learned, now holds. Direct models by lead are plain linear regression (Hyndman and
Athanasopoulos 2021, ch. 7 and 13); which lags is chosen. Invariant: rates are finite and >= 0, whatever the history.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LAGS: Final = (1, 2, 3, 4, 6, 8, 12)
"""Steps back with which now is compared (chosen, as all constants here, on seeds 101 to 103 of the placement
experiment: three hours of quarters)."""
DAYS: Final = (1, 2, 7)
"""Days back of which the same time is looked at."""
FORGET: Final = 0.999
"""What is kept of what was learned at a step: some ten days of quarters count."""
RIDGE: Final = 0.01
"""Added to the squares of the features: what few steps say is believed less."""
LARGEST_CHANGE: Final = 10.0
"""Features and targets are cut to this share of the last day's mean: what comes from nothing teaches no more."""
MOST: Final = 5.0
"""A forecast is at most so many times the most that is remembered."""
SMALLEST: Final = 1e-9
"""A mean below is as good as none."""
FEATURES: Final = len(LAGS) + 3 * len(DAYS) + 1


class LagRegression:
    """Models of each group of columns and each step ahead."""

    def __init__(self, groups: tuple[int, ...], *, day_steps: int, leads: int) -> None:
        """Take the group of each of K columns, from 0 on, the steps of a day, and L >= 1 steps ahead to learn for."""
        self.leads, self._day = leads, max(1, day_steps)
        self._members = [np.flatnonzero(np.array(groups) == group) for group in range(max(groups) + 1)]
        self._squares = np.zeros((len(self._members), leads, FEATURES, FEATURES))
        self._products = np.zeros((len(self._members), leads, FEATURES))
        self._kept = max(*LAGS, max(DAYS) * self._day + 1) + 1
        self._rows = np.zeros((2 * self._kept, len(groups)))
        self._count = 0
        self._asked: list[tuple[Floats, Floats, Floats]] = []
        """Of the last L steps, the oldest first: (L, K, F) features, (K,) what was then, (K,) the mean of its day."""

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
        """Return (steps, K) rates; beyond the last lead as there. At least one step must have come."""
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
        """Return (L, K, F) features of now, and by column what is now and the mean of the last day."""
        rows, leads = self._remembered(), self.leads
        last, now = len(rows) - 1, rows[-1]
        mean = rows[-self._day :].mean(axis=0)
        features = np.zeros((leads, len(now), FEATURES))
        for index, lag in enumerate(LAGS):
            features[:, :, index] = now - rows[max(last - lag, 0)]
        for index, days in enumerate(DAYS):
            same = last - days * self._day
            if same < 1:
                continue  # it is not known yet: no change is told
            at = len(LAGS) + 3 * index
            then = rows[same - 1 : same + 2].mean(axis=0)
            # A day of few steps is shorter than the way ahead: the last that is known stands for the rest.
            later = np.minimum(same + 1 + np.arange(leads), last)
            around = rows[later - 1] + rows[later] + rows[np.minimum(later + 1, last)]
            features[:, :, at] = rows[later] - then
            features[:, :, at + 1] = around / 3.0 - then
            features[:, :, at + 2] = then - now
        features[:, :, -1] = mean - now
        scale = np.maximum(mean, SMALLEST)
        return np.clip(features / scale[:, None], -LARGEST_CHANGE, LARGEST_CHANGE), now.copy(), scale
