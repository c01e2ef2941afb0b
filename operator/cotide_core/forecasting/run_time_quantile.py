"""The run time for plans: an upper quantile of a forecast with p50 and p90.

Owned by `planning`. Forecasters return two quantiles; others lie on the log-normal distribution through both, since run
times are spread by factors. Invariant: never below p50; p50 and p90 are used as they are.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Final

DIGITS: Final = 9
"""Number of digits of rounded factors (chosen). The last bits of a power differ between machines' libraries, and plans
must not.
"""


class PlanQuantile:
    """Maps forecasts to planned run times.

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
