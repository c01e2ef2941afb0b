"""Turns raw usage samples into one clean record for each host and slot: the maximum seen inside it.

Called by the usage feed (samples of any rhythm) and the trace readers. It handles all odd input of a metrics pipeline,
so that forecasters see only finite shares of capacity or nan:

- nan, infinite, negative and implausibly high values are refused and counted, never read as zero;
- a repeated sample changes nothing (a maximum), one for a closed slot is refused as late;
- a host without a sample has nan in that slot, and no other effect: a gap of any length is a run of nan;
- a clock that jumps ahead by more than `GAP_SLOTS_MAX` slots restarts the calendar there instead of closing a million
  slots; a clock that steps back counts as late until it has caught up.

Invariant: slots are closed in order, each once; ``refused`` only grows.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats

GAP_SLOTS_MAX: Final = 2016
"""Longest gap that is filled with missing slots: a week of five minutes (chosen)."""
PLAUSIBLE_MAX: Final = 4.0
"""Shares of capacity above which a sample is a fault of measurement, not a load (chosen; real overshoot is < 2)."""


class SlotClock:
    """Open slot of n hosts.

    Parameters
    ----------
    hosts : number of rows. slot_seconds : length of a slot; > 0 (Jiang et al.: 300).
    """

    def __init__(self, hosts: int, *, slot_seconds: float = 300.0, plausible_max: float = PLAUSIBLE_MAX) -> None:
        if not slot_seconds > 0:
            raise ValueError("a slot lasts more than 0 seconds")
        self.slot_seconds = slot_seconds
        self.plausible_max = plausible_max
        self.refused: Counter[str] = Counter()
        self._slot: int | None = None
        self._open = np.full(hosts, np.nan)

    @property
    def slot(self) -> int | None:
        """Number of the open slot since the epoch; None before the first sample."""
        return self._slot

    def grow(self, hosts: int) -> None:
        """Make room for more hosts; the open slot stays open."""
        self._open = np.concatenate([self._open, np.full(hosts - len(self._open), np.nan)])

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Forget the open slot's values of hosts that vanished."""
        self._open[rows] = np.nan

    def take(self, at_seconds: float, rows: NDArray[np.intp], values: Floats) -> list[Floats]:
        """Take in samples of some hosts made at one moment; return the slots (n,) that this moment closes.

        Parameters
        ----------
        at_seconds : epoch seconds. rows : hosts. values : their loads, in shares of capacity.
        """
        if not np.isfinite(at_seconds):
            self.refused["time"] += len(rows)
            return []
        closed = self.close(at_seconds)
        if self._slot is not None and at_seconds < self._slot * self.slot_seconds:
            self.refused["late"] += len(rows)
            return closed
        with np.errstate(invalid="ignore"):
            usable = np.isfinite(values) & (values >= 0) & (values <= self.plausible_max)
        self.refused["value"] += int(len(rows) - usable.sum())
        np.fmax.at(self._open, rows[usable], values[usable])
        return closed

    def close(self, now_seconds: float) -> list[Floats]:
        """Return the slots that have ended by now, oldest first; also called when no sample comes at all."""
        slot = int(now_seconds // self.slot_seconds)
        if self._slot is None:
            self._slot = slot
        ended = slot - self._slot
        if ended <= 0:
            return []
        closed = [self._open.copy()]
        if ended <= GAP_SLOTS_MAX:
            closed += [np.full(len(self._open), np.nan) for _ in range(ended - 1)]
        else:
            self.refused["jump"] += 1
        self._open[:] = np.nan
        self._slot = slot
        return closed


def rates_of_counter(at_seconds: Floats, counter: Floats) -> Floats:
    """Return (m,) the rate of a counter since the sample before; nan for the first, and where it is unknown.

    A counter that fell was reset by a restart. Its value counts from the restart, a lower bound that would read as
    idleness, so the interval is nan. So are intervals of no or negative length and samples that are not finite.
    """
    rates = np.full(len(counter), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        elapsed, counted = np.diff(at_seconds), np.diff(counter)
        known = np.isfinite(elapsed) & np.isfinite(counted) & (elapsed > 0) & (counted >= 0)
        rates[1:] = np.where(known, counted / elapsed, np.nan)
    return rates


def slot_maxima(at_seconds: Floats, values: Floats, *, slot_seconds: float, slots: int) -> Floats:
    """Return (slots,) maxima of one series' samples at irregular times from 0; nan for a slot without any."""
    maxima = np.full(slots, np.nan)
    indices = np.floor_divide(at_seconds, slot_seconds).astype(np.intp)
    inside = (indices >= 0) & (indices < slots) & np.isfinite(values)
    np.fmax.at(maxima, indices[inside], values[inside])
    return maxima
