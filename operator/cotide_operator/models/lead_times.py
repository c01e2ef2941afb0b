"""Lead times: how long before a service breaks its limit it was said that it would, or pods were kept away from it.

Called by `qos_learning` with the scored samples, and by way of `retraining` with the services for whose sake pods were
refused. A *warning* begins when the model's forecast for what is measured now first passes the guard's threshold and
ends when it falls below; *refusals* are one series while they are no more than a slot apart. A break without one before
it has a lead of 0. Invariant: each episode of breaks counts once by either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cotide_core.kernels.array_types import Booleans, Floats
from cotide_core.recording.samples import MeasuredMix
from cotide_operator.observability.metrics import Metrics

SERIES_KEPT: Final = 8
"""Of each service, the latest: samples are scored a minute later at most (chosen)."""


@dataclass
class _Episode:
    warned_at: float | None = None
    broken: bool = False


@dataclass
class _Refusals:
    since: float
    until: float


class LeadTimes:
    """Episodes of warnings and breaks, and series of refusals, by service.

    Parameters
    ----------
    metrics : record the lead times.
    slot_seconds : of the operator's clock.
    """

    def __init__(self, metrics: Metrics, slot_seconds: float) -> None:
        self._metrics = metrics
        self._slot_seconds = slot_seconds
        self._episodes: dict[str, _Episode] = {}
        self._refusals: dict[str, deque[_Refusals]] = {}

    def refused(self, services: Iterable[str], now: float) -> None:
        """Take for whose sake pods were refused nodes at a moment."""
        for service in services:
            series = self._refusals.setdefault(service, deque(maxlen=SERIES_KEPT))
            if series and now - series[-1].until <= self._slot_seconds:
                series[-1].until = now
            else:
                series.append(_Refusals(now, now))

    def follow(self, times: Floats, measured: Sequence[MeasuredMix], warned: Booleans, broken: Booleans) -> None:
        """Take n samples in order of time: what was said of each, and what was measured."""
        moments: dict[tuple[str, float], tuple[bool, bool]] = {}
        for now, measured_mix, says, breaks in zip(
            times.tolist(), measured, warned.tolist(), broken.tolist(), strict=True
        ):
            said, broke = moments.get((measured_mix.service, now), (False, False))
            moments[measured_mix.service, now] = said or says, broke or breaks
        for (service, now), (says, breaks) in moments.items():
            episode = self._episodes.setdefault(service, _Episode())
            if says and episode.warned_at is None:
                episode.warned_at = now
            if breaks and not episode.broken:
                warned_at = now if episode.warned_at is None else episode.warned_at
                self._metrics.qos_lead.labels(service, "warning").observe(now - warned_at)
                self._metrics.qos_lead.labels(service, "refusal").observe(now - self._refused_since(service, now))
            episode.broken = breaks
            if not says and not breaks:
                episode.warned_at = None

    def forget(self, service: str) -> None:
        """Drop a Workload that was deleted."""
        self._episodes.pop(service, None)
        self._refusals.pop(service, None)

    def _refused_since(self, service: str, now: float) -> float:
        """Return when the refusals began that went on until a moment; the moment itself where there were none."""
        for series in self._refusals.get(service, ()):
            if series.since <= now <= series.until + self._slot_seconds:
                return series.since
        return now
