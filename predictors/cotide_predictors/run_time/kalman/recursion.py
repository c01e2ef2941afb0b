"""One step of the two Kalman filters: a local level, and a regression with coefficients that walk at random.

Called by `fixed_multiple` and `multi_layer`. Naghshnejad 2019, eqs. 5.1-5.8. Eqs. 5.3 and 5.4 are garbled in print; the
code uses the standard recursion:

    v = y - Z a,  S = Z P Z' + H,  K = P Z' / S,  a += K v,  P += Q - K S K'

so that the state between steps directly predicts the next observation. Invariant: a covariance stays symmetric; a step
sees only its own observation.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.compiled import compiled

LOG_TWO_PI: Final = float(np.log(2.0 * np.pi))


@compiled
def level_step(level: Floats, value: float, observed: float, drift: float) -> float:
    """Learn one value and return its log density before.

    Parameters
    ----------
    level : (2,) mean and variance of the level; changed in place.
    observed, drift : variances H of the observation and Q of the level's step.
    """
    spread = level[1] + observed
    away = value - level[0]
    gain = level[1] / spread
    level[0] += gain * away
    level[1] += drift - gain * level[1]
    density: float = -0.5 * (LOG_TWO_PI + np.log(spread) + away * away / spread)
    return density


@compiled
def regression_forecast(mean: Floats, covariance: Floats, row: Floats) -> tuple[float, float]:
    """Return Z a and Z P Z' for a (k,) row of regressors."""
    centre = 0.0
    spread = 0.0
    for number in range(len(row)):
        centre += row[number] * mean[number]
        for other in range(len(row)):
            spread += row[number] * covariance[number, other] * row[other]
    return centre, spread


@compiled
def regression_step(
    mean: Floats, covariance: Floats, row: Floats, value: float, observed: float, drift: float
) -> float:
    """Learn one value and return its log density before.

    Parameters
    ----------
    mean, covariance : (k,) and (k, k) of the coefficients; changed in place.
    row : (k,) regressors. observed, drift : variances H, and Q of every coefficient's step.
    """
    size = len(row)
    gain = np.empty(size)
    away = value
    spread = observed
    for number in range(size):
        total = 0.0
        for other in range(size):
            total += covariance[number, other] * row[other]
        gain[number] = total
        spread += row[number] * total
        away -= row[number] * mean[number]
    for number in range(size):
        mean[number] += gain[number] * away / spread
        for other in range(size):
            covariance[number, other] -= gain[number] * gain[other] / spread
        covariance[number, number] += drift
    density: float = -0.5 * (LOG_TWO_PI + np.log(spread) + away * away / spread)
    return density
