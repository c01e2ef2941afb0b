"""The predictors of series on the track: each answers the next twelve slots of many series from the slots before.

Called by `series.task`. A forecaster is fitted once on the first part of the series and queried again and again, each
time with a longer history: a copy that ends at the origin, so that it cannot look ahead. Invariant: the same histories
give the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_lab.predictor_lab.series.pretrained import ADAPTERS, SUMMARIES, Pretrained
from cotide_lab.predictors.usage_path.attention_network import VARIANTS, Variant
from cotide_lab.predictors.usage_path.inputs import DAY_SLOTS, PAST_SLOTS, WINDOW, filled_forward, windows_of
from cotide_lab.predictors.usage_path.path_network import PathNetwork
from cotide_predictors.host_load.arma import ArmaParameters, LastStateArma
from cotide_predictors.host_load.arma_fit import fit_group, stacked
from cotide_predictors.host_load.forecaster import HostLoadModel
from cotide_predictors.host_load.peak_rule import PeakRule

GROUP_SERIES: Final = 24
"""Series in the group fit of ARMA's parameters, as in the host-load experiment."""
RIDGE_WINDOWS: Final = 20_000
"""Training windows of a fit on lags, drawn by the seed (chosen)."""
PENALTY: Final = 1.0
"""Of the ridge, in units of scaled inputs (chosen)."""
SMOOTHING: Final = 0.3
"""As in `cotide_predictors.host_load.baselines`."""


class SeriesForecaster(Protocol):
    """The interface of every entry's forecaster."""

    def fit(self, history: Floats) -> None:
        """Learn from (n, t) slots; called once, before any forecast."""

    def forecast(self, history: Floats) -> Floats:
        """Return (n, 12) the slots after (n, t); called with longer and longer histories."""


class LastValue:
    """The last record, twelve times."""

    def fit(self, history: Floats) -> None:
        """Learn nothing."""

    def forecast(self, history: Floats) -> Floats:
        """Return the path."""
        return np.repeat(filled_forward(history)[:, -1:], WINDOW, axis=1)


class Highest:
    """The highest record of each series so far, twelve times: it covers every peak so far."""

    def fit(self, history: Floats) -> None:
        """Learn nothing."""

    def forecast(self, history: Floats) -> Floats:
        """Return the path."""
        return np.repeat(np.nan_to_num(history).max(axis=1, keepdims=True), WINDOW, axis=1)


class Yesterday:
    """The same slots of the day before; ``drift`` moves them by the difference of the last hour from yesterday's."""

    def __init__(self, *, drift: float = 0.0) -> None:
        self.drift = drift

    def fit(self, history: Floats) -> None:
        """Learn nothing."""

    def forecast(self, history: Floats) -> Floats:
        """Return the path; the last value where there is no day yet."""
        filled = filled_forward(history[:, -PAST_SLOTS:])
        if filled.shape[1] < DAY_SLOTS + WINDOW:
            return np.repeat(filled[:, -1:], WINDOW, axis=1)
        path = filled[:, -DAY_SLOTS:][:, :WINDOW]
        moved = filled[:, -WINDOW:].mean(axis=1) - filled[:, :-DAY_SLOTS][:, -WINDOW:].mean(axis=1)
        found: Floats = np.maximum(path + self.drift * moved[:, None], 0.0)
        return found


class Smoothing:
    """Exponential smoothing of the latest day."""

    def fit(self, history: Floats) -> None:
        """Learn nothing."""

    def forecast(self, history: Floats) -> Floats:
        """Return the path."""
        day = filled_forward(history[:, -DAY_SLOTS:])
        weights = SMOOTHING * (1.0 - SMOOTHING) ** np.arange(day.shape[1])[::-1]
        level = day @ weights / weights.sum()
        return np.repeat(level[:, None], WINDOW, axis=1)


class _OnRecords:
    """Base of forecasters that take one slot at a time: it records the new slots since the last query."""

    def __init__(self) -> None:
        self._seen = 0

    def _record_new(self, history: Floats, record: Callable[[Floats], None]) -> None:
        for slot in range(self._seen, history.shape[1]):
            record(history[:, slot])
        self._seen = history.shape[1]


class Arma(_OnRecords):
    """ARMA(1,1) on the latest two days before the first origin, for a group of series or for each.

    A group's parameters run around each series' own running mean.
    """

    def __init__(self, *, seed: int, each: bool = False) -> None:
        super().__init__()
        self.seed = seed
        self.each = each

    def fit(self, history: Floats) -> None:
        """Fit each series by itself, or some as a group; a series without a fit has the defaults."""
        hosts = len(history)
        if self.each:
            fits = [fit_group(series[None, -2 * DAY_SLOTS :]) for series in history]
            self._model = LastStateArma(stacked(fits, ArmaParameters.default(hosts)))
            return
        self._model = LastStateArma(_common_fit(history[:, -2 * DAY_SLOTS :], self.seed, np.full(hosts, np.nan)))

    def forecast(self, history: Floats) -> Floats:
        """Return the path."""
        self._record_new(history, self._model.record)
        return np.maximum(np.nan_to_num(self._model.path(WINDOW)), 0.0)


