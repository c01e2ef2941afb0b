"""The experts of a request rate's forecast, which mixes their quantiles: simple views of one service.

Called by `rate_model`. Rates enter as ln(1 + rate), so that a rise counts as a share of the rate. Services of three
decades then teach one pool.

Each expert has a location for the peak over the next slots:

- ``last``: the last slot's rate;
- ``trend``: the last slot's rate plus its last step;
- ``yesterday``: the peak over the same slots a day ago;
- ``yesterday, moved``: the same, plus the change of the rate since a day ago;
- ``last week``: the peak over the same slots a week ago;
- ``last week, moved``: the same, plus the change of the rate since a week ago.

Where a day or a week is missing, its experts answer with the last slot. Invariant: a missing record (nan) changes
nothing but the calendar.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats
from cotide_predictors.host_load.slot_ring import DAY_SLOTS

EXPERTS: Final = ("last", "trend", "yesterday", "yesterday, moved", "last week", "last week, moved")
LAST: Final = 0
WEEK_DAYS: Final = 7
SCALE_MIN: Final = 0.01
"""Of a logarithm: rates closer than a hundredth count as equal (chosen)."""
SCALE_START: Final = 0.1
SCALE_RATE: Final = 1 / 72
"""Scales are mean absolute errors over six hours (chosen)."""


class RateExperts:
    """Memory of n services: a week of slots, 8 KiB a service where a slot is five minutes.

    Parameters
    ----------
    services : number of rows. day_slots : slots of a day, >= 1; None: the experts of a day and a week are off.
    """

    def __init__(self, services: int, day_slots: int | None = DAY_SLOTS) -> None:
        self._seasons = (None, None) if day_slots is None else (day_slots, WEEK_DAYS * day_slots)
        self._past = np.full(((self._seasons[1] or 0) + 1, services), np.nan, dtype=np.float32)
        self._slot = 0
        self.last = np.full(services, np.nan)
        """Of the newest slot that has a record."""
        self._step = np.zeros(services)

    def record(self, values: Floats) -> None:
        """Take in one slot (n,), in logarithms; nan where there is none."""
        known = np.isfinite(values)
        self._step = np.where(known & np.isfinite(self.last), values - self.last, 0.0)
        self.last = np.where(known, values, self.last)
        self._past[self._slot % len(self._past)] = values
        self._slot += 1

    def locations(self, slots: int) -> Floats:
        """Return (n, K) where each expert sees the peak of the next slots; nan for services without any record."""
        found = np.empty((len(self.last), len(EXPERTS)))
        found[:, 0] = self.last
        found[:, 1] = self.last + self._step
        for column, season in zip((2, 4), self._seasons, strict=True):
            peak, then = self._season(season, slots)
            found[:, column] = np.where(np.isfinite(peak), peak, self.last)
            moved = peak + self.last - then
            found[:, column + 1] = np.where(np.isfinite(moved), moved, self.last)
        return found

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Forget these services."""
        self._past[:, rows] = np.nan
        self.last[rows] = np.nan
        self._step[rows] = 0.0

    def _season(self, season: int | None, slots: int) -> tuple[Floats, Floats]:
        """Return the peak (n,) of the slots after this moment a season ago, and the rate at that moment."""
        nothing = np.full(len(self.last), np.nan)
        if season is None or self._slot <= season:
            return nothing, nothing
        then = self._slot - 1 - season
        after = [self._past[(then + step) % len(self._past)] for step in range(1, min(slots, season) + 1)]
        return np.maximum.reduce(after).astype(np.float64), self._past[then % len(self._past)].astype(np.float64)
