"""ARMA(p, q) forecasts of every host at once, by one recursion over arrays; and their last-state correction.

Called by `forecaster` and the experiments; parameters come from `arma_fit` (statsmodels) and stay fixed between fits.
With phi, theta and the mean mu known, the innovation of a new record is the record minus its one-step prediction, and

    prediction = mu + sum_i phi_i (x[t+1-i] - mu) + sum_j theta_j e[t+1-j]

(Jiang et al., eqs. 4-6). After the first slots, where statsmodels' Kalman filter still doubts the unknown past, both
agree to rounding. A forecast below the load of a slot ago is not used in production: the last-state correction takes
the higher of prediction and last record (Jiang et al., section III).

Invariant: a missing record (nan) is replaced by its own prediction, so its innovation is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats

DEFAULT_AR: Final = 0.9
DEFAULT_MA: Final = -0.35
"""Parameters before a fit (chosen): more forgetful than the median of fits on a day of Google 2011 series, 0.98 and
-0.29. To forget too slowly is the costlier error on the jumpy virtual machines.
"""


@dataclass(frozen=True, slots=True, eq=False)
class ArmaParameters:
    """Parameters of n hosts, of the same order; a lower order has zeros.

    Attributes
    ----------
    ar : (n, p). ma : (n, q). mean : (n,) the process mean; nan: follow the running mean of the records.
    """

    ar: Floats
    ma: Floats
    mean: Floats

    @classmethod
    def default(cls, hosts: int) -> ArmaParameters:
        """Return ARMA(1, 1) with the default parameters around the running mean."""
        return cls(np.full((hosts, 1), DEFAULT_AR), np.full((hosts, 1), DEFAULT_MA), np.full(hosts, np.nan))

    def extended(self, hosts: int) -> ArmaParameters:
        """Return the parameters of more hosts: the added ones have the defaults."""
        known = len(self.mean)
        ar = np.zeros((hosts, max(1, self.ar.shape[1])))
        ma = np.zeros((hosts, max(1, self.ma.shape[1])))
        mean = np.full(hosts, np.nan)
        ar[:known, : self.ar.shape[1]], ma[:known, : self.ma.shape[1]], mean[:known] = self.ar, self.ma, self.mean
        ar[known:, 0], ma[known:, 0] = DEFAULT_AR, DEFAULT_MA
        return ArmaParameters(ar, ma, mean)


class LastStateArma:
    """The recursion's state for n hosts.

    Parameters
    ----------
    parameters : of each host.
    mean_slots : slots of the running mean, for hosts without a fitted mean; > 0.
    """

    def __init__(self, parameters: ArmaParameters, *, mean_slots: float = 800.0) -> None:
        hosts = len(parameters.mean)
        self.parameters = parameters
        self.mean_slots = mean_slots
        self.last = np.full(hosts, np.nan)
        self._running = np.zeros(hosts)
        self._records = np.zeros(hosts)
        self._values = np.full((hosts, max(1, parameters.ar.shape[1])), np.nan)
        self._innovations = np.zeros((hosts, max(1, parameters.ma.shape[1])))
        self._next = np.full(hosts, np.nan)

    def record(self, values: Floats) -> None:
        """Take in one slot's records (n,), nan where there is none."""
        present = np.isfinite(values)
        self._records += present
        rate = np.maximum(1 / self.mean_slots, 1 / np.maximum(self._records, 1))
        self._running += np.where(present, rate * (values - self._running), 0.0)
        known = np.isfinite(self._next)
        innovation = np.where(present & known, values - self._next, 0.0)
        filled = np.where(present, values, self._next)
        self._values[:, 1:] = self._values[:, :-1]
        self._values[:, 0] = filled
        self._innovations[:, 1:] = self._innovations[:, :-1]
        self._innovations[:, 0] = innovation
        self.last = np.where(present, values, self.last)
        self._next = self.path(1)[:, 0]

    def path(self, slots: int) -> Floats:
        """Return (n, slots) predictions of the next slots; nan for hosts without any record."""
        ar, ma = self.parameters.ar, self.parameters.ma
        mean = self.mean()
        deviations = np.where(np.isfinite(self._values), self._values - mean[:, None], 0.0)
        innovations = self._innovations
        found = np.empty((len(mean), slots))
        for slot in range(slots):
            step = np.einsum("np,np->n", ar, deviations[:, : ar.shape[1]])
            step += np.einsum("nq,nq->n", ma, innovations[:, : ma.shape[1]])
            found[:, slot] = mean + step
            if slot + 1 < slots:
                deviations = np.column_stack([step, deviations[:, :-1]])
                innovations = np.column_stack([np.zeros(len(mean)), innovations[:, :-1]])
        found[self._records == 0] = np.nan
        return found

    def corrected(self, slots: int = 1) -> Floats:
        """Return (n,) the last-state forecast of the peak of the next slots: max(prediction, last record)."""
        peak: Floats = np.fmax(self.path(slots).max(axis=1), self.last)
        return peak

    def mean(self) -> Floats:
        """Return (n,) the mean in force."""
        return np.where(np.isfinite(self.parameters.mean), self.parameters.mean, self._running)

    def refit(self, parameters: ArmaParameters) -> None:
        """Put new parameters in force; the records stay, innovations beyond the new order are dropped."""
        if len(parameters.mean) != len(self.last):
            raise ValueError(f"parameters of {len(parameters.mean)} hosts for {len(self.last)}")
        self._values = _widened(self._values, max(1, parameters.ar.shape[1]), np.nan)
        self._innovations = _widened(self._innovations, max(1, parameters.ma.shape[1]), 0.0)
        self.parameters = parameters
        self._next = self.path(1)[:, 0]

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Forget the records of these hosts."""
        for state in (self.last, self._values, self._next):
            state[rows] = np.nan
        for state in (self._running, self._records, self._innovations):
            state[rows] = 0.0


def _widened(state: Floats, width: int, filler: float) -> Floats:
    wide = np.full((len(state), width), filler)
    kept = min(width, state.shape[1])
    wide[:, :kept] = state[:, :kept]
    return wide
