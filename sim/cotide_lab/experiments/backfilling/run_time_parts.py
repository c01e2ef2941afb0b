"""The figures of run-time forecasts on one log, in parts that are computed one by one: each forecaster, and each rule
that estimates the accuracy of a forecast.

Called by `run_times`. The parts are independent, so that a finished part need not be computed again. Invariant: every
forecast uses only jobs that finished before its submission (`cotide_predictors.run_time.jobs.event_order`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from cotide_core.kernels.array_types import Floats
from cotide_lab.experiments.backfilling.reliability_table import correlation, rule_correlation, rule_importances
from cotide_lab.predictors.run_time.coverage import kept_quantile
from cotide_lab.predictors.run_time.event_forecasts import event_forecasts
from cotide_lab.predictors.run_time.kernels.run_forecasts import LEARNED, RATED, TREES_RATED
from cotide_lab.predictors.run_time.reliability.baselines import BASELINES
from cotide_lab.predictors.run_time.reliability.estimation import PREDICTABLE, reliability_features, rolling_reliability
from cotide_lab.predictors.run_time.rolling import Progress, rolling_distributions
from cotide_predictors.run_time.heuristics import HEURISTICS, within_request
from cotide_predictors.run_time.history import snapshots
from cotide_predictors.run_time.jobs import Ints, RunLog, codes, event_order
from cotide_predictors.run_time.regression import regressed, table_4_1
from cotide_predictors.run_time.scores import Score, accuracy, score
from cotide_predictors.run_time.tree_features import TreeFeatures, tree_features

LEARNED_SHARE: Final = 0.2
"""First part of a log, by submission, that is not counted (issue 4: the last 80 % of each log)."""
FORECASTS_OF_REPLAYS: Final = {
    "replay-mixture": LEARNED,
    "replay-mixture, rated by trees": RATED,
    "replay-trees": TREES_RATED,
}
"""The forecasts of `cotide simulate` with --runtime learned, with --reliability trees added, and with --runtime trees
and --reliability trees."""
COVERED: Final = (0.8, 0.95)
"""Quantiles with a reported coverage (issue 4)."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Share of jobs within their quantile: the quantile of the trees, and the one with the level kept."""

    level: float
    as_learned: float
    kept: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """The quality of the estimated accuracies of one forecaster.

    Attributes
    ----------
    correlation : Pearson's, of estimated and actual accuracy.
    predictable_share : of jobs with an estimate of `PREDICTABLE` or more.
    predictable_accuracy, other_accuracy : mean actual accuracy of those and of the others; None where there are none.
    """

    correlation: float
    predictable_share: float
    predictable_accuracy: float | None
    other_accuracy: float | None


@dataclass(frozen=True, slots=True)
class PartFigures:
    """The figures of a part, or of all parts together.

    Attributes
    ----------
    correlations, importances : of `reliability_table.ReliabilityTable`.
    """

    forecasts: dict[str, Score] = field(default_factory=dict)
    coverage: list[Coverage] = field(default_factory=list)
    reliability: dict[str, Reliability] = field(default_factory=dict)
    correlations: dict[str, float] = field(default_factory=dict)
    importances: dict[str, float] = field(default_factory=dict)

    def add(self, other: PartFigures) -> None:
        """Take over the figures of another part."""
        self.forecasts.update(other.forecasts)
        self.coverage.extend(other.coverage)
        self.reliability.update(other.reliability)
        self.correlations.update(other.correlations)
        self.importances.update(other.importances)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> PartFigures:
        """Return the figures of a record that `dataclasses.asdict` made."""
        return cls(
            forecasts={name: Score(**fields) for name, fields in record["forecasts"].items()},
            coverage=[Coverage(**fields) for fields in record["coverage"]],
            reliability={name: Reliability(**fields) for name, fields in record["reliability"].items()},
            correlations=dict(record["correlations"]),
            importances=dict(record["importances"]),
        )


