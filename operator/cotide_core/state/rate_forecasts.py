"""What request rates are forecast of online pods, for as long as the forecasts hold.

Written by `state.ClusterState` from `RatesForecasted`; what it says is kept beside the measured rates in the columns,
where the latency guard reads it. A horizon is asked for by a run time: the shortest that reaches so far, else the
longest. Invariants: a rate never falls from a horizon to a longer one; one that can't be is as good as never told; what
is out of date is forgotten.

`RateEstimates` has the rates that stand in for those of online pods that are not measured yet.
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
"""Stands for no horizon: the present rate."""
UNMEASURED_PER_CORE: Final = 10_000.0
"""Requests/s that a requested core stands for while no online pod is measured (chosen: a fifth of the rate at which
`heuristics` counts a service as busy)."""
RESCALE: Final = 1.25
"""Estimates change once measured pods receive so many times more or fewer requests for each core (chosen: each change
makes answers about all unmeasured pods out of date)."""


class RateForecasts:
    """Forecasts by pod.

    Attributes
    ----------
    horizons_seconds : those that are told, rising; empty before the first forecast.
    """

    def __init__(self) -> None:
        self.horizons_seconds: tuple[float, ...] = ()
        self._by_pod: dict[str, tuple[float, ...]] = {}
        self._until = math.inf

    def of(self, pod: str) -> tuple[float, ...]:
        """Return the highest rates of a pod up to the end of each horizon; empty where nothing is forecast."""
        return self._by_pod.get(pod, ())

    def horizon_of(self, seconds: float) -> int:
        """Return which horizon a run of so many seconds is judged by, counted from 1; `NOW` where there is none."""
        if not seconds or not self.horizons_seconds:
            return NOW
        return min(len(self.horizons_seconds), bisect_left(self.horizons_seconds, seconds) + 1)

    def take(self, event: RatesForecasted) -> Iterable[str]:
        """Take in what is told; return the pods about which something changed."""
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
        """Forget a pod that is gone."""
        self._by_pod.pop(pod, None)


class RateEstimates:
    """The requests per second that an unmeasured online pod is taken to receive: proportional to the cpu it asks for.

    Attributes
    ----------
    per_core : requests/s for each requested core: those of all measured online pods together, to two digits.
    """

    def __init__(self) -> None:
        self.per_core = UNMEASURED_PER_CORE

    def of(self, millicores: int) -> float:
        """Return the requests/s of a pod that asks for so much cpu."""
        return self.per_core * millicores / 1000.0

    def follow(self, requests_per_second: float, millicores: int) -> bool:
        """Take in what all measured pods receive and ask for together; returns whether estimates change."""
        if millicores <= 0:
            return False
        found = float(f"{1000.0 * requests_per_second / millicores:.2g}")
        if self.per_core <= RESCALE * found and found <= RESCALE * self.per_core:
            return False
        self.per_core = found
        return True
