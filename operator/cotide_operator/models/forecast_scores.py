"""How good the forecasts were: each one is remembered until the truth is known, then scored.

Fed by the loop with bindings, finished pods and service samples; writes the ``forecast_*`` and ``qos_*`` metrics.
Invariant: a forecast is scored at most once; a pod that is evicted or deleted before it finishes scores nothing,
since its run time is not the truth about anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cotide_core.events import Pod, PodPhase
from cotide_core.instructions import Bind
from cotide_operator.observability.metrics import Metrics

COMPLETION: Final = "completion"


@dataclass
class _Placement:
    """A bound pod whose forecasts are not yet scored."""

    node: str
    p50: float | None
    p90: float | None
    started: bool = False


@dataclass
class _Coverage:
    """How many runs were scored of a forecaster, and how many of them were at or below its quantiles."""

    scored: int = 0
    by_p50: int = 0
    by_p90: int = 0


@dataclass
class _Slot:
    """The slot of a service pod that is under way: a slot's value is the maximum in it."""

    number: int
    violated: bool


class ForecastScores:
    """Scores forecasts.

    Parameters
    ----------
    metrics : Metrics
    limit_of : callable
        A Workload's p95 limit in milliseconds, by key.
    slot_seconds : float
        Length of a service slot on the operator's clock.
    """

    def __init__(self, metrics: Metrics, limit_of: Callable[[str], float | None], slot_seconds: float) -> None:
        self._metrics = metrics
        self._limit_of = limit_of
        self._slot_seconds = slot_seconds
        self._placements: dict[str, _Placement] = {}
        self._at_stake: dict[str, set[str]] = {}
        self._slots: dict[str, _Slot] = {}
        self._covered: dict[str, _Coverage] = {}
        self.violations: dict[str, int] = {}
        """Slots over the limit by Workload, since this process started."""

    def bound(self, bind: Bind) -> None:
        """Remember what was forecast for a pod that was bound just now."""
        forecast = bind.forecast
        at_stake = forecast.qos_violation_probability is not None
        if forecast.seconds_p50 is None and not at_stake:
            return
        before = self._placements.get(bind.key)
        if before is not None:  # of a pod of the same name that nobody saw go
            self._settle(bind.key, before)
        self._placements[bind.key] = _Placement(bind.node, forecast.seconds_p50, forecast.seconds_p90)
        if at_stake:
            self._at_stake.setdefault(bind.node, set()).add(bind.key)

    def pod_changed(self, pod: Pod) -> None:
        """Follow a pod; a finished one scores its run-time forecast."""
        placement = self._placements.get(pod.key)
        if placement is None:
            return
        placement.started = placement.started or pod.started_seconds is not None
        if pod.phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED):
            return
        self.pod_gone(pod.key)
        if pod.phase is PodPhase.SUCCEEDED and None not in (pod.started_seconds, pod.finished_seconds, placement.p50):
            self._score(placement, (pod.finished_seconds or 0.0) - (pod.started_seconds or 0.0))

    def pod_gone(self, key: str) -> None:
        """Drop a pod that ended or was deleted."""
        placement = self._placements.pop(key, None)
        if placement is not None:
            self._settle(key, placement)
        self._slots.pop(key, None)

    def workload_gone(self, key: str) -> None:
        """Drop what was counted of a Workload that was deleted, and its metric series."""
        if self.violations.pop(key, None) is not None:
            self._metrics.qos_violations.remove(key)

    def _settle(self, key: str, placement: _Placement) -> None:
        beside = self._at_stake.get(placement.node)
        if beside is not None:
            beside.discard(key)
            if not beside:
                del self._at_stake[placement.node]

    def _score(self, placement: _Placement, seconds: float) -> None:
        self.run_time(COMPLETION, seconds, placement.p50 or 0.0, placement.p90 or placement.p50 or 0.0)

    def run_time(self, forecaster: str, seconds: float, p50: float, p90: float) -> None:
        """Score the forecast of a run that is over: what decided, or one of those it was chosen from."""
        self._metrics.forecast_error.labels(forecaster).observe(abs(seconds - p50))
        if seconds > p50:
            self._metrics.forecast_underestimates.labels(forecaster).inc()
        covered = self._covered.setdefault(forecaster, _Coverage())
        covered.scored += 1
        covered.by_p50 += seconds <= p50
        covered.by_p90 += seconds <= p90
        for quantile, count in (("0.5", covered.by_p50), ("0.9", covered.by_p90)):
            self._metrics.forecast_coverage.labels(forecaster, quantile).set(count / covered.scored)

    def sampled(self, pod: Pod, latency_p95_milliseconds: float, now: float) -> None:
        """Take a fresh latency of an online pod: counts violated slots, scores what was placed beside it."""
        limit = self._limit_of(pod.workload) if pod.workload else None
        if limit is None or pod.workload is None:
            return
        broken = latency_p95_milliseconds > limit
        number = int(now // self._slot_seconds)
        slot = self._slots.get(pod.key)
        if slot is None or slot.number != number:
            slot = self._slots[pod.key] = _Slot(number, violated=False)
        if broken and not slot.violated:
            slot.violated = True
            self.violations[pod.workload] = self.violations.get(pod.workload, 0) + 1
            self._metrics.qos_violations.labels(pod.workload).inc()
        for key in list(self._at_stake.get(pod.node or "", ())):
            placement = self._placements[key]
            if placement.started:  # a latency measured before the pod ran says nothing about it
                self._settle(key, placement)
                self._metrics.qos_predictions.labels("broken" if broken else "held").inc()
