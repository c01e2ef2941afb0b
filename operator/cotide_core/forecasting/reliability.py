"""Reliability of run-time forecasts: their expected accuracy, learned from the outcomes of other runs.

Owned by `plan_platform`. The accuracy of a forecast is the smaller of forecast and run time over the larger
(Naghshnejad 2019, eq. 4.2), and is learned by type of job. Before a first end of its type, a forecast counts with the
accuracy that its own spread implies. Each end then counts, the latest most. Invariant: the same ends in the same order
give the same reliability, on any machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from cotide_core.state.remembered import Remembered

SPREAD_COUNTS: Final = 3.0
"""Number of ends that equals the weight of a forecast's own spread (chosen: a few ends are more reliable)."""
RECENT_ENDS: Final = 50.0
"""Reliability averages over about this number of ends of a type (chosen)."""
DIGITS: Final = 9
"""Number of digits after rounding (chosen): the last bits of a logarithm differ between machines' libraries."""
TYPES_KEPT: Final = 4096
"""Types of a generation (chosen: 2 MB in both; an older type that returns starts from zero)."""
_NORMAL: Final = NormalDist()
_Z90: Final = _NORMAL.inv_cdf(0.9)


def accuracy(forecast_seconds: float, run_seconds: float) -> float:
    """Return the smaller of the two over the larger, in [0, 1]."""
    larger = max(forecast_seconds, run_seconds)
    return min(forecast_seconds, run_seconds) / larger if larger > 0.0 else 1.0


def expected_accuracy(p50: float, p90: float) -> float:
    """Return the mean accuracy of p50 when run times are log-normal about it: ``2 exp(s^2 / 2) Phi(-s)``.

    s is the spread of the logarithm, ``ln(p90 / p50) / z90``: the mean of ``exp(-|x|)`` for a normal x of that spread.
    """
    if p50 <= 0.0:
        return 0.0
    spread = math.log(max(1.0, p90 / p50)) / _Z90
    if spread > 30.0:
        return 0.0
    return round(2.0 * math.exp(spread * spread / 2.0) * _NORMAL.cdf(-spread), DIGITS)


@dataclass(slots=True)
class _Ends:
    count: float = 0.0
    sum: float = 0.0


class Reliability:
    """Expected accuracy by type of job."""

    def __init__(self) -> None:
        self._ends: Remembered[str, _Ends] = Remembered(TYPES_KEPT)

    def learn(self, job_type: str, forecast_seconds: float, run_seconds: float) -> None:
        """Learn from a run that has ended."""
        ends = self._ends.get(job_type)
        if ends is None:
            ends = _Ends()
            self._ends.make_room()
            self._ends.keep(job_type, ends)
        fades = 1.0 - 1.0 / RECENT_ENDS
        ends.count = fades * ends.count + 1.0
        ends.sum = fades * ends.sum + accuracy(forecast_seconds, run_seconds)

    def of(self, job_type: str, p50: float, p90: float) -> float:
        """Return the expected accuracy of a forecast."""
        ends = self._ends.get(job_type) or _Ends()
        prior = SPREAD_COUNTS * expected_accuracy(p50, p90)
        return (prior + ends.sum) / (SPREAD_COUNTS + ends.count)
