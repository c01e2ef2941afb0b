"""Requests per second of each access network in the next steps, at a level of safety of their sum.

Used by `cotide place` and by the placement experiment. Networks have forecasts of their own, but the error is learned
of their sum. Needs beyond the means of single networks add up in the data centres, so that the capacity must match the
quantile of the sum, not the sum of quantiles. Invariant: rates are finite and >= 0, also without any history.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotide_predictors.capacity.arrival_rates import ArrivalRates
from cotide_predictors.capacity.lag_regression import LagRegression

Floats = NDArray[np.float64]

LEADS: Final = 8
"""Steps ahead with learned errors of the demand (chosen: two hours of quarters; servers that idle for longer are
costly).
"""
REGRESSION_LEADS: Final = 24
"""Steps ahead with regression models (chosen: the usual horizon, six hours of quarters)."""
LEAST: Final = 1e-9
"""Fewer requests per second count as none."""
ROUNDING: Final = 1e-9
"""Tolerance of sums, relative."""
SCORED_STEPS: Final = 96
"""Last steps of a history with a scored forecast (chosen: a day of quarters)."""


class DemandScore(NamedTuple):
    """How good recent forecasts of the next step were, of all networks together.

    Attributes
    ----------
    steps : scored steps, >= 1.
    coverage : share of the steps with no more requests than planned.
    error, last_value_error : mean absolute error over the mean of the requests, of the mean forecast and of the last
        value.
    """

    steps: int
    coverage: float
    error: float
    last_value_error: float


class NetworkDemand:
    """Forecasts of the requests of a service, on line."""

    def __init__(self, *, networks: int, day_steps: int) -> None:
        """Take the number of networks V, >= 1, and the steps of a day."""
        self.networks = networks
        # Networks share the learned model; their sum, which has less noise, has a model of its own.
        regression = LagRegression((0,) * networks + (1,), day_steps=day_steps, leads=REGRESSION_LEADS)
        self._rates = ArrivalRates(classes=networks + 1, day_steps=day_steps, leads=LEADS, regression=regression)

    def update(self, rates: Floats) -> NetworkDemand:
        """Take the (V,) mean requests per second of the step that has ended."""
        self._rates.update(np.append(rates, rates.sum()))
        return self

    def predict(self, steps: int, quantile: float) -> Floats:
        """Return (steps, V) requests per second; their sum is the ``quantile`` of the sum, in (0, 1)."""
        mean = self._rates.predict(steps)[:, :-1]
        total = self._rates.quantiles(steps, (quantile,))[:, -1, 0]
        # Where the forecast of each network is 0 but that of their sum is not, recent rates divide the sum.
        lately = np.maximum(self._rates.level_[:-1], LEAST)
        silent = mean.sum(axis=1, keepdims=True) <= LEAST
        shares = np.where(silent, lately[None], mean)
        foreseen: Floats = shares * (total / shares.sum(axis=1))[:, None]
        return foreseen

    def total(self, steps: int) -> Floats:
        """Return (steps,) requests per second of all networks on average."""
        found: Floats = self._rates.predict(steps)[:, -1]
        return found


def forecast(history: Floats, *, day_steps: int, steps: int, quantile: float) -> tuple[Floats, DemandScore | None]:
    """Return (steps, V) requests per second to plan for, and the score of such forecasts at the end of the history.

    None where no request came in the steps to score, or there are no steps.

    Parameters
    ----------
    history : (H, V) requests per second, H >= 1, the latest last.
    day_steps : steps of a day.
    quantile : of the sum, in (0, 1).
    """
    demand = NetworkDemand(networks=history.shape[1], day_steps=day_steps)
    came, last = history.sum(axis=1), len(history) - 1
    first = max(1, len(history) - SCORED_STEPS)
    forecasts = np.empty((2, len(history) - first))
    for index, rates in enumerate(history):
        demand.update(rates)
        if first - 1 <= index < last:
            at = index + 1 - first
            forecasts[:, at] = demand.total(1)[0], demand.predict(1, quantile)[0].sum()
    return demand.predict(steps, quantile), _score(forecasts, came[first:], came[first - 1 : last])


def _score(forecasts: Floats, came: Floats, before: Floats) -> DemandScore | None:
    """Compare (2, n) means and planned rates with the (n,) sums that came, and with those of a step before."""
    mean = float(came.mean()) if len(came) else 0.0
    if mean <= LEAST:
        return None
    within = came <= forecasts[1] * (1.0 + ROUNDING)
    errors = (float(np.abs(guess - came).mean()) / mean for guess in (forecasts[0], before))
    return DemandScore(len(came), float(within.mean()), *errors)
