"""The forecasters that can follow a queue, by the names that `--runtime` takes.

Called by trace replay. Invariant: each has a test that fails when it sees the future, and one that compares it with its
function over a whole log.
"""

from __future__ import annotations

from typing import Final, Literal

from cotide_lab.predictors.run_time.mixture_density.density_network import DensityNetwork
from cotide_lab.predictors.run_time.sequential.density_forecasts import SequentialDensity
from cotide_lab.predictors.run_time.sequential.kalman_forecasts import SequentialKalman
from cotide_lab.predictors.run_time.sequential.point_forecasts import SequentialRegression, SequentialSmoothing
from cotide_predictors.run_time.jobs import JobTable
from cotide_predictors.run_time.sequential.forecaster import SequentialForecaster
from cotide_predictors.run_time.tree_features import DAY_SECONDS

Sequential = Literal["exponential-smoothing", "regression", "fmkf", "mlkf", "mdn"]
SEQUENTIAL: Final[tuple[Sequential, ...]] = ("exponential-smoothing", "regression", "fmkf", "mlkf", "mdn")


def sequential_forecaster(
    name: Sequential, jobs: JobTable, *, seed: int = 0, every_seconds: float = DAY_SECONDS
) -> SequentialForecaster:
    """Return a forecaster without any knowledge.

    Parameters
    ----------
    jobs : every job that may come, in submission order; a row is read at its submission.
    seed : of the network's weights and draws. every_seconds : between two refits of the network.
    """
    if name == "mdn":
        return SequentialDensity(jobs, DensityNetwork(random_state=seed), every_seconds)
    if name == "regression":
        return SequentialRegression(jobs)
    if name == "exponential-smoothing":
        return SequentialSmoothing(jobs)
    return SequentialKalman(jobs, name)
