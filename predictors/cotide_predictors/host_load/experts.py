"""The experts behind the mixed quantiles: seven simple views of one host, each a location and a scale.

Called by `forecaster`. None is good everywhere. Yesterday is best for a service with a daily course, and the spread of
its own levels for a jumpy virtual machine. The recursion with a fast scale is best for a smooth one. The weights are
decided host by host (`mixture`).

=============  =================================================  ===========================
expert         location                                           scale: mean absolute error
=============  =================================================  ===========================
centre, fast   the centre model's peak (ARMA or allocated load)   over 8 slots
centre, slow   the same                                           over a day
level, short   mean level over 3 hours                            over 6 hours
level, long    mean level over 800 slots                          over 2 days
smoothed       exponential smoothing, 0.5                         over 8 slots
yesterday      0.65 centre + 0.35 the same time a day ago         over a day
raw level      none: the histogram of the load itself             fixed
=============  =================================================  ===========================

Horizons in slots are chosen for five-minute slots. Invariant: a missing record changes no expert but the calendar of
``yesterday``; scales are never below `SCALE_MIN`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.compiled import compiled
from cotide_predictors.host_load.growth import overlay
from cotide_predictors.host_load.residual_histograms import REACH
from cotide_predictors.host_load.slot_ring import DAY_SLOTS, SlotRing

EXPERTS: Final = ("centre, fast", "centre, slow", "level, short", "level, long", "smoothed", "yesterday", "raw level")
LINEAR: Final = 6
"""The first expert with bounded residuals, counted in equal bins."""
SCALE_MIN: Final = 0.002
"""Of capacity: a smaller scale would measure noise only (chosen)."""
SCALE_START: Final = 0.02
_SCALE_RATES: Final = np.array([1 / 8, 1 / 288, 1 / 72, 1 / 576, 1 / 8, 1 / 288])
_SHORT_RATE: Final = 1 / 36
_LONG_RATE: Final = 1 / 800
_SMOOTHING: Final = 0.5
_YESTERDAY_SHARE: Final = 0.35


class ExpertBank:
    """The experts' memory of n hosts.

    Parameters
    ----------
    hosts : number of hosts. ceiling : highest load that the raw histogram resolves, in shares of capacity; > 0.
    day_slots : slots from now to the same time yesterday, >= 1; None: without the expert of yesterday.
    """

    def __init__(self, hosts: int, *, ceiling: float, day_slots: int | None = DAY_SLOTS) -> None:
        self._ceiling = ceiling
        self._day_slots = day_slots
        self._day = SlotRing(1 if day_slots is None else day_slots + 1)
        self._records = np.zeros(hosts)
        self._short = np.zeros(hosts)
        self._long = np.zeros(hosts)
        self._smoothed = np.zeros(hosts)
        self._moved = np.zeros(hosts)
        self._scales = np.full((hosts, len(EXPERTS)), SCALE_START)
        self._scales[:, LINEAR] = ceiling / 2 / REACH
        self._floored: Floats | None = None
        """The scales for callers; None when they changed since. All horizons of a slot share one array, which each
        keeps until its peak is known.
        """

    def forecast(self, centre: Floats, slots: int) -> tuple[Floats, Floats]:
        """Return locations and scales (n, K) for the peak of the next slots, given the centre model's peak (n,).

        The scales are shared with other calls and are read only.
        """
        locations = np.empty(self._scales.shape)
        locations[:, 0] = locations[:, 1] = np.where(np.isfinite(centre), centre, self._long)
        locations[:, 2] = self._short
        locations[:, 3] = self._long
        locations[:, 4] = self._smoothed
        locations[:, 5] = self._yesterday(locations[:, 0], slots)
        # The raw histogram sees levels, not decisions: until the next record, decided changes move it.
        locations[:, LINEAR] = self._ceiling / 2 + self._moved
        if self._floored is None:
            self._floored = np.maximum(self._scales, SCALE_MIN)
        return locations, self._floored

    def record(self, values: Floats, locations: Floats) -> None:
        """Learn from one slot's records (n,), given the one-slot locations that were forecast for it."""
        _learn(values, locations, self._records, self._scales, self._short, self._long, self._smoothed)
        self._floored = None
        self._moved[:] = 0.0
        self._day.add(values)

    def shift(self, rows: NDArray[np.intp], amounts: Floats) -> None:
        """Move the levels of some hosts: their load was changed by a decision, not by chance."""
        for level in self._levels():
            level[rows] += amounts
        self._day.shift(rows, amounts)

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Forget these hosts."""
        for state in (self._records, *self._levels()):
            state[rows] = 0.0
        self._scales[rows, :LINEAR] = SCALE_START
        self._floored = None
        self._day.forget(rows)

    def follow(self, smaller: ExpertBank) -> None:
        """Take over the state of a bank of fewer hosts."""
        self._floored = smaller._floored = None
        overlay(self, smaller)
        self._day = smaller._day.grown(len(self._records))

    def bytes(self) -> int:
        """Return the memory of the state, in bytes."""
        return self._day.nbytes + sum(state.nbytes for state in (*self._levels(), self._records, self._scales))

    def _levels(self) -> tuple[Floats, ...]:
        return self._short, self._long, self._smoothed, self._moved

    def _yesterday(self, centre: Floats, slots: int) -> Floats:
        """Return the centre drawn towards yesterday's load at this time, where yesterday is known."""
        day = self._day_slots
        if day is None or len(self._day) <= day:
            return centre
        ago = day - 1
        if slots == 1 and day > 1:
            # Three slots, the middle one with twice its neighbours' weight: one slot alone is too noisy.
            before = [self._day.ago(ago - offset) for offset in (-1, 0, 1)]
            seen = ((before[0] + before[1]) + before[2]) / 3
        else:
            ahead = [self._day.ago(ago - offset) for offset in range(max(1, min(slots, day - 1)))]
            seen = np.maximum.reduce(ahead)
        mixed: Floats = (1 - _YESTERDAY_SHARE) * centre + _YESTERDAY_SHARE * seen
        return np.where(np.isfinite(mixed), mixed, centre)


@compiled
def _learn(
    values: Floats, locations: Floats, records: Floats, scales: Floats, short: Floats, long: Floats, smoothed: Floats
) -> None:
    """Move each present host's scales and means towards its new record, in place; shapes as in `ExpertBank`."""
    for host in range(len(values)):
        value = values[host]
        if not np.isfinite(value):
            continue
        first = records[host] == 0.0
        records[host] += 1.0
        if not first:
            # The first record has no forecast to compare with; a young host averages evenly over its records.
            for expert in range(LINEAR):
                rate = max(_SCALE_RATES[expert], 1.0 / (records[host] + 2.0))
                scales[host, expert] += rate * (abs(value - locations[host, expert]) - scales[host, expert])
        even = 1.0 / records[host]
        short[host] += max(_SHORT_RATE, even) * (value - short[host])
        long[host] += max(_LONG_RATE, even) * (value - long[host])
        smoothed[host] += (1.0 if first else _SMOOTHING) * (value - smoothed[host])
