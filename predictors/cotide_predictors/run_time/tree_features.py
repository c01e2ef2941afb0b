"""The trees' features of a job: the request, the calendar, and the same user's past runs, under three keys from near to
far.

Called by the laboratory's `rebuilding` and `reliability`. Histories are kept for the user, for the user's executable,
and for the user's jobs of the same size and request ("twins"). A job is most similar to its twins, but has them least
often. Invariant: every feature is a function of the job's own row and of snapshots, so of jobs finished before the
submission.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.heuristics import largest_ratio_of_five, last_two_mean
from cotide_predictors.run_time.history import Column, deviation, snapshots
from cotide_predictors.run_time.jobs import SHORTEST_SECONDS, Ints, JobTable, RunLog, codes

DAY_SECONDS: Final = 86_400.0
WEEK_SECONDS: Final = 7 * DAY_SECONDS

ANCHORS: Final = (
    "requested",
    "last",
    "before_last",
    "third_last",
    "last_two_mean",
    "maximum_of_five",
    "user_mean",
    "twin_last",
    "twin_before_last",
    "twin_mean",
    "executable_last",
    "executable_mean",
)
"""Logs of seconds that a job may take: heuristics and single past runs."""
CONTEXT: Final = (
    "processors",
    "user_count",
    "user_spread",
    "twin_count",
    "twin_spread",
    "executable_count",
    "since_finish",
    "since_submit",
    "same_request",
    "same_size",
    "hour",
    "weekday",
    "queue",
)
"""Further features: counts and times as logs, spreads of log run times, calendar, queue number."""


@dataclass(frozen=True, slots=True)
class TreeFeatures:
    """Features of n jobs; nan where there is no such past.

    Attributes
    ----------
    anchors : (n, A) as in `ANCHORS`.
    context : (n, C) as in `CONTEXT`.
    """

    anchors: Floats
    context: Floats

    def __len__(self) -> int:
        return len(self.anchors)

    def rows(self, chosen: Ints | slice) -> TreeFeatures:
        """Return the chosen jobs' features."""
        return TreeFeatures(self.anchors[chosen], self.context[chosen])


def tree_features(log: RunLog) -> TreeFeatures:
    """Return the features of every job of a log at its submission."""
    jobs = log.jobs
    user, executable, twin = (snapshots(key, jobs, log.run_seconds, log.finish_seconds) for key in key_columns(jobs))
    return features_of(jobs, user, executable, twin)


def key_columns(jobs: JobTable) -> tuple[Ints, Ints, Ints]:
    """Return (n,) keys of the user, of the user's executable and of the user's jobs of the same size and request."""
    return (
        codes(jobs.user),
        codes(jobs.user, jobs.executable),
        codes(jobs.user, jobs.processors, jobs.requested_seconds),
    )


def features_of(jobs: JobTable, user: Floats, executable: Floats, twin: Floats) -> TreeFeatures:
    """Return the features of n jobs from the (n, WIDTH) snapshots of their three keys."""
    requested = jobs.requested_seconds
    anchors = np.column_stack(
        [
            _log(requested),
            *(_log(user[:, Column.RUN + back]) for back in range(3)),
            _log(_where_past(user, last_two_mean(user, requested))),
            _log(_where_past(user, largest_ratio_of_five(user, requested))),
            _where_past(user, user[:, Column.LOG_MEAN]),
            *(_log(twin[:, Column.RUN + back]) for back in range(2)),
            _where_past(twin, twin[:, Column.LOG_MEAN]),
            _log(executable[:, Column.RUN]),
            _where_past(executable, executable[:, Column.LOG_MEAN]),
        ]
    )
    submit = jobs.submit_seconds
    context = np.column_stack(
        [
            np.log(jobs.processors),
            np.log1p(user[:, Column.COUNT]),
            deviation(user, Column.LOG_SQUARES),
            np.log1p(twin[:, Column.COUNT]),
            deviation(twin, Column.LOG_SQUARES),
            np.log1p(executable[:, Column.COUNT]),
            np.log1p(submit - user[:, Column.LAST_FINISH]),
            np.log1p(submit - user[:, Column.LAST_SUBMIT]),
            _log(user[:, Column.LAST_REQUESTED]) - _log(requested),
            np.log(np.where(user[:, Column.COUNT] > 0, user[:, Column.LAST_PROCESSORS], np.nan) / jobs.processors),
            submit % DAY_SECONDS / 3600.0,
            submit % WEEK_SECONDS // DAY_SECONDS,
            jobs.queue.astype(np.float64),
        ]
    )
    return TreeFeatures(anchors, context)


def _log(seconds: Floats) -> Floats:
    return np.log(np.maximum(np.where(seconds > 0, seconds, np.nan), SHORTEST_SECONDS))


def _where_past(rows: Floats, values: Floats) -> Floats:
    return np.where(rows[:, Column.COUNT] > 0, values, np.nan)
