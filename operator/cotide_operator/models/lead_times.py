"""Lead times: seconds between a warning, or a refusal of pods, and the moment when a service breaks its limit.

Called by `qos_learning` with the scored samples. `retraining` passes the services that pods were refused for. A
*warning* begins when the model's forecast for the present measurement first passes the guard's threshold, and ends when
it falls below. *Refusals* form one series while they are at most a slot apart. A break without one before it has a lead
of 0. Invariant: each episode of breaks counts once for each of the two.
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
"""Latest series kept of each service: samples are scored a minute later at most (chosen)."""


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
        """Take the services that pods were refused nodes for at a moment."""
        for service in services:
            series = self._refusals.setdefault(service, deque(maxlen=SERIES_KEPT))
            if series and now - series[-1].until <= self._slot_seconds:
                series[-1].until = now
            else:
                series.append(_Refusals(now, now))

    def follow(self, times: Floats, measured: Sequence[MeasuredMix], warned: Booleans, broken: Booleans) -> None:
        """Take n samples in order of time: the forecast and the measurement of each."""
        moments: dict[tuple[str, float], tuple[bool, bool]] = {}
        for now, measured_mix, warns, breaks in zip(
            times.tolist(), measured, warned.tolist(), broken.tolist(), strict=True
        ):
            warned_before, broke = moments.get((measured_mix.service, now), (False, False))
            moments[measured_mix.service, now] = warned_before or warns, broke or breaks
        for (service, now), (warns, breaks) in moments.items():
            episode = self._episodes.setdefault(service, _Episode())
            if warns and episode.warned_at is None:
                episode.warned_at = now
            if breaks and not episode.broken:
                warned_at = now if episode.warned_at is None else episode.warned_at
                self._metrics.qos_lead.labels(service, "warning").observe(now - warned_at)
                self._metrics.qos_lead.labels(service, "refusal").observe(now - self._refused_since(service, now))
            episode.broken = breaks
            if not warns and not breaks:
                episode.warned_at = None

    def forget(self, service: str) -> None:
        """Drop a Workload that was deleted."""
        self._episodes.pop(service, None)
        self._refusals.pop(service, None)

    def _refused_since(self, service: str, now: float) -> float:
        """Return the start of the refusals that lasted until a moment; the moment itself when there were none."""
        for series in self._refusals.get(service, ()):
            if series.since <= now <= series.until + self._slot_seconds:
                return series.since
        return now
