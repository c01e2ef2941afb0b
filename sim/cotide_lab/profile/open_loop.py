"""An open loop: when each request is due, and what its latency was, whenever it was really sent.

Used by `tcp_load` and `http_load`. Arrivals are a Poisson process that does not wait for answers, and latency counts
from when a request was *due*: a server that stalls delays those behind, and these count as they would for users
(no coordinated omission). Requests without an answer at the end count with the age that they had then.

Invariant: same seed, same arrivals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats, Indices


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The report that a load generator prints as JSON on its last line.

    Attributes
    ----------
    lag_ms : mean delay of sending; it is part of each latency.
    kernel_share : share of answers with the kernel's arrival time; the others have the time of reading.
    reading_lag_ms : mean delay of reading the former, which is not part of latencies; None without such answers.
    """

    p95_ms: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    requests_per_second: float
    requests: int
    unanswered: int
    seconds: float
    cut: bool
    lag_ms: float
    kernel_share: float = 0.0
    reading_lag_ms: float | None = None


def arrivals(rate: float, seconds: float, seed: int) -> Floats:
    """Return when requests are due, in seconds from the beginning, rising; Poisson arrivals at ``rate`` a second."""
    generator = np.random.default_rng(seed)
    expected = rate * seconds
    drawn = int(expected + 6 * expected**0.5 + 16)
    due = np.cumsum(generator.exponential(1.0 / rate, drawn))
    found: Floats = due[due < seconds]
    return found


def latencies(due: Floats, answered: Indices, read_at: Floats, end: float) -> tuple[Floats, int]:
    """Return (n,) latencies in seconds, and the number of unanswered requests.

    Answers come in the order of requests on a connection, so that the number of answers over time is enough.

    Parameters
    ----------
    due : (n,) when the connection's requests were due.
    answered, read_at : (m,) answers counted since the beginning after each reading, and its time; both rise.
    end : time when the wait ended.
    """
    total = int(answered[-1]) if len(answered) else 0
    done = np.arange(1, min(total, len(due)) + 1)
    times = read_at[np.searchsorted(answered, done)] if total else np.zeros(0)
    found = np.full(len(due), np.nan)
    found[: len(done)] = times - due[: len(done)]
    missing = len(due) - len(done)
    found[len(done) :] = end - due[len(done) :]
    return np.maximum(found, 0.0), missing


def report(
    found: Floats,
    missing: int,
    seconds: float,
    lag_seconds: float,
    *,
    cut: bool,
    answered: NDArray[np.bool_] | None = None,
    kernel_share: float = 0.0,
    reading_lag_seconds: float = math.nan,
) -> LoadReport:
    """Return the report of a window's latencies (n,), in seconds."""
    if not len(found):
        raise ValueError("no request was due in the window: it is too short for the rate")
    p50, p95, p99, p999 = np.quantile(found, (0.5, 0.95, 0.99, 0.999)) * 1000.0
    done = len(found) - missing if answered is None else int(answered.sum())
    return LoadReport(
        p95_ms=max(float(p95), 1e-6),
        p50_ms=float(p50),
        p99_ms=float(p99),
        p999_ms=float(p999),
        requests_per_second=done / seconds,
        requests=len(found),
        unanswered=missing,
        seconds=seconds,
        cut=cut,
        lag_ms=lag_seconds * 1000.0,
        kernel_share=kernel_share,
        reading_lag_ms=None if math.isnan(reading_lag_seconds) else reading_lag_seconds * 1000.0,
    )