class LogUnderTest:
    """A log, and the data of it that several parts need.

    Parameters
    ----------
    every_seconds : of the log, between two rebuilds of all trees.
    """

    def __init__(self, log: RunLog, every_seconds: int) -> None:
        self.log, self.every_seconds = log, every_seconds
        jobs = log.jobs
        self.counted = slice(int(len(log) * LEARNED_SHARE), None)
        self.events: Ints = event_order(jobs.submit_seconds, log.finish_seconds)
        self.rows: Floats = snapshots(codes(jobs.user), jobs, log.run_seconds, log.finish_seconds)
        self.printed: Floats = table_4_1(self.rows, jobs)
        self.regressed: Floats = regressed(self.events, self.printed, log.run_seconds, jobs.requested_seconds)
        self.features: TreeFeatures = tree_features(log)

    def score(self, forecast: Floats) -> Score:
        """Return the scores of (n,) forecasts on the jobs that count."""
        return score(forecast[self.counted], self.log.run_seconds[self.counted])

    def reliability(self, estimate: Floats, forecast: Floats) -> Reliability:
        """Return the quality of (n,) estimated accuracies of (n,) forecasts on the jobs that count."""
        estimate, actual = estimate[self.counted], accuracy(forecast, self.log.run_seconds)[self.counted]
        chosen = estimate >= PREDICTABLE
        return Reliability(
            correlation=correlation(estimate, actual),
            predictable_share=float(chosen.mean()),
            predictable_accuracy=float(actual[chosen].mean()) if chosen.any() else None,
            other_accuracy=float(actual[~chosen].mean()) if not chosen.all() else None,
        )


Part = Callable[[LogUnderTest, Progress], PartFigures]
"""Computes its figures; reports the finished share of its longest step."""


def _heuristics(of: LogUnderTest, progress: Progress) -> PartFigures:
    del progress
    asked = of.log.jobs.requested_seconds
    return PartFigures(forecasts={name: of.score(rule(of.rows, asked)) for name, rule in HEURISTICS.items()})


def _regression(of: LogUnderTest, progress: Progress) -> PartFigures:
    columns = reliability_features(of.features, of.regressed)
    estimate = rolling_reliability(of.log, columns, of.regressed, every_seconds=of.every_seconds, progress=progress)
    name = "online-regression"
    return PartFigures({name: of.score(of.regressed)}, reliability={name: of.reliability(estimate, of.regressed)})


def _trees(of: LogUnderTest, progress: Progress) -> PartFigures:
    log, asked, run = of.log, of.log.jobs.requested_seconds, of.log.run_seconds
    trees = rolling_distributions(log, of.features, every_seconds=of.every_seconds, progress=progress)
    likely = within_request(trees.most_accurate(), asked)
    forecasts = {
        "trees-most-accurate": of.score(likely),
        "trees-median": of.score(within_request(kept_quantile(of.events, trees, run, 0.5), asked)),
        "trees-mean": of.score(within_request(trees.mean(), asked)),
    }
    actual = run[of.counted]
    coverage = [
        Coverage(
            level,
            float((actual <= trees.quantile(level)[of.counted]).mean()),
            float((actual <= kept_quantile(of.events, trees, run, level)[of.counted]).mean()),
        )
        for level in COVERED
    ]
    columns = reliability_features(of.features, likely, trees)
    estimate = rolling_reliability(log, columns, likely, every_seconds=of.every_seconds, progress=progress)
    return PartFigures(forecasts, coverage, {"trees-most-accurate": of.reliability(estimate, likely)})


def _replay(name: str, of: LogUnderTest, progress: Progress) -> PartFigures:
    found = event_forecasts(of.log, FORECASTS_OF_REPLAYS[name], every_seconds=of.every_seconds, progress=progress)
    # Rated by trees, the mixture's points are those of the mixture.
    forecasts = {} if "," in name else {name: of.score(found.point)}
    return PartFigures(forecasts, reliability={name: of.reliability(found.reliability, found.point)})


def _rule(name: str, of: LogUnderTest, progress: Progress) -> PartFigures:
    found = rule_correlation(name, of.log, of.printed, of.regressed, of.counted, of.every_seconds, progress)
    return PartFigures(correlations={name: found})


def _importances(of: LogUnderTest, progress: Progress) -> PartFigures:
    del progress
    return PartFigures(importances=rule_importances(of.log, of.printed, of.regressed, of.counted))


PARTS: Final[Mapping[str, Part]] = MappingProxyType(
    {
        "heuristics": _heuristics,
        "online-regression": _regression,
        "trees": _trees,
        **{name: partial(_replay, name) for name in FORECASTS_OF_REPLAYS},
        **{f"reliability by {name}": partial(_rule, name) for name in BASELINES},
        "importances": _importances,
    }
)
"""In the order of computation."""
