"""Reader of the WorldCup98 web requests per minute (Internet Traffic Archive).

Called by `workloads.traced`, which lets windows of it drive the online services. Invariant: one value for each minute
from the first to the last; the ten minutes that the trace lacks are filled linearly from their neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Floats
from cotide_files.rows import Row, stream_rows

FILE: Final = "http/worldcup98_requests_per_minute.csv.gz"
WHAT: Final = "WorldCup98 requests per minute"
MINUTE: Final = 60.0
MAX_MINUTES: Final = 5_000_000
"""Nearly ten years: a later one is a time stamp gone wrong, and would ask for all memory (chosen)."""


@dataclass(frozen=True, slots=True, eq=False)
class RequestTrace:
    """Requests in each minute.

    Attributes
    ----------
    start_seconds : epoch second (UTC) of the first minute.
    requests : (n,) requests in each minute.
    """

    start_seconds: float
    requests: Floats

    def window(self, first_minute: int, minutes: int) -> Floats:
        """Return the requests of a stretch of minutes; a stretch that passes the end goes on from the start."""
        return np.take(self.requests, np.arange(first_minute, first_minute + minutes), mode="wrap")


def read_worldcup98(directory: Path) -> RequestTrace:
    """Read the trace below a data directory.

    Raises
    ------
    InputError
        When the file is missing, a row is broken, or times do not rise.
    """
    path = directory / FILE
    times: list[float] = []
    counts: list[float] = []
    for row in stream_rows(path, ("period", "count"), what=WHAT):
        at = _minute(row)
        if times and at <= times[-1]:
            raise row.error("period", "is not later than the row before")
        if times and at - times[0] > MAX_MINUTES * MINUTE:
            raise row.error("period", f"is more than {MAX_MINUTES} minutes after the first row")
        times.append(at)
        counts.append(row.number("count"))
    if not times:
        raise InputError("has no rows", file=str(path))
    minutes = np.arange(times[0], times[-1] + 1.0, MINUTE)
    return RequestTrace(times[0], np.interp(minutes, times, counts))


def _minute(row: Row) -> float:
    text = row.text("period")
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise row.error("period", f"{text!r} is not a time like 1998-04-30 21:30:00") from None
