"""The last usable reading of each pod's cpu and memory, and the number of unusable readings.

Filled by `live` after each reading of the source; read by `sampler`. Invariants: a reading that is not a number, too
old, from the future or older than the last one only raises a count. Of two readings of the same pod at once, the higher
one counts. After a pod is replaced by another of its name, it has no reading.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod
from cotide_core.phases.progress import Usage
from cotide_operator.observability.metrics import Metrics
from cotide_operator.usage.measurement_faults import MeasurementFaults
from cotide_operator.usage.sources import UsageReading

READINGS_AT_A_TIME: Final = 5_000
"""Readings processed before the loop gets its turn: some 15 ms (chosen)."""
FORGET_ABOVE: Final = 1024
"""Pods that are kept before any is dropped (chosen: 200 KiB)."""
_NEVER: Final = -math.inf


class _Latest:
    __slots__ = ("taken", "uid", "values", "walls")

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.taken = [0, 0]
        """Number of the source's reading that each value came from."""
        self.values = [math.nan, math.nan]
        self.walls = [_NEVER, _NEVER]


class PodUsages:
    """Usage of pods of all classes.

    Parameters
    ----------
    pod_of : a pod as the engine knows it, by key; readings of other pods are skipped.
    stale_after_seconds : wall seconds for which a reading holds.
    """

    def __init__(self, pod_of: Callable[[str], Pod | None], stale_after_seconds: float, metrics: Metrics) -> None:
        self._pod_of = pod_of
        self._stale_after_seconds = stale_after_seconds
        self._metrics = metrics
        self._left_out = MeasurementFaults(metrics)
        self._latest: dict[str, _Latest] = {}
        self._taken = 0
        """Readings of the source so far."""
        self._kept = FORGET_ABOVE
        self._shown: dict[tuple[str, int], float] = {}
        """Sums of classes among the metrics, and the wall second of each."""

    async def take(self, readings: Sequence[UsageReading], wall_now: float) -> int:
        """Keep the usable values of one reading of the source; return their number."""
        outcomes: Counter[str] = Counter()
        by_class: dict[WorkloadClass, list[float | None]] = {}
        self._taken += 1
        number, pod_of = self._taken, self._pod_of
        for start in range(0, len(readings), READINGS_AT_A_TIME):
            if start:
                await asyncio.sleep(0)
            for reading in readings[start : start + READINGS_AT_A_TIME]:
                try:
                    pod = pod_of(reading.pod)
                    if pod is None:
                        continue
                    outcome = self._keep(pod, reading, wall_now, number)
                except Exception as error:  # noqa: BLE001 - one reading that trips us must not spoil those of all others
                    self._left_out.leave_out("usage reading", str(reading.pod), error)
                    continue
                outcomes[outcome] += 1
                if outcome == "taken" and reading.value is not None:
                    sums = by_class.get(pod.workload_class)
                    if sums is None:
                        sums = by_class[pod.workload_class] = [None, None]
                    sums[reading.resource] = (sums[reading.resource] or 0.0) + reading.value
        self._show(outcomes, by_class, wall_now)
        self._forget_old(wall_now)
        return outcomes["taken"]

    def _show(self, outcomes: Counter[str], by_class: dict[WorkloadClass, list[float | None]], wall_now: float) -> None:
        for outcome, count in outcomes.items():
            self._metrics.usage_readings.labels(outcome).inc(count)
        gauges = (self._metrics.usage_cpu, self._metrics.usage_memory)
        for workload_class, sums in by_class.items():
            name = workload_class.value
            for resource, value in enumerate(sums):
                if value is not None:
                    gauges[resource].labels(name).set(value)
                    self._shown[name, resource] = wall_now
        # Only as long as readings hold: the usage of a class that is gone, or under a source that is down, is unknown.
        for name, resource in [key for key, wall in self._shown.items() if not self._holds(wall, wall_now)]:
            gauges[resource].remove(name)
            del self._shown[name, resource]

    def fresh(self, pod: Pod, wall_now: float) -> tuple[float, float, float]:
        """Return millicores and bytes, nan without a fresh reading, and the time of the older of the two."""
        latest = self._latest.get(pod.key)
        if latest is None or latest.uid != pod.uid:
            return math.nan, math.nan, math.inf
        cpu, memory = latest.values
        cpu_wall, memory_wall = latest.walls
        # Written out for speed: each call covers 50,000 pods.
        if math.isnan(cpu) or abs(wall_now - cpu_wall) > self._stale_after_seconds:
            cpu, cpu_wall = math.nan, math.inf
        if math.isnan(memory) or abs(wall_now - memory_wall) > self._stale_after_seconds:
            memory, memory_wall = math.nan, math.inf
        return cpu, memory, min(cpu_wall, memory_wall)

    def usage_of(self, pod_key: str, wall_now: float, from_wall: Callable[[float], float]) -> Usage | None:
        """Return the fresh values of a pod, nan where one of the two is stale; None where both are."""
        pod = self._pod_of(pod_key)
        if pod is None:
            return None
        millicores, memory_bytes, wall = self.fresh(pod, wall_now)
        return Usage(millicores, memory_bytes, from_wall(wall)) if math.isfinite(wall) else None

    def _keep(self, pod: Pod, reading: UsageReading, wall_now: float, number: int) -> str:
        value, resource = reading.value, reading.resource
        if value is None:
            return "invalid"
        if reading.wall_seconds + self._stale_after_seconds < wall_now:
            return "stale"
        if reading.wall_seconds > wall_now + self._stale_after_seconds:
            return "future"
        latest = self._latest.get(pod.key)
        if latest is None or latest.uid != pod.uid:
            latest = self._latest[pod.key] = _Latest(pod.uid)
        if latest.taken[resource] == number:
            latest.values[resource] = max(latest.values[resource], value)
            return "duplicate"
        # After a backward step of the machine's clock, kept readings lie in the future: they must not block new ones.
        if self._holds(latest.walls[resource], wall_now) and reading.wall_seconds < latest.walls[resource]:
            return "late"
        latest.values[resource] = value
        latest.walls[resource] = reading.wall_seconds
        latest.taken[resource] = number
        return "taken"

    def _holds(self, wall: float, wall_now: float) -> bool:
        return abs(wall_now - wall) <= self._stale_after_seconds

    def _forget_old(self, wall_now: float) -> None:
        """Drop stale readings; only when there are twice as many as after the last time, since it is slow."""
        if len(self._latest) <= 2 * self._kept:
            return
        for key, latest in list(self._latest.items()):
            if not any(self._holds(wall, wall_now) for wall in latest.walls):
                del self._latest[key]
        self._kept = max(FORGET_ABOVE, len(self._latest))
