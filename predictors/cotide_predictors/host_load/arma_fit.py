"""Fits ARMA(p, q) to load histories with statsmodels: per host, or one set of parameters for a group of hosts.

Called by `refit` (in worker processes) and the experiments, never on the hot path. A fit of 2,016 slots takes tens of
milliseconds; a forecast of ten thousand hosts takes a few. The order is given; (1, 1) is the paper's (Jiang et al.,
section V).

Invariant: a returned fit is stationary and finite. A history that is too short, constant, or makes the optimiser fail
gives None, and its host keeps its parameters.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load.arma import ArmaParameters
from cotide_predictors.one_thread import on_one_thread

SLOTS_MIN: Final = 48
"""Fewest records for a fit of three parameters (chosen: four hours of slots)."""
GROUP_GAP_SLOTS: Final = 36
"""Missing slots between the hosts of a group, so that no host affects the next (chosen)."""
_SPREAD_MIN: Final = 1e-9


@dataclass(frozen=True, slots=True)
class ArmaFit:
    """One fitted model: coefficients and process mean."""

    ar: tuple[float, ...]
    ma: tuple[float, ...]
    mean: float


@on_one_thread
def fit_arma(history: Floats, *, order: tuple[int, int] = (1, 1)) -> ArmaFit | None:
    """Fit one history (m,) in slots, nan where a slot is missing.

    Parameters
    ----------
    order : (p, q).
    """
    present = np.isfinite(history)
    if present.sum() < SLOTS_MIN or float(np.std(history[present])) < _SPREAD_MIN:
        return None
    return _fit(history, order)


def fit_group(histories: Floats, *, order: tuple[int, int] = (1, 1)) -> ArmaFit | None:
    """Fit one set of parameters to the standardised histories (n, m) of a group; the mean returned is nan.

    The histories are laid end to end with missing slots between, which the Kalman filter of statsmodels steps over.
    """
    pieces = []
    for history in histories:
        present = history[np.isfinite(history)]
        if len(present) < SLOTS_MIN or float(present.std()) < _SPREAD_MIN:
            continue
        pieces += [(history - present.mean()) / present.std(), np.full(GROUP_GAP_SLOTS, np.nan)]
    if not pieces:
        return None
    fit = fit_arma(np.concatenate(pieces[:-1]), order=order)
    return None if fit is None else ArmaFit(fit.ar, fit.ma, np.nan)


def stacked(fits: list[ArmaFit | None], fallback: ArmaParameters) -> ArmaParameters:
    """Return the parameters of n hosts as arrays; where a fit is None, the fallback's row."""
    p = max([fallback.ar.shape[1], *(len(fit.ar) for fit in fits if fit)])
    q = max([fallback.ma.shape[1], *(len(fit.ma) for fit in fits if fit)])
    ar, ma = np.zeros((len(fits), p)), np.zeros((len(fits), q))
    mean = fallback.mean.copy()
    ar[:, : fallback.ar.shape[1]] = fallback.ar
    ma[:, : fallback.ma.shape[1]] = fallback.ma
    for row, fit in enumerate(fits):
        if fit is not None:
            ar[row], ma[row], mean[row] = 0.0, 0.0, fit.mean
            ar[row, : len(fit.ar)] = fit.ar
            ma[row, : len(fit.ma)] = fit.ma
    return ArmaParameters(ar, ma, mean)


def _fit(history: Floats, order: tuple[int, int]) -> ArmaFit | None:
    from statsmodels.tsa.arima.model import ARIMA

    p, q = order
    with warnings.catch_warnings():
        # Starting values outside the stationary region and slow convergence are checked by the result below.
        warnings.simplefilter("ignore")
        try:
            # The variance has a closed form and standard errors are unused: leaving both out halves the time.
            model = ARIMA(history, order=(p, 0, q), trend="c", concentrate_scale=True)
            found = model.fit(cov_type="none", low_memory=True)
        except (np.linalg.LinAlgError, ValueError):
            return None
    names, values = list(found.param_names), np.asarray(found.params, dtype=np.float64)
    ar = tuple(float(values[names.index(f"ar.L{lag}")]) for lag in range(1, p + 1))
    ma = tuple(float(values[names.index(f"ma.L{lag}")]) for lag in range(1, q + 1))
    mean = float(values[names.index("const")])
    if not np.all(np.isfinite([*ar, *ma, mean])) or not _stationary(ar):
        return None
    return ArmaFit(ar, ma, mean)


def _stationary(ar: tuple[float, ...]) -> bool:
    """Whether all roots of z^p - phi_1 z^(p-1) - ... lie inside the unit circle."""
    return not ar or bool(np.all(np.abs(np.roots([1.0, *(-value for value in ar)])) < 1.0))
