"""The tasks on series: the path of the next twelve slots, the peak over them, and both for a service's rate.

Called by `cell_run`. A rolling origin: predictors are fitted on the first half of the slots and queried every hour from
then on, with the slots before. The first tenth after the half calibrates; all later origins are scored. A predictor
that gives a path only gets its quantiles from its own residuals, by one rule for all. The residuals are errors of past
origins, in units of the series' own hourly change, pooled over series, horizon by horizon.

Figures of paths by name: mape (as Naghshnejad 2019 prints it, records of 0 left out), smape, rmse, mase (over the error
of "the last value" on the first half), crps, pinball at p90, p95 and p99, each also by horizon. Figures of the peak:
pinball at p90 and p99, under-estimates, and the slack sold when five slots in a hundred are above it. The value of a
path is in `decision`. Blocks are days. Invariant: a forecaster never receives a slot at or after its origin.
"""

from __future__ import annotations

from time import process_time
from typing import Any, Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_lab.predictor_lab.blocks import sums_by_block
from cotide_lab.predictor_lab.cells import LabCell, LabOutcome, LabSource, at_horizon
from cotide_lab.predictor_lab.series.decision import capacity_held, node_capacity, nodes_needed
from cotide_lab.predictor_lab.series.entries import SERIES_ENTRIES, Network, SeriesForecaster
from cotide_lab.predictor_lab.series.held_bytes import held_bytes
from cotide_lab.predictor_lab.series.pretrained import Pretrained
from cotide_lab.predictor_lab.series.sources import read_series
from cotide_lab.predictor_lab.user_predictor import checked_path, made
from cotide_lab.predictors.usage_path.inputs import DAY_SLOTS, PAST_SLOTS, WINDOW, filled_forward
from cotide_lab.trace_replay.user_policy import PolicySource
from cotide_predictors.one_thread import on_one_thread

FITTED_SHARE: Final = 0.5
CALIBRATED_SHARE: Final = 0.6
STEP_SLOTS: Final = 12
"""Slots between origins: an hour."""
LEVELS: Final = (*(round(0.05 * index, 2) for index in range(1, 20)), 0.99)
KEPT_ORIGINS: Final = 96
"""Latest origins with residuals in the quantiles (chosen: four days)."""
LEAST_UNIT: Final = 0.2
"""Smallest unit of a series, as a share of the median series' unit (chosen)."""
ASKED_AGAIN: Final = 3
"""Repeated queries of a forecaster at the last origin, for its cost alone (chosen)."""
VIOLATIONS: Final = 0.05
"""Share of slots above the held capacity in the comparison of slack (chosen)."""


