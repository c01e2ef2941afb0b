"""The answers of a forecaster that follows a queue, and the one rule for trust in its answers.

Implemented in this folder, called by trace replay at its pauses. Invariant: an answer depends only on completions that
were learned before the question. In the order of `jobs.event_order` a forecaster gives the same numbers as its function
over a whole log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.gaussian_mixtures import GaussianMixtures
from cotide_predictors.run_time.heuristics import within_request
from cotide_predictors.run_time.jobs import Ints
from cotide_predictors.run_time.kernels.tree_forecasts import edges
from cotide_predictors.run_time.scores import accuracy

FORGOTTEN: Final = 0.2
"""Weight of the latest accuracy in a user's mean (chosen: about the last ten jobs)."""
UPPER: Final = 0.9
"""Share of the runs that shall not outlive the upper forecast."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Forecasts of k jobs.

    Attributes
    ----------
    point : (k,) seconds, >= 1, within the request. upper : (k,) seconds that nine in ten runs do not outlive; nan
        without such a forecast.
    """

    point: Floats
    upper: Floats


class SequentialForecaster(Protocol):
    """Answers at submissions, learns at completions; rows are those of its job table."""

    def finished(self, jobs: Ints, run_seconds: Floats, finish_seconds: Floats) -> None:
        """Learn that jobs (k,) ended, in order of their ends."""
        ...

    def submitted(self, rows: slice) -> Answers:
        """Forecast jobs that are submitted now; rows come in order, each once."""
        ...


def answers_of(found: GaussianMixtures, requested_seconds: Floats) -> Answers:
    """Return the points that queues take of mixtures: of highest expected accuracy, and the upper quantile."""
    binned = found.binned(edges(), requested_seconds)
    return Answers(
        within_request(binned.most_accurate(), requested_seconds),
        within_request(binned.quantile(UPPER), requested_seconds),
    )


def points_only(point: Floats) -> Answers:
    """Return answers without an upper forecast."""
    return Answers(point, np.full(len(point), np.nan))


class UserTrust:
    """The running mean accuracy (Naghshnejad 2019, eq. 4.2) of the forecasts that were made for each user.

    Parameters
    ----------
    users : numbered below it.
    """

    def __init__(self, users: int) -> None:
        self._means = np.full(users, np.nan)

    def of(self, users: Ints) -> Floats:
        """Return (k,) present means; 0 for a user without a finished job."""
        found: Floats = np.nan_to_num(self._means[users], nan=0.0)
        return found

    def learn(self, users: Ints, point: Floats, run_seconds: Floats) -> None:
        """Learn the outcomes of (k,) forecasts, in order."""
        for user, new in zip(users.tolist(), accuracy(point, run_seconds).tolist(), strict=True):
            mean = self._means[user]
            self._means[user] = new if np.isnan(mean) else mean + FORGOTTEN * (new - mean)
