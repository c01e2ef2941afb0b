"""FMKF: a local level and a regression by user, mixed by how probable each has been (Naghshnejad 2019, section 5.3.3).

Called by `forecasts` and by drivers of single events. Observations are logs of seconds: the measure is a ratio (eq.
5.13), and run times spread over six decades, where a Gaussian of seconds would not fit most. The posterior
probabilities follow eqs. 5.9 and 5.10 and are held above `FLOOR`, so that a model can return when a user's habits
change. As printed, one of them would soon be 0 for ever. Hierarchical: a user without a past starts from the filters of
all users together, and departs from them job by job.

Invariant: forecasts are read at submissions and states change at completions only; one event at a time or all at once
give the same bits.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.compiled import compiled
from cotide_predictors.estimator import Estimator
from cotide_predictors.run_time.gaussian_mixtures import GaussianMixtures
from cotide_predictors.run_time.jobs import Ints
from cotide_predictors.run_time.kalman.recursion import level_step, regression_forecast, regression_step

FLOOR: Final = 0.01
"""Least probability of either model (chosen)."""
FIRST_CHANCES: Final = (0.3, 0.7)
"""Of the level and of the regression; the thesis favours the latter, without a number (chosen)."""
LEVEL_PRIOR: Final = 2.0
"""Variance of a user's level around that of all users, log seconds squared (chosen)."""
COEFFICIENT_PRIOR: Final = 0.5
"""Variance of a user's coefficients around those of all users (chosen)."""
FIRST_LEVEL: Final = 6.0
"""Log seconds assumed before the first completion of any user: seven minutes (chosen)."""
DEFAULT_NOISE: Final = (0.1, 1.0, 0.3, 0.003)
"""Variances before the first choice: of the observation and the step, of the level and of the regression. Chosen: the
most accurate of `SETTINGS` on the first 12,000 jobs of HPC2N, the thesis's tuning log.
"""
Noise = tuple[float, float, float, float]
"""Variances of two models, of the observation and of the step."""
_LEVELS: Final = ((0.1, 1.0), (0.3, 0.3), (1.0, 0.5), (1.5, 0.3))
_REGRESSIONS: Final = ((0.3, 0.003), (1.0, 0.003), (1.0, 0.03), (0.3, 0.05), (1.5, 0.003), (0.1, 0.1))
SETTINGS: Final[tuple[Noise, ...]] = tuple((*level, *regression) for level in _LEVELS for regression in _REGRESSIONS)
"""The candidates of the choice on completed jobs (chosen: steps from a tenth of the observation to ten times it)."""


class FmkfState(NamedTuple):
    """Filters of u users and, in the last row, of all users together; changed in place.

    Attributes
    ----------
    level : (u + 1, 2) mean and variance. mean, covariance : (u + 1, k) and (u + 1, k, k) of the coefficients.
    chances : (u + 1, 2) posterior probabilities of level and regression.
    known : (u + 1,) 1 where the user has completed a job.
    """

    level: Floats
    mean: Floats
    covariance: Floats
    chances: Floats
    known: Ints


class FixedMultipleKalman(Estimator):
    """The filters of all users.

    Parameters
    ----------
    noise : (4,) variances: observation and step of the level, observation and step of the regression; all > 0.

    Attributes
    ----------
    state_ : after `begin`.
    """

    def __init__(self, *, noise: Noise = DEFAULT_NOISE) -> None:
        self.noise = noise

    def begin(self, users: int, regressors: int) -> Self:
        """Forget everything; users are numbered below ``users``."""
        self.state_ = state_of(users, regressors)
        return self

    def walk(self, events: Ints, keys: Ints, regressors: Floats, log_seconds: Floats, out: Floats) -> None:
        """Take events in order: write a submission's mixture to its row of ``out``, learn from a completion.

        Parameters
        ----------
        events : as in `jobs.event_order`, or any piece of it.
        keys : (n,) users. regressors : (n, k). log_seconds : (n,) read for completions only.
        out : (n, 6) weight, mean and variance of both components.
        """
        walk_fixed_multiple(events, keys, regressors, log_seconds, np.array(self.noise), self.state_, out)


