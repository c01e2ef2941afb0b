"""Experiment host-load, second question: how much will batch and gratis pods hold at most in the slot that begins?

Called by ``cotide experiment host-load --allocated``. Each day of `hierarchical.data_center` is played once, planned as
the product plans. All contenders see the same records, placements and ends of that one day, and are scored on the same
slot starts. Three of them are the feedback AR(2) of Jiang et al., section IV-B: with the present load appended as its
newest record, with the last record overwritten by it (as this project did before), and on slot maxima alone. The fourth
is the present load without a model. Each of the first three also runs with the present load as a lower bound, since a
slot's maximum cannot lie below it. The present load also runs with the mean rise of the latest slots above the load at
their starts.

Invariant: no contender sees the slot that it forecasts; same seeds, same figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.config import SchedulerConfig
from cotide_core.kernels.array_types import Floats
from cotide_lab.experiments.hierarchical.data_center import DAY_SECONDS, MACHINES, draw_tasks, draw_usage
from cotide_lab.experiments.hierarchical.engine_run import Drive
from cotide_lab.experiments.hierarchical.forecasters import RESOURCES, Predicted, slot_maxima
from cotide_lab.experiments.hierarchical.schedule import DEFAULT_LOAD, DEFAULTS, PAPER_SLOT
from cotide_lab.experiments.host_load.forecasts import pinball
from cotide_lab.experiments.services.judgement import interval
from cotide_predictors.host_load.feedback_ar import WINDOW_SLOTS, FeedbackAr, HeldLoad
from cotide_predictors.host_load.forecaster import ALLOCATED, Centre, HostLoadModel

HELD: Final = "held now"
APPENDED: Final = "AR(2), held now appended"
OVERWRITTEN: Final = "AR(2), last record overwritten"
MAXIMA: Final = "AR(2), slot maxima alone"
IN_USE: Final = "held now and the mean rise"
AT_LEAST: Final = ", at least held"
WHOLE: Final = "the whole machine"
CENTRES: Final[tuple[Centre, ...]] = (ALLOCATED, "held-now", "feedback-ar")
WARM_UP: Final = 12
"""Slots of the day before the first scored slot (chosen: an hour)."""
SEEDS: Final = tuple(range(10))


@dataclass(frozen=True, slots=True)
class PointRow:
    """One point forecast over the seeds.

    Attributes
    ----------
    mse : mean squared error, shares of capacity squared. under : share of slots above it; under_mean : mean short-fall.
    behind : mse less that of `IN_USE`, mean over seeds; low, high : its 95 % interval, widened for the contenders.
    """

    method: str
    mse: float
    under: float
    under_mean: float
    behind: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class QuantileRow:
    """The quantiles around one centre; losses are pinball losses times 1000, ``behind`` as in `PointRow` at p90."""

    centre: str
    pinball_p90: float
    pinball_p99: float
    coverage_p90: float
    coverage_p99: float
    behind: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Report:
    """Both tables; ``changed`` is the share of slots with a maximum different from the load held at their start."""

    seeds: int
    slots: int
    changed: float
    points: tuple[PointRow, ...]
    quantiles: tuple[QuantileRow, ...]
    missed: tuple[str, ...]


class Shadows:
    """Plans like the product, and asks every contender for a forecast of each slot at its start.

    Attributes
    ----------
    truth, points, quantiles : one (12,) entry a slot: maxima held, forecasts by name, p90 and p99 by centre.
    """

    def __init__(self, histories: Floats) -> None:
        self._plan = Predicted(histories, online="p90", batch="p90")
        hosts = RESOURCES * len(MACHINES)
        self._appended, self._maxima = FeedbackAr(hosts), FeedbackAr(hosts)
        self._overwritten: list[Floats] = []
        self._models = {centre: HostLoadModel(hosts, centre=centre) for centre in CENTRES}
        self._risen = HeldLoad(hosts)
        self._made: tuple[dict[str, Floats], dict[str, Floats]] | None = None
        self.truth: list[Floats] = []
        self.points: list[dict[str, Floats]] = []
        self.quantiles: list[dict[str, Floats]] = []

    def record(self, online: Floats, batch: Floats) -> None:
        """Score the slot that ended, and learn from it."""
        values = batch.ravel().copy()
        if self._made is not None:
            self.truth.append(np.minimum(values, 1.0))
            self.points.append(self._made[0])
            self.quantiles.append(self._made[1])
        self._made = None
        self._plan.record(online, batch)
        for record in (self._appended.record, self._maxima.record, self._risen.record):
            record(values)
        for model in self._models.values():
            model.record(values)
        self._overwritten = [*self._overwritten[1 - WINDOW_SLOTS :], values]

    def revise(self, batch: Floats) -> None:
        """Record the present allocation."""
        held = batch.ravel().copy()
        rows = np.arange(len(held))
        self._plan.revise(batch)
        self._appended.revise(rows, held)
        self._risen.revise(rows, held)
        self._overwritten[-1] = held
        for model in self._models.values():
            model.revise(rows.tolist(), held)

    def forecast(self, online: Floats, batch: Floats) -> tuple[Floats, Floats]:
        """Return the plan's forecast; at the first request of a slot, the contenders forecast, too."""
        if self._made is None:
            self._made = self._forecasts(batch.ravel().copy())
        return self._plan.forecast(online, batch)

    def _forecasts(self, held: Floats) -> tuple[dict[str, Floats], dict[str, Floats]]:
        before = FeedbackAr(len(held))
        for values in self._overwritten:
            before.record(values)
        models = {APPENDED: self._appended, OVERWRITTEN: before, MAXIMA: self._maxima}
        points = {IN_USE: self._risen.path(1)[:, 0], HELD: held}
        for name, series in models.items():
            found = np.clip(series.path(1)[:, 0], 0.0, 1.0)
            points |= {name: found, name + AT_LEAST: np.fmax(found, held)}
        points[WHOLE] = np.ones(len(held))
        quantiles: dict[str, Floats] = {}
        for centre, model in self._models.items():
            made = model.forecast()
            quantiles[centre] = np.stack([np.fmax(made.p90, held), np.fmax(made.p99, held)])
        return {name: np.minimum(values, 1.0) for name, values in points.items()}, quantiles


