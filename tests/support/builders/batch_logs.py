"""Batch jobs for replays: by hand, and at random."""

from __future__ import annotations

import numpy as np

from cotide_sim.traces.jobs.batch_jobs import BatchJobs


def jobs_of(*rows: tuple[int, ...], processors: int = 4) -> BatchJobs:
    """Rows of (submit, run, demand, request)."""
    submit, run, demand, request = np.array(rows, dtype=np.int64).T.copy()
    number = np.arange(1, len(rows) + 1, dtype=np.int64)
    return BatchJobs("by hand", processors, number, submit, run, demand, request, np.ones_like(number))


def random_jobs(count: int = 3000, seed: int = 1) -> BatchJobs:
    rng = np.random.default_rng(seed)
    run = rng.integers(1, 20_000, count)
    return BatchJobs(
        name="random",
        processors=64,
        numbers=np.arange(count),
        submit=np.cumsum(rng.integers(0, 2 * 1500, count)),
        run=run,
        demand=rng.integers(1, 20, count),
        request=run + rng.integers(0, 40_000, count),
        user=rng.integers(0, 30, count),
    )
