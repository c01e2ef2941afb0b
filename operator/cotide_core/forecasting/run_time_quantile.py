"""The run time that a plan counts on: an upper quantile of a forecast that says its p50 and p90.

Owned by `planning`. Forecasters say two quantiles; others lie on the log-normal distribution through both, since run
times are spread by factors. Invariant: never below p50; p50 and p90 are taken as they are.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Final

DIGITS: Final = 9
"""Factors are rounded to so many digits (chosen): the last bits of a power differ from one machine's library to
another's, and plans must not."""


class PlanQuantile:
    """Maps forecasts to the run time that is planned.

    Parameters
    ----------
    quantile : from 0.5 to below 1.
    """

    def __init__(self, quantile: float) -> None:
        normal = NormalDist()
        self._power = round(normal.inv_cdf(quantile) / normal.inv_cdf(0.9), DIGITS)
        self._is_upper = quantile == 0.9

    def seconds(self, p50: float, p90: float) -> float:
        """Return ``p50 (p90 / p50)^(z / z90)``, z being the quantile's point in the normal distribution."""
        if self._is_upper or p50 <= 0.0:
            return p90
        factor: float = round((p90 / p50) ** self._power, DIGITS)
        return p50 * factor
