"""Small logs of finished jobs, and what changes when one of them runs longer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cotide_predictors.run_time.jobs import JobTable, RunLog

DAY_SECONDS = 86_400.0


def small_log(count: int = 600, days: float = 6.0, seed: int = 12) -> RunLog:
    """Jobs of four users, of whom the last gives no request."""
    generator = np.random.default_rng(seed)
    submit = np.sort(generator.uniform(0, days * DAY_SECONDS, count)).round()
    user = generator.integers(0, 4, count)
    run = np.exp(generator.normal(3.0 + user, 0.4)).round().clip(1)
    same = np.ones(count, dtype=np.int64)
    requested = np.where(user == 3, np.nan, 5000.0)
    jobs = JobTable(submit, requested, generator.integers(1, 5, count).astype(np.float64), user, same, same, same)
    return RunLog(jobs, run, submit + run + generator.integers(0, 100, count))


def with_longer_run(log: RunLog, job: int) -> tuple[RunLog, np.ndarray]:
    """Return the log with another run time of a job, and which submissions come before either end of it."""
    run, finish = log.run_seconds.copy(), log.finish_seconds.copy()
    run[job] *= 3.0
    finish[job] += DAY_SECONDS
    unmoved = log.jobs.submit_seconds <= log.finish_seconds[job]
    return replace(log, run_seconds=run, finish_seconds=finish), unmoved