@on_one_thread
def run(cell: LabCell, source: LabSource, predictor: PolicySource | None) -> LabOutcome:
    """Forecast every origin and score those after the calibration."""
    load = read_series(source, cell.seed)
    slots = load.shape[1]
    first = int(FITTED_SHARE * slots)
    if first < PAST_SLOTS + WINDOW or slots - first < 2 * DAY_SLOTS:
        raise InputError(f"{source.name} has {slots} slots; a rolling origin needs more", field="--data")
    begin = process_time()
    forecaster = _forecaster(cell, predictor, source)
    forecaster.fit(load[:, :first].copy())
    fitted = process_time()
    origins = np.arange(first, slots - WINDOW + 1, STEP_SLOTS)
    paths, peaks = paths_of(forecaster, load, origins, predictor)
    asked = process_time() - fitted
    costs = {"fit_seconds": fitted - begin, "seconds_per_1000": 1000.0 * asked / (len(origins) * len(load))}
    costs["bytes_per_series"] = held_bytes(forecaster) / len(load)
    if predictor is None:
        costs["forecast_seconds_per_1000"] = _seconds_again(forecaster, load[:, : origins[-1]])
    scale = hourly_change(load[:, :first])
    truth = np.stack([load[:, origin : origin + WINDOW] for origin in origins])
    counted = origins >= int(CALIBRATED_SHARE * slots)
    day = ((origins - origins[0]) // DAY_SLOTS)[counted]
    day = day - day[0]
    if cell.task == "host-peak":
        columns, figures = _peak_figures(truth, peaks, scale, counted)
    else:
        columns, figures = _path_figures(truth, paths, scale, counted)
        decided = {"capacity_at_shortfall": capacity_held(truth[counted], paths[counted], scale)}
        if len(load) > 1:
            capacity = node_capacity(load[:, :first])
            decided["nodes_at_overload"] = nodes_needed(truth[counted], paths[counted], scale, capacity)
        columns |= {name: hours[:, None] for name, hours in decided.items()}
        figures |= {name: float(hours.mean()) for name, hours in decided.items()}
    blocks = {
        name: sums_by_block(np.repeat(day, values[0].size), values.reshape(-1)) for name, values in columns.items()
    }
    count = int(np.isfinite(truth[counted]).sum())
    return LabOutcome(cell, count, figures, blocks, costs, None)


def paths_of(
    forecaster: SeriesForecaster, load: Floats, origins: Any, predictor: PolicySource | None = None
) -> tuple[Floats, Floats]:
    """Return (o, n, 12) paths and (o, n) peaks; each answer is made from a copy of the slots before its origin.

    Raises
    ------
    ValueError
        When an answer holds nan or infinity: otherwise a predictor that leaves out hard cases would win.
    """
    peak_of = getattr(forecaster, "peak", None)
    paths, peaks = [], []
    for origin in origins:
        history = load[:, :origin].copy()
        path = forecaster.forecast(history)
        if predictor is not None:
            path = checked_path(path, len(load), WINDOW, predictor)
        if not np.isfinite(path).all():
            raise ValueError(
                f"answered with a value that is not a number at slot {origin}; each series needs a forecast"
            )
        paths.append(path)
        peaks.append(path.max(axis=1) if peak_of is None else peak_of(history))
    return np.stack(paths), np.stack(peaks)


def _seconds_again(forecaster: SeriesForecaster, history: Floats) -> float:
    """Return processor seconds of 1,000 forecasts without new data: the rest of the cost is learning from new slots."""
    begin = process_time()
    for _ in range(ASKED_AGAIN):
        forecaster.forecast(history.copy())
    return 1000.0 * (process_time() - begin) / (ASKED_AGAIN * len(history))


def hourly_change(load: Floats) -> Floats:
    """Return (n,) the mean absolute change from a slot to those up to an hour later. It is each series' own unit, at
    least `LEAST_UNIT` of the set's median.
    """
    filled = filled_forward(load)
    changes = [np.abs(filled[:, ahead:] - filled[:, :-ahead]).mean(axis=1) for ahead in range(1, WINDOW + 1)]
    own = np.mean(changes, axis=0)
    # A series that is idle or unknown in the first half has no unit of its own: otherwise it would decide every mean
    # alone.
    usual = float(np.median(own[own > 0])) if np.any(own > 0) else 1.0
    found: Floats = np.maximum(own, LEAST_UNIT * usual)
    return found


def quantiles_of(truth: Floats, points: Floats, scale: Floats, levels: tuple[float, ...]) -> Floats:
    """Return (o, n, h, q) quantiles around points from the residuals of past origins.

    Parameters
    ----------
    truth, points : (o, n, h), origins an hour apart, so that the last hour's slots are known at the next origin.
    scale : (n,).
    """
    residuals = (truth - points) / scale[None, :, None]
    found = np.full((*points.shape, len(levels)), np.nan)
    for origin in range(1, len(points)):
        seen = residuals[max(0, origin - KEPT_ORIGINS) : origin]
        pooled = seen.reshape(-1, seen.shape[2])
        away = np.stack([_quantiles(column, levels) for column in pooled.T])
        found[origin] = points[origin][:, :, None] + scale[:, None, None] * away[None, :, :]
    return np.maximum(found, 0.0)


def pinball(truth: Floats, quantile: Floats, level: float) -> Floats:
    """Return the pinball loss of each value."""
    away = truth - quantile
    return np.maximum(level * away, (level - 1.0) * away)


def _quantiles(column: Floats, levels: tuple[float, ...]) -> Floats:
    known = column[np.isfinite(column)]
    if not len(known):
        return np.zeros(len(levels))
    return np.quantile(known, levels)


def _path_figures(
    truth: Floats, paths: Floats, scale: Floats, counted: Any
) -> tuple[dict[str, Floats], dict[str, float]]:
    unit = scale[None, :, None]
    quantiles = quantiles_of(truth, paths, scale, LEVELS)[counted]
    actual, path = truth[counted], paths[counted]
    away = np.abs(actual - path)
    losses = {level: pinball(actual, quantiles[..., index], level) for index, level in enumerate(LEVELS)}
    evenly = [losses[level] for level in LEVELS if level != 0.99]
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = {
            "mase": away / unit,
            "mape": np.where(actual > 0, 100.0 * away / actual, np.nan),
            "smape": np.where(actual + path > 0, 200.0 * away / (actual + path), 0.0 * away),
            "crps": 2.0 * np.mean(evenly, axis=0) / unit,
        }
    for level in (0.9, 0.95, 0.99):
        columns[f"pinball_{round(100 * level)}"] = losses[level] / unit
    figures = {name: float(np.nanmean(values)) for name, values in columns.items()}
    figures["rmse"] = float(np.sqrt(np.nanmean(away**2)))
    for step in range(WINDOW):
        for name, values in columns.items():
            figures[at_horizon(name, step + 1)] = float(np.nanmean(values[:, :, step]))
        figures[at_horizon("rmse", step + 1)] = float(np.sqrt(np.nanmean(away[:, :, step] ** 2)))
    return columns, figures


def _peak_figures(
    truth: Floats, peaks: Floats, scale: Floats, counted: Any
) -> tuple[dict[str, Floats], dict[str, float]]:
    high = np.where(np.isfinite(truth).any(axis=2), np.nanmax(np.nan_to_num(truth, nan=-1.0), axis=2), np.nan)
    levels = (0.9, 0.99)
    quantiles = quantiles_of(high[:, :, None], peaks[:, :, None], scale, levels)[counted][:, :, 0]
    actual, unit = high[counted], scale[None, :]
    columns = {
        f"pinball_{round(100 * level)}": pinball(actual, quantiles[..., index], level) / unit
        for index, level in enumerate(levels)
    }
    figures = {name: float(np.nanmean(values)) for name, values in columns.items()}
    known = np.isfinite(actual)
    figures["under_share"] = float((actual > peaks[counted])[known].mean())
    # The margin, in each series' own unit, that leaves the agreed share of peaks above: the same for every predictor.
    missing = ((actual - peaks[counted]) / unit)[known]
    margin = float(np.quantile(missing, 1.0 - VIOLATIONS))
    columns["slack_at_violations"] = np.where(known, 1.0 - np.clip(peaks[counted] + margin * unit, 0.0, 1.0), np.nan)
    figures["slack_at_violations"] = float(np.nanmean(columns["slack_at_violations"]))
    return columns, figures


class _UsersForecaster:
    """A user's object; its `fit` may be missing, and its errors name file and line."""

    def __init__(self, source: PolicySource) -> None:
        self._loaded, self._object = made(source, "forecast")

    def fit(self, history: Floats) -> None:
        method = getattr(self._object, "fit", None)
        if method is not None:
            self._loaded.call(method, history)

    def forecast(self, history: Floats) -> Floats:
        answer: Floats = self._loaded.call(self._object.forecast, history)
        return answer


def _forecaster(cell: LabCell, predictor: PolicySource | None, source: LabSource) -> SeriesForecaster:
    if predictor is not None:
        return _UsersForecaster(predictor)
    if cell.predictor not in SERIES_ENTRIES:
        raise InputError(f"there is no {cell.predictor!r}; there are {', '.join(SERIES_ENTRIES)}", field="--predictor")
    found = SERIES_ENTRIES[cell.predictor].make(cell.seed)
    if isinstance(found, Network) and source.steps is not None:
        found.steps = source.steps
    if isinstance(found, Pretrained):
        found.folder = dict(source.weights).get(cell.predictor)
    return found
