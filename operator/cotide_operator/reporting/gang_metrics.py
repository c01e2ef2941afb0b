"""Gangs as metrics: the number of waiting gangs by need, the oldest, those that hold nodes without running, and
time-outs.

`decision_reporter` calls it about once a second. It makes no decisions. Invariant: a time-out counts once, also when a
new engine starts to count at zero.
"""

from __future__ import annotations

from cotide_core.queueing.gangs import GangNeed, Gangs
from cotide_operator.observability.metrics import Metrics


class GangMetrics:
    """Counts the gangs of one operator's engines."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counted: dict[GangNeed, int] = {}
        for need in GangNeed:
            metrics.gang_timeouts.labels(need.value)

    def show(self, gangs: Gangs, now: float) -> None:
        """Show the present gangs of an engine.

        Parameters
        ----------
        now : seconds of the engine's clock.
        """
        for need in GangNeed:
            since = [wait.since_seconds for wait in gangs.waits.values() if wait.need is need]
            self._metrics.gangs_waiting.labels(need.value).set(len(since))
            self._metrics.gang_oldest_wait.labels(need.value).set(max(0.0, now - min(since, default=now)))
            released, counted = gangs.released.get(need, 0), self._counted.get(need, 0)
            # A new engine starts at zero.
            self._metrics.gang_timeouts.labels(need.value).inc(released - counted if released >= counted else released)
            self._counted[need] = released
        self._metrics.gangs_partial.set(gangs.partial)
