"""Arrival rates of each class for the next steps, with a distribution.

Updated by `container_demand` and by placement. Simple forecasts of the mean run next to one another: the smoothed
level, the last value, the last value and a damped trend, the same time of the day before, the mean of that and the
level, and the day before's shape at today's height. Each class uses its recently best forecast, so that a class without
a daily course gets no such forecast. On request a regression on lags joins them, and all are weighted by their
accuracy. Counts are wider than Poisson's, since tasks come in bunches. The dispersion is learned from the errors, on
request for several steps ahead, since a drifting rate is less certain further ahead. Quantiles are those of a gamma
distribution of the same mean and variance. Invariant: rates are finite and >= 0, with any history or none.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_predictors.capacity.lag_regression import LagRegression

Floats = NDArray[np.float64]

METHODS: Final = ("level", "last value", "trend", "yesterday", "mean of both", "shape of yesterday", "regression")
SMOOTHING: Final = 0.25
"""Weight of the newest step in the level (chosen)."""
FORGET: Final = 0.98
"""Weight of old errors after a step (chosen: about fifty steps count)."""
SHARPNESS: Final = 12.0
"""Weights of forecasts fall with this power of their errors. Chosen on seeds 101 to 104 of the placement experiment:
the best forecast has nearly all the weight; the eighth power gives the same, the fourth is worse.
"""
SMALLEST_ERROR: Final = 1e-9
"""Smaller errors count as this one."""
DAMPING: Final = 0.7
"""Share of a trend that remains after a step (chosen)."""
HEIGHTS: Final = (0.2, 5.0)
"""Limits of today over yesterday (chosen: an empty hour yesterday carries no information on today's height)."""


class ArrivalRates:
    """Forecasts of counts per step, on line.

    Attributes
    ----------
    level_ : (K,) smoothed counts.
    dispersion_ : (leads, K) variance over mean of a count around its forecast of so many steps before, >= 1.
    errors_ : (6, K) or, with a regression, (7, K) mean absolute errors of the methods, over recent steps.
    """

    def __init__(
        self, *, classes: int, day_steps: int, leads: int = 1, regression: LagRegression | None = None
    ) -> None:
        """Take settings.

        Parameters
        ----------
        classes : their number K.
        day_steps : steps of a day.
        leads : for how many steps ahead errors are learned, >= 1.
        regression : one more method, of K columns; it is taught here, and forecasts are weighted means then.
        """
        self.classes, self.day_steps, self.leads = classes, max(1, day_steps), leads
        self._history: list[Floats] = []
        self._forecasts: list[Floats] = []
        """The last forecasts of (leads, K) means."""
        self.level_ = np.zeros(classes)
        self.dispersion_ = np.ones((leads, classes))
        self._regression = regression
        self.errors_ = np.zeros((len(METHODS) - (regression is None), classes))

    def update(self, counts: Floats) -> ArrivalRates:
        """Take the (K,) counts of the step that has ended."""
        if self._history:
            offered = self._means(1)[:, 0]
            self.errors_ = FORGET * self.errors_ + (1 - FORGET) * np.abs(offered - counts)
            mean = self._choose(offered)
            self._disperse(0, mean, counts)
            for lead in range(1, min(self.leads, len(self._forecasts))):
                self._disperse(lead, self._forecasts[-1 - lead][lead], counts)
            self.level_ = (1 - SMOOTHING) * self.level_ + SMOOTHING * counts
        else:
            self.level_ = np.asarray(counts, dtype=np.float64).copy()
        self._history.append(np.asarray(counts, dtype=np.float64))
        if self._regression is not None:
            self._regression.update(self._history[-1])
        del self._history[: -2 * self.day_steps]
        if self.leads > 1:
            self._forecasts.append(self.predict(self.leads))
            del self._forecasts[: -self.leads]
        return self

    def _disperse(self, lead: int, mean: Floats, counts: Floats) -> None:
        seen = (counts - mean) ** 2 / np.maximum(mean, 1.0)
        self.dispersion_[lead] = np.maximum(1.0, FORGET * self.dispersion_[lead] + (1 - FORGET) * seen)

    def predict(self, steps: int) -> Floats:
        """Return (steps, K) mean counts of the steps to come."""
        return self._choose(self._means(steps))

    def quantiles(self, steps: int, probabilities: tuple[float, ...]) -> Floats:
        """Return (steps, K, J) quantiles of the counts; beyond the last lead as wide as there."""
        from scipy.stats import gamma

        mean = np.maximum(self.predict(steps), 1e-9)[:, :, None]
        # Forecasts further ahead are never more certain, even where few errors suggest it.
        widest = np.maximum.accumulate(self.dispersion_, axis=0)
        scale = widest[np.minimum(np.arange(steps), self.leads - 1)][:, :, None]
        found: Floats = gamma.ppf(np.asarray(probabilities)[None, None, :], mean / scale, scale=scale)
        return np.nan_to_num(found, nan=0.0, posinf=0.0)

    def _means(self, steps: int) -> Floats:
        """Return (6 or 7, steps, K): the forecast of each method."""
        level = np.broadcast_to(self.level_, (steps, self.classes))
        before, shaped = level.copy(), level.copy()
        known = len(self._history)
        last = self._history[-1] if known else self.level_
        slope = last - self._history[-2] if known > 1 else np.zeros(self.classes)
        ahead = np.cumsum(DAMPING ** np.arange(1, steps + 1))
        trend = np.maximum(last[None] + ahead[:, None] * slope[None], 0.0)
        # An hour around the same time of the day before, rather than one step, which is mostly noise.
        wide = max(1, self.day_steps // 48)
        for step in range(steps):
            index = known + step - self.day_steps
            if index - wide >= 0 and index + wide < known:
                before[step] = np.mean(self._history[index - wide : index + wide + 1], axis=0)
                shaped[step] = before[step]
        index = known - 1 - self.day_steps
        if index - wide >= 0:
            then = np.mean(self._history[index - wide : index + wide + 1], axis=0)
            shaped = shaped * np.clip(last / np.maximum(then, 1e-9), *HEIGHTS)[None]
        flat = np.broadcast_to(last, (steps, self.classes))
        offered = [level, flat, trend, before, (level + before) / 2.0, shaped]
        if self._regression is not None:
            offered.append(self._regression.predict(steps) if known else level)
        return np.stack(offered)

    def _choose(self, offered: Floats) -> Floats:
        """Return the (..., K) choice from (methods, ..., K) forecasts."""
        if self._regression is None:
            best = self.errors_.argmin(axis=0).reshape(1, *[1] * (offered.ndim - 2), -1)
            chosen: Floats = np.take_along_axis(offered, best, axis=0)[0]
            return chosen
        errors = np.maximum(self.errors_, SMALLEST_ERROR)
        weights = (errors.min(axis=0) / errors) ** SHARPNESS
        shares = weights / weights.sum(axis=0)
        blended: Floats = (offered * shares.reshape(len(shares), *[1] * (offered.ndim - 2), -1)).sum(axis=0)
        return blended
