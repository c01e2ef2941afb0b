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
    events = event_order(log.jobs.submit_seconds, log.finish_seconds)
    regressors, logs = regressors_of(log.jobs), np.log(log.run_seconds)
    users, width = int(keys.max(initial=0)) + 1, regressors.shape[1]
    filters = _filters(kind).begin(users, width)
    out = np.empty((len(log), 6))
    begin, done, wanted = 0, np.cumsum(events < 0), FIRST_FIT_JOBS
    while begin < len(events):
        end = min(int(np.searchsorted(done, wanted)) + 1, len(events))
        filters.walk(events[begin:end], keys, regressors, logs, out)
        begin, wanted = end, 2 * wanted
        if begin < len(events):
            latest = completions_only(events[:begin])[-FITTED_JOBS:]
            trial = partial(_likelihoods, kind, latest, keys, regressors, logs)
            filters.noise = fitted_noise(trial, filters.noise)
    return mixtures_of(out)


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
