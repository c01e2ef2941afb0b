"""The Kalman filters' forecasts of a whole log, each made at its job's submission.

Called by the lab. Noise is fitted anew whenever the number of completed jobs has doubled, on the latest `FITTED_JOBS`
of them; until the first fit the default variances hold. Invariant: a forecast uses only completions that stand before
its submission in the event order, for the filters and for their noise.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.gaussian_mixtures import GaussianMixtures
from cotide_predictors.run_time.jobs import Ints, RunLog, codes, event_order
from cotide_predictors.run_time.kalman.fixed_multiple import FixedMultipleKalman, mixtures_of
from cotide_predictors.run_time.kalman.multi_layer import MultiLayerKalman
from cotide_predictors.run_time.kalman.noise import completions_only, fitted_noise
from cotide_predictors.run_time.kalman.regressors import regressors_of

FIRST_FIT_JOBS: Final = 200
"""Completions before the first fit (chosen)."""
FITTED_JOBS: Final = 5000
"""Latest completions that a fit is made on (chosen: half a second of likelihoods)."""

Kind = Literal["fmkf", "mlkf"]


def kalman_forecasts(log: RunLog, kind: Kind, *, keys: Ints | None = None) -> GaussianMixtures:
    """Return the mixtures of all jobs of a log.

    Parameters
    ----------
    kind : which filters.
    keys : (n,) whose jobs share a filter, from 0; default: the user's.
    """
    keys = codes(log.jobs.user) if keys is None else keys
    out = np.empty((len(log), 6))
    events = event_order(log.jobs.submit_seconds, log.finish_seconds)
    Filters(kind, keys, regressors_of(log.jobs)).walk(events, np.log(log.run_seconds), out)
    return mixtures_of(out)


class Filters:
    """The filters of a log's users, and the moments at which their noise is fitted.

    Parameters
    ----------
    keys : (n,) whose jobs share a filter, from 0. regressors : (n, k).
    """

    def __init__(self, kind: Kind, keys: Ints, regressors: Floats) -> None:
        self._kind: Kind = kind
        self._keys = keys
        self._regressors = regressors
        self._filters = _filters(kind).begin(int(keys.max(initial=0)) + 1, regressors.shape[1])
        self._completed: list[Ints] = []
        self._count = 0
        self._wanted = FIRST_FIT_JOBS

    def walk(self, events: Ints, logs: Floats, out: Floats) -> None:
        """Take events in order: write a submission's mixture to its row of ``out``, learn from a completion.

        Parameters
        ----------
        events : as in `event_order`, or any piece of it; pieces give what the whole gives.
        logs : (n,) log seconds, read for completions only. out : (n, 6), see `FixedMultipleKalman.walk`.
        """
        while len(events):
            if self._count == self._wanted:
                self._fit(logs)
            done = self._count + np.cumsum(events < 0)
            piece = events[: int(np.searchsorted(done, self._wanted)) + 1]
            self._filters.walk(piece, self._keys, self._regressors, logs, out)
            self._completed.append(completions_only(piece))
            self._count = int(done[len(piece) - 1])
            events = events[len(piece) :]

    def _fit(self, logs: Floats) -> None:
        """Fit the noise to what is completed; made before the next event, so that none is made for nothing."""
        latest = np.concatenate(self._completed)[-FITTED_JOBS:]
        trial = partial(_likelihoods, self._kind, latest, self._keys, self._regressors, logs)
        self._filters.noise = fitted_noise(trial, self._filters.noise)
        self._wanted *= 2


def _likelihoods(
    kind: Kind, events: Ints, keys: Ints, regressors: Floats, logs: Floats, noise: tuple[float, float, float, float]
) -> Floats:
    """Return the (2,) summed log densities of completions under these variances, from the first state on."""
    filters = _filters(kind)
    filters.noise = noise
    filters.begin(int(keys.max()) + 1, regressors.shape[1])
    filters.walk(events, keys, regressors, logs, np.empty((0, 6)))
    return filters.state_.likelihood


def _filters(kind: Kind) -> FixedMultipleKalman | MultiLayerKalman:
    return FixedMultipleKalman() if kind == "fmkf" else MultiLayerKalman()
