"""Run times as mixtures of Gaussians over log seconds, and their conversion into `Distributions`.

Made by the Kalman filters and the mixture density network. Invariant: weights are >= 0 and add up to 1, and deviations
are above 0. Mass beyond a job's request counts at the request, where batch systems end a job.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.distributions import Distributions


@dataclass(frozen=True, slots=True)
class GaussianMixtures:
    """Mixtures of n run times.

    Attributes
    ----------
    weights : (n, K). means : (n, K) log seconds. deviations : (n, K) log seconds, > 0.
    """

    weights: Floats
    means: Floats
    deviations: Floats

    def __len__(self) -> int:
        return len(self.weights)

    def binned(self, edges: Floats, requested_seconds: Floats) -> Distributions:
        """Return the distributions over bins of log seconds.

        Parameters
        ----------
        edges : (B + 1,) log seconds, rising evenly; the first and last bin take what lies outside.
        requested_seconds : (n,) nan where there is none.
        """
        below = np.zeros((len(self), len(edges)))
        for component in range(self.weights.shape[1]):
            away = (edges[None, :] - self.means[:, component, None]) / self.deviations[:, component, None]
            below += self.weights[:, component, None] * ndtr(away)
        limit = np.log(np.where(requested_seconds > 1.0, requested_seconds, np.exp(edges[-1])))
        # All mass lies below the upper edge of the bin of the request.
        below = np.where(edges[None, :] > limit[:, None], 1.0, below)
        below[:, 0], below[:, -1] = 0.0, 1.0
        return Distributions(edges, np.diff(below, axis=1))

    def likelier_centre(self) -> Floats:
        """Return (n,) seconds at the centre of the component with the largest weight."""
        found: Floats = np.exp(self.means[np.arange(len(self)), np.argmax(self.weights, axis=1)])
        return found

    def highest_centre(self) -> Floats:
        """Return (n,) seconds at the centre of the component with the largest weight / deviation (Naghshnejad 2019,
        eq. 6.3)."""
        best = np.argmax(self.weights / self.deviations, axis=1)
        found: Floats = np.exp(self.means[np.arange(len(self)), best])
        return found

    def negative_log_likelihood(self, run_seconds: Floats) -> Floats:
        """Return (n,) minus the log density of the log run times."""
        away = (np.log(run_seconds)[:, None] - self.means) / self.deviations
        with np.errstate(divide="ignore"):
            parts = np.log(self.weights) - 0.5 * away**2 - np.log(self.deviations) - 0.5 * np.log(2 * np.pi)
        found: Floats = -np.logaddexp.reduce(parts, axis=1)
        return found
