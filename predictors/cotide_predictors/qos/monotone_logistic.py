"""Logistic regression with coefficients >= 0: the smooth base under the trees of the QoS model.

Called by `qos.QosModel`. Trees stop at the edge of their training data. This base continues the trend to unmeasured
limits, rates and numbers of jobs. Invariant: the score never falls when a column grows.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.estimator import Estimator


class MonotoneLogistic(Estimator):
    """Ridge logistic regression on standardised columns, coefficients bounded to >= 0.

    Parameters
    ----------
    inverse_ridge : float As scikit-learn's ``C``: smaller is flatter. 0.1 (chosen: with 1.0 the base kept rising where
        the measured latency does not; scores over held-out cells changed by less than a point between 0.02 and 1).

    Attributes
    ----------
    coefficients_ : (k,) >= 0, in units of the column.
    intercept_ : float
    """

    def __init__(self, *, inverse_ridge: float = 0.1) -> None:
        self.inverse_ridge = inverse_ridge

    def fit(self, columns: Floats, violated: Floats, weights: Floats) -> Self:
        """Fit on (n, k) columns, (n,) labels 0 or 1 and (n,) weights."""
        from scipy.optimize import minimize  # heavy, and only training needs it

        mean, deviation = columns.mean(axis=0), columns.std(axis=0)
        scale = np.where(deviation > 1e-9 * (1.0 + np.abs(mean)), deviation, np.inf)
        standard = (columns - mean) / scale
        width = columns.shape[1]
        # A light pull on the intercept too, so that labels of one kind only give a finite answer.
        ridge = np.append(np.full(width, 1.0 / self.inverse_ridge), 0.01)

        def loss(unknowns: Floats) -> tuple[float, Floats]:
            score = standard @ unknowns[:width] + unknowns[width]
            error = weights * (1.0 / (1.0 + np.exp(-score)) - violated)
            value = float((weights * (np.logaddexp(0.0, score) - violated * score)).sum())
            gradient = np.append(standard.T @ error, error.sum())
            return value + 0.5 * float((ridge * unknowns**2).sum()), gradient + ridge * unknowns

        bounds: list[tuple[float | None, float | None]] = [(0.0, None)] * width
        found = minimize(loss, np.zeros(width + 1), jac=True, method="L-BFGS-B", bounds=[*bounds, (None, None)]).x
        self.coefficients_: Floats = found[:width] / scale
        self.intercept_ = float(found[width] - self.coefficients_ @ mean)
        return self

    def decision_function(self, columns: Floats) -> Floats:
        """Return the (n,) log odds."""
        # Without BLAS: its last bit depends on the number of rows, and the same row must always get the same score.
        score: Floats = (columns * self.coefficients_).sum(axis=1) + self.intercept_
        return score
