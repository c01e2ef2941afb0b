"""The slowdown of jobs by online services on the same node, for plans: by type and rate, on a fully used node.

Owned by `planning`. A plan needs factors for every node at once, in every cycle. Rates are therefore rounded up to one
of a few steps, and answers are remembered. Invariant: the factor is the forecast for a rate at or above the measured
one, and at least 1.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, repeat
from operator import mul
from typing import Final

import numpy as np

from cotide_core.events import Pod
from cotide_core.forecasting.own_models import type_for
from cotide_core.forecasts import CompletionForecaster
from cotide_core.kernels.array_types import Floats
from cotide_core.state.remembered import Remembered

QUARTER: Final = 1.189207115002721
"""Rates are rounded up to the next of four steps to its double (chosen: at most 19 % too high)."""
STEPS: Final = tuple(accumulate(repeat(QUARTER, 120), mul, initial=1.0))
"""From 1 to 1e9 requests per second, by products only, so that plans are the same on every machine."""
REMEMBERED: Final = 4096
"""Factors of a generation (chosen: of 256 types and 16 steps of rates; 2 MB in both)."""
FULL: Final = 1.0
"""Cpu pressure of a node if jobs request all its cpu: no plan exceeds it."""


class SlowdownCache:
    """Factors on isolated run times, by type of job."""

    def __init__(self, forecaster: CompletionForecaster) -> None:
        self._forecaster = forecaster
        self._known: Remembered[tuple[str, int], float] = Remembered(REMEMBERED)

    def type_of(self, pod: Pod) -> str:
        """Return the type to pass to the forecaster for a pod."""
        return type_for(self._forecaster, pod)

    def factor(self, job_type: str, rate: float) -> float:
        """Return the factor next to services with this summed rate of requests per second."""
        return self._of(job_type, _step(float(rate)))

    def of_rows(self, job_type: str, rates: Floats) -> Floats:
        """Return (N,) factors for the summed rates of N nodes."""
        if not rates.any():
            return np.full(len(rates), self._of(job_type, 0))
        distinct, index = np.unique(rates, return_inverse=True)
        return np.array([self.factor(job_type, rate) for rate in distinct.tolist()])[index]

    def _of(self, job_type: str, step: int) -> float:
        found = self._known.get((job_type, step))
        if found is None:
            rate = 0.0 if step == 0 else STEPS[step - 1]
            answer = self._forecaster.slowdown([job_type], np.array([rate]), np.array([FULL]))
            found = max(1.0, float(answer[0]))
            self._known.make_room()
            self._known.keep((job_type, step), found)
        return found


def _step(rate: float) -> int:
    """Return 0 for no requests, otherwise one more than the index of the step at or above a rate."""
    return 0 if rate <= 0.0 else min(len(STEPS), 1 + bisect_left(STEPS, rate))