def state_of(users: int, regressors: int) -> FmkfState:
    """Return the state before the first completion."""
    level = np.tile([FIRST_LEVEL, 2 * LEVEL_PRIOR], (users + 1, 1))
    mean = np.zeros((users + 1, regressors))
    mean[:, 0] = FIRST_LEVEL
    covariance = np.tile(COEFFICIENT_PRIOR * np.eye(regressors), (users + 1, 1, 1))
    covariance[:, 0, 0] = 2 * LEVEL_PRIOR
    chances = np.tile(FIRST_CHANCES, (users + 1, 1))
    return FmkfState(level, mean, covariance, chances, np.zeros(users + 1, np.int64))


def mixtures_of(rows: Floats) -> GaussianMixtures:
    """Return (n, 6) rows of weight, mean and variance of two components as mixtures."""
    return GaussianMixtures(rows[:, 0::3], rows[:, 1::3], np.sqrt(rows[:, 2::3]))


@compiled
def walk_fixed_multiple(
    events: Ints, keys: Ints, regressors: Floats, log_seconds: Floats, noise: Floats, state: FmkfState, out: Floats
) -> None:
    """Take events in order, as in `FixedMultipleKalman.walk`."""
    everybody = len(state.known) - 1
    for event in events:
        if event >= 0:
            user = keys[event]
            source = user if state.known[user] else everybody
            centre, spread = regression_forecast(state.mean[source], state.covariance[source], regressors[event])
            level_spread = state.level[source, 1]
            if not state.known[user]:
                level_spread += LEVEL_PRIOR
                for number in range(regressors.shape[1]):
                    spread += COEFFICIENT_PRIOR * regressors[event, number] ** 2
            out[event, 0] = state.chances[source, 0]
            out[event, 1] = state.level[source, 0]
            out[event, 2] = level_spread + noise[0]
            out[event, 3] = state.chances[source, 1]
            out[event, 4] = centre
            out[event, 5] = spread + noise[2]
        else:
            job = ~event
            _learn(keys[job], regressors[job], log_seconds[job], noise, state)
            _learn_one(everybody, regressors[job], log_seconds[job], noise, state)


@compiled
def _learn(user: int, row: Floats, value: float, noise: Floats, state: FmkfState) -> None:
    """Learn a user's completion; the first one's filters start from those of all users."""
    everybody = len(state.known) - 1
    if not state.known[user]:
        state.known[user] = 1
        state.level[user, 0] = state.level[everybody, 0]
        state.level[user, 1] = state.level[everybody, 1] + LEVEL_PRIOR
        state.chances[user] = state.chances[everybody]
        state.mean[user] = state.mean[everybody]
        state.covariance[user] = state.covariance[everybody]
        for number in range(len(row)):
            state.covariance[user, number, number] += COEFFICIENT_PRIOR
    _learn_one(user, row, value, noise, state)


@compiled
def _learn_one(user: int, row: Floats, value: float, noise: Floats, state: FmkfState) -> None:
    """Move one row of filters, and their probabilities (eq. 5.10)."""
    by_level = level_step(state.level[user], value, noise[0], noise[1])
    by_regression = regression_step(state.mean[user], state.covariance[user], row, value, noise[2], noise[3])
    # The larger density counts as 1, so that none of two tiny ones is lost.
    most = max(by_level, by_regression)
    level = state.chances[user, 0] * np.exp(by_level - most)
    regression = state.chances[user, 1] * np.exp(by_regression - most)
    share = min(max(level / (level + regression), FLOOR), 1.0 - FLOOR)
    state.chances[user, 0] = share
    state.chances[user, 1] = 1.0 - share
