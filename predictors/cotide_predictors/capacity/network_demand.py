"""Requests per second of each access network in the next steps, at a level of safety of their sum.

Updated by `cotide place` and by the placement experiment. Networks have forecasts of their own; how unsure the forecast
is, is learned of their sum: what networks need beyond their means falls together in the data centres, so that the
quantile of the sum is what must be there, and not the sum of quantiles. Invariant: rates are finite and >= 0, also
without any history.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_predictors.capacity.arrival_rates import ArrivalRates
from cotide_predictors.capacity.lag_regression import LagRegression

Floats = NDArray[np.float64]

LEADS: Final = 8
"""Steps ahead for which errors of the demand are learned (chosen: two hours of quarters; what is kept idle for longer
is dear)."""
REGRESSION_LEADS: Final = 24
"""Steps ahead for which the regression has models (chosen: the usual horizon, six hours of quarters)."""
LEAST: Final = 1e-9
"""Requests per second that are none."""


class NetworkDemand:
    """Forecasts of the requests of a service, on line."""

    def __init__(self, *, networks: int, day_steps: int) -> None:
        """Take the number of networks V, >= 1, and the steps of a day."""
        self.networks = networks
        # Networks share what is learned; their sum, which has less noise, has a model of its own.
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
        # Where each network is foreseen to be silent and their sum is not, what each had lately says whose it is.
        lately = np.maximum(self._rates.level_[:-1], LEAST)
        silent = mean.sum(axis=1, keepdims=True) <= LEAST
        shares = np.where(silent, lately[None], mean)
        foreseen: Floats = shares * (total / shares.sum(axis=1))[:, None]
        return foreseen
