"""Predicted lone run times of jobs, asked in batch and remembered.

Used by `cycle.Scheduler` for pods that enter the queue and by `start_estimates` for running ones. Jobs of the same
type, input size and estimate get the same forecast, so the forecaster is called once per cycle at most, for what is
new. Invariant: an answer is what the present completion forecaster says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod
from cotide_core.forecasting.own_models import type_for
from cotide_core.forecasts import CompletionForecaster

REMEMBERED: Final = 65_536
"""Distinct jobs that are remembered before all are dropped (chosen: a few MB)."""
_Job = tuple[str, int, float | None]


class RunTimes:
    """Lone run times by (type, input size, estimate)."""

    def __init__(self, forecaster: CompletionForecaster) -> None:
        self.forecaster = forecaster
        self._known: dict[_Job, tuple[float, float]] = {}

    def learn(self, pods: Iterable[Pod]) -> None:
        """Ask the forecaster about the jobs among the pods that are new, in one call."""
        if len(self._known) > REMEMBERED:
            self._known.clear()
        fresh = dict.fromkeys(
            job
            for pod in pods
            if pod.workload_class is not WorkloadClass.ONLINE and (job := self._job(pod)) not in self._known
        )
        if not fresh:
            return
        jobs = list(fresh)
        sizes = np.array([size for _, size, _ in jobs], np.float64)
        asked = np.array([np.nan if estimate is None else estimate for _, _, estimate in jobs], np.float64)
        forecast = self.forecaster.lone_seconds([name for name, _, _ in jobs], sizes, asked)
        for job, p50, p90 in zip(jobs, forecast.p50.tolist(), forecast.p90.tolist(), strict=True):
            self._known[job] = (p50, p90)

    def of(self, pod: Pod) -> tuple[float, float]:
        """Return (p50, p90) in seconds; zeros for an online pod, which has no end."""
        if pod.workload_class is WorkloadClass.ONLINE:
            return 0.0, 0.0
        found = self._known.get(self._job(pod))
        if found is None:
            self.learn([pod])
            found = self._known[self._job(pod)]
        return found

    def _job(self, pod: Pod) -> _Job:
        return type_for(self.forecaster, pod), pod.input_bytes, pod.requested_seconds