def run(seeds: Sequence[int] = SEEDS, progress: Callable[[str], object] = str) -> Report:
    """Play the days of the seeds and score every contender; at least two seeds, for intervals."""
    days = []
    for seed in seeds:
        days.append(_played(seed))
        progress(f"seed {seed} is done")
    names = list(days[0].points[0])
    truth = [np.array(day.truth) for day in days]
    errors = {
        name: [np.array([slot[name] for slot in day.points]) - now for day, now in zip(days, truth, strict=True)]
        for name in names
    }
    used = np.array([float((error**2).mean()) for error in errors[IN_USE]])
    points = tuple(_point(name, errors[name], used, len(names) - 1) for name in names)
    quantiles = tuple(_quantiles(centre, days, truth) for centre in CENTRES)
    changed = float(np.mean([(np.abs(error) > 1e-9).mean() for error in errors[HELD]]))
    return Report(len(seeds), sum(len(now) for now in truth), changed, points, quantiles, _missed(points))


def _played(seed: int) -> Shadows:
    usage, tasks = draw_usage(seed), draw_tasks(seed, load=DEFAULT_LOAD)
    shadows = Shadows(slot_maxima(usage, PAPER_SLOT))
    config = SchedulerConfig(policy="hierarchical", seed=seed, hierarchical=DEFAULTS)
    Drive(tasks, usage, shadows, config, slot_seconds=PAPER_SLOT).run()
    scored = slice(WARM_UP, round(DAY_SECONDS / PAPER_SLOT))
    shadows.truth, shadows.points = shadows.truth[scored], shadows.points[scored]
    shadows.quantiles = shadows.quantiles[scored]
    return shadows


def _point(name: str, errors: list[Floats], used: Floats, baselines: int) -> PointRow:
    squares = np.array([float((error**2).mean()) for error in errors])
    mean, low, high = interval(squares - used, baselines)
    short = np.concatenate([np.maximum(-error, 0.0) for error in errors])
    return PointRow(name, float(squares.mean()), float((short > 1e-9).mean()), float(short.mean()), mean, low, high)


def _quantiles(centre: str, days: Sequence[Shadows], truth: list[Floats]) -> QuantileRow:
    def of(name: str, day: Shadows) -> Floats:
        return np.array([slot[name] for slot in day.quantiles])

    def losses(name: str, index: int, level: float) -> Floats:
        pairs = zip(days, truth, strict=True)
        return np.array([1000.0 * pinball(now, of(name, day)[:, index], level) for day, now in pairs])

    behind = interval(losses(centre, 0, 0.9) - losses(ALLOCATED, 0, 0.9), len(CENTRES) - 1)
    covered = [
        float(np.mean([(now <= of(centre, day)[:, index] + 1e-9).mean() for day, now in zip(days, truth, strict=True)]))
        for index in range(2)
    ]
    means = [float(losses(centre, index, level).mean()) for index, level in enumerate((0.9, 0.99))]
    return QuantileRow(centre, means[0], means[1], covered[0], covered[1], *behind)


def _missed(points: Sequence[PointRow]) -> tuple[str, ...]:
    """Return the contenders that are better than the point forecast in use beyond noise."""
    return tuple(
        f"{row.method}: MSE {row.mse:.5f}, {-row.behind:.6f} ({-row.high:.6f} to {-row.low:.6f}) below that of {IN_USE}"
        for row in points
        if row.high < 0
    )
