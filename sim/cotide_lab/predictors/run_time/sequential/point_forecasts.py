"""The on-line regression and exponential smoothing, one submission and completion after the other.

Called by `catalogue`. Both step through the same functions as over a whole log (`regression`, `kalman.smoothing`).
Invariant: as of `forecaster`.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.heuristics import bounded
from cotide_predictors.run_time.history import WIDTH, Histories
from cotide_predictors.run_time.jobs import Ints, JobTable, codes
from cotide_predictors.run_time.kalman.smoothing import Smoother
from cotide_predictors.run_time.regression import FEATURES, OnlineRegression, table_4_1
from cotide_predictors.run_time.sequential.forecaster import Answers, points_only


class SequentialRegression:
    """The polynomial regression of Naghshnejad 2019, section 4.4.4, on the features of Table 4.1."""

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs
        self._keys = codes(jobs.user)
        self._histories = Histories(int(self._keys.max(initial=0)) + 1)
        self._rows = np.empty((len(jobs), WIDTH))
        self._table = np.empty((len(jobs), len(FEATURES)))
        self._run, self._finish, self._raw = np.empty((3, len(jobs)))
        self._regression = OnlineRegression()

    def finished(self, jobs: Ints, run_seconds: Floats, finish_seconds: Floats) -> None:
        """Learn."""
        self._run[jobs], self._finish[jobs] = run_seconds, finish_seconds
        self._histories.walk(~jobs, self._keys, self._jobs, self._run, self._finish, self._rows)
        self._regression.walk(~jobs, self._table, self._run, self._raw)

    def submitted(self, rows: slice) -> Answers:
        """Forecast."""
        jobs, asked = np.arange(rows.start, rows.stop), self._jobs.rows(rows)
        self._histories.walk(jobs, self._keys, self._jobs, self._run, self._finish, self._rows)
        self._table[rows] = table_4_1(self._rows[rows], asked)
        self._regression.walk(jobs, self._table, self._run, self._raw)
        return points_only(bounded(self._raw[rows], asked.requested_seconds))


class SequentialSmoothing:
    """Exponential smoothing of each user's runs (Naghshnejad 2019, eq. 5.6)."""

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs
        self._smoother = Smoother(jobs)
        self._run = np.empty(len(jobs))
        self._out = np.full(len(jobs), np.nan)

    def finished(self, jobs: Ints, run_seconds: Floats, finish_seconds: Floats) -> None:
        """Learn."""
        del finish_seconds
        self._run[jobs] = run_seconds
        self._smoother.walk(~jobs, self._run, self._out)

    def submitted(self, rows: slice) -> Answers:
        """Forecast."""
        self._smoother.walk(np.arange(rows.start, rows.stop), self._run, self._out)
        return points_only(bounded(self._out[rows], self._jobs.requested_seconds[rows]))
