"""Requests per second of each access network in the next steps, at a level of safety of their sum.

Used by `cotide place` and by the placement experiment. Networks have forecasts of their own; how unsure the forecast
is, is learned of their sum: what networks need beyond their means falls together in the data centres, so that the
quantile of the sum is what must be there, and not the sum of quantiles. Invariant: rates are finite and >= 0, also
without any history.
"""

from __future__ import annotations

from typing import Final, NamedTuple

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
ROUNDING: Final = 1e-9
"""Of sums, relative."""
SCORED_STEPS: Final = 96
"""Last steps of a history whose forecasts are scored (chosen: a day of quarters)."""


class DemandScore(NamedTuple):
    """How good forecasts of the next step were lately, of all networks together.

    Attributes
    ----------
    steps : that were scored, >= 1.
    coverage : share of them that needed no more than what was planned for.
    error, last_value_error : mean absolute error over the mean of what came, of the forecast of the mean and of the
        step before taken for the next.
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

    def total(self, steps: int) -> Floats:
        """Return (steps,) requests per second of all networks on average."""
        found: Floats = self._rates.predict(steps)[:, -1]
        return found


def forecast(history: Floats, *, day_steps: int, steps: int, quantile: float) -> tuple[Floats, DemandScore | None]:
    """Return (steps, V) requests per second to plan for, and the score of such forecasts at the end of the history.

    None where nothing came in the steps that would be scored, or there are none.

    Parameters
    ----------
    history : (H, V) requests per second, H >= 1, the latest last.
    day_steps : steps of a day.
    quantile : of the sum, in (0, 1).
    """
    demand = NetworkDemand(networks=history.shape[1], day_steps=day_steps)
    came, last = history.sum(axis=1), len(history) - 1
    first = max(1, len(history) - SCORED_STEPS)
    said = np.empty((2, len(history) - first))
    for index, rates in enumerate(history):
        demand.update(rates)
        if first - 1 <= index < last:
            at = index + 1 - first
            said[:, at] = demand.total(1)[0], demand.predict(1, quantile)[0].sum()
    return demand.predict(steps, quantile), _score(said, came[first:], came[first - 1 : last])


def _score(said: Floats, came: Floats, before: Floats) -> DemandScore | None:
    """Compare (2, n) means and what was planned for with the (n,) sums that came, and with those of a step before."""
    mean = float(came.mean()) if len(came) else 0.0
    if mean <= LEAST:
        return None
    within = came <= said[1] * (1.0 + ROUNDING)
    errors = (float(np.abs(guess - came).mean()) / mean for guess in (said[0], before))
    return DemandScore(len(came), float(within.mean()), *errors)
