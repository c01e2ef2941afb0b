"""Forecasts that need no fitting: the user's estimate, the mean of the last two runs, the largest of five ratios.

Baselines of the learned forecasts and their inputs. All have one contract: snapshots of the user's history and the
requested times in, seconds out. A job without the history that a rule needs gets the user's estimate, and without that
`UNKNOWN_SECONDS`. Invariant: a forecast is positive, and never above the estimate where there is one, since batch
systems end a job there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.history import DEPTH, Column
from cotide_predictors.run_time.jobs import SHORTEST_SECONDS

UNKNOWN_SECONDS: Final = 3600.0
"""Run time of a job with neither a past nor an estimate (chosen)."""

Heuristic = Callable[[Floats, Floats], Floats]


def user_estimate(rows: Floats, requested_seconds: Floats) -> Floats:
    """Return (n,) the requested times."""
    del rows
    return np.where(requested_seconds > 0, requested_seconds, UNKNOWN_SECONDS)


def last_two_mean(rows: Floats, requested_seconds: Floats) -> Floats:
    """Return (n,) means of the user's two latest completed runs; one run where there is just one."""
    newest, older = rows[:, Column.RUN], rows[:, Column.RUN + 1]
    mean = np.where(np.isnan(older), newest, (newest + older) / 2)
    return bounded(mean, requested_seconds)


def largest_ratio_of_five(rows: Floats, requested_seconds: Floats) -> Floats:
    """Return (n,) requested times times the largest run/request among the user's five latest completed jobs."""
    ratios = rows[:, Column.RATIO : Column.RATIO + DEPTH]
    largest = np.max(np.where(np.isnan(ratios), -np.inf, ratios), axis=1, initial=-np.inf)
    scaled = np.where(np.isfinite(largest), largest, np.nan) * requested_seconds
    return bounded(scaled, requested_seconds)


HEURISTICS: Final[Mapping[str, Heuristic]] = MappingProxyType(
    {"user-estimate": user_estimate, "last-two-runs": last_two_mean, "maximum-of-five": largest_ratio_of_five}
)


def within_request(seconds: Floats, requested_seconds: Floats) -> Floats:
    """Return (n,) seconds held between `SHORTEST_SECONDS` and the request, where there is one."""
    limit = np.where(requested_seconds > 0, requested_seconds, np.inf)
    return np.maximum(np.minimum(seconds, limit), SHORTEST_SECONDS)


def bounded(seconds: Floats, requested_seconds: Floats) -> Floats:
    """Return (n,) seconds within the request, and the user's estimate where they are nan."""
    known = np.where(np.isnan(seconds), user_estimate(seconds, requested_seconds), seconds)
    return within_request(known, requested_seconds)
