"""The filters' variances by maximum likelihood, on completed jobs.

Called by `forecasts` at its refits. Each model's observation and step variance are sought by the simplex of Nelder and
Mead over their logs, on the summed log densities of all users' completions in order, each user's filter started as it
would be in use. Invariant: pure; the same completions give the same variances.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from scipy.optimize import minimize

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.jobs import Ints

EVALUATIONS: Final = 60
"""Of the likelihood, for each model (chosen: two parameters settle in about forty)."""
BOUNDS: Final = (1e-8, 1e2)
"""Within which a variance is believed (chosen)."""

Likelihoods = Callable[[tuple[float, float, float, float]], Floats]


def fitted_noise(
    likelihoods: Likelihoods, start: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    """Return the four variances under which the first and the second model's log density are highest.

    Parameters
    ----------
    likelihoods : variances to (2,) summed log densities; the first depends on the first two, the second on the others.
    start : variances to begin from.
    """
    found = list(start)
    for model in range(2):
        here = slice(2 * model, 2 * model + 2)

        def minus(logs: Floats, here: slice = here, model: int = model) -> float:
            tried = list(found)
            tried[here] = np.exp(np.clip(logs, *np.log(BOUNDS))).tolist()
            return -float(likelihoods((tried[0], tried[1], tried[2], tried[3]))[model])

        best = minimize(
            minus,
            np.log(found[here]),
            method="Nelder-Mead",
            options={"maxfev": EVALUATIONS, "xatol": 0.02, "fatol": 0.1},
        )
        found[here] = np.exp(np.clip(best.x, *np.log(BOUNDS))).tolist()
    return found[0], found[1], found[2], found[3]


def completions_only(events: Ints) -> Ints:
    """Return the completions among events, in order."""
    return events[events < 0]
