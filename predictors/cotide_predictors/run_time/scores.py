"""How good run-time forecasts are: accuracy, absolute error, under-estimates, coverage.

Called by experiments, benchmarks and the reliability model. Invariant: accuracy lies in (0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_core.kernels.array_types import Floats


def accuracy(forecast_seconds: Floats, run_seconds: Floats) -> Floats:
    """Return (n,) the smaller over the larger of forecast and run (Naghshnejad 2019, eqs. 4.2 and 5.13); both
    positive."""
    return np.minimum(forecast_seconds, run_seconds) / np.maximum(forecast_seconds, run_seconds)


@dataclass(frozen=True, slots=True)
class Score:
    """Means over jobs.

    Attributes
    ----------
    jobs : their number.
    accuracy : mean of eq. 4.2.
    mae_seconds : mean absolute error.
    under_share : share of jobs that outlive their forecast.
    under_seconds : their mean under-estimate; 0 without any.
    """

    jobs: int
    accuracy: float
    mae_seconds: float
    under_share: float
    under_seconds: float


def score(forecast_seconds: Floats, run_seconds: Floats) -> Score:
    """Return the means for n >= 1 jobs."""
    under = run_seconds > forecast_seconds
    missing = (run_seconds - forecast_seconds)[under]
    return Score(
        jobs=len(run_seconds),
        accuracy=float(accuracy(forecast_seconds, run_seconds).mean()),
        mae_seconds=float(np.abs(forecast_seconds - run_seconds).mean()),
        under_share=float(under.mean()),
        under_seconds=float(missing.mean()) if len(missing) else 0.0,
    )
