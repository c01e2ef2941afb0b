"""The run-time predictors on the track: each turns a log into forecasts, every one made at its job's submission.

Called by `run_times.task`. Invariant: a forecast uses only jobs that finished before its submission. One law test runs
over this registry and over files of users, so an entry that looks ahead fails there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_lab.predictor_lab.run_times.live_forecasters import live_forecasts
from cotide_lab.predictors.run_time.event_forecasts import event_forecasts
from cotide_lab.predictors.run_time.kernels.run_forecasts import LEARNED
from cotide_lab.predictors.run_time.mixture_density.density_network import DensityNetwork
from cotide_lab.predictors.run_time.mixture_density.rolling_density import past_inputs, rolling_mixtures, thesis_inputs
from cotide_lab.predictors.run_time.rolling import rolling_distributions
from cotide_predictors.run_time.distributions import Distributions
from cotide_predictors.run_time.gaussian_mixtures import GaussianMixtures
from cotide_predictors.run_time.habits.live_catalogue import HABITS, LIVE_PREDICTORS, LivePredictor
from cotide_predictors.run_time.heuristics import HEURISTICS, bounded, within_request
from cotide_predictors.run_time.history import snapshots
from cotide_predictors.run_time.jobs import RunLog, codes, event_order
from cotide_predictors.run_time.kalman.forecasts import Kind, kalman_forecasts, points_of
from cotide_predictors.run_time.kalman.smoothing import exponentially_smoothed
from cotide_predictors.run_time.kernels.tree_forecasts import edges
from cotide_predictors.run_time.regression import regressed, table_4_1
from cotide_predictors.run_time.tree_features import DAY_SECONDS, tree_features

LONG_LOG_SECONDS: Final = 400 * DAY_SECONDS
"""Logs longer than this rebuild their models every ten days instead of every day (chosen, for time)."""


@dataclass(frozen=True, slots=True)
class RunTimeForecasts:
    """Forecasts of n jobs.

    Attributes
    ----------
    point : (n,) seconds: orders jobs, and is judged by accuracy.
    median : (n,) seconds: judged by absolute error; the point where there is no distribution.
    upper : (n,) seconds that nine in ten jobs shall not outlive; None where the predictor gives none.
    log_density : (n,) of the log run time; None without a distribution.
    """

    point: Floats
    median: Floats
    upper: Floats | None = None
    log_density: Floats | None = None


@dataclass(frozen=True, slots=True)
class RunTimeEntry:
    """One predictor: its forecasts of a log under a seed, and one line for tables."""

    forecasts: Callable[[RunLog, int], RunTimeForecasts]
    summary: str
    source: str


def _heuristic(name: str, log: RunLog, seed: int) -> RunTimeForecasts:
    del seed
    rows = snapshots(codes(log.jobs.user), log.jobs, log.run_seconds, log.finish_seconds)
    return _points(HEURISTICS[name](rows, log.jobs.requested_seconds))


def _smoothing(log: RunLog, seed: int) -> RunTimeForecasts:
    del seed
    return _points(bounded(exponentially_smoothed(log), log.jobs.requested_seconds))


def _regression(log: RunLog, seed: int) -> RunTimeForecasts:
    del seed
    rows = snapshots(codes(log.jobs.user), log.jobs, log.run_seconds, log.finish_seconds)
    events = event_order(log.jobs.submit_seconds, log.finish_seconds)
    return _points(regressed(events, table_4_1(rows, log.jobs), log.run_seconds, log.jobs.requested_seconds))


def _kalman(kind: Kind, log: RunLog, seed: int) -> RunTimeForecasts:
    del seed
    return _from_mixtures(kalman_forecasts(log, kind), log)


def _kalman_printed(log: RunLog, seed: int) -> RunTimeForecasts:
    del seed
    found = kalman_forecasts(log, "mlkf", point="likelier")
    return _points(points_of(found, log.jobs.requested_seconds, "likelier"))


def _density(hidden: tuple[int, ...], past: bool, log: RunLog, seed: int) -> RunTimeForecasts:
    network = DensityNetwork(hidden=hidden, random_state=seed)
    inputs = past_inputs(log) if past else thesis_inputs(log)
    return _from_mixtures(rolling_mixtures(log, inputs, model=network, every_seconds=every_seconds(log)), log)


def _density_printed(log: RunLog, seed: int) -> RunTimeForecasts:
    network = DensityNetwork(random_state=seed)
    found = rolling_mixtures(log, thesis_inputs(log), model=network, every_seconds=every_seconds(log))
    return _points(within_request(found.highest_centre(), log.jobs.requested_seconds))


def _habits(log: RunLog, seed: int) -> RunTimeForecasts:
    found = event_forecasts(log, LEARNED, seed=seed)
    return RunTimeForecasts(found.point, found.point, found.upper)


def _live(name: LivePredictor, log: RunLog, seed: int) -> RunTimeForecasts:
    del seed
    point, upper = live_forecasts(log, name)
    return RunTimeForecasts(point, point, upper)


def _trees(log: RunLog, seed: int) -> RunTimeForecasts:
    from cotide_lab.predictors.run_time.hazard import HazardTrees

    model = HazardTrees(random_state=seed)
    found = rolling_distributions(log, tree_features(log), model=model, every_seconds=every_seconds(log))
    return from_distributions(found, log, _density_of(found, log.run_seconds))


def every_seconds(log: RunLog) -> float:
    """Return the time between rebuilds on a log: a day, ten days on long ones."""
    submit = log.jobs.submit_seconds
    return DAY_SECONDS if submit[-1] - submit[0] <= LONG_LOG_SECONDS else 10 * DAY_SECONDS


def _points(point: Floats) -> RunTimeForecasts:
    return RunTimeForecasts(point, point)


def _from_mixtures(found: GaussianMixtures, log: RunLog) -> RunTimeForecasts:
    density = -found.negative_log_likelihood(log.run_seconds)
    return from_distributions(found.binned(edges(), log.jobs.requested_seconds), log, density)


def from_distributions(found: Distributions, log: RunLog, log_density: Floats) -> RunTimeForecasts:
    """Return the points for each use of whole distributions."""
    requested = log.jobs.requested_seconds
    return RunTimeForecasts(
        point=within_request(found.most_accurate(), requested),
        median=within_request(found.median(), requested),
        upper=within_request(found.quantile(0.9), requested),
        log_density=log_density,
    )


def _density_of(found: Distributions, run_seconds: Floats) -> Floats:
    """Return (n,) log densities of the log run times under bins, each even over its width."""
    nearest = np.clip(np.searchsorted(found.edges, np.log(run_seconds), side="right") - 1, 0, found.masses.shape[1] - 1)
    width = found.edges[1] - found.edges[0]
    # A bin without any mass counts as one with a millionth: otherwise one such job would decide the mean alone.
    density: Floats = np.log(np.maximum(found.masses[np.arange(len(found)), nearest], 1e-6) / width)
    return density


ENTRIES: Final[Mapping[str, RunTimeEntry]] = MappingProxyType(
    {
        "user-estimate": RunTimeEntry(partial(_heuristic, "user-estimate"), "the requested time", "-"),
        "last-two": RunTimeEntry(
            partial(_heuristic, "last-two-runs"), "mean of the user's last two runs (MA2)", "Naghshnejad 2019, 5.4.1"
        ),
        "maximum-of-five": RunTimeEntry(
            partial(_heuristic, "maximum-of-five"), "request x the largest of five run/request ratios", "-"
        ),
        "exponential-smoothing": RunTimeEntry(_smoothing, "of the user's runs (ES)", "Naghshnejad 2019, eq. 5.6"),
        "regression": RunTimeEntry(_regression, "on-line polynomial regression", "Naghshnejad 2019, 4.4.4"),
        "fmkf": RunTimeEntry(partial(_kalman, "fmkf"), "level and regression mixed", "Naghshnejad 2019, 5.3.3"),
        "mlkf": RunTimeEntry(partial(_kalman, "mlkf"), "short and long levels mixed", "Naghshnejad 2019, 5.3.4"),
        "mlkf-printed": RunTimeEntry(_kalman_printed, "level of the likelier class alone", "Naghshnejad 2019, 5.3.4"),
        "mdn": RunTimeEntry(
            partial(_density, (64,), True),
            "density network, one layer, past runs among inputs",
            "Naghshnejad 2019, 6.3",
        ),
        "mdn-deep": RunTimeEntry(
            partial(_density, (64, 32), True), "two layers, past runs among inputs", "Naghshnejad 2019, 6.3"
        ),
        "mdn-printed": RunTimeEntry(
            _density_printed, "one layer, printed inputs, highest centre (eq. 6.3)", "Naghshnejad 2019, 6.3"
        ),
        "mixture": RunTimeEntry(_habits, "mixture of the user's past runs (--runtime learned)", "Cotide"),
        "live-mixture": RunTimeEntry(
            partial(_live, "habits"), "the same as it runs live: no request ends a job", "Cotide"
        ),
        "trees": RunTimeEntry(_trees, "boosted trees over bins of log seconds", "Cotide"),
    }
    | {
        f"live-{name}": RunTimeEntry(
            partial(_live, name), f"{name} as it runs live (runTimePredictor)", "Naghshnejad 2019, chapters 4 and 5"
        )
        for name in LIVE_PREDICTORS
        if name != HABITS
    }
)
"""By name."""
