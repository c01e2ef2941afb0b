"""A run time's distribution over bins of log seconds, and the points that its uses take.

Made by the laboratory's `hazard`; read by policies (order, reservations) and by experiments. Ordering takes the value
of highest expected accuracy, absolute error the median, sums the mean, a reservation an upper quantile. Inside a bin
run times are spread evenly over the log. Invariant: a distribution's masses are >= 0 and add up to 1; its quantiles
rise with their level.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats

PARTS: Final = 3
"""Points in a bin at which a best point is sought (chosen: steps of a tenth for bins a third wide)."""


@dataclass(frozen=True, slots=True)
class Distributions:
    """Distributions of n run times.

    Attributes
    ----------
    edges : (K + 1,) natural logs of seconds, rising evenly.
    masses : (n, K) probabilities of the bins.
    """

    edges: Floats
    masses: Floats

    def __len__(self) -> int:
        return len(self.masses)

    def mean(self) -> Floats:
        """Return (n,) expected seconds."""
        width = np.diff(self.edges)
        means = np.diff(np.exp(self.edges)) / width
        found: Floats = self.masses @ means
        return found

    def quantile(self, levels: Floats | float) -> Floats:
        """Return (n,) seconds that a run stays below with the given probability, one level for all or (n,) levels."""
        cumulative = np.cumsum(self.masses, axis=1)
        asked = np.broadcast_to(np.asarray(levels, dtype=np.float64), len(self))
        index = np.minimum((cumulative < asked[:, None]).sum(axis=1), self.masses.shape[1] - 1)
        rows = np.arange(len(self))
        mass = self.masses[rows, index]
        before = cumulative[rows, index] - mass
        share = np.clip((asked - before) / np.where(mass > 0, mass, 1.0), 0.0, 1.0)
        found: Floats = np.exp(self.edges[index] + share * (self.edges[index + 1] - self.edges[index]))
        return found

    def median(self) -> Floats:
        """Return (n,) medians in seconds: the points of least expected absolute error."""
        return self.quantile(0.5)

    def expected_accuracies(self) -> tuple[Floats, Floats]:
        """Return (P,) candidate seconds and (n, P) the expected accuracy (Naghshnejad 2019, eq. 4.2) of each."""
        step = (self.edges[1] - self.edges[0]) / PARTS
        seconds, likeness = _likeness(float(self.edges[0]), float(step), len(self.edges) - 1)
        expected: Floats = self.masses @ likeness
        return seconds, expected

    def most_accurate(self) -> Floats:
        """Return (n,) the seconds of highest expected accuracy."""
        points, expected = self.expected_accuracies()
        found: Floats = points[expected.argmax(axis=1)]
        return found


@lru_cache(maxsize=8)
def _likeness(first: float, step: float, bins: int) -> tuple[Floats, Floats]:
    """Return (P,) candidate seconds and (K, P) how accurate each is where the run ends in a bin; read only.

    Kept, as it takes a hundred times as long as a forecast of one job, and all of a log have the same bins.
    """
    points = first + step * (np.arange(PARTS * bins) + 0.5)
    gain = np.repeat(np.eye(bins), PARTS, axis=1) / PARTS
    likeness: Floats = gain @ np.exp(-np.abs(points[:, None] - points[None, :]))
    seconds: Floats = np.exp(points)
    for array in (likeness, seconds):
        array.flags.writeable = False
    return seconds, likeness
