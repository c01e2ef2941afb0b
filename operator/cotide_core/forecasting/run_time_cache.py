"""Predicted lone run times of jobs, asked in batch and remembered; what the driver told of single pods goes first.

Used by `cycle.Scheduler` for pods that enter the queue and by `start_estimates` for running ones. Jobs of the same
type, input size and estimate get the same forecast, so the forecaster is called once per cycle at most, for what is
new. Invariant: an answer is what was told of the pod, else what the present completion forecaster says.
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
"""Distinct jobs of a generation, or as many as there are pods (chosen: 1 MB in both; a large cluster has more pods)."""
_Job = tuple[str, int, float | None]
_ONLINE: Final = (0.0, 0.0)


class PodRunTimeForecasts:
    """Lone run times that the driver told, by pod."""

    def __init__(self) -> None:
        self._by_pod: dict[str, RunTimeForecast] = {}

    def take(self, forecast: RunTimeForecast) -> bool:
        """Remember a forecast; False for one that can't be."""
        possible = math.isfinite(forecast.seconds_p90) and 0.0 < forecast.seconds_p50 <= forecast.seconds_p90
        if possible:
            self._by_pod[forecast.key] = forecast
        return possible

    def __len__(self) -> int:
        return len(self._by_pod)

    def of(self, pod: Pod) -> tuple[float, float] | None:
        """Return (p50, p90) in seconds; None where nothing was told."""
        found = self._by_pod.get(pod.key)
        return None if found is None or found.uid != pod.uid else (found.seconds_p50, found.seconds_p90)

    def drop(self, key: str) -> None:
        """Forget a pod that is gone or over."""
        self._by_pod.pop(key, None)


class RunTimes:
    """Lone run times by pod where they were told, else by (type, input size, estimate).

    Parameters
    ----------
    by_pod : None where no driver tells any.
    pods : how many pods there are now: of so many jobs the answers are kept.
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
        """Return of each pod what `by_job` does; asks in one call about the jobs that are new."""
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
        """Return the same of a pod of which nothing was told."""
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
