"""A log made of weeks of another, drawn with replacement: what else the users of this machine might have sent.

Called by `cell_run` in a worker. Pure. Invariants: the same jobs, count and seed give the same log. A job keeps its
hour of the week, so that night and weekend stay in place. A week is copied whole, since its jobs compete.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_lab.trace_replay.metrics import WEEK_SECONDS
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

WHOLE_WEEKS_MIN: Final = 2
"""With one week every draw is the log itself."""


def whole_weeks(jobs: BatchJobs) -> int:
    """Return how many whole weeks lie between the first and the last submission; a part of a week is never drawn."""
    return int(jobs.submit[-1] - jobs.submit[0]) // WEEK_SECONDS


def resampled(jobs: BatchJobs, seed: int, weeks: int | None = None) -> BatchJobs:
    """Return a log of drawn weeks, with job numbers from 1.

    Parameters
    ----------
    weeks : length of the new log; None for as many whole weeks as the log has.

    Raises
    ------
    InputError
        When the log is too short to draw from, or only weeks without a job were drawn.
    """
    available = whole_weeks(jobs)
    if available < WHOLE_WEEKS_MIN:
        raise InputError(f"spans {available} whole weeks; to draw weeks takes {WHOLE_WEEKS_MIN}", file=jobs.name)
    since = jobs.submit - jobs.submit[0]
    edges = np.searchsorted(since, np.arange(available + 1, dtype=np.int64) * WEEK_SECONDS)
    drawn = np.random.default_rng(seed).integers(0, available, size=weeks or available)
    indices = np.concatenate([np.arange(edges[week], edges[week + 1]) for week in drawn])
    if not len(indices):
        raise InputError("the drawn weeks hold no job", file=jobs.name)
    counts = edges[drawn + 1] - edges[drawn]
    shift = np.repeat(np.arange(len(drawn)) - drawn, counts) * WEEK_SECONDS
    return replace(
        jobs,
        numbers=np.arange(1, len(indices) + 1, dtype=np.int64),
        submit=(since[indices] + shift).astype(np.int64),
        run=jobs.run[indices],
        demand=jobs.demand[indices],
        request=jobs.request[indices],
        user=jobs.user[indices],
    )
