"""The use of each node by its online pods, and the credible forecast of the next slot.

Written by `state.ClusterState` from `NodeUsageSampled` and `NodeForecasted`. Read by the policy `hierarchical`
(`slack_scheduler`) and the monitor (`overload_monitor`). Forecasts come from the driver's host-load forecaster, once a
slot.

Values that are missing, outdated, negative, infinite or beyond the machine count as absent. The node then falls back to
allocatable - requests. Invariants: a peak is between 0 and the physical amount. A doubtful value never makes a node
look emptier than its requests do.

`slack` is the one formula for the amount that batch and gratis pods together may use. Placements (`slack_scheduler`)
and the amounts that nodes publish (`offered`) both use it.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.events import NodeForecasted, NodeUsageSampled
from cotide_core.kernels.array_types import Booleans, Floats
from cotide_core.state.node_columns import CPU_COLUMN, MEMORY_COLUMN, NodeColumns

IMPOSSIBLE: Final = 1.5
"""A measurement above this multiple of the allocatable amount is a fault of the meter. Chosen: the system's reserve is
used too, and is not allocatable.
"""
ONLINE_RANK: Final = 2
MAX_HORIZONS: Final = 4
"""Forecast horizons that are read, each longer than the slot (chosen: each doubles or more, up to a day of slots)."""


def slack(physical: Floats, peak: Floats, believed: Booleans, capacity_share: float) -> Floats:
    """Return (2, N) the amounts that batch and gratis pods together may use; below 0 if online pods need more than
    exists.

    With a credible forecast it is ``capacity_share`` x allocatable - its peak, otherwise allocatable - requests. A
    request is a promise that includes its margin.

    Parameters
    ----------
    physical : (2, N) allocatable millicores and bytes.
    peak : (2, N) peak of the online pods, as `HostLoad.online_peak` returns it; (N,) ``believed`` comes with it.
    """
    usable: Floats = np.where(believed, capacity_share, 1.0) * physical
    return usable - peak


def offered(physical: Floats, peak: Floats, believed: Booleans, capacity_share: float) -> NDArray[np.int64]:
    """Return (2, N) whole millicores and bytes that may be published: `slack`, limited to 0 and the physical amount."""
    bounded = np.clip(slack(physical, peak, believed, capacity_share), 0.0, physical)
    return np.floor(bounded).astype(np.int64)


class HostLoad:
    """Samples and forecasts by row of the columns; (2, capacity) arrays hold millicores and bytes."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._used = np.full((2, 0), np.nan)
        self._used_at = np.full(0, -np.inf)
        self._online = np.full((2, 0), np.nan)
        self._batch = np.full((2, 0), np.nan)
        self._batch_then = np.zeros((2, 0))
        """Amounts that batch and gratis pods held when the forecast came."""
        self._asked_then = np.zeros((2, 0))
        """Requests of online pods at that time."""
        self._until = np.full(0, -np.inf)
        self._ahead = np.zeros((MAX_HORIZONS, 2, 0))
        """Peaks over longer horizons than the slot, the nearest first."""
        self._ahead_until = np.full((MAX_HORIZONS, 0), -np.inf)

    def apply(self, event: NodeUsageSampled | NodeForecasted) -> None:
        """Record a report about a known node; drop reports about others."""
        row = self._columns.row_of.get(event.node)
        if row is None:
            return
        self._grow()
        if isinstance(event, NodeUsageSampled):
            self._sample(row, event)
        else:
            self._forecast(row, event)

    def _sample(self, row: int, event: NodeUsageSampled) -> None:
        """Ignores impossible samples and those older than the last."""
        values = (event.online_millicores, event.online_memory_bytes)
        usable = self._possible(row, values) and math.isfinite(event.at_seconds)
        if usable and event.at_seconds >= self._used_at[row]:
            self._used[:, row] = values
            self._used_at[row] = event.at_seconds

    def _forecast(self, row: int, event: NodeForecasted) -> None:
        """An impossible forecast ends the previous one."""
        online = (event.online_millicores, event.online_memory_bytes)
        batch = (event.batch_millicores, event.batch_memory_bytes)
        if not all(math.isfinite(value) and value >= 0 for value in (*online, *batch)):
            self._until[row] = -np.inf
            return
        held = self._columns.cells().held
        for resource in range(2):  # cell by cell: a numpy call for each node is slower than two cells
            self._online[resource, row] = online[resource]
            self._batch[resource, row] = batch[resource]
            self._batch_then[resource, row] = held[0][resource][row] + held[1][resource][row]
            self._asked_then[resource, row] = held[ONLINE_RANK][resource][row]
        self._until[row] = event.until_seconds if math.isfinite(event.until_seconds) else -np.inf
        self._ahead_until[:, row] = -np.inf
        for horizon, peak in enumerate(event.ahead[:MAX_HORIZONS]):
            if all(map(math.isfinite, peak)) and min(peak.online_millicores, peak.online_memory_bytes) >= 0:
                self._ahead[horizon, :, row] = peak[1:]
                self._ahead_until[horizon, row] = peak.until_seconds

    def forget(self, row: int) -> None:
        """Drop the reports of a row: another node may get the row."""
        if row < len(self._until):
            self._used_at[row] = self._until[row] = -np.inf

    def used(self, now: float, stale_seconds: float) -> tuple[Floats, Booleans]:
        """Return (2, N) measured use of the online pods, 0 where unknown, and (N,) whether it is known and fresh."""
        self._grow()
        size = self._columns.size
        fresh = (self._used_at[:size] + stale_seconds >= now) & (self._used_at[:size] <= now + stale_seconds)
        return np.where(fresh, self._used[:, :size], 0.0), fresh

    def online_peak(self, now: float, stale_seconds: float) -> tuple[Floats, Booleans]:
        """Return (2, N) peaks of the online pods' use, and (N,) whether a forecast supports each.

        With a current forecast and fresh measurements the peak is max(forecast, latest measurement). This is the
        last-state correction within the slot (Jiang et al., section IV). The requests of online pods that came since
        are added, because the forecast does not include them. Otherwise the peak is the requests of the online pods, or
        the measured use if that is higher.

        After measurements stop, the last known value stays a lower bound while online pods run. Silence is no evidence
        of a lower need. The bound ends when a node has no online pods: the measured load has left, and the silence may
        last for ever.
        """
        used, fresh = self.used(now, stale_seconds)
        believed = fresh & self.in_force(now)
        peak = np.maximum(used, np.where(believed, self._foreseen(), self.asked()))
        peak = np.where(fresh, peak, np.maximum(peak, self._last_known()))
        return np.minimum(peak, self.physical()), believed

    def peak_until(self, end: float, now: float, stale_seconds: float) -> tuple[Floats, Booleans]:
        """Return `online_peak` with the highest peak up to ``end``, if longer horizons are forecast. Uses the nearest
        horizon that reaches so far, or the longest.
        """
        peak, believed = self.online_peak(now, stale_seconds)
        return self.further_peak(peak, believed, end, now), believed

    def further_peak(self, peak: Floats, believed: Booleans, end: float, now: float) -> Floats:
        """Return (2, N) the highest peak up to ``end``, from the result of `online_peak`. The array is the same if no
        longer horizon raises it.
        """
        size = self._columns.size
        until = self._ahead_until[:, :size]
        open_rows = believed & (self._until[:size] < end)
        if not open_rows.any():
            return peak
        physical, since = self.physical(), np.maximum(0.0, self.asked() - self._asked_then[:, :size])
        for horizon in range(MAX_HORIZONS):
            is_forecast = open_rows & (until[horizon] >= now)
            if not is_forecast.any():
                break
            further = np.minimum(self._ahead[horizon, :, :size] + since, physical)
            peak = np.where(is_forecast, np.maximum(peak, further), peak)
            open_rows = is_forecast & (until[horizon] < end)
        return peak

    def _foreseen(self) -> Floats:
        """Return (2, N) the forecast plus the later requests; nan without a forecast."""
        size = self._columns.size
        return self._online[:, :size] + np.maximum(0.0, self.asked() - self._asked_then[:, :size])

    def _last_known(self) -> Floats:
        """Return (2, N) the last measurement, or the forecast in force at that time if it is higher; 0 without online
        pods.
        """
        size = self._columns.size
        used_at = self._used_at[:size]
        known = np.isfinite(used_at) & (self._columns.online_counts[:size] > 0)
        used = np.where(known, self._used[:, :size], 0.0)
        forecast = known & (self._until[:size] >= used_at)
        return np.maximum(used, np.where(forecast, self._foreseen(), 0.0))

    def in_force(self, now: float) -> Booleans:
        """Return (N,) whether the slot of a received forecast is not over, credible or not."""
        self._grow()
        return self._until[: self._columns.size] >= now

    def asked(self) -> Floats:
        """Return (2, N) the requests of the online pods."""
        amounts: Floats = self._columns.held[ONLINE_RANK, :, : self._columns.size].astype(np.float64)
        return amounts

    def batch_load(self, now: float) -> Floats:
        """Return (2, N) the upper bound of the amounts that batch and gratis pods will hold: at least the present ones.

        A placement or an end since the forecast changes it by the same amount (the feedback of Jiang et al., section
        IV.B).
        """
        self._grow()
        size = self._columns.size
        held = self._columns.held[:ONLINE_RANK, :, :size].sum(axis=0).astype(np.float64)
        moved = self._batch[:, :size] + held - self._batch_then[:, :size]
        load: Floats = np.where(self._until[:size] >= now, np.maximum(held, moved), held)
        return load

    def physical(self) -> Floats:
        """Return (2, N) allocatable cpu and memory."""
        rows = slice(0, self._columns.size)
        amounts: Floats = self._columns.allocatable[[CPU_COLUMN, MEMORY_COLUMN], rows].astype(np.float64)
        return amounts

    def _possible(self, row: int, values: tuple[float, float]) -> bool:
        most = IMPOSSIBLE * self._columns.allocatable[[CPU_COLUMN, MEMORY_COLUMN], row]
        return all(
            math.isfinite(value) and 0 <= value <= limit for value, limit in zip(values, most.tolist(), strict=True)
        )

    def _grow(self) -> None:
        missing = self._columns.capacity - len(self._until)
        if missing > 0:
            self._used = np.concatenate([self._used, np.full((2, missing), np.nan)], axis=1)
            self._online = np.concatenate([self._online, np.full((2, missing), np.nan)], axis=1)
            self._batch = np.concatenate([self._batch, np.full((2, missing), np.nan)], axis=1)
            self._batch_then = np.concatenate([self._batch_then, np.zeros((2, missing))], axis=1)
            self._asked_then = np.concatenate([self._asked_then, np.zeros((2, missing))], axis=1)
            self._used_at = np.concatenate([self._used_at, np.full(missing, -np.inf)])
            self._until = np.concatenate([self._until, np.full(missing, -np.inf)])
            self._ahead = np.concatenate([self._ahead, np.zeros((MAX_HORIZONS, 2, missing))], axis=2)
            self._ahead_until = np.concatenate([self._ahead_until, np.full((MAX_HORIZONS, missing), -np.inf)], axis=1)
