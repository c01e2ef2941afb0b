"""MLKF: a first filter separates short jobs from long ones, and the class's own filter predicts (Naghshnejad 2019,
5.3.4).

Called by `forecasts`. The first layer is a regression filter on the class, 1 for long and 0 for short (eq. 5.12); the
second has a local level for each class. The thesis gives no threshold T: here it lies midway between the user's two
levels, so that both follow the user's own two modes. A forecast is the mixture of both levels, weighted by the first
layer's answer held within [`SURE`, 1 - `SURE`]. The printed rule, one class by threshold, is its likelier component.

Invariant: as in `fixed_multiple`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.compiled import compiled
from cotide_predictors.estimator import Estimator
from cotide_predictors.run_time.jobs import Ints
from cotide_predictors.run_time.kalman.fixed_multiple import FIRST_LEVEL, LEVEL_PRIOR, Noise
from cotide_predictors.run_time.kalman.recursion import level_step, regression_forecast, regression_step

SURE: Final = 0.02
"""Least weight of either class (chosen)."""
FIRST_APART: Final = 1.5
"""Log seconds from the first level to that of either class (chosen)."""
CLASS_PRIOR: Final = 0.1
"""Variance of a user's coefficients of the first layer around those of all users (chosen)."""
DEFAULT_NOISE: Final = (0.15, 0.001, 0.1, 0.3)
"""Variances before the first choice: of the observation and the step, of the first layer and of the levels (chosen: as
for `fixed_multiple`)."""
_CLASSES: Final = ((0.15, 0.001), (0.15, 0.01), (0.05, 0.01), (0.5, 0.001))
_LEVELS: Final = ((0.1, 0.3), (0.3, 0.3), (0.3, 0.1), (0.8, 0.1), (0.8, 0.3), (1.5, 0.05))
SETTINGS: Final[tuple[Noise, ...]] = tuple((*first, *levels) for first in _CLASSES for levels in _LEVELS)
"""The candidates of the choice on completed jobs (chosen, around the default)."""


class MlkfState(NamedTuple):
    """Filters of u users and, in the last row, of all users together; changed in place.

    Attributes
    ----------
    mean, covariance : (u + 1, k) and (u + 1, k, k) of the first layer.
    levels : (u + 1, 2, 2) mean and variance of short and long.
    known : (u + 1,) 1 where the user has completed a job.
    """

    mean: Floats
    covariance: Floats
    levels: Floats
    known: Ints


class MultiLayerKalman(Estimator):
    """The filters of all users; parameters, `begin` and `walk` as of `FixedMultipleKalman`."""

    def __init__(self, *, noise: Noise = DEFAULT_NOISE) -> None:
        self.noise = noise

    def begin(self, users: int, regressors: int) -> Self:
        """Forget everything; users are numbered below ``users``."""
        self.state_ = state_of(users, regressors)
        return self

    def walk(self, events: Ints, keys: Ints, regressors: Floats, log_seconds: Floats, out: Floats) -> None:
        """Take events in order: write a submission's mixture to its row of ``out``, learn from a completion."""
        walk_multi_layer(events, keys, regressors, log_seconds, np.array(self.noise), self.state_, out)


def state_of(users: int, regressors: int) -> MlkfState:
    """Return the state before the first completion."""
    mean = np.zeros((users + 1, regressors))
    mean[:, 0] = 0.5
    covariance = np.tile(CLASS_PRIOR * np.eye(regressors), (users + 1, 1, 1))
    levels = np.empty((users + 1, 2, 2))
    levels[:, 0, 0], levels[:, 1, 0] = FIRST_LEVEL - FIRST_APART, FIRST_LEVEL + FIRST_APART
    levels[:, :, 1] = 2 * LEVEL_PRIOR
    return MlkfState(mean, covariance, levels, np.zeros(users + 1, np.int64))


@compiled
def walk_multi_layer(
    events: Ints, keys: Ints, regressors: Floats, log_seconds: Floats, noise: Floats, state: MlkfState, out: Floats
) -> None:
    """Take events in order, as in `MultiLayerKalman.walk`."""
    everybody = len(state.known) - 1
    for event in events:
        if event >= 0:
            user = keys[event]
            source = user if state.known[user] else everybody
            centre, _ = regression_forecast(state.mean[source], state.covariance[source], regressors[event])
            long = min(max(centre, SURE), 1.0 - SURE)
            extra = noise[2] if state.known[user] else noise[2] + LEVEL_PRIOR
            out[event, 0] = 1.0 - long
            out[event, 1] = state.levels[source, 0, 0]
            out[event, 2] = state.levels[source, 0, 1] + extra
            out[event, 3] = long
            out[event, 4] = state.levels[source, 1, 0]
            out[event, 5] = state.levels[source, 1, 1] + extra
        else:
            job = ~event
            user = keys[job]
            if not state.known[user]:
                state.known[user] = 1
                state.mean[user] = state.mean[everybody]
                state.covariance[user] = state.covariance[everybody]
                state.levels[user] = state.levels[everybody]
                for number in range(regressors.shape[1]):
                    state.covariance[user, number, number] += CLASS_PRIOR
                state.levels[user, :, 1] += LEVEL_PRIOR
            _learn_one(user, regressors[job], log_seconds[job], noise, state)
            _learn_one(everybody, regressors[job], log_seconds[job], noise, state)


@compiled
def _learn_one(user: int, row: Floats, value: float, noise: Floats, state: MlkfState) -> None:
    """Move one row of filters: the first layer by the class, and the level of that class."""
    levels = state.levels[user]
    threshold = 0.5 * (levels[0, 0] + levels[1, 0])
    long = 1 if value >= threshold else 0
    regression_step(state.mean[user], state.covariance[user], row, float(long), noise[0], noise[1])
    level_step(levels[long], value, noise[2], noise[3])