class Arima:
    """ARIMA(1,1,1) without drift: ARMA(1,1) on first differences, fitted as a group on the whole history."""

    def __init__(self, *, seed: int) -> None:
        self.seed = seed
        self._seen = 1

    def fit(self, history: Floats) -> None:
        """Fit some series' differences as a group."""
        steps = np.diff(filled_forward(history), axis=1)
        self._model = LastStateArma(_common_fit(steps, self.seed, np.zeros(len(history))))

    def forecast(self, history: Floats) -> Floats:
        """Return the path: the last record and the sums of the differences to come."""
        filled = filled_forward(history)
        for slot in range(self._seen, history.shape[1]):
            self._model.record(filled[:, slot] - filled[:, slot - 1])
        self._seen = history.shape[1]
        steps = np.nan_to_num(self._model.path(WINDOW))
        return np.maximum(filled[:, -1:] + np.cumsum(steps, axis=1), 0.0)


def _common_fit(history: Floats, seed: int, mean: Floats) -> ArmaParameters:
    """Return one fit of up to `GROUP_SERIES` series for all, around the given (n,) means; nan: the running mean."""
    hosts = len(history)
    drawn = np.random.default_rng(seed).choice(hosts, min(GROUP_SERIES, hosts), replace=False)
    found = fit_group(history[np.sort(drawn)])
    if found is None:
        default = ArmaParameters.default(hosts)
        return ArmaParameters(default.ar, default.ma, mean)
    return ArmaParameters(np.tile(found.ar, (hosts, 1)), np.tile(found.ma, (hosts, 1)), mean)


class HostLoad(_OnRecords):
    """Cotide's own peak forecaster: ARMA around the running mean for the path, its mixture's p90 for the peak."""

    def fit(self, history: Floats) -> None:
        """Begin; it learns as it records."""
        self._model = HostLoadModel(len(history), horizons=(1, WINDOW), ceiling=float(np.nanmax(history, initial=1.0)))

    def forecast(self, history: Floats) -> Floats:
        """Return the path."""
        self._record_new(history, self._model.record)
        return np.clip(np.nan_to_num(self._model.arma.path(WINDOW)), 0.0, self._model.ceiling)

    def peak(self, history: Floats) -> Floats:
        """Return (n,) the p90 of the peak over the next twelve slots."""
        self._record_new(history, self._model.record)
        return np.nan_to_num(self._model.forecast(WINDOW).p90)


class SigmaPercentile(_OnRecords):
    """The larger of N-sigma and a decaying percentile, a peak rule of other systems; its median for the path."""

    def fit(self, history: Floats) -> None:
        """Begin; it learns as it records."""
        self._model = PeakRule(len(history), ceiling=float(np.nanmax(history, initial=1.0)))

    def forecast(self, history: Floats) -> Floats:
        """Return the path."""
        self._record_new(history, self._model.record)
        return np.repeat(self._model.forecast().p50[:, None], WINDOW, axis=1)

    def peak(self, history: Floats) -> Floats:
        """Return (n,) the p90 of the records, which is the rule's forecast for any slots to come."""
        self._record_new(history, self._model.record)
        return self._model.forecast().p90


class OnLags:
    """Regression of each horizon on the nine inputs' window: ridge or boosted trees.

    ``daily``: fitted once more whenever a day has gone by; else once, as networks are.
    """

    def __init__(self, *, seed: int, boosted: bool = False, daily: bool = False) -> None:
        self.seed = seed
        self.boosted = boosted
        self.daily = daily
        self._fitted_slots = 0

    def fit(self, history: Floats) -> None:
        """Learn from windows drawn over the history."""
        self._fitted_slots = history.shape[1]
        filled = filled_forward(history)
        generator = np.random.default_rng((self.seed, self._fitted_slots))
        row = generator.integers(0, len(filled), RIDGE_WINDOWS)
        origin = generator.integers(PAST_SLOTS, filled.shape[1] - WINDOW + 1, RIDGE_WINDOWS)
        windows = windows_of(filled[row[:, None], origin[:, None] + np.arange(-PAST_SLOTS, 0)], origin)
        target = (filled[row[:, None], origin[:, None] + np.arange(WINDOW)] - windows.mean) / windows.deviation
        self._learn(_flat(windows.inputs), np.clip(target, -8.0, 8.0))

    def forecast(self, history: Floats) -> Floats:
        """Return the path; a daily fit first learns again when a day has gone by."""
        if self.daily and history.shape[1] - self._fitted_slots >= DAY_SLOTS:
            self.fit(history)
        past = filled_forward(history[:, -PAST_SLOTS:])
        windows = windows_of(past, np.full(len(past), history.shape[1], dtype=np.int64))
        scaled = self._answer(_flat(windows.inputs))
        return np.maximum(windows.mean + windows.deviation * scaled, 0.0)

    def _learn(self, inputs: Floats, target: Floats) -> None:
        if self.boosted:
            import xgboost

            data = xgboost.QuantileDMatrix(inputs, target, nthread=1)
            wanted = {"eta": 0.15, "max_depth": 4, "nthread": 1, "seed": self.seed, "tree_method": "hist"}
            self._model: Any = xgboost.train(wanted, data, 40)
            return
        wide = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
        normal = wide.T @ wide + PENALTY * np.eye(wide.shape[1])
        self._model = np.linalg.solve(normal, wide.T @ target)

    def _answer(self, inputs: Floats) -> Floats:
        if self.boosted:
            return np.asarray(self._model.inplace_predict(inputs), dtype=np.float64)
        found: Floats = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1) @ self._model
        return found


