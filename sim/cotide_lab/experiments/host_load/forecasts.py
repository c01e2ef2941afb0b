"""Experiment host-load: accuracy of host-load forecasts, ours and those of others, on one set of series.

Called by `experiment_command` for each set. Two questions, two tables. Points (Jiang et al., section V-A): mean
squared error (eq. 16) with and without the last-state correction, share and mean size of under-estimates. Quantiles:
pinball loss and coverage at p90 and p99, and the slack that a p99 leaves for batch work.

Every method sees the same records and is judged on the same slots: after the warm-up, where each has a forecast.
Forecasts are cut to [0, 1]. ARMA's parameters are fitted on the warm-up and fixed from then on: host by host on small
sets, one set of parameters with each host's own mean on large ones. Invariant: no forecast sees its own slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load import baselines
from cotide_predictors.host_load.arma import ArmaParameters, LastStateArma
from cotide_predictors.host_load.arma_fit import fit_group
from cotide_predictors.host_load.feedback_ar import FeedbackAr
from cotide_predictors.host_load.forecaster import HostLoadModel
from cotide_predictors.host_load.refit import refit
from cotide_sim.traces.load.load_series import LoadSeries

OURS: Final = "cotide"
BEST_RIVAL: Final = "max(N-sigma, percentile)"
LEVELS: Final = (0.5, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998)
"""The levels kept in the experiment; those beyond p50, p90 and p99 draw the curve of slack against violations."""
WHOLE: Final = "the whole machine"
"""Forecasts a full host and sells nothing: the contender that refuses everything."""
NOTHING: Final = "nothing"
"""Forecasts an idle host and sells everything: the contender that ignores the load."""
COVERAGE_BAND: Final = (0.98, 0.997)
WARM_UP_SLOTS: Final = 288
HOSTS_FITTED_ONE_BY_ONE: Final = 100
GROUP_HOSTS: Final = 24

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PointScore:
    """The accuracy of one point forecast; ``underestimate_size`` is the mean over the under-estimated slots."""

    method: str
    mse: float
    underestimates: float
    underestimate_size: float
    underestimate_mean: float


@dataclass(frozen=True, slots=True)
class QuantileScore:
    """The accuracy of one method's p90 and p99; ``slack_p99`` is the mean of 1 - p99."""

    method: str
    pinball_p90: float
    pinball_p99: float
    coverage_p90: float
    coverage_p99: float
    slack_p99: float


@dataclass(frozen=True, slots=True)
class SameViolation:
    """Slack offered at the violation rate of `BEST_RIVAL`'s p99; ours is read from our curve over the levels."""

    violation: float
    rival_slack: float
    slack: float


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """The last days of one host, for a plot."""

    host: str
    load: Floats
    p50: Floats
    p99: Floats


@dataclass(frozen=True, slots=True, eq=False)
class SetReport:
    """The measurements on one set; ``missed`` names the bars that were not reached, in words."""

    name: str
    hosts: int
    slots: int
    warm_up_slots: int
    records: int
    arma: str
    points: tuple[PointScore, ...]
    quantiles: tuple[QuantileScore, ...]
    same_violation: SameViolation
    curve: tuple[tuple[float, float], ...]
    missed: tuple[str, ...]
    example: Example


def run_set(series: LoadSeries, *, seed: int, workers: int = 0, progress: Progress = lambda _text: None) -> SetReport:
    """Forecast every slot of a set by every method and score them.

    Parameters
    ----------
    seed : draws the hosts of a group fit. workers : processes for fits host by host; 0: none.
    """
    load = np.minimum(series.load, 1.0)
    warm_up = warm_up_slots(load.shape[1])
    progress(f"{series.name}: fitting ARMA(1,1) on {warm_up} slots")
    parameters, how = _fit(load[:, :warm_up], np.random.default_rng(seed), workers)
    progress(f"{series.name}: forecasting {load.shape[1]} slots of {len(load)} hosts")
    plain, corrected, feedback, ours = _forecast(load, parameters)
    simple = {
        "last value": baselines.last_value(load),
        "mean": baselines.running_mean(load),
        "exponential smoothing": baselines.exponential_smoothing(load),
        WHOLE: np.ones(load.shape),
        NOTHING: np.zeros(load.shape),
    }
    progress(f"{series.name}: baselines")
    p90, p99 = ({**simple, **_baseline_quantiles(load, level)} for level in (0.9, 0.99))
    scored = np.isfinite(load) & np.isfinite(plain)
    scored[:, :warm_up] = False
    for found in (*simple.values(), *p90.values()):
        scored &= np.isfinite(found)
    points = {"ARMA(1,1)": plain, "ARMA(1,1), last state": corrected, "feedback AR(2)": feedback, **simple}
    truth = load[scored]
    p90[OURS], p99[OURS] = (ours[..., LEVELS.index(level)] for level in (0.9, 0.99))
    quantiles = tuple(_score_quantiles(name, truth, _cut(p90[name][scored]), _cut(p99[name][scored])) for name in p90)
    curve = tuple(
        (float((truth > found).mean()), float((1 - found).mean()))
        for found in (ours[..., index][scored] for index in range(1, len(LEVELS)))
    )
    best = next(score for score in quantiles if score.method == BEST_RIVAL)
    same = _same_violation(best, curve)
    return SetReport(
        name=series.name,
        hosts=len(load),
        slots=load.shape[1],
        warm_up_slots=warm_up,
        records=len(truth),
        arma=how,
        points=tuple(_score_points(name, truth, _cut(found[scored])) for name, found in points.items()),
        quantiles=quantiles,
        same_violation=same,
        curve=curve,
        missed=_missed(series.name, quantiles, same),
        example=_example(series, load, ours),
    )


