"""Scores of forecasts against outcomes, over a recent window; and when to stop trusting them.

Called by the operator after each slot, for metrics, the node's annotation and the ledger, and by the experiments. Pure:
no clock, no I/O. A host is trusted, or falls back to requests, by this machine (hysteresis on both sides):

::

              coverage or floor broken, with >= records_min records
    TRUSTED ---------------------------------------------------------> FALLEN_BACK
       ^                                                                  |
       +------------------------------------------------------------------+
              coverage inside the narrower return band for `return_slots` slots in a row

The band is stated for p99 coverage. A window of 288 slots holds about three misses in the normal case, so the band is
as wide as chance requires. At p99 five misses or fewer come in 93 % of windows and nine or fewer in 99.9 % (Poisson).
Too high a coverage is waste, not danger: it is measured, but never causes a fallback.

Invariant: a slot without a record or without a forecast (nan) is not scored and does not age the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import HostLoadForecast
from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load.growth import overlay

WINDOW_SLOTS: Final = 288
QUANTILES: Final = (0.5, 0.9, 0.99)
_BITS: Final = (1 << np.arange(len(QUANTILES))).astype(np.uint8)


class Trust(IntEnum):
    """Whether a host's forecasts are used."""

    TRUSTED = 0
    FALLEN_BACK = 1


@dataclass(frozen=True, slots=True)
class TrustBand:
    """When a host falls back and when it comes back (all chosen, see the module's docstring).

    Attributes
    ----------
    coverage_min : p99 coverage below which a host falls back: more than nine misses of 288.
    return_coverage : p99 coverage for its return: at most five misses of 288.
    return_slots : slots in a row at or above it.
    records_min : records before any judgement.
    misses_min : with fewer misses a host never falls back, however short its window: two of 48 are chance.
    """

    coverage_min: float = 0.9675
    return_coverage: float = 0.982
    return_slots: int = 12
    records_min: int = 48
    misses_min: int = 5

    def __post_init__(self) -> None:
        if not 0 < self.coverage_min <= self.return_coverage < 1 or self.return_slots < 1 or self.records_min < 1:
            raise ValueError("0 < coverage_min <= return_coverage < 1, and return_slots and records_min are >= 1")


@dataclass(frozen=True, slots=True)
class LoadScores:
    """Scores of n hosts over the window; nan before the first score.

    Attributes
    ----------
    records : (n,) scored slots in the window.
    absolute_error : (n,) mean absolute error of the point, shares of capacity.
    bias : (n,) mean of point minus load: positive means too high.
    underestimates : (n,) share of slots with a load above the point.
    underestimate_size : (n,) mean of load minus point over those; 0 without any.
    coverage : (n, 3) share of slots at or below p50, p90, p99.
    """

    records: Floats
    absolute_error: Floats
    bias: Floats
    underestimates: Floats
    underestimate_size: Floats
    coverage: Floats


