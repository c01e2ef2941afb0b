"""Forecasts the highest request rate of each service over the next slots, by quantile, and scores itself.

Called by `service_rates`, live and in virtual time. Each horizon has a mixture of its own over the views of
`rate_experts`, by the same weights and calibrated histograms as host load (`host_load.mixture`). The baseline is the
last slot's rate, which needs no forecast. Both are scored by the pinball loss of the peak that came, in logarithms of
the rate. A service's forecast is trusted where its own score, shrunk towards the score of all services, is below the
baseline's.

Invariants: same records in, same forecasts out; a peak is scored once, when its last slot is over; a missing slot
leaves the peak unknown; quantiles rise with their level; no forecast is below 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Booleans, Floats
from cotide_predictors.host_load.growth import overlay
from cotide_predictors.host_load.mixture import QuantileMixture
from cotide_predictors.host_load.slot_ring import DAY_SLOTS
from cotide_predictors.request_rates.rate_experts import (
    EXPERTS,
    LAST,
    SCALE_MIN,
    SCALE_RATE,
    SCALE_START,
    RateExperts,
)

LEVELS: Final = (0.5, 0.6, 0.75, 0.9)
SCORE_HALF_LIFE_SLOTS: Final = 288.0
"""A day of losses decides about trust (chosen, as for host load)."""
POOL_PEAKS: Final = 48.0
"""Number of peaks that the score of all services weighs, against a service's own peaks (chosen: four hours of slots).
"""
LEAST_PEAKS: Final = 48.0
"""Scored peaks of all services before any forecast is trusted (chosen)."""


@dataclass(frozen=True, slots=True)
class RateScores:
    """Scores of one horizon at one level, over all services.

    Attributes
    ----------
    peaks : scored, the latest with the largest weight.
    loss, last_value_loss : mean pinball loss of forecast and last value, in logarithms of the rate; nan without any.
    coverage : share of peaks at or below the forecast.
    """

    peaks: float
    loss: float
    last_value_loss: float
    coverage: float


class RateModel:
    """Forecaster of n services.

    Parameters
    ----------
    services : number of rows. horizons : in slots, rising, >= 1. levels : of the quantiles, rising.
    day_slots : slots of a day; None: the experts of a day are off.
    """

    def __init__(
        self,
        services: int,
        horizons: Sequence[int],
        levels: Sequence[float] = LEVELS,
        *,
        day_slots: int | None = DAY_SLOTS,
    ) -> None:
        if not horizons or min(horizons) < 1 or list(horizons) != sorted(set(horizons)):
            raise ValueError("horizons are whole slots from 1, rising")
        self.services = services
        self.horizons = tuple(horizons)
        self.levels = tuple(levels)
        self._day_slots = day_slots
        self._experts = RateExperts(services, day_slots)
        self._each = [_Horizon(services, slots, self.levels) for slots in horizons]

    def record(self, rates: Floats) -> None:
        """Take in one slot's highest rates (n,), requests/s; nan, infinite and negative ones count as missing."""
        if rates.shape != (self.services,):
            raise ValueError(f"records of shape {rates.shape} for {self.services} services")
        usable = np.isfinite(rates) & (rates >= 0)
        values = np.where(usable, np.log1p(np.where(usable, rates, 0.0)), np.nan)
        for horizon in self._each:
            horizon.learn(values)
        self._experts.record(values)
        for horizon in self._each:
            horizon.issue(self._experts.locations(horizon.slots))

    def peaks(self, level: float) -> Floats:
        """Return (H, n) the forecast peaks at a level, requests/s; nan for services without any record."""
        column = self.levels.index(level)
        return np.maximum(0.0, np.expm1(np.stack([horizon.newest(column) for horizon in self._each])))

    def last(self) -> Floats:
        """Return (n,) the rate of the newest slot that has one, requests/s; nan without any."""
        rates: Floats = np.expm1(self._experts.last)
        return rates

    def trusted(self, level: float) -> Booleans:
        """Return (H, n) whether a forecast scores better than the last value."""
        column = self.levels.index(level)
        return np.stack([horizon.trusted(column) for horizon in self._each])

    def scores(self, level: float) -> tuple[RateScores, ...]:
        """Return the scores of each horizon."""
        column = self.levels.index(level)
        return tuple(horizon.scores(column) for horizon in self._each)

    def reset(self, rows: Sequence[int]) -> None:
        """Forget deleted services and free their rows."""
        chosen = np.asarray(rows, dtype=np.intp)
        self._experts.reset(chosen)
        for horizon in self._each:
            horizon.reset(chosen)

    def grown(self, services: int) -> RateModel:
        """Return a model of more services that keeps what this one learnt; pending peaks stay unscored."""
        larger = RateModel(services, self.horizons, self.levels, day_slots=self._day_slots)
        overlay(larger._experts, self._experts)
        for after, before in zip(larger._each, self._each, strict=True):
            after.follow(before)
            after.issue(larger._experts.locations(after.slots))
        return larger


