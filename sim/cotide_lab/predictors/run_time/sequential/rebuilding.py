"""What periodically rebuilt forecasters need, one submission and completion after the other.

Called by `online` and `density_forecasts`. At a job's submission the histories of its three keys become the trees'
features. A rebuild is due at the first submission of each period, on jobs that finished before the period began.
Invariant: fed in the order of `jobs.event_order` they give what `tree_features` and `rolling.rebuilds` give for the
whole log.
"""

from __future__ import annotations

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_lab.predictors.run_time.rolling import LEAST_JOBS, OLDER_JOBS, RECENT_JOBS, chosen
from cotide_predictors.run_time.history import WIDTH, Histories
from cotide_predictors.run_time.jobs import Ints, JobTable
from cotide_predictors.run_time.tree_features import ANCHORS, CONTEXT, TreeFeatures, features_of, key_columns


class FeatureWalk:
    """Features of jobs as they are submitted.

    Parameters
    ----------
    jobs : every job that may come; a row is read at its submission.

    Attributes
    ----------
    features : of the rows submitted so far. by_user : (n, WIDTH) histories of their users.
    """

    def __init__(self, jobs: JobTable) -> None:
        count = len(jobs)
        self._jobs = jobs
        self._keys = key_columns(jobs)
        self._histories = [Histories(int(keys.max(initial=0)) + 1) for keys in self._keys]
        self._rows = [np.empty((count, WIDTH)) for _ in self._keys]
        self._run, self._finish = np.empty((2, count))
        self.features = TreeFeatures(np.empty((count, len(ANCHORS))), np.empty((count, len(CONTEXT))))
        self.by_user = self._rows[0]

    def submitted(self, rows: slice) -> TreeFeatures:
        """Return the features of jobs that are submitted now."""
        self._walk(np.arange(rows.start, rows.stop))
        found = features_of(self._jobs.rows(rows), *(own[rows] for own in self._rows))
        self.features.anchors[rows], self.features.context[rows] = found.anchors, found.context
        return found

    def finished(self, jobs: Ints, run_seconds: Floats, finish_seconds: Floats) -> None:
        """Learn that jobs (k,) ended, in order of their ends."""
        self._run[jobs], self._finish[jobs] = run_seconds, finish_seconds
        self._walk(~jobs)

    def _walk(self, events: Ints) -> None:
        for keys, histories, rows in zip(self._keys, self._histories, self._rows, strict=True):
            histories.walk(events, keys, self._jobs, self._run, self._finish, rows)


class RebuildPeriods:
    """Decides when to rebuild a model, and chooses its jobs.

    Parameters
    ----------
    first_seconds : the first submission, at which the first period begins. every_seconds : length of a period.
    random_state : of the draw among older jobs.
    """

    def __init__(self, first_seconds: float, every_seconds: float, random_state: int) -> None:
        self._first_seconds = first_seconds
        self._every_seconds = every_seconds
        self._random_state = random_state
        self._jobs: list[int] = []
        self._finish: list[float] = []
        self._period = -1

    def finished(self, jobs: Ints, finish_seconds: Floats) -> None:
        """Take note of jobs (k,) that ended, in order of their ends."""
        self._jobs.extend(jobs.tolist())
        self._finish.extend(finish_seconds.tolist())

    def due(self, now: float) -> Ints | None:
        """Return the jobs to learn from at the first submission of a period, else None; None, too, while too few
        jobs are over."""
        period = int(np.floor((now - self._first_seconds) / self._every_seconds))
        if period == self._period:
            return None
        self._period = period
        begin = self._first_seconds + period * self._every_seconds
        over = int(np.searchsorted(np.array(self._finish), begin, side="left"))
        if over < LEAST_JOBS:
            return None
        indices = chosen(over, period, recent=RECENT_JOBS, older=OLDER_JOBS, random_state=self._random_state)
        return np.array(self._jobs, dtype=np.int64)[indices]
