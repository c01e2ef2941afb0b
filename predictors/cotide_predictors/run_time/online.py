"""Run-time forecasts job by job, for a driver that decides itself when jobs are submitted and when they end.

Used by trace replay, where a policy's own schedule says when a run is over, and by a live queue. The same steps as
`rolling` takes over a whole log: a submission copies the histories of the job's keys and asks the model of the day, a
completion teaches histories, regression and the next model. Invariant: fed with the events of `jobs.event_order` it
gives what `rolling_distributions`, `regressed` and the heuristics give for that log, number by number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotide_predictors.run_time.distributions import Distributions
from cotide_predictors.run_time.hazard import HazardTrees
from cotide_predictors.run_time.heuristics import HEURISTICS, bounded, within_request
from cotide_predictors.run_time.history import WIDTH, Histories
from cotide_predictors.run_time.jobs import SHORTEST_SECONDS, Ints, JobTable
from cotide_predictors.run_time.regression import FEATURES, OnlineRegression, table_4_1
from cotide_predictors.run_time.rolling import LEAST_JOBS, OLDER_JOBS, RECENT_JOBS, chosen, ignorant_masses
from cotide_predictors.run_time.tree_features import (
    ANCHORS,
    CONTEXT,
    DAY_SECONDS,
    TreeFeatures,
    features_of,
    key_columns,
)


@dataclass(frozen=True, slots=True)
class RunTimeForecast:
    """What is forecast of one job at its submission.

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
        self.every_seconds = every_seconds
        self._keys = key_columns(jobs)
        self._histories = [Histories(int(keys.max(initial=0)) + 1) for keys in self._keys]
        self._rows = [np.empty((count, WIDTH)) for _ in self._keys]
        self._regression = OnlineRegression()
        self._table = np.empty((count, len(FEATURES)))
        self._trees = TreeFeatures(np.empty((count, len(ANCHORS))), np.empty((count, len(CONTEXT))))
        self._run = np.empty(count)
        self._finish = np.empty(count)
        self._raw = np.empty(count)
        self._completed: list[int] = []
        self._period = -1
        self._fitted = False

    def submitted(self, job: int) -> RunTimeForecast:
        """Return the forecast of row ``job``, which is submitted now."""
        event = np.array([job], dtype=np.int64)
        for keys, histories, rows in zip(self._keys, self._histories, self._rows, strict=True):
            histories.walk(event, keys, self.jobs, self._run, self._finish, rows)
        one = slice(job, job + 1)
        row, own = self.jobs.rows(one), [rows[one] for rows in self._rows]
        requested = row.requested_seconds
        self._table[one] = table_4_1(own[0], row)
        self._regression.walk(event, self._table, self._run, self._raw)
        features = features_of(row, *own)
        self._trees.anchors[one], self._trees.context[one] = features.anchors, features.context
        self._rebuild(float(row.submit_seconds[0]))
        if self._fitted:
            distribution = self.model.predict(features)
        else:
            edges = self.model.edges()
            distribution = Distributions(edges, ignorant_masses(edges, requested))
        return RunTimeForecast(
            heuristics={name: float(rule(own[0], requested)[0]) for name, rule in HEURISTICS.items()},
            regression=float(bounded(self._raw[one], requested)[0]),
            distribution=distribution,
            most_accurate=float(within_request(distribution.most_accurate(), requested)[0]),
        )

    def completed(self, job: int, run_seconds: float, now: float) -> None:
        """Learn that row ``job``, submitted before, ended at ``now`` after running ``run_seconds``."""
        self._run[job] = max(run_seconds, SHORTEST_SECONDS)
        self._finish[job] = now
        event = np.array([~job], dtype=np.int64)
        for keys, histories, rows in zip(self._keys, self._histories, self._rows, strict=True):
            histories.walk(event, keys, self.jobs, self._run, self._finish, rows)
        self._regression.walk(event, self._table, self._run, self._raw)
        self._completed.append(job)

    def _rebuild(self, now: float) -> None:
        """Rebuild at the first submission of a period, on what finished before the period began."""
        start = float(self.jobs.submit_seconds[0])
        period = _period(now, start, self.every_seconds)
        if period == self._period:
            return
        self._period = period
        done: Ints = np.array(self._completed, dtype=np.int64)
        over = int(np.searchsorted(self._finish[done], start + period * self.every_seconds, side="left"))
        if over < LEAST_JOBS:
            return
        state = self.model.random_state
        learned = done[chosen(over, period, recent=RECENT_JOBS, older=OLDER_JOBS, random_state=state)]
        self.model.fit(self._trees.rows(learned), self._run[learned])
        self._fitted = True


def _period(now: float, start: float, every_seconds: float) -> int:
    """Return the number of the period that ``now`` lies in, from 0."""
    return int(np.floor((now - start) / every_seconds))
