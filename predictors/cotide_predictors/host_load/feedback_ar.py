"""Feedback AR(2) on the first differences of batch and gratis load, for every host at once.

Called by `forecaster` at every record and after every placement. The scheduler's own decisions change this load, so
fixed parameters do not fit, and Yule-Walker's are recomputed each time, from a sliding window (Jiang et al., section
IV-B):

    phi1 = (g0 g1 - g1 g2) / (g0^2 - g1^2)      phi2 = (g0 g2 - g1^2) / (g0^2 - g1^2)           (eq. 11)
    x[t+1] = (1 + phi1) x[t] + (phi2 - phi1) x[t-1] - phi2 x[t-2]                                (eq. 14)

Eq. 10 is misprinted: the autocovariance at lag 0 is E[X^2] - mu^2, not sigma^2 - mu^2. Autocovariances divide by the
full window length at every lag, which keeps the AR(2) stationary. A constant window has g0 = 0: the forecast is the
last value.

The allocation inside an open slot is a record of its own behind those of the closed slots (the paper: "each time the
workload is changed"). A later change replaces it, and the slot's maximum takes its place. `HeldLoad` is the baseline
without a time series. Invariant: a missing record repeats the last one, as an allocation stays until it is changed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.compiled import compiled

WINDOW_SLOTS: Final = 36
"""Records in the sliding window: three hours of five-minute slots (chosen; the paper gives none)."""
_VARIANCE_MIN: Final = 1e-14


class FeedbackAr:
    """Sliding windows of n hosts: a ring of slots, each a row of all hosts.

    Parameters
    ----------
    hosts : number of hosts. window_slots : records kept of each, >= 5.
    """

    def __init__(self, hosts: int, *, window_slots: int = WINDOW_SLOTS) -> None:
        if window_slots < 5:
            raise ValueError(f"a window of {window_slots} slots is too short for two lags; at least 5 are needed")
        self._window = np.full((window_slots, hosts), np.nan)
        self._newest = 0
        self._open = np.full(hosts, np.nan)
        """Allocation in the open slot; nan without a reported change."""
        self._records = np.zeros(hosts, dtype=np.intp)
        self._ar = np.zeros((hosts, 2))

    @property
    def last(self) -> Floats:
        """(n,) the newest record, nan before the first."""
        return np.where(np.isfinite(self._open), self._open, self._window[self._newest])

    @property
    def coefficients(self) -> Floats:
        """(n, 2) phi1 and phi2 in force."""
        return self._ar.copy()

    def record(self, values: Floats) -> None:
        """Close a slot with its records (n,) and compute the coefficients from closed slots."""
        filled = np.where(np.isfinite(values), values, self.last)
        self._open[:] = np.nan
        self._newest = (self._newest + 1) % len(self._window)
        self._window[self._newest] = filled
        self._records = np.minimum(self._records + ~np.isnan(filled), len(self._window))
        _yule_walker(self._window, self._newest, self._records, self._ar)

    def revise(self, rows: NDArray[np.intp], values: Floats) -> None:
        """Take in the new allocation of some hosts in the open slot, after a placement or an eviction."""
        self._open[rows] = values
        slots = len(self._window)
        newest = (self._newest + 1) % slots
        window = np.ascontiguousarray(self._window[:, rows])
        window[newest] = values
        part = self._ar[rows]
        _yule_walker(window, newest, np.minimum(self._records[rows] + 1, slots), part)
        self._ar[rows] = part

    def path(self, slots: int) -> Floats:
        """Return (n, slots) forecasts by eq. 14, fed back into itself; nan for hosts without a record."""
        closed = [self._window[(self._newest - lag) % len(self._window)] for lag in range(3)]
        is_open = np.isfinite(self._open)
        x0 = np.where(is_open, self._open, closed[0])
        x1 = np.where(is_open, closed[0], closed[1])
        x2 = np.where(is_open, closed[1], closed[2])
        first = np.where(np.isfinite(x1), x0 - x1, 0.0)
        second = np.where(np.isfinite(x2), x1 - x2, 0.0)
        found = np.empty((len(x0), slots))
        for slot in range(slots):
            first, second = self._ar[:, 0] * first + self._ar[:, 1] * second, first
            x0 = x0 + first
            found[:, slot] = x0
        return found

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Forget these hosts."""
        self._window[:, rows] = np.nan
        self._open[rows] = np.nan
        self._records[rows] = 0
        self._ar[rows] = 0.0


