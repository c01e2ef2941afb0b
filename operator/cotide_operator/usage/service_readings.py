"""What is measured of online services, as the Workload controller wants to know it.

Filled by the usage feed, read by `controllers`. Invariant: ``violations`` only counts up while the operator lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

Reason = Literal["QueryRefused", "QueryFailed", "QueryTooSlow", "AnswerTooLarge", "AnswerUnusable"]
REASONS: Final[frozenset[str]] = frozenset(
    {"QueryRefused", "QueryFailed", "QueryTooSlow", "AnswerTooLarge", "AnswerUnusable", "QueriesAsked"}
)
"""Of the condition ``Misconfigured`` where it speaks of queries; ``QueriesAsked`` once nothing is wrong any more."""


@dataclass(frozen=True, slots=True)
class QueryFault:
    """Why a Workload's query gives nothing: shown in its condition ``Misconfigured``."""

    reason: Reason
    message: str


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

    @property
    def faults(self) -> Mapping[str, QueryFault] | None:
        """What is wrong with queries, by Workload; None before they were asked."""
        ...

    def get(self, workload_key: str) -> ServiceReading | None:
        """Return the latest reading, or None when nothing fresh is known."""
        ...


class NoReadings:
    """Stands where no metrics source is configured."""

    faults: Mapping[str, QueryFault] | None = None

    def get(self, workload_key: str) -> ServiceReading | None:
        """Know nothing."""
        del workload_key
        return None
