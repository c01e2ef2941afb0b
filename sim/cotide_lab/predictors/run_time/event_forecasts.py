"""A replay's forecasts, made over a log's own recorded completions instead of a schedule's.

Called by experiments, to compare the replay's forecasts with the others of this package on the same jobs and events.
Invariant: the same functions as in the replay kernels, so without look-ahead. An event order shows a forecast only
completions before its submission.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.compiled import compiled
from cotide_lab.predictors.run_time.boosted import DAY_SECONDS, TreeRefitter
from cotide_lab.predictors.run_time.hazard import LONGEST_SECONDS
from cotide_lab.predictors.run_time.kernels.run_forecasts import RATED, Past, forecast_at_submit, learn, past_of
from cotide_predictors.run_time.jobs import Ints, RunLog, event_order

NO_REQUEST_SECONDS: Final = int(LONGEST_SECONDS)
"""The request of a job without one: it limits nothing."""


@dataclass(frozen=True, slots=True)
class EventForecasts:
    """Forecasts of n jobs, each as made at the job's submission.

    Attributes
    ----------
    point : (n,) seconds of highest expected accuracy.
    upper : (n,) seconds that nine in ten jobs shall not outlive.
    reliability : (n,) estimated accuracy of the point.
    """

    point: Floats
    upper: Floats
    reliability: Floats


def event_forecasts(
    log: RunLog,
    mode: int,
    *,
    seed: int = 0,
    every_seconds: int = DAY_SECONDS,
    progress: Callable[[float], object] | None = None,
) -> EventForecasts:
    """Forecast every job of a log.

    Parameters
    ----------
    mode : of `cotide_lab.predictors.run_time.kernels.run_forecasts`, from ``LEARNED`` on.
    seed : of the trees' draws. every_seconds : between two rebuilds of trees.
    progress : called with the share of submissions answered after every rebuild.
    """
    jobs = log.jobs
    asked = np.nan_to_num(jobs.requested_seconds, nan=NO_REQUEST_SECONDS)
    submit, run, finish, request, demand = (
        np.ceil(column).astype(np.int64)
        for column in (
            jobs.submit_seconds,
            log.run_seconds,
            log.finish_seconds,
            np.maximum(asked, 1.0),
            jobs.processors,
        )
    )
    _, user = np.unique(jobs.user, return_inverse=True)
    past = past_of(mode, int(user.max(initial=0)) + 1, user, demand, request, submit)
    refitter = TreeRefitter(mode, submit, seed=seed, every_seconds=every_seconds)
    events = event_order(submit.astype(np.float64), finish.astype(np.float64))
    times = np.where(events >= 0, submit[events], finish[~events])
    point, upper, reliability = np.zeros(len(log), np.int64), np.zeros(len(log), np.int64), np.zeros(len(log))
    begin, arrived = 0, 0
    while begin < len(events):
        at = refitter.next_pause(arrived)
        if begin > 0 and mode >= RATED:
            past = refitter.grown(past, at, run, finish, point)
        end = int(np.searchsorted(times, at + every_seconds, side="left")) if mode >= RATED else len(events)
        end = max(end, begin + 1) if arrived < len(log) else len(events)
        _walk(mode, events[begin:end], past, run, request, user, point, upper, reliability)
        arrived += int((events[begin:end] >= 0).sum())
        begin = end
        if progress is not None:
            progress(arrived / len(log))
    return EventForecasts(point.astype(np.float64), upper.astype(np.float64), reliability)


@compiled
def _walk(
    mode: int, events: Ints, past: Past, run: Ints, request: Ints, user: Ints, point: Ints, upper: Ints, sure: Floats
) -> None:
    for event in events:
        if event >= 0:
            point[event] = forecast_at_submit(mode, event, 0, request[event], user[event], past)
            upper[event] = past.upper[event]
            sure[event] = past.reliability[event]
        else:
            job = ~event
            # A run beyond the request is learned as a run up to it, as in a system that ends it there.
            learn(mode, job, min(run[job], request[job]), request[job], user[job], point[job], past)
