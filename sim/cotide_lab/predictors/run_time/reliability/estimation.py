"""How accurate will a run-time forecast be? Boosted trees predict eq. 4.2 and are rebuilt every 24 simulated hours; or
one of their baselines (Naghshnejad 2019, Table 4.2) does, by the same rule.

Called by the hybrid platform (Naghshnejad 2019, section 4.4): jobs at `PREDICTABLE` or above go to the plan, the rest
to backfilling. The trees see the forecaster's inputs, the forecast itself, its distance from each anchor, and how sure
the distribution was where there is one. They learn from forecasts of completed jobs. Invariant: as in `rolling`, a job
that is not over moves no estimate; an estimate lies in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import xgboost

from cotide_core.kernels.array_types import Floats
from cotide_lab.predictors.run_time.rolling import Progress, rebuilds
from cotide_predictors.run_time.distributions import Distributions
from cotide_predictors.run_time.jobs import RunLog
from cotide_predictors.run_time.scores import accuracy
from cotide_predictors.run_time.tree_features import DAY_SECONDS, TreeFeatures

PREDICTABLE: Final = 0.6
"""Estimated accuracy above which a job counts as predictable (Naghshnejad 2019, section 4.4)."""
UNKNOWN_ACCURACY: Final = 0.0
"""Before the first model no forecast is trusted (chosen: such jobs are backfilled by the user's estimate)."""
TREES: Final = 60
"""Boosting rounds, with depth and rate below (chosen on KTH-SP2 and LLNL-Atlas)."""
PARAMETERS: Final[dict[str, Any]] = {
    "objective": "reg:squarederror",
    "eta": 0.1,
    "max_depth": 5,
    "subsample": 0.7,
    "min_child_weight": 5.0,
    "max_bin": 64,
    "tree_method": "hist",
    "nthread": 1,
}


def reliability_features(
    features: TreeFeatures, forecast_seconds: Floats, forecasts: Distributions | None = None
) -> Floats:
    """Return (n, R) features of n forecasts.

    Parameters
    ----------
    forecast_seconds : (n,) the point of the accuracy.
    forecasts : the distributions of the point, if any; they add their expected accuracy and their spread.
    """
    point = np.log(forecast_seconds)[:, None]
    parts = [point, point - features.anchors, features.context]
    if forecasts is not None:
        _, expected = forecasts.expected_accuracies()
        spread = np.log(forecasts.quantile(0.9)) - np.log(forecasts.quantile(0.1))
        parts += [expected.max(axis=1)[:, None], spread[:, None]]
    return np.concatenate(parts, axis=1)


def rolling_reliability(
    log: RunLog,
    columns: Floats,
    forecast_seconds: Floats,
    *,
    every_seconds: float = DAY_SECONDS,
    random_state: int = 0,
    progress: Progress | None = None,
    learn: Learn | None = None,
) -> Floats:
    """Return (n,) estimated accuracies of the forecasts, each as estimated at the job's submission.

    Parameters
    ----------
    columns : (n, R) of `reliability_features`.
    forecast_seconds : (n,) positive, each made at its job's submission.
    learn : fits the estimator; default: `boosted`.
    """
    found = np.full(len(log), UNKNOWN_ACCURACY)
    for rebuild in rebuilds(log, every_seconds=every_seconds, random_state=random_state):
        learned, answered = rebuild.learned, rebuild.answered
        done = Completed(columns[learned], forecast_seconds[learned], log.run_seconds[learned])
        estimate = (learn or boosted)(done, random_state)
        found[answered] = np.clip(estimate(columns[answered], forecast_seconds[answered]), 0.0, 1.0)
        if progress is not None:
            progress(answered.stop / len(log))
    return found


class Completed(NamedTuple):
    """The known data of k completed jobs.

    Attributes
    ----------
    columns : (k, R). forecast_seconds, run_seconds : (k,).
    """

    columns: Floats
    forecast_seconds: Floats
    run_seconds: Floats


Estimate = Callable[[Floats, Floats], Floats]
"""(n, R) columns and (n,) forecasts to (n,) estimated accuracies."""
Learn = Callable[[Completed, int], Estimate]
"""Fits an estimator to completed jobs, with a seed."""


def boosted(done: Completed, seed: int) -> Estimate:
    """Fit boosted trees to the accuracies of completed jobs."""
    booster = fitted_trees(done, seed)

    def estimate(columns: Floats, forecast_seconds: Floats) -> Floats:
        del forecast_seconds
        return np.asarray(booster.inplace_predict(columns, validate_features=False), dtype=np.float64)

    return estimate


def fitted_trees(done: Completed, seed: int) -> xgboost.Booster:
    """Return the boosted trees."""
    seen = accuracy(done.forecast_seconds, done.run_seconds)
    data = xgboost.QuantileDMatrix(done.columns, seen, max_bin=PARAMETERS["max_bin"], nthread=1)
    return xgboost.train({**PARAMETERS, "seed": seed}, data, TREES)
