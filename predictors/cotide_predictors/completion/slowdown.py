"""The factor of contention on the node in a job's run time: a rising curve of rate and pressure, scaled by type.

Called by `completion.CompletionModel`. The paper leaves the contention out (Ou 2024, 3.2). Measured next to memcached
the factor ran from 1 at 1,000 requests/s to 5 at 140,000, so it is learned here::

    log slowdown = sensitivity(type) x (curve(rate) + curve(pressure))

Invariant: the factor is >= 1 and never falls when rate or pressure grows; beyond the largest values seen it is
constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats, Indices

SENSITIVITY_RIDGE: Final = 20.0
"""Pull of a type's sensitivity to 1, in squared log units (chosen: a type needs some twenty runs at a slowdown
of e to move half way)."""
SENSITIVITY_MAX: Final = 4.0
"""Largest sensitivity of a type, as a multiple of the mean (chosen)."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A never-falling piecewise line through (k,) knots, flat outside them; heights start at 0."""

    at: Floats
    height: Floats

    def __call__(self, x: Floats) -> Floats:
        """Return (n,) heights."""
        heights: Floats = np.interp(x, self.at, self.height)
        return heights


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Curves of log slowdown over rate (requests/s) and pressure, and (T,) sensitivities by type."""

    rate: Curve
    pressure: Curve
    sensitivity: Floats

    def log_factor(self, kinds: Indices, requests_per_second: Floats, cpu_pressure: Floats) -> Floats:
        """Return (n,) natural logs >= 0; a kind of -1 is an unknown type, as sensitive as the worst known."""
        worst = float(self.sensitivity.max(initial=0.0)) if len(self.sensitivity) else 1.0
        scale = np.append(self.sensitivity, worst)[kinds]
        factor: Floats = scale * (self.rate(requests_per_second) + self.pressure(cpu_pressure))
        return factor


def flat_slowdown(types: int) -> Slowdown:
    """Return the slowdown of a node without contention: 1 everywhere."""
    level = Curve(np.zeros(1), np.zeros(1))
    return Slowdown(level, level, np.ones(types))


def refine_slowdown(
    before: Slowdown, kinds: Indices, requests_per_second: Floats, cpu_pressure: Floats, log_stretch: Floats
) -> Slowdown:
    """Return the slowdown after one round of turns: rate curve, pressure curve, sensitivities.

    Parameters
    ----------
    log_stretch : (n,) log of measured over isolated run time, by the present isolated model.
    """
    scale = before.sensitivity[kinds]
    rate = _learn_curve(requests_per_second, log_stretch / scale - before.pressure(cpu_pressure), scale**2)
    pressure = _learn_curve(cpu_pressure, log_stretch / scale - rate(requests_per_second), scale**2)
    trend = rate(requests_per_second) + pressure(cpu_pressure)
    seen = np.bincount(kinds, weights=trend**2, minlength=len(before.sensitivity))
    along = np.bincount(kinds, weights=trend * log_stretch, minlength=len(before.sensitivity))
    # A floor above zero: even a type that looks immune is slowed a little by the causes that slow the others.
    sensitivity = np.clip((along + SENSITIVITY_RIDGE) / (seen + SENSITIVITY_RIDGE), 0.1, SENSITIVITY_MAX)
    return Slowdown(rate, pressure, sensitivity)


def _learn_curve(x: Floats, y: Floats, weights: Floats) -> Curve:
    """Return the best never-falling curve, moved so that its least height is 0: contention never speeds up a job."""
    from sklearn.isotonic import IsotonicRegression

    fitted = IsotonicRegression(out_of_bounds="clip").fit(x, y, sample_weight=weights)
    at, height = np.atleast_1d(fitted.X_thresholds_), np.atleast_1d(fitted.y_thresholds_)
    return Curve(at.astype(np.float64), (height - height[0]).astype(np.float64))
