"""Follows the measured rates of one engine's services and forecasts how high they will rise.

A driver calls it before each call of the engine, live and in virtual time::

    events (ServiceSampled, PodUpserted) -> take -> RatesForecasted, once a slot -> Scheduler.handle

The forecast is of the rate of a Workload's busiest pod. Each of its pods gets its own last slot's rate, raised by the
same factor. Where the forecast scores no better than the last value, the pod's own last value is sent. Every forecast
is scored, sent or not. Invariants: a pod without a measurement has no forecast. A slot without any measurement counts
as the rate that was sent last, since the engine itself goes on with that rate. The memory holds existing Workloads and
existing pods only.
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
"""Longest gap that is filled with missing slots: a week of five minutes. After a longer gap the model starts empty."""
GRACE_SLOTS: Final = 1.0
"""Slots for which a forecast stays valid beyond its own, so that the next arrives before it expires (chosen)."""


class ServiceRates:
    """Follows services.

    Parameters
    ----------
    slot_seconds : of the driver's clock.
    horizons_slots : rising.
    level : quantile of the peak that is sent, one of `rate_model.LEVELS`; None scores only and sends no forecast.
    """

    def __init__(self, slot_seconds: float, horizons_slots: Sequence[int], level: float | None) -> None:
        if level is not None and level not in LEVELS:
            raise ValueError(f"{level:g} is not one of the levels {', '.join(map(str, LEVELS))}")
        self._slot_seconds = slot_seconds
        self.level = level
        self._model = RateModel(FIRST_SERVICES, horizons_slots, day_slots=slots_of_day(slot_seconds))
        self._row_of: dict[str, int] = {}
        self._spare = list(range(FIRST_SERVICES - 1, -1, -1))
        self._workloads: set[str] = set()
        """Existing Workloads, and the Workloads with a known past."""
        self._workload_of: dict[str, str] = {}
        self._rates: dict[str, float] = {}
        self._peaks: dict[str, float] = {}
        """Highest of each pod in the open slot."""
        self._slot: int | None = None

    def take(self, events: Iterable[Event], now: float) -> RatesForecasted | None:
        """Take in the events of a cycle; return the forecasts for the engine, None where there are none."""
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
        """Workloads that the model has room for; it grows when more come."""
        return self._model.services

    def trusted_share(self, level: float) -> float:
        """Return the share of services and horizons that get a forecast; nan without any service."""
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
        """Learn from the open slot, and from the slots without records up to another."""
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
        # Pods may outlive their Workload, or name one that does not exist; no other event reports that these are over.
        present = self._workloads.union(self._workload_of.values())
        self._forget([workload for workload in self._row_of if workload not in present])

    def _forget(self, workloads: Iterable[str]) -> None:
        """Free the rows of Workloads that are gone."""
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
