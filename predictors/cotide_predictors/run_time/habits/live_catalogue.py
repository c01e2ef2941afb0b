"""The forecasters of live pods' run times, by the names that the configuration takes.

Called by the operator and by the lab, which compares them on batch logs. The mixture density network is left out: it
learns one set of weights from all runs, and a network for each namespace would train on a handful of runs. Invariant:
each has a test that fails when the forecaster sees the future.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from cotide_predictors.run_time.habits.live_filters import LiveFilters
from cotide_predictors.run_time.habits.live_forecaster import LiveForecaster
from cotide_predictors.run_time.habits.live_mixture import RunTimeMixture
from cotide_predictors.run_time.habits.live_regression import LiveRegression
from cotide_predictors.run_time.habits.live_smoothing import LiveSmoothing

LivePredictor = Literal["habits", "exponential-smoothing", "regression", "fmkf", "mlkf"]
LIVE_PREDICTORS: Final[tuple[LivePredictor, ...]] = get_args(LivePredictor)
HABITS: Final[LivePredictor] = "habits"
"""The mixture of past runs; the default."""
_NOBODY: Final = (b"\0" * 16,) * 4


def live_forecaster(name: LivePredictor, *, most_keys: int | None = None) -> LiveForecaster:
    """Return a forecaster without any knowledge.

    Parameters
    ----------
    most_keys : that it remembers; None: its own number.
    """
    if name == "habits":
        return RunTimeMixture() if most_keys is None else RunTimeMixture(most_keys=most_keys)
    bounds = {} if most_keys is None else {"most_owners": most_keys, "most_namespaces": most_keys}
    if name == "exponential-smoothing":
        return LiveSmoothing(**bounds)
    if name == "regression":
        return LiveRegression(**bounds)
    return LiveFilters(name, **bounds)


def compile_kernels(names: tuple[LivePredictor, ...]) -> None:
    """Compile the kernels of these forecasters beforehand, since the first pod must not wait for seconds."""
    first, second, third, last = _NOBODY
    for name in names:
        forecaster = live_forecaster(name, most_keys=1)
        for _ in range(2):
            forecaster.learn(forecaster.forecast((first, second, third, last), 1.0), 1.0)
