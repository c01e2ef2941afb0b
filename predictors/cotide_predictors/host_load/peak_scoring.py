"""Scores of forecasts of the peak over several slots, by host.

Called by the operator for the longer horizons of online pods. Pure: no clock, no I/O. Neighbouring peaks share slots
and are nearly the same, so one forecast at a time is pending: the next one starts when it ends. Invariant: a forecast
is scored once, against the slots after it. A host that lacks one of them, or had no forecast, is not scored.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import HostLoadForecast
from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load.growth import overlay
from cotide_predictors.host_load.scoring import LoadScorer, LoadScores


class PeakScorer:
    """The recent window of n hosts for one horizon.

    Parameters
    ----------
    hosts : number of rows. slots : of the horizon, >= 1.
    """

    def __init__(self, hosts: int, slots: int) -> None:
        self.slots = slots
        self._scorer = LoadScorer(hosts)
        self._left = 0
        """Slots until the pending forecast ends; 0 for none."""
        self._forecast = np.full((4, hosts), np.nan)
        """Point, p50, p90 and p99 of it."""
        self._peak = np.zeros(hosts)

    def record(self, values: Floats, forecast: Callable[[], HostLoadForecast]) -> None:
        """Take in one slot's maxima (n,), nan where there is none; ``forecast`` returns the forecast of the next
        ones.
        """
        if self._left:
            self._peak = np.maximum(self._peak, values)  # nan stays
            self._left -= 1
            if not self._left:
                self._scorer.score(HostLoadForecast(*self._forecast), self._peak)
        if not self._left:
            made = forecast()
            self._forecast = np.array([made.point, made.p50, made.p90, made.p99])
            self._peak = np.zeros(len(values))
            self._left = self.slots

    def scores(self) -> LoadScores:
        """Return the scores over the window."""
        return self._scorer.scores()

    def grown(self, hosts: int) -> PeakScorer:
        """Return a scorer of more hosts that keeps the scores of this one."""
        larger = PeakScorer(hosts, self.slots)
        overlay(larger, self)
        larger._scorer = self._scorer.grown(hosts)
        return larger

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Forget these hosts; their pending forecast is not scored."""
        self._scorer.reset(rows)
        self._forecast[:, rows] = np.nan
