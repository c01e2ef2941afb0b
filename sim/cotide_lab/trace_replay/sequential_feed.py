"""Forecasts of a replay that are made outside its kernel: at a pause before every moment at which jobs are submitted.

Called by `runner` and `user_replay`. At each pause the forecaster receives, in order, the jobs that ended since the
last pause, and forecasts those that come now. Its forecasts go to the arrays that the kernel reads. A platform relies
on a job when the forecasts of its user have been accurate (`UserTrust`), one rule for every forecaster.

Invariant: a forecast rests on jobs that ended before its moment in the schedule that is being made; neither a job that
runs nor one that waits can move it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cotide_core.kernels.array_types import Integers
from cotide_lab.predictors.run_time.sequential.catalogue import Sequential, sequential_forecaster
from cotide_lab.trace_replay.kernels.replay_state import NEVER
from cotide_predictors.run_time.jobs import JobTable, codes
from cotide_predictors.run_time.sequential.forecaster import UserTrust
from cotide_sim.traces.jobs.batch_jobs import BatchJobs


class FeedColumns(NamedTuple):
    """The arrays of one replay that its feed shares with the kernel.

    Attributes
    ----------
    forecast, upper, predictable : (n,) seconds, seconds, and 1 or 0; filled row by row.
    start : (n,) -1 while a job waits; read.
    """

    forecast: Integers
    upper: Integers
    predictable: Integers
    start: Integers


class SequentialFeed:
    """The forecaster of one replay.

    Parameters
    ----------
    threshold : least mean accuracy of a user's forecasts at which the next one is predictable.
    seed, rebuild_seconds : of `sequential_forecaster`.
    """

    def __init__(
        self,
        name: Sequential,
        jobs: BatchJobs,
        columns: FeedColumns,
        *,
        threshold: float,
        seed: int,
        rebuild_seconds: float,
    ) -> None:
        table = job_table(jobs)
        self._jobs = jobs
        self._forecaster = sequential_forecaster(name, table, seed=seed, every_seconds=rebuild_seconds)
        self._users = codes(jobs.user)
        self._trust = UserTrust(int(self._users.max(initial=0)) + 1)
        self._columns = columns
        self._threshold = threshold
        self._under_way = np.empty(0, np.int64)

    def advance(self, arrived: int) -> int:
        """Forecast the jobs of the next submissions; return the moment of those after them, `NEVER` without.

        Parameters
        ----------
        arrived : jobs submitted so far; the replay stands before the next submission.
        """
        submit = self._jobs.submit
        if arrived >= len(submit):
            return NEVER
        now = int(submit[arrived])
        last = int(np.searchsorted(submit, now, side="right"))
        self._emit(now)
        rows = slice(arrived, last)
        answers = self._forecaster.submitted(rows)
        request = self._jobs.request[rows]
        point = np.clip(np.ceil(answers.point).astype(np.int64), 1, request)
        upper = np.where(np.isnan(answers.upper), request, np.ceil(np.nan_to_num(answers.upper)))
        self._columns.forecast[rows] = point
        self._columns.upper[rows] = np.clip(upper.astype(np.int64), point, request)
        self._columns.predictable[rows] = self._trust.of(self._users[rows]) >= self._threshold
        self._under_way = np.append(self._under_way, np.arange(arrived, last))
        return int(submit[last]) if last < len(submit) else NEVER

    def _emit(self, now: int) -> None:
        """Pass on the jobs that ended before now, in order of their ends."""
        start = self._columns.start[self._under_way]
        end = start + self._jobs.run[self._under_way]
        over = (start >= 0) & (end < now)
        if not over.any():
            return
        ended = self._under_way[over][np.argsort(end[over], kind="stable")]
        self._under_way = self._under_way[~over]
        run = self._jobs.run[ended].astype(np.float64)
        self._forecaster.finished(ended, run, (self._columns.start[ended] + self._jobs.run[ended]).astype(np.float64))
        self._trust.learn(self._users[ended], self._columns.forecast[ended].astype(np.float64), run)


def job_table(jobs: BatchJobs) -> JobTable:
    """Return what the forecasters of run times see of a replay's jobs: groups, executables and queues are unknown."""
    unknown = np.full(len(jobs), -1, dtype=np.int64)
    submit, requested = jobs.submit.astype(np.float64), jobs.request.astype(np.float64)
    return JobTable(submit, requested, jobs.demand.astype(np.float64), jobs.user, unknown, unknown, unknown)