class Network:
    """A row of Table 7.4: trained with JAX on the history, run with numpy."""

    def __init__(self, *, seed: int, variant: Variant) -> None:
        self.seed = seed
        self.variant = variant
        self.steps: int | None = None
        self.network: PathNetwork | None = None

    def fit(self, history: Floats) -> None:
        """Train; without JAX the error names the package to install."""
        from cotide_lab.predictors.usage_path.training import STEPS, trained

        self.network = trained(history, self.variant, seed=self.seed, steps=self.steps or STEPS)

    def forecast(self, history: Floats) -> Floats:
        """Return the path."""
        if self.network is None:
            raise ValueError("queried before it was fitted")
        return self.network.forecast(history)


@dataclass(frozen=True, slots=True)
class SeriesEntry:
    """One predictor: makes a forecaster under a seed; one line for tables."""

    make: Callable[[int], SeriesForecaster]
    summary: str
    source: str


def _flat(inputs: Any) -> Floats:
    """Return (b, k) windows' values, and the other inputs of the last slot."""
    return np.concatenate([inputs[:, :, 0], inputs[:, :, 8], inputs[:, -1, 1:8]], axis=1).astype(np.float64)


_THESIS: Final = "Naghshnejad 2019, Table 7.4"
_NETWORKS: Final = {
    "ann": "plain network on 108 inputs",
    "lstm": "encoder-decoder LSTM",
    "lstm-inp": "with input attention",
    "lstm-tp": "with temporal attention",
    "lstm-inp-tp": "with input and temporal attention",
    "lstm-inp-tp-bias": "with both and consistency bias",
}
SERIES_ENTRIES: Final[Mapping[str, SeriesEntry]] = MappingProxyType(
    {
        "last-value": SeriesEntry(lambda _: LastValue(), "the last record", "Naghshnejad 2019, 7.5"),
        "highest": SeriesEntry(lambda _: Highest(), "the highest record so far", "-"),
        "yesterday": SeriesEntry(lambda _: Yesterday(), "same time yesterday", "Naghshnejad 2019, 7.5"),
        "yesterday-drift": SeriesEntry(lambda _: Yesterday(drift=1.0), "yesterday, moved to today's level", "-"),
        "smoothing": SeriesEntry(lambda _: Smoothing(), "exponential smoothing", "-"),
        "arma": SeriesEntry(lambda seed: Arma(seed=seed), "ARMA(1,1) on two days, group fit", "-"),
        "arma-each": SeriesEntry(
            lambda seed: Arma(seed=seed, each=True), "ARMA(1,1) on two days, a fit of each series", "-"
        ),
        "arima": SeriesEntry(
            lambda seed: Arima(seed=seed), "ARIMA(1,1,1) on the whole history, group fit", "Naghshnejad 2019, 7.5"
        ),
        "ridge": SeriesEntry(lambda seed: OnLags(seed=seed), "ridge on lags and calendar, fitted once", "-"),
        "ridge-daily": SeriesEntry(lambda seed: OnLags(seed=seed, daily=True), "the same, fitted every day", "-"),
        "boosting": SeriesEntry(
            lambda seed: OnLags(seed=seed, boosted=True), "boosted trees on lags, fitted once", "-"
        ),
        "boosting-daily": SeriesEntry(
            lambda seed: OnLags(seed=seed, boosted=True, daily=True), "the same, fitted every day", "-"
        ),
        "host-load": SeriesEntry(lambda _: HostLoad(), "our own peak forecaster", "Cotide"),
        "sigma-percentile": SeriesEntry(
            lambda _: SigmaPercentile(), "max of N-sigma and percentile (hostLoad.predictor)", "Bashir and others 2021"
        ),
    }
    | {
        variant: SeriesEntry(partial(lambda variant, seed: Network(seed=seed, variant=variant), variant),
                             _NETWORKS[variant], _THESIS)
        for variant in VARIANTS
    }
    | {name: SeriesEntry(partial(lambda name, _: Pretrained(name), name), *SUMMARIES[name]) for name in ADAPTERS}
)  # fmt: skip
"""By name."""
