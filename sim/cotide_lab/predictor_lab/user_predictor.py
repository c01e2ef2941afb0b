"""A predictor in a user's own file: its inputs and its answers.

Called by `run_times.task` and `series.task`, on worker processes too: the file's text travels there. Invariant: a
run-time predictor sees a job's run time when the job is over, a series predictor the slots before the origin as a copy
of its own; so neither can look ahead. An error in the file is an `InputError` that names it and the line.

The protocol, for run times::

    class Predictor:
        def submitted(self, job):             # job: number, submit, user, processors, requested (nan: none)
            return 3600.0                     # seconds; or (seconds, seconds that nine in ten do not outlive)

        def finished(self, job, run_seconds): # optional
            ...

and for series (usage-path, host-peak, service-rate)::

    class Predictor:
        def fit(self, history): ...           # optional; (n, t), nan where a slot has no record
        def forecast(self, history):          # (n, t) all slots before the origin
            return ...                        # (n, 12) the next twelve slots
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_lab.predictor_lab.run_times.entries import RunTimeForecasts
from cotide_lab.trace_replay.user_policy import PolicySource, UserPolicy, policy_of_source, read_policy
from cotide_predictors.run_time.heuristics import bounded
from cotide_predictors.run_time.jobs import RunLog, event_order

CLASS: Final = "Predictor"


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A run-time predictor's view of a job; ``requested`` is nan where the user gave none."""

    number: int
    submit: float
    user: int
    processors: float
    requested: float


def read_predictor(given: str) -> PolicySource:
    """Read ``FILE`` or ``FILE:NAME`` without running it.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    source = read_policy(given)
    return PolicySource(source.name, source.file, source.defined or CLASS, source.text)


def made(source: PolicySource, method: str) -> tuple[UserPolicy, Any]:
    """Run the file's text and return a caller for it, and an object of its class.

    Raises
    ------
    InputError
        When the text cannot be run, or its class lacks the method.
    """
    loaded = policy_of_source(source)
    found = loaded.call(loaded.defined)
    if not callable(getattr(found, method, None)):
        raise InputError(f"{source.defined} has no method {method}", file=source.file)
    return loaded, found


def run_time_forecasts(source: PolicySource, log: RunLog) -> RunTimeForecasts:
    """Walk a log with a user's predictor.

    Raises
    ------
    InputError
        When the predictor fails, or its answer is not in seconds.
    """
    loaded, predictor = made(source, "submitted")
    finished = getattr(predictor, "finished", None)
    jobs = log.jobs
    shown: dict[int, SubmittedJob] = {}
    point, upper = np.full((2, len(log)), np.nan)
    for event in event_order(jobs.submit_seconds, log.finish_seconds).tolist():
        if event >= 0:
            shown[event] = SubmittedJob(
                event,
                float(jobs.submit_seconds[event]),
                int(jobs.user[event]),
                float(jobs.processors[event]),
                float(jobs.requested_seconds[event]),
            )
            point[event], upper[event] = _seconds(loaded.call(predictor.submitted, shown[event]), source, event)
        else:
            job = shown.pop(~event)
            if finished is not None:
                loaded.call(finished, job, float(log.run_seconds[~event]))
    point = bounded(point, jobs.requested_seconds)
    return RunTimeForecasts(point, point, None if np.isnan(upper).any() else upper)


def _seconds(answer: Any, source: PolicySource, job: int) -> tuple[float, float]:
    try:
        first, second = answer if isinstance(answer, tuple) else (answer, np.nan)
        found = float(first), float(second)
    except (TypeError, ValueError) as error:
        raise InputError(f"{source.name} answered {answer!r} for job {job}, not seconds", file=source.file) from error
    if not found[0] > 0 or np.isinf(found[0]):
        raise InputError(f"{source.name} answered {answer!r} for job {job}, not seconds", file=source.file)
    return found


def checked_path(answer: Any, hosts: int, steps: int, source: PolicySource) -> Floats:
    """Return a user's (n, steps) path as floats.

    Raises
    ------
    InputError
        When it has another shape, or holds invalid numbers.
    """
    try:
        path = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{source.name} did not answer with an array of numbers", file=source.file) from error
    if path.shape != (hosts, steps):
        raise InputError(f"{source.name} answered an array of {path.shape}, not {(hosts, steps)}", file=source.file)
    return path
