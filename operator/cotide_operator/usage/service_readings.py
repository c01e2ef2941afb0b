"""What is measured of online services, as the Workload controller wants to know it.

Filled by the usage feed, read by `controllers`. Invariant: ``violations`` only counts up while the operator lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ServiceReading:
    """The latest of one Workload: all its pods together."""

    requests_per_second: float | None = None
    """Summed over its pods; None while unknown (never zero in its place)."""
    latency_p95_milliseconds: float | None = None
    """The worst of its pods."""
    violations: int = 0
    """Samples over the limit since this operator started."""


class ServiceReadings(Protocol):
    """Readings by Workload key (``namespace/name``)."""

    def get(self, workload_key: str) -> ServiceReading | None:
        """Return the latest reading, or None when nothing fresh is known."""
        ...


class NoReadings:
    """Stands where no metrics source is configured."""

    def get(self, workload_key: str) -> ServiceReading | None:
        """Know nothing."""
        del workload_key
        return None
