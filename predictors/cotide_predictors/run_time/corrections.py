"""The correction of a forecast when its job outlives it: the standard corrections, and the distribution's own.

Called by schedulers at the moment that a running job passes its forecast. Each rule takes the elapsed time and returns
a new total run time. Sources: the requested time and fixed steps as in Tsafrir, Etsion and Feitelson (2007), reference
142 of Naghshnejad 2019, ch. 4. Doubling is in the same literature. Invariant: the new forecast lies above the elapsed
time, and at or below the request unless the job has outlived that too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.distributions import Distributions

STEPS_SECONDS: Final = (60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 18000.0, 36000.0, 72000.0, 180000.0, 360000.0)
"""1, 5, 15 and 30 minutes, then 1, 2, 5, 10, 20, 50 and 100 hours: the increments of the cited paper."""
LEAST_RISE_SECONDS: Final = 1.0
"""The least excess of a corrected forecast over the elapsed time: a log's resolution (chosen)."""

Correction = Callable[[Floats, Floats, Floats], Floats]


def to_request(elapsed_seconds: Floats, requested_seconds: Floats, corrections: Floats) -> Floats:
    """Return the requested time; without one, or past it, twice the elapsed time."""
    del corrections
    return _bounded(
        np.where(requested_seconds > elapsed_seconds, requested_seconds, 2 * elapsed_seconds), elapsed_seconds
    )


def by_steps(elapsed_seconds: Floats, requested_seconds: Floats, corrections: Floats) -> Floats:
    """Return the elapsed time and the next of `STEPS_SECONDS`, the k-th at a job's k-th correction (from 0)."""
    index = np.minimum(corrections, len(STEPS_SECONDS) - 1).astype(np.int64)
    longer = elapsed_seconds + np.asarray(STEPS_SECONDS)[index]
    return _bounded(longer, elapsed_seconds, requested_seconds)


def by_doubling(elapsed_seconds: Floats, requested_seconds: Floats, corrections: Floats) -> Floats:
    """Return twice the elapsed time."""
    del corrections
    return _bounded(2 * elapsed_seconds, elapsed_seconds, requested_seconds)


CORRECTIONS: Final[Mapping[str, Correction]] = MappingProxyType(
    {"request": to_request, "steps": by_steps, "doubling": by_doubling}
)


def given_outlived(forecasts: Distributions, elapsed_seconds: Floats) -> Distributions:
    """Return the distributions of n run times given that each has lasted ``elapsed_seconds``, (n,).

    Bins that are past lose their mass, the bin that the elapsed time cuts keeps the part ahead of it. A job that
    outlived all its mass gets its mass one bin ahead of the elapsed time.
    """
    elapsed = np.log(np.maximum(elapsed_seconds, 1.0))[:, None]
    low, high = forecasts.edges[:-1], forecasts.edges[1:]
    ahead = forecasts.masses * np.clip((high - elapsed) / (high - low), 0.0, 1.0)
    total = ahead.sum(axis=1, keepdims=True)
    last = len(low) - 1
    next_bin = np.minimum(np.searchsorted(high, elapsed[:, 0], side="right") + 1, last)
    fallback = np.eye(last + 1)[next_bin]
    masses = np.where(total > 0, ahead / np.where(total > 0, total, 1.0), fallback)
    return Distributions(forecasts.edges, masses)


def _bounded(longer: Floats, elapsed: Floats, requested: Floats | None = None) -> Floats:
    if requested is not None:
        longer = np.where(requested > elapsed, np.minimum(longer, requested), longer)
    return np.maximum(longer, elapsed + LEAST_RISE_SECONDS)