class HeldLoad:
    """The present allocation of n hosts, and by how much a slot usually rises above it; methods as of `FeedbackAr`.

    Parameters
    ----------
    hosts : number of hosts.
    rises : False: the present allocation stays, the forecast without a model.
    """

    def __init__(self, hosts: int, *, rises: bool = True) -> None:
        self._rises = rises
        self._held = np.full(hosts, np.nan)
        self._start = np.full(hosts, np.nan)
        """Allocation when the open slot began; nan without a reported change."""
        self._rise = np.zeros(hosts)
        self._slots = np.zeros(hosts)

    @property
    def last(self) -> Floats:
        """(n,) the newest record, nan before the first."""
        return self._held.copy()

    def record(self, values: Floats) -> None:
        """Close a slot with its maxima (n,) and learn how far they rose; a missing one repeats the present
        allocation.
        """
        start = np.where(np.isfinite(self._start), self._start, self._held)
        rise = values - start
        known = np.isfinite(rise)
        self._slots += known
        rate = 1.0 / np.clip(self._slots, 1.0, WINDOW_SLOTS)
        self._rise += np.where(known, rate * (rise - self._rise), 0.0)
        np.copyto(self._held, values, where=np.isfinite(values))
        self._start[:] = np.nan

    def revise(self, rows: NDArray[np.intp], values: Floats) -> None:
        """Take in the new allocation of some hosts in the open slot; the first of a slot is its start."""
        self._held[rows] = values
        self._start[rows] = np.where(np.isfinite(self._start[rows]), self._start[rows], values)

    def path(self, slots: int) -> Floats:
        """Return (n, slots) the present allocation plus the mean rise, at each slot; nan for hosts without a record."""
        peak = self._held + np.maximum(self._rise, 0.0) if self._rises else self._held
        return np.repeat(peak[:, None], slots, axis=1)

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Forget these hosts."""
        for state in (self._held, self._start):
            state[rows] = np.nan
        self._rise[rows] = self._slots[rows] = 0.0


@compiled
def _yule_walker(window: Floats, newest: int, records: NDArray[np.intp], ar: Floats) -> None:
    """Write each host's phi1 and phi2 (eq. 11) from the differences of its window; zeros without any variation.

    Parameters
    ----------
    window : (slots, n) a ring with its newest row at ``newest``; nan before a host's first record.
    records : (n,) number of known records. ar : (n, 2).
    """
    slots, hosts = window.shape
    mean = np.zeros(hosts)
    for host in range(hosts):
        oldest = (newest - records[host] + 1) % slots
        mean[host] = (window[newest, host] - window[oldest, host]) / max(1, records[host] - 1)
    g0, g1, g2, before, earlier = np.zeros(hosts), np.zeros(hosts), np.zeros(hosts), np.zeros(hosts), np.zeros(hosts)
    # Slots are the outer loop, hosts the inner: it works on neighbours in memory at once.
    for slot in range(newest - slots + 2, newest + 1):
        values, older = window[slot % slots], window[(slot - 1) % slots]
        for host in range(hosts):
            step = values[host] - older[host] - mean[host]
            now = 0.0 if np.isnan(step) else step
            g0[host] += now * now
            g1[host] += now * before[host]
            g2[host] += now * earlier[host]
            earlier[host] = before[host]
            before[host] = now
    for host in range(hosts):
        ar[host, 0] = ar[host, 1] = 0.0
        count = records[host] - 1
        if count < 4:
            continue
        c0, c1, c2 = g0[host] / count, g1[host] / count, g2[host] / count
        below = c0 * c0 - c1 * c1
        if c0 < _VARIANCE_MIN or below < _VARIANCE_MIN * c0:
            continue
        ar[host, 0] = (c0 * c1 - c1 * c2) / below
        ar[host, 1] = (c0 * c2 - c1 * c1) / below