class _Horizon:
    """Mixture, scales and scores of one horizon, and the forecasts that still wait for their peak."""

    def __init__(self, services: int, slots: int, levels: Sequence[float]) -> None:
        self.slots = slots
        self._levels = np.asarray(levels)
        self._mixture = QuantileMixture(services, len(EXPERTS), len(EXPERTS), levels)
        self._scales = np.full((services, len(EXPERTS)), SCALE_START)
        self._pending: deque[tuple[Floats, Floats, Floats, Floats]] = deque()
        self._seen: deque[Floats] = deque(maxlen=slots)
        self._losses = np.zeros((2, len(self._levels), services))
        """Discounted sums of the losses of forecast and last value."""
        self._covered = np.zeros((len(self._levels), services))
        self._masses = np.zeros(services)

    def issue(self, locations: Floats) -> None:
        """Forecast from the experts, and keep it until its peak is known."""
        known = np.where(np.isfinite(locations), locations, 0.0)
        scales = np.maximum(self._scales, SCALE_MIN)
        mixed, each = self._mixture.forecast(known, scales)
        mixed[~np.isfinite(locations[:, LAST])] = np.nan
        self._pending.append((locations, scales, mixed, each))

    def learn(self, values: Floats) -> None:
        """Score the forecast that ends with this slot."""
        self._seen.append(values)
        if len(self._pending) < self.slots or len(self._seen) < self.slots:
            return
        locations, scales, mixed, each = self._pending.popleft()
        peak = np.maximum.reduce(list(self._seen))
        peak = np.where(np.isfinite(locations[:, LAST]), peak, np.nan)
        self._score(peak, mixed, locations[:, LAST])
        known = np.isfinite(peak)
        errors = np.abs(peak[:, None] - locations)
        self._scales[known] += SCALE_RATE * (errors[known] - self._scales[known])
        self._mixture.record(peak, np.where(np.isfinite(locations), locations, 0.0), scales, mixed, each)

    def newest(self, column: int) -> Floats:
        """Return the newest forecast at a level, in logarithms."""
        if not self._pending:
            return np.full(len(self._masses), np.nan)
        return self._pending[-1][2][:, column]

    def trusted(self, column: int) -> Booleans:
        """Return (n,) whether the forecast's loss is below the last value's."""
        total = float(self._masses.sum())
        if total < LEAST_PEAKS:
            return np.zeros(len(self._masses), np.bool_)
        own, pooled = self._losses[:, column], self._losses[:, column].sum(axis=1) / total
        made, last = own + POOL_PEAKS * pooled[:, None]
        return np.asarray(made < last)

    def scores(self, column: int) -> RateScores:
        """Return the scores over all services."""
        total = float(self._masses.sum())
        if not total:
            return RateScores(0.0, np.nan, np.nan, np.nan)
        made, last = (self._losses[:, column].sum(axis=1) / total).tolist()
        return RateScores(total, made, last, float(self._covered[column].sum()) / total)

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Forget these services and drop their pending forecasts unscored."""
        self._mixture.reset(rows)
        self._scales[rows] = SCALE_START
        self._losses[:, :, rows] = 0.0
        self._covered[:, rows] = 0.0
        self._masses[rows] = 0.0
        for locations, _, mixed, _ in self._pending:
            locations[rows], mixed[rows] = np.nan, np.nan
        for seen in self._seen:
            seen[rows] = np.nan

    def follow(self, smaller: _Horizon) -> None:
        """Take over the knowledge of a horizon of fewer services; nothing is pending."""
        overlay(self._mixture, smaller._mixture)
        overlay(self, smaller)

    def _score(self, peak: Floats, mixed: Floats, last: Floats) -> None:
        known = np.isfinite(peak)
        decay = np.where(known, 2.0 ** (-1.0 / SCORE_HALF_LIFE_SLOTS), 1.0)
        self._masses = self._masses * decay + known
        self._losses *= decay
        self._covered *= decay
        for column, level in enumerate(self._levels.tolist()):
            for index, forecast in enumerate((mixed[:, column], last)):
                over = peak[known] - forecast[known]
                self._losses[index, column, known] += np.maximum(level * over, (level - 1.0) * over)
            self._covered[column, known] += peak[known] <= mixed[known, column]
