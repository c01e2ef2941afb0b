"""Measurements that made a part of the operator raise: skipped one by one, so that everything else continues.

Called by the sources, by `usage_feed` and by `host_load`. A measurement is not an object that is quarantined until it
changes (as in `cache.quarantine`): the next answer is read like any other. Invariant: the log lines are bounded,
however many values of an answer fail, and however often.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Literal

from cotide_operator.cache.quarantine import where_raised
from cotide_operator.observability.metrics import Metrics

_LOG = logging.getLogger(__name__)

LINE_SECONDS: Final = 60.0
"""Wall seconds between two log lines on the same part; the second line gives the number of faults between. Chosen."""
TEXT_CHARACTERS: Final = 200
"""Longest name and error text in the log; chosen: a line."""

Part = Literal[
    "source", "query", "metrics API", "service reading", "recent peak", "usage reading", "usage", "host load"
]


class MeasurementFaults:
    """Counts and logs skipped measurements."""

    def __init__(self, metrics: Metrics, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._monotonic = monotonic
        self._logged_at: dict[Part, float] = {}
        self._unsaid: dict[Part, int] = {}

    def leave_out(self, part: Part, what: str, error: Exception) -> None:
        """Count one fault of a part, and log its origin unless a recent line did."""
        self._metrics.measurement_faults.labels(part).inc()
        now = self._monotonic()
        if now - self._logged_at.get(part, float("-inf")) < LINE_SECONDS:
            self._unsaid[part] = self._unsaid.get(part, 0) + 1
            return
        self._logged_at[part] = now
        before = self._unsaid.pop(part, 0)
        more = f" (and {before} more since the last such line)" if before else ""
        _LOG.error("%s %r is left out%s: %s", part, what[:TEXT_CHARACTERS], more, described(error))


def described(error: Exception) -> str:
    """Return the origin and the text of an error, in one short line."""
    return f"{where_raised(error).strip()}: {error!s:.{TEXT_CHARACTERS}}"