class LoadScorer:
    """The recent window of n hosts, and each one's trust.

    Parameters
    ----------
    hosts : number of rows. window_slots : scored slots kept. band : when to fall back.
    """

    def __init__(self, hosts: int, *, window_slots: int = WINDOW_SLOTS, band: TrustBand | None = None) -> None:
        self.band = band or TrustBand()
        self.trust: NDArray[np.int8] = np.zeros(hosts, dtype=np.int8)
        self._window_slots = window_slots
        # As wide as the longest window so far: that of a peak over three hours takes a month to fill.
        self._errors = np.zeros((hosts, 0), dtype=np.float32)
        self._covered = np.zeros((hosts, 0), dtype=np.uint8)
        """Of each slot one bit a quantile: whether the load was at or below it."""
        self._scored = np.zeros(hosts, dtype=np.intp)
        self._calm = np.zeros(hosts, dtype=np.intp)
        # Sums over the window, updated as slots come and go: a pass over the windows of ten thousand hosts takes most
        # of a second. Errors are kept in single precision and summed in double, so that removed errors leave no rest.
        self._error_sums = np.zeros((hosts, 3))
        self._unders = np.zeros(hosts, dtype=np.intp)
        self._hits = np.zeros((hosts, len(QUANTILES)), dtype=np.intp)

    def score(self, forecast: HostLoadForecast, values: Floats) -> NDArray[np.intp]:
        """Compare a slot's loads (n,) with their forecast; return the rows with changed trust."""
        quantiles = np.column_stack([forecast.p50, forecast.p90, forecast.p99])
        known = np.isfinite(values) & np.isfinite(forecast.point) & np.isfinite(quantiles).all(axis=1)
        rows = np.flatnonzero(known)
        indices = self._scored[rows] % self._window_slots
        self._widen(int(indices.max(initial=-1)) + 1)
        self._count(rows, indices, np.where(self._scored[rows] >= self._window_slots, -1, 0))
        self._errors[rows, indices] = forecast.point[rows] - values[rows]
        self._covered[rows, indices] = (values[rows, None] <= quantiles[rows]) @ _BITS
        self._count(rows, indices, np.ones(len(rows), dtype=np.intp))
        self._scored[rows] += 1
        return self._judge(rows)

    def scores(self) -> LoadScores:
        """Return the scores over the window."""
        kept = self._kept()
        count = np.where(kept > 0, kept, np.nan).astype(np.float64)
        size = self._error_sums[:, 2] / np.maximum(self._unders, 1)
        return LoadScores(
            records=kept.astype(np.float64),
            absolute_error=self._error_sums[:, 0] / count,
            bias=self._error_sums[:, 1] / count,
            underestimates=self._unders / count,
            underestimate_size=np.where(kept > 0, size, np.nan),
            coverage=self._hits / count[:, None],
        )

    def grown(self, hosts: int) -> LoadScorer:
        """Return a scorer of more hosts that keeps the scores of this one."""
        larger = LoadScorer(hosts, window_slots=self._window_slots, band=self.band)
        larger._widen(self._errors.shape[1])
        overlay(larger, self)
        return larger

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Forget these hosts; they are trusted until their next judgement."""
        for state in (self.trust, self._scored, self._calm, self._error_sums, self._unders, self._hits):
            state[rows] = 0

    def _judge(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        kept = self._kept()
        misses = kept - self._hits[:, -1]
        coverage = 1 - misses / np.maximum(kept, 1)
        judged = np.zeros(len(self.trust), dtype=np.bool_)
        judged[rows] = kept[rows] >= self.band.records_min
        calm = coverage >= self.band.return_coverage
        self._calm = np.where(judged, np.where(calm, self._calm + 1, 0), self._calm)
        fallen = self.trust == Trust.FALLEN_BACK
        falls = judged & ~fallen & (coverage < self.band.coverage_min) & (misses >= self.band.misses_min)
        returns = judged & fallen & (self._calm >= self.band.return_slots)
        self.trust[falls] = Trust.FALLEN_BACK
        self.trust[returns] = Trust.TRUSTED
        return np.flatnonzero(falls | returns)

    def _count(self, rows: NDArray[np.intp], indices: NDArray[np.intp], times: NDArray[np.intp]) -> None:
        """Add the slots at these indices to the sums the given number of times: once, never, or -1 to take them out."""
        errors = self._errors[rows, indices].astype(np.float64)
        under = errors < 0
        parts = np.column_stack([np.abs(errors), errors, np.where(under, -errors, 0.0)])
        self._error_sums[rows] += times[:, None] * parts
        self._unders[rows] += times * under
        self._hits[rows] += times[:, None] * (self._covered[rows, indices, None] & _BITS != 0)

    def _widen(self, slots: int) -> None:
        """Make room for so many slots, and more when more come."""
        before = self._errors.shape[1]
        if slots <= before:
            return
        more = ((0, 0), (0, min(self._window_slots, max(slots, 2 * before)) - before))
        self._errors, self._covered = np.pad(self._errors, more), np.pad(self._covered, more)

    def _kept(self) -> NDArray[np.intp]:
        return np.minimum(self._scored, self._window_slots)