def warm_up_slots(slots: int) -> int:
    """Return a day, or a quarter of the series where that is less."""
    return min(WARM_UP_SLOTS, slots // 4)


def _fit(history: Floats, generator: np.random.Generator, workers: int) -> tuple[ArmaParameters, str]:
    hosts = len(history)
    if hosts <= HOSTS_FITTED_ONE_BY_ONE:
        return refit(history, workers=workers), "fitted host by host"
    chosen = np.sort(generator.choice(hosts, GROUP_HOSTS, replace=False))
    fit = fit_group(history[chosen])
    counts = np.maximum(np.isfinite(history).sum(axis=1), 1)
    means = np.where(np.isfinite(history).any(axis=1), np.nansum(history, axis=1) / counts, np.nan)
    if fit is None:
        return ArmaParameters.default(hosts), "default parameters: the group could not be fitted"
    ar, ma = np.tile(fit.ar, (hosts, 1)), np.tile(fit.ma, (hosts, 1))
    return ArmaParameters(ar, ma, means), f"fitted on a group of {GROUP_HOSTS} hosts, each with its own mean"


def _forecast(load: Floats, parameters: ArmaParameters) -> tuple[Floats, Floats, Floats, Floats]:
    """Return ARMA without and with last state, feedback AR (n, m), and our quantiles (n, m, Q)."""
    hosts, slots = load.shape
    arma, feedback = LastStateArma(parameters), FeedbackAr(hosts)
    model = HostLoadModel(hosts, levels=LEVELS)
    plain, corrected, fed = (np.full(load.shape, np.nan) for _ in range(3))
    ours = np.full((hosts, slots, len(LEVELS)), np.nan)
    for slot in range(slots):
        if slot:
            plain[:, slot] = arma.path(1)[:, 0]
            corrected[:, slot] = arma.corrected()
            fed[:, slot] = feedback.path(1)[:, 0]
            ours[:, slot] = model.quantiles()
        for forecaster in (arma, feedback, model):
            forecaster.record(load[:, slot])
    return plain, corrected, fed, ours


def _baseline_quantiles(load: Floats, level: float) -> dict[str, Floats]:
    sigma, percentile = baselines.n_sigma(load, level), baselines.decayed_percentile(load, level)
    found = (sigma, percentile, np.maximum(sigma, percentile))
    return dict(zip(baselines.QUANTILES, found, strict=True))


def _cut(found: Floats) -> Floats:
    return np.clip(found, 0.0, 1.0)


def pinball(truth: Floats, found: Floats, level: float) -> float:
    """Return the mean pinball loss of a quantile at a level in (0, 1)."""
    over = truth - found
    return float(np.maximum(level * over, (level - 1) * over).mean())


def _score_points(name: str, truth: Floats, found: Floats) -> PointScore:
    short = np.maximum(truth - found, 0.0)
    under: NDArray[np.bool_] = short > 0
    return PointScore(
        method=name,
        mse=float(((truth - found) ** 2).mean()),
        underestimates=float(under.mean()),
        underestimate_size=float(short[under].mean()) if under.any() else 0.0,
        underestimate_mean=float(short.mean()),
    )


def _score_quantiles(name: str, truth: Floats, p90: Floats, p99: Floats) -> QuantileScore:
    return QuantileScore(
        method=name,
        pinball_p90=pinball(truth, p90, 0.9),
        pinball_p99=pinball(truth, p99, 0.99),
        coverage_p90=float((truth <= p90).mean()),
        coverage_p99=float((truth <= p99).mean()),
        slack_p99=float((1 - p99).mean()),
    )


def _same_violation(best: QuantileScore, curve: tuple[tuple[float, float], ...]) -> SameViolation:
    violation = 1 - best.coverage_p99
    rising = sorted(curve)
    slack = np.interp(violation, [point[0] for point in rising], [point[1] for point in rising])
    return SameViolation(violation, best.slack_p99, float(slack))


def _missed(name: str, quantiles: tuple[QuantileScore, ...], same: SameViolation) -> tuple[str, ...]:
    ours = next(score for score in quantiles if score.method == OURS)
    missed = []
    low, high = COVERAGE_BAND
    if not low <= ours.coverage_p99 <= high:
        missed.append(f"{name}: p99 covers {ours.coverage_p99:.2%}, not {low:.1%} to {high:.1%}")
    if same.slack < same.rival_slack:
        missed.append(f"{name}: slack {same.slack:.2%} at equal violations, {BEST_RIVAL} offers {same.rival_slack:.2%}")
    missed += [
        f"{name}: {level.replace('_', ' at ')} is not below that of {score.method}"
        for score in quantiles
        for level in ("pinball_p90", "pinball_p99")
        if score is not ours and getattr(ours, level) >= getattr(score, level)
    ]
    return tuple(missed)


def _example(series: LoadSeries, load: Floats, ours: Floats) -> Example:
    """Return the last two days of the host with the median standard deviation of load."""
    spreads = np.array([np.nanstd(row) if np.isfinite(row).any() else 0.0 for row in load])
    host = int(np.argsort(spreads)[len(spreads) // 2])
    stretch = slice(-576, None)
    p99 = ours[host, stretch, LEVELS.index(0.99)]
    return Example(series.hosts[host], load[host, stretch], ours[host, stretch, LEVELS.index(0.5)], p99)
