"""Run-time forecasts job by job, for a driver that decides itself when jobs are submitted and when they end.

For a replay where a policy's own schedule decides when a run is over; the benchmark of run times measures it. The steps
are those of `rolling` over a whole log. A submission copies the histories of the job's keys and queries the model of
the day; a completion teaches histories, regression and the next model. Invariant: fed with the events of
`jobs.event_order` it gives the same numbers as `rolling_distributions`, `regressed` and the heuristics give for that
log.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_lab.predictors.run_time.hazard import HazardTrees
from cotide_lab.predictors.run_time.rolling import ignorant_masses
from cotide_lab.predictors.run_time.sequential.rebuilding import FeatureWalk, RebuildPeriods
from cotide_predictors.run_time.distributions import Distributions
from cotide_predictors.run_time.heuristics import HEURISTICS, bounded, within_request
from cotide_predictors.run_time.jobs import SHORTEST_SECONDS, JobTable
from cotide_predictors.run_time.regression import FEATURES, OnlineRegression, table_4_1
from cotide_predictors.run_time.tree_features import DAY_SECONDS


@dataclass(frozen=True, slots=True)
class RunTimeForecast:
    """The forecast of one job at its submission.

    Attributes
    ----------
    heuristics : seconds by name, as in `heuristics.HEURISTICS`.
    regression : seconds of the online regression.
    distribution : of one row.
    most_accurate : seconds of highest expected accuracy, within the request; orders jobs.
    """

    heuristics: dict[str, float]
    regression: float
    distribution: Distributions
    most_accurate: float

    def quantile(self, level: float) -> float:
        """Return the seconds that the run stays below with this probability, as learned."""
        return float(self.distribution.quantile(level)[0])


class OnlineRunTimes:
    """Forecasts at submissions, learns at completions, rebuilds its trees when a period has passed.

    Parameters
    ----------
    jobs : every job that may come, in submission order; a row is read at its submission.
    model : refitted in place at every rebuild.
    every_seconds : between rebuilds, counted from the first submission.
    """

    def __init__(self, jobs: JobTable, *, model: HazardTrees | None = None, every_seconds: float = DAY_SECONDS) -> None:
        count = len(jobs)
        self.jobs = jobs
        self.model = HazardTrees() if model is None else model
        self._walk = FeatureWalk(jobs)
        first = float(jobs.submit_seconds[0]) if count else 0.0
        self._periods = RebuildPeriods(first, every_seconds, self.model.random_state)
        self._regression = OnlineRegression()
        self._table = np.empty((count, len(FEATURES)))
        self._run, self._raw = np.empty((2, count))
        self._fitted = False

    def submitted(self, job: int) -> RunTimeForecast:
        """Return the forecast of row ``job``, which is submitted now."""
        one = slice(job, job + 1)
        row = self.jobs.rows(one)
        requested = row.requested_seconds
        features = self._walk.submitted(one)
        own = self._walk.by_user[one]
        self._table[one] = table_4_1(own, row)
        self._regression.walk(np.array([job], dtype=np.int64), self._table, self._run, self._raw)
        learned = self._periods.due(float(row.submit_seconds[0]))
        if learned is not None:
            self.model.fit(self._walk.features.rows(learned), self._run[learned])
            self._fitted = True
        if self._fitted:
            distribution = self.model.predict(features)
        else:
            edges = self.model.edges()
            distribution = Distributions(edges, ignorant_masses(edges, requested))
        return RunTimeForecast(
            heuristics={name: float(rule(own, requested)[0]) for name, rule in HEURISTICS.items()},
            regression=float(bounded(self._raw[one], requested)[0]),
            distribution=distribution,
            most_accurate=float(within_request(distribution.most_accurate(), requested)[0]),
        )

    def completed(self, job: int, run_seconds: float, now: float) -> None:
        """Learn that row ``job``, submitted before, ended at ``now`` after running ``run_seconds``."""
        ended = np.array([job], dtype=np.int64)
        self._run[job] = max(run_seconds, SHORTEST_SECONDS)
        self._walk.finished(ended, self._run[ended], np.array([now]))
        self._regression.walk(~ended, self._table, self._run, self._raw)
        self._periods.finished(ended, np.array([now]))
