"""The value of run-time forecasts: a log replayed under EASY, its shortest-first variant and the hybrid platform.

Called by `task`. Forecasts learn from the completions of one schedule that is the same for every predictor: EASY by the
users' requests. So no predictor profits from earlier ends in its own schedule, and none looks ahead in the schedule it
learns from. ``hybrid`` plans the jobs of users with accurate forecasts: the running mean of a user's latest accuracies,
one rule for all predictors, from `PREDICTABLE` on. Figures: mean bounded slowdown (Naghshnejad 2019, eq. 4.6) and mean
wait. Blocks are weeks. Invariant: same jobs, forecasts and seed, same figures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.machine_platform import PREDICTABLE
from cotide_lab.job_logs.generated_log import generated_log
from cotide_lab.predictor_lab.blocks import Blocks, sums_by_block
from cotide_lab.predictor_lab.cells import LabSource
from cotide_lab.predictor_lab.run_times.entries import RunTimeForecasts
from cotide_lab.sweeps.plan import log_source
from cotide_lab.trace_replay.metrics import WEEK_SECONDS, bounded_slowdown
from cotide_lab.trace_replay.policies import policy_of
from cotide_lab.trace_replay.runner import GivenForecasts, run_policy
from cotide_lab.trace_replay.sequential_feed import job_table
from cotide_predictors.run_time.jobs import RunLog, codes, event_order
from cotide_predictors.run_time.sequential.forecaster import UserTrust
from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.swf_cleaning import Cleaning

POLICIES: Final = ("easy", "easy-sjbf", "hybrid")
GENERATED_JOBS: Final = 2000

Forecaster = Callable[[RunLog, int], RunTimeForecasts]


def decided(source: LabSource, forecaster: Forecaster, seed: int) -> tuple[dict[str, float], dict[str, Blocks]]:
    """Return the figures and blocks of every policy of `POLICIES`, by names like ``easy_slowdown``.

    Raises
    ------
    InputError
        When the log cannot be read.
    """
    jobs = _jobs(source, seed)
    log = learned_from(jobs)
    given = given_forecasts(log, forecaster(log, seed))
    week = (jobs.submit - jobs.submit[0]) // WEEK_SECONDS
    figures: dict[str, float] = {}
    blocks: dict[str, Blocks] = {}
    for name in POLICIES:
        start = run_policy(jobs, policy_of(name), forecasts=given).start
        slowdown, wait = bounded_slowdown(jobs, start), (start - jobs.submit).astype(np.float64)
        for figure, values in (("slowdown", slowdown), ("wait_seconds", wait)):
            key = f"{name.replace('-', '_')}_{figure}"
            figures[key], blocks[key] = float(values.mean()), sums_by_block(week, values)
    return figures, blocks


def learned_from(jobs: BatchJobs) -> RunLog:
    """Return the jobs with their completions under EASY by the users' requests."""
    start = run_policy(jobs, policy_of("easy")).start
    return RunLog(job_table(jobs), jobs.run.astype(np.float64), (start + jobs.run).astype(np.float64))


def given_forecasts(log: RunLog, found: RunTimeForecasts) -> GivenForecasts:
    """Return forecasts in the form of replays: whole seconds within the request; the request where there is no upper
    forecast.
    """
    request = np.ceil(log.jobs.requested_seconds).astype(np.int64)
    point = np.clip(np.ceil(found.point).astype(np.int64), 1, request)
    upper = request if found.upper is None else np.ceil(found.upper).astype(np.int64)
    relied = relied_upon(log, found.point) >= PREDICTABLE
    return GivenForecasts(point, np.clip(upper, point, request), relied.astype(np.int64))


def relied_upon(log: RunLog, point: Floats) -> Floats:
    """Return (n,) the running mean accuracy of each user's forecasts at each submission; 0 before any."""
    keys = codes(log.jobs.user)
    trust = UserTrust(int(keys.max(initial=0)) + 1)
    out = np.zeros(len(log))
    for event in event_order(log.jobs.submit_seconds, log.finish_seconds).tolist():
        job = np.array([event if event >= 0 else ~event])
        if event >= 0:
            out[job] = trust.of(keys[job])
        else:
            trust.learn(keys[job], point[job], log.run_seconds[job])
    return out


def _jobs(source: LabSource, seed: int) -> BatchJobs:
    if source.path is None:
        jobs = generated_log("generated", "lublin", GENERATED_JOBS, 0.8, seed)
    else:
        jobs = log_source(source.path, Cleaning(), "skip", None)[0].jobs()
    if source.limit is None or source.limit >= len(jobs):
        return jobs
    first = slice(0, source.limit)
    columns = (jobs.numbers, jobs.submit, jobs.run, jobs.demand, jobs.request, jobs.user)
    return BatchJobs(jobs.name, jobs.processors, *(column[first].copy() for column in columns))
