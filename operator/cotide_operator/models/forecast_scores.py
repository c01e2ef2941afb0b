"""Quality of the forecasts: each one is remembered until its outcome is known, then scored.

The loop passes bindings, finished pods and service samples; this module writes the ``forecast_*`` and ``qos_*``
metrics. Invariants: a forecast is scored at most once. A pod that is evicted or deleted before it finishes is not
scored, since its full run time is unknown.
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
    """A bound pod with forecasts that are not scored yet."""

    node: str
    p50: float | None
    p90: float | None
    started: bool = False


@dataclass
class _Coverage:
    """Number of scored runs of a forecaster, and of the runs at or below each of its quantiles."""

    scored: int = 0
    by_p50: int = 0
    by_p90: int = 0


@dataclass
class _Slot:
    """The open slot of a service pod: a slot's value is the maximum in it."""

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
        """Remember the forecasts for a newly bound pod."""
        forecast = bind.forecast
        at_stake = forecast.qos_violation_probability is not None
        if forecast.seconds_p50 is None and not at_stake:
            return
        before = self._placements.get(bind.key)
        if before is not None:  # of an earlier pod of the same name with an unnoticed end
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
        """Drop the counts of a deleted Workload, and its metric series."""
        if self.violations.pop(key, None) is not None:
            self._metrics.qos_violations.remove(key)

    def _settle(self, key: str, placement: _Placement) -> None:
        placed = self._at_stake.get(placement.node)
        if placed is not None:
            placed.discard(key)
            if not placed:
                del self._at_stake[placement.node]

    def _score(self, placement: _Placement, seconds: float) -> None:
        self.run_time(COMPLETION, seconds, placement.p50 or 0.0, placement.p90 or placement.p50 or 0.0)

    def run_time(self, forecaster: str, seconds: float, p50: float, p90: float) -> None:
        """Score a forecast of an ended run: the deciding one, or one of its alternatives."""
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
        """Take a fresh latency of an online pod: count violated slots, score the pods placed next to it."""
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
            if placement.started:  # a latency measured before the pod ran does not depend on it
                self._settle(key, placement)
                self._metrics.qos_predictions.labels("broken" if broken else "held").inc()
