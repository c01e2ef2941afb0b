"""Lead time: how long before a service breaks its limit the model began to say that it would.

Called by `qos_learning` with the scored samples. A warning begins when the forecast for what is measured now first
passes the guard's threshold and ends when it falls below; a break without a warning has a lead of 0. Invariant: each
episode of breaks counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cotide_core.kernels.array_types import Booleans, Floats
from cotide_core.recording.samples import MeasuredMix
from cotide_operator.observability.metrics import Metrics


@dataclass
class _Episode:
    warned_at: float | None = None
    broken: bool = False


class LeadTimes:
    """Episodes of warnings and breaks, by service."""

    def __init__(self, telemetry: Metrics) -> None:
        self._telemetry = telemetry
        self._episodes: dict[str, _Episode] = {}

    def follow(self, times: Floats, measured: Sequence[MeasuredMix], warned: Booleans, broken: Booleans) -> None:
        """Take n samples in order of time: what was said of each, and what was measured."""
        moments: dict[tuple[str, float], tuple[bool, bool]] = {}
        for now, one, says, breaks in zip(times.tolist(), measured, warned.tolist(), broken.tolist(), strict=True):
            said, broke = moments.get((one.service, now), (False, False))
            moments[one.service, now] = said or says, broke or breaks
        for (service, now), (says, breaks) in moments.items():
            episode = self._episodes.setdefault(service, _Episode())
            if says and episode.warned_at is None:
                episode.warned_at = now
            if breaks and not episode.broken:
                warned_at = now if episode.warned_at is None else episode.warned_at
                self._telemetry.qos_lead.labels(service).observe(now - warned_at)
            episode.broken = breaks
            if not says and not breaks:
                episode.warned_at = None

    def forget(self, service: str) -> None:
        """Drop a Workload that was deleted."""
        self._episodes.pop(service, None)
