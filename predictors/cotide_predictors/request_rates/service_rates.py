"""Follows the measured rates of one engine's services and tells it what they will rise to.

A driver asks it before each call of the engine, live and in virtual time alike::

    events (ServiceSampled, PodUpserted) -> take -> RatesForecasted, once a slot -> Scheduler.handle

The rate that is forecast is that of a Workload's busiest pod; each of its pods is told its own last slot's rate, raised
by as much. Where the forecast does not score better than the last value, the last value is told: a pod's own. Every
forecast is scored, told or not. Invariants: nothing is forecast of a pod without a measurement; a slot in which nobody
measured counts as the rate that was told last, as the engine itself goes on with it; what is remembered is of Workloads
that are there, and of pods that are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.events import (
    Event,
    PodDeleted,
    PodUpserted,
    RateForecast,
    RatesForecasted,
    ServiceSampled,
    WorkloadDeleted,
    WorkloadUpserted,
)
from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load.slot_ring import slots_of_day
from cotide_predictors.request_rates.rate_model import LEVELS, RateModel, RateScores

FIRST_SERVICES: Final = 16
"""Rows of a new model (chosen; they double)."""
GAP_SLOTS: Final = 2016
"""Longest gap that is filled with missing slots: a week of five minutes; after a longer one all begins anew."""
GRACE_SLOTS: Final = 1.0
"""Slots for which a forecast holds beyond its own, so that the next one is there before it runs out (chosen)."""


class ServiceRates:
    """Follows services.

    Parameters
    ----------
    slot_seconds : of the driver's clock.
    horizons_slots : rising.
    level : quantile of the peak that is told, one of `rate_model.LEVELS`; None scores only and tells nothing.
    """

    def __init__(self, slot_seconds: float, horizons_slots: Sequence[int], level: float | None) -> None:
        if level is not None and level not in LEVELS:
            raise ValueError(f"{level:g} is none of the levels {', '.join(map(str, LEVELS))}")
        self._slot_seconds = slot_seconds
        self.level = level
        self._model = RateModel(FIRST_SERVICES, horizons_slots, day_slots=slots_of_day(slot_seconds))
        self._row_of: dict[str, int] = {}
        self._spare = list(range(FIRST_SERVICES - 1, -1, -1))
        self._workloads: set[str] = set()
        """Those that are there, and those whose past was told."""
        self._workload_of: dict[str, str] = {}
        self._rates: dict[str, float] = {}
        self._peaks: dict[str, float] = {}
        """Highest of each pod in the open slot."""
        self._slot: int | None = None

    def take(self, events: Iterable[Event], now: float) -> RatesForecasted | None:
        """Take in the events of a cycle; return what the engine is to be told, None for nothing."""
        slot = int(now // self._slot_seconds)
        closed = self._slot is not None and slot > self._slot
        if closed:
            self._close(slot)
        if self._slot is None or slot > self._slot:
            self._slot = slot
        for event in events:
            self._take(event)
        return self._forecast() if closed and self.level is not None else None

    def remember(self, past: Mapping[str, Sequence[float]]) -> None:
        """Learn from the slots before the first one: rates by Workload, of its busiest pod, all of one length."""
        self._workloads.update(past)
        rows = [self._row(workload) for workload in past]
        for rates in zip(*past.values(), strict=True):
            values = np.full(self._model.services, np.nan)
            values[rows] = rates
            self._model.record(values)

    def scores(self, level: float) -> tuple[RateScores, ...]:
        """Return the scores of each horizon at a level."""
        return self._model.scores(level)

    @property
    def horizons_slots(self) -> tuple[int, ...]:
        """Horizons in slots, rising."""
        return self._model.horizons

    @property
    def services(self) -> int:
        """Workloads that there is room for; more make more."""
        return self._model.services

    def trusted_share(self, level: float) -> float:
        """Return the share of services and horizons that are told a forecast; nan without any service."""
        rows = list(self._row_of.values())
        return float(self._model.trusted(level)[:, rows].mean()) if rows else float("nan")

    def _take(self, event: Event) -> None:
        match event:
            case ServiceSampled(pod, rate):
                self._rates[pod] = rate
                self._peaks[pod] = max(rate, self._peaks.get(pod, rate))
            case PodUpserted(pod) if pod.workload_class is WorkloadClass.ONLINE and pod.workload is not None:
                self._workload_of[pod.key] = pod.workload
            case PodDeleted(key):
                self._workload_of.pop(key, None)
                self._rates.pop(key, None)
                self._peaks.pop(key, None)
            case WorkloadUpserted(workload):
                self._workloads.add(workload.key)
            case WorkloadDeleted(key):
                self._workloads.discard(key)
                self._forget([key])
            case _:
                pass

    def _close(self, slot: int) -> None:
        """Learn from the open slot and from those up to another, in which nothing came."""
        assert self._slot is not None  # noqa: S101 - a slot was open
        highest: dict[str, float] = {}
        for pod, rate in self._peaks.items():
            workload = self._workload_of.get(pod)
            if workload is not None:
                highest[workload] = max(rate, highest.get(workload, rate))
        rows = [self._row(workload) for workload in highest]
        values = np.full(self._model.services, np.nan)
        values[rows] = list(highest.values())
        self._model.record(values)
        missing = slot - self._slot - 1
        if missing > GAP_SLOTS:
            self._model.reset(range(self._model.services))
            missing = 0
        for _ in range(missing):
            self._model.record(np.full(self._model.services, np.nan))
        self._peaks = dict(self._rates)
        # Pods may outlive their Workload, or name none that is there: nothing else says when these are over.
        there = self._workloads.union(self._workload_of.values())
        self._forget([workload for workload in self._row_of if workload not in there])

    def _forget(self, workloads: Iterable[str]) -> None:
        """Give the rows of Workloads that are gone to others."""
        rows = [self._row_of.pop(workload) for workload in workloads if workload in self._row_of]
        if rows:
            self._model.reset(rows)
            self._spare.extend(rows)

    def _forecast(self) -> RatesForecasted | None:
        assert self.level is not None  # noqa: S101 - asked for a level only
        factors = self._factors(self.level)
        forecasts = []
        for pod, rate in self._rates.items():
            row = self._row_of.get(self._workload_of.get(pod, ""))
            if row is not None:
                forecasts.append(RateForecast(pod, tuple((rate * factors[:, row]).tolist())))
        if not forecasts or self._slot is None:
            return None
        horizons = tuple(slots * self._slot_seconds for slots in self._model.horizons)
        until = (self._slot + 1 + GRACE_SLOTS) * self._slot_seconds
        return RatesForecasted(horizons, until, tuple(forecasts))

    def _factors(self, level: float) -> Floats:
        """Return (H, n) by how much the rate will rise; 1 where no forecast is trusted."""
        peaks, last = self._model.peaks(level), self._model.last()
        with np.errstate(invalid="ignore", divide="ignore"):
            factors = peaks / last
        usable = self._model.trusted(level) & np.isfinite(factors) & (last > 0)
        return np.where(usable, np.maximum(1.0, factors), 1.0)

    def _row(self, workload: str) -> int:
        row = self._row_of.get(workload)
        if row is None:
            if not self._spare:
                rows = self._model.services
                self._model = self._model.grown(2 * rows)
                self._spare = list(range(2 * rows - 1, rows - 1, -1))
            row = self._row_of[workload] = self._spare.pop()
        return row
