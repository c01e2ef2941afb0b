"""The forecast request rates of online pods, for as long as the forecasts hold.

Written by `state.ClusterState` from `RatesForecasted`. The columns keep the forecasts next to the measured rates, for
the latency guard. A run time selects a horizon: the shortest that reaches so far, otherwise the longest. Invariants: a
rate never falls from a horizon to a longer one; impossible rates are ignored; outdated rates are forgotten.

`RateEstimates` has the rates of online pods that are not measured yet.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from cotide_core.events import RatesForecasted
from cotide_core.state.node_columns import RATE_HORIZONS

NOW = 0
"""Represents no horizon: the present rate."""
UNMEASURED_PER_CORE: Final = 10_000.0
"""Requests/s per requested core while no online pod is measured (chosen: a fifth of the rate at which `heuristics`
counts a service as busy).
"""
RESCALE: Final = 1.25
"""Estimates change when the measured requests for each core change by this factor, up or down. Chosen: each change
makes answers about all unmeasured pods out of date.
"""


class RateForecasts:
    """Forecasts by pod.

    Attributes
    ----------
    horizons_seconds : the reported ones, rising; empty before the first forecast.
    """

    def __init__(self) -> None:
        self.horizons_seconds: tuple[float, ...] = ()
        self._by_pod: dict[str, tuple[float, ...]] = {}
        self._until = math.inf

    def of(self, pod: str) -> tuple[float, ...]:
        """Return the highest rates of a pod up to the end of each horizon; empty without a forecast."""
        return self._by_pod.get(pod, ())

    def horizon_of(self, seconds: float) -> int:
        """Return the horizon for a run of ``seconds``, counted from 1; `NOW` without horizons."""
        if not seconds or not self.horizons_seconds:
            return NOW
        return min(len(self.horizons_seconds), bisect_left(self.horizons_seconds, seconds) + 1)

    def take(self, event: RatesForecasted) -> Iterable[str]:
        """Record a forecast; return the pods with changed rates."""
        changed: dict[str, None] = {}
        horizons = event.horizons_seconds[:RATE_HORIZONS]
        if horizons != self.horizons_seconds:
            changed.update(dict.fromkeys(self._by_pod))
            self._by_pod.clear()
            self.horizons_seconds = horizons
        self._until = event.until_seconds if math.isfinite(event.until_seconds) else -math.inf
        for pod, rates in event.forecasts:
            changed[pod] = None
            usable = len(rates) >= len(horizons) and all(math.isfinite(rate) and rate >= 0 for rate in rates)
            if usable and horizons:
                rising = list(accumulate(rates[: len(horizons)], max))
                self._by_pod[pod] = (*rising, *rising[-1:] * (RATE_HORIZONS - len(rising)))
            else:
                self._by_pod.pop(pod, None)
        return changed

    def expire(self, now: float) -> Iterable[str]:
        """Forget everything once it is out of date; return the pods concerned."""
        if now <= self._until or not self._by_pod:
            return ()
        gone = list(self._by_pod)
        self._by_pod.clear()
        return gone

    def drop(self, pod: str) -> None:
        """Forget a deleted pod."""
        self._by_pod.pop(pod, None)


class RateEstimates:
    """The assumed requests per second of an unmeasured online pod: proportional to its requested cpu.

    Attributes
    ----------
    per_core : requests/s for each requested core: those of all measured online pods together, to two digits.
    """

    def __init__(self) -> None:
        self.per_core = UNMEASURED_PER_CORE

    def of(self, millicores: int) -> float:
        """Return the requests/s of a pod with this cpu request."""
        return self.per_core * millicores / 1000.0

    def follow(self, requests_per_second: float, millicores: int) -> bool:
        """Record the total rate and cpu request of all measured pods; returns whether estimates change."""
        if millicores <= 0:
            return False
        found = float(f"{1000.0 * requests_per_second / millicores:.2g}")
        if self.per_core <= RESCALE * found and found <= RESCALE * self.per_core:
            return False
        self.per_core = found
        return True
