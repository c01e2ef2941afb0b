"""Measurements of online services for the Workload controller.

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
"""Reasons of the condition ``Misconfigured`` about queries; ``QueriesAsked`` once all of them work again."""


@dataclass(frozen=True, slots=True)
class QueryFault:
    """The reason why a Workload's query gives no value: shown in its condition ``Misconfigured``."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class ServiceReading:
    """The latest values of one Workload: all its pods together."""

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
        """Return the faults of queries, by Workload; None before the first query."""
        ...

    def get(self, workload_key: str) -> ServiceReading | None:
        """Return the latest reading, or None without a fresh one."""
        ...


class NoReadings:
    """The readings without a metrics source."""

    faults: Mapping[str, QueryFault] | None = None

    def get(self, workload_key: str) -> ServiceReading | None:
        """Return None."""
        del workload_key
        return None
