"""Forecasters of experiment hierarchical: only the present, the forecasts of this project, or the truth.

Called by `hierarchical.schedule`; each fulfils `engine_run.Forecaster`. Invariant: only `Known` sees the future.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from cotide_core.forecasts import HostLoadForecast
from cotide_core.kernels.array_types import Floats
from cotide_lab.experiments.hierarchical.data_center import DAY_SAMPLES, MACHINES, SAMPLE_SECONDS
from cotide_predictors.host_load.arma import ArmaParameters
from cotide_predictors.host_load.arma_fit import fit_arma, stacked
from cotide_predictors.host_load.forecaster import ALLOCATED, HostLoadModel

Point = Literal["point", "p50", "p90", "p99"]
"""``point`` is the paper's forecast: last-state ARMA, or feedback AR; the others are calibrated quantiles."""
RESOURCES: Final = 2


class Present:
    """No prediction: the next slot is as now."""

    def record(self, online: Floats, batch: Floats) -> None:
        """Learn nothing."""

    def revise(self, batch: Floats) -> None:
        """Learn nothing."""

    def forecast(self, online: Floats, batch: Floats) -> tuple[Floats, Floats]:
        """Return the present load."""
        return online, batch


class Reserve:
    """No prediction either: assumes that production, and batch and gratis, use fixed shares of the machine more than
    now.
    """

    def __init__(self, online: float, batch: float = 0.0) -> None:
        self._online, self._batch = online, batch

    def record(self, online: Floats, batch: Floats) -> None:
        """Learn nothing."""

    def revise(self, batch: Floats) -> None:
        """Learn nothing."""

    def forecast(self, online: Floats, batch: Floats) -> tuple[Floats, Floats]:
        """Return the present load plus the reserves, at most the machine."""
        return np.minimum(online + self._online, 1.0), np.minimum(batch + self._batch, 1.0)


class Known:
    """Perfect knowledge of production over this slot and the next: the limit of every forecast."""

    def __init__(self, usage: Floats, slot_seconds: float) -> None:
        self._usage = usage
        self._step = round(slot_seconds / SAMPLE_SECONDS)
        self._slot = 0

    def record(self, online: Floats, batch: Floats) -> None:
        """Count the slot."""
        del online, batch
        self._slot += 1

    def revise(self, batch: Floats) -> None:
        """Learn nothing."""

    def forecast(self, online: Floats, batch: Floats) -> tuple[Floats, Floats]:
        """Return the true peaks."""
        del online
        samples = self._usage.shape[2]
        first = self._slot * self._step
        # The second day repeats for the remaining tasks, as in `engine_run`.
        window = np.arange(first, first + 2 * self._step)
        window = np.where(window < samples, window, DAY_SAMPLES + (window - DAY_SAMPLES) % DAY_SAMPLES)
        return np.asarray(self._usage[:, :, window].max(axis=2)), batch


class Predicted:
    """Last-state ARMA for production, feedback AR for batch and gratis (Jiang et al., section IV), or the quantiles
    that run live.

    Parameters
    ----------
    histories : (12, slots) slot maxima to fit on: cpu of the six machines, then memory.
    online, batch : point or quantile of the forecasts of production, and of the holdings of batch and gratis tasks.
    """

    def __init__(self, histories: Floats, *, online: Point = "point", batch: Point = "point") -> None:
        hosts = len(histories)
        fits = [fit_arma(history) for history in histories]
        parameters = stacked(fits, ArmaParameters.default(hosts))
        self._online = HostLoadModel(hosts, parameters=parameters)
        # The paper's point is its own model's; our quantiles are those that run live.
        self._batch = HostLoadModel(hosts, centre="feedback-ar" if batch == "point" else ALLOCATED)
        self._taken: tuple[Point, Point] = (online, batch)

    def record(self, online: Floats, batch: Floats) -> None:
        """Record a slot's maxima."""
        self._online.record(online.ravel())
        self._batch.record(batch.ravel())

    def revise(self, batch: Floats) -> None:
        """Record the present allocation."""
        self._batch.revise(range(batch.size), batch.ravel())

    def forecast(self, online: Floats, batch: Floats) -> tuple[Floats, Floats]:
        """Return the peaks of the next slot, never below the present load."""
        peak = _of(self._online.forecast(), self._taken[0]).reshape(online.shape)
        expected = _of(self._batch.forecast(), self._taken[1]).reshape(batch.shape)
        return np.fmax(peak, online), np.fmax(expected, batch)


def slot_maxima(usage: Floats, slot_seconds: float) -> Floats:
    """Return (12, slots) maxima of the first day's slots, cpu of all machines before memory."""
    step = round(slot_seconds / SAMPLE_SECONDS)
    slots = DAY_SAMPLES // step
    day = usage[:, :, : slots * step].reshape(RESOURCES * len(MACHINES), slots, step)
    return np.asarray(day.max(axis=2))


def _of(made: HostLoadForecast, point: Point) -> Floats:
    return {"point": made.point, "p50": made.p50, "p90": made.p90, "p99": made.p99}[point]
