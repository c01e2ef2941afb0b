"""The larger of N-sigma and a decaying percentile, one slot at a time, as a live baseline. It is the best peak rule of
"Take It to the Limit" (EuroSys 2021).

Called by the operator's forecasters and the lab, in the place of `forecaster.HostLoadModel`. Its forecast is the larger
of `baselines.n_sigma` and `baselines.decayed_percentile` for the same records. It has no horizon: the forecast of the
peak over any of the next slots is the same. Invariant: a missing record (nan) changes nothing; quantiles rise with
their level and stay within [0, ceiling].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import HostLoadForecast
from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load.baselines import (
    N_SIGMA_SLOTS,
    NORMAL_QUANTILES,
    PERCENTILE_BINS,
    PERCENTILE_HALF_LIFE_SLOTS,
)
from cotide_predictors.host_load.growth import overlay

_RESCALE_ABOVE: Final = 1e30
"""Weight of a new record at which all weights are rescaled: single precision holds eight decimals more (chosen)."""


class PeakRule:
    """Forecaster of n hosts; fulfils `cotide_core.forecasts.HostLoadForecaster`.

    Parameters
    ----------
    hosts : number of rows. ceiling : highest load accepted and forecast, in shares of capacity.
    """

    def __init__(self, hosts: int, *, ceiling: float = 1.0) -> None:
        self.hosts = hosts
        self.ceiling = ceiling
        self._window = np.full((hosts, N_SIGMA_SLOTS), np.nan, dtype=np.float32)
        self._sums = np.zeros((hosts, 3))
        """Of the window's records: their number, sum and sum of squares."""
        self._bins = np.zeros((hosts, PERCENTILE_BINS), dtype=np.float32)
        self._weight = 1.0
        self._slots = 0

    def record(self, values: Floats) -> None:
        """Take in one slot's maxima (n,), shares of capacity; nan, infinite and negative ones count as missing."""
        if values.shape != (self.hosts,):
            raise ValueError(f"records of shape {values.shape} for {self.hosts} hosts")
        usable = np.isfinite(values) & (values >= 0)
        clean = np.where(usable, np.minimum(values, self.ceiling), np.nan).astype(np.float32)
        column = self._slots % N_SIGMA_SLOTS
        self._sums += _terms(clean) - _terms(self._window[:, column])
        self._window[:, column] = clean
        self._slots += 1
        self._weight *= 2 ** (1 / PERCENTILE_HALF_LIFE_SLOTS)
        if self._weight > _RESCALE_ABOVE:
            self._bins /= np.float32(self._weight)
            self._weight = 1.0
        rows = np.flatnonzero(usable)
        share = np.minimum(values[rows], self.ceiling) / self.ceiling
        bins = np.clip(share * PERCENTILE_BINS, 0, PERCENTILE_BINS - 1).astype(np.intp)
        self._bins[rows, bins] += np.float32(self._weight)

    def forecast(self, horizon_slots: int = 1) -> HostLoadForecast:
        """Return the forecast of the peak over the next slots; 0 for a host without a record."""
        del horizon_slots
        half, most, nearly_all = (self._quantile(level) for level in (0.5, 0.9, 0.99))
        return HostLoadForecast(point=half, p50=half, p90=most, p99=nearly_all)

    def reset(self, rows: Sequence[int]) -> None:
        """Forget hosts that vanished and free their rows."""
        chosen: NDArray[np.intp] = np.asarray(rows, dtype=np.intp)
        self._window[chosen] = np.nan
        self._sums[chosen] = 0.0
        self._bins[chosen] = 0.0

    def grown(self, hosts: int) -> PeakRule:
        """Return a rule of more hosts that keeps the knowledge of this one."""
        larger = PeakRule(hosts, ceiling=self.ceiling)
        overlay(larger, self)
        larger.hosts = hosts
        return larger

    def _quantile(self, level: float) -> Floats:
        count = np.maximum(self._sums[:, 0], 1.0)
        mean = self._sums[:, 1] / count
        spread = np.sqrt(np.maximum(self._sums[:, 2] / count - mean**2, 0.0))
        below = np.cumsum(self._bins, axis=1, dtype=np.float64)
        reached = np.argmax(below >= level * below[:, -1:], axis=1)
        percentile = np.where(below[:, -1] > 0, (reached + 1) / PERCENTILE_BINS * self.ceiling, 0.0)
        found: Floats = np.clip(np.maximum(mean + NORMAL_QUANTILES[level] * spread, percentile), 0.0, self.ceiling)
        return found


def _terms(records: NDArray[np.float32]) -> Floats:
    """Return (n, 3) the contributions of records to the sums."""
    known = np.isfinite(records)
    values = np.where(known, records, 0.0).astype(np.float64)
    return np.column_stack([known, values, values**2])
