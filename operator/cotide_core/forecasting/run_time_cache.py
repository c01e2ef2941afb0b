"""Predicted isolated run times of jobs, requested in batch and remembered; run times that the driver reported for
single pods go first.

Used by `cycle.Scheduler` for pods that enter the queue and by `start_estimates` for running ones. Jobs of the same
type, input size and estimate get the same forecast. The forecaster is therefore called at most once per cycle, for new
jobs. Invariant: an answer is the value reported for the pod, otherwise that of the present completion forecaster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod, RunTimeForecast
from cotide_core.forecasting.own_models import CompletionByNamespace, type_for
from cotide_core.forecasts import CompletionForecaster
from cotide_core.state.remembered import Remembered

REMEMBERED: Final = 1024
"""Distinct jobs of a generation, or the number of pods if larger (chosen: 1 MB in both; a large cluster has more pods).
"""
_Job = tuple[str, int, float | None]
_ONLINE: Final = (0.0, 0.0)


class PodRunTimeForecasts:
    """Isolated run times that the driver reported, by pod."""

    def __init__(self) -> None:
        self._by_pod: dict[str, RunTimeForecast] = {}

    def take(self, forecast: RunTimeForecast) -> bool:
        """Remember a forecast; False for an impossible one."""
        possible = math.isfinite(forecast.seconds_p90) and 0.0 < forecast.seconds_p50 <= forecast.seconds_p90
        if possible:
            self._by_pod[forecast.key] = forecast
        return possible

    def __len__(self) -> int:
        return len(self._by_pod)

    def of(self, pod: Pod) -> tuple[float, float] | None:
        """Return (p50, p90) in seconds; None without a report."""
        found = self._by_pod.get(pod.key)
        return None if found is None or found.uid != pod.uid else (found.seconds_p50, found.seconds_p90)

    def drop(self, key: str) -> None:
        """Forget a pod that is deleted or finished."""
        self._by_pod.pop(key, None)


class RunTimes:
    """Isolated run times by pod if they were reported, otherwise by (type, input size, estimate).

    Parameters
    ----------
    by_pod : None if the driver reports none.
    pods : the present number of pods: answers are kept for as many jobs.
    """

    def __init__(
        self,
        forecaster: CompletionForecaster,
        by_pod: PodRunTimeForecasts | None = None,
        pods: Callable[[], int] = lambda: 0,
    ) -> None:
        self.forecaster = forecaster
        self.by_pod = PodRunTimeForecasts() if by_pod is None else by_pod
        self._pooled = not isinstance(forecaster, CompletionByNamespace)
        self._pods = pods
        self._known: Remembered[_Job, tuple[float, float]] = Remembered(REMEMBERED)

    def learn(self, pods: Iterable[Pod]) -> None:
        """Ask the forecaster about the jobs among the pods that are new, in one call."""
        self.each(pods)

    def each(self, pods: Iterable[Pod]) -> list[tuple[float, float]]:
        """Return the result of `by_job` for each pod; passes all new jobs to the forecaster in one call."""
        self._known.make_room(max(REMEMBERED, self._pods()))
        known, job_of = self._known.get, self._job
        jobs = [None if pod.workload_class is WorkloadClass.ONLINE else job_of(pod) for pod in pods]
        found = [_ONLINE if job is None else known(job) for job in jobs]
        fresh = dict.fromkeys(job for job, pair in zip(jobs, found, strict=True) if job is not None and pair is None)
        answers: dict[_Job | None, tuple[float, float]] = {}
        if fresh:
            answers.update(zip(fresh, self._ask(list(fresh)), strict=True))
        return [answers[job] if pair is None else pair for job, pair in zip(jobs, found, strict=True)]

    def _ask(self, jobs: list[_Job]) -> list[tuple[float, float]]:
        sizes = np.array([size for _, size, _ in jobs], np.float64)
        asked = np.array([np.nan if estimate is None else estimate for _, _, estimate in jobs], np.float64)
        forecast = self.forecaster.isolated_seconds([name for name, _, _ in jobs], sizes, asked)
        answers = list(zip(forecast.p50.tolist(), forecast.p90.tolist(), strict=True))
        for job, answer in zip(jobs, answers, strict=True):
            self._known.keep(job, answer)
        return answers

    def of(self, pod: Pod) -> tuple[float, float]:
        """Return (p50, p90) in seconds; zeros for an online pod, which has no end."""
        own = self.by_pod.of(pod)
        return self.by_job(pod) if own is None or pod.workload_class is WorkloadClass.ONLINE else own

    def by_job(self, pod: Pod) -> tuple[float, float]:
        """Return (p50, p90) of a pod without a report."""
        if pod.workload_class is WorkloadClass.ONLINE:
            return _ONLINE
        job = self._job(pod)
        found = self._known.get(job)
        if found is None:
            self._known.make_room(max(REMEMBERED, self._pods()))
            return self._ask([job])[0]
        return found

    def _job(self, pod: Pod) -> _Job:
        kind = pod.type if self._pooled else type_for(self.forecaster, pod)
        return kind, pod.input_bytes, pod.requested_seconds
