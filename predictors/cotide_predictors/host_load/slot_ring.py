"""The newest records of all hosts, slot by slot, in single precision.

Used by `experts` for a day of records, and by the operator for the histories of fits. A slot takes memory once it
exists: a new forecaster holds no empty day of every host. Invariant: never more than the given number of slots; a host
without a record in a slot has nan there.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats

Records = NDArray[np.float32]
DAY_SECONDS: Final = 86_400.0
DAY_SLOTS: Final = 288
"""Slots of a day where a slot is five minutes, the default."""
MAX_DAY_SLOTS: Final = 1440
"""Largest number of slots a day with a memory of the day, one a minute (chosen: 6 KB a host)."""


def slots_of_day(slot_seconds: float) -> int | None:
    """Return how many slots a day has, rounded; None where slots are so short that a day is too large to keep."""
    slots = max(1, round(DAY_SECONDS / slot_seconds))
    return slots if slots <= MAX_DAY_SLOTS else None


class SlotRing:
    """The last slots of some hosts, which lie on the last axis of each slot's array.

    Parameters
    ----------
    slots : largest number of kept slots, >= 1.
    """

    def __init__(self, slots: int) -> None:
        self._slots: deque[Records] = deque(maxlen=slots)

    def __len__(self) -> int:
        """Return the number of slots."""
        return len(self._slots)

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return sum(values.nbytes for values in self._slots)

    def add(self, values: Floats) -> None:
        """Append the newest slot (..., n), a copy; the oldest goes when there are enough."""
        self._slots.append(values.astype(np.float32))

    def ago(self, slots: int) -> Records:
        """Return the slot so many before the newest, not a copy; 0 is the newest.

        Raises
        ------
        IndexError
            When there are fewer slots.
        """
        return self._slots[-1 - slots]

    def oldest_first(self) -> Records:
        """Return (..., n, m) all m slots, a copy; m must be at least 1."""
        return np.stack(self._slots, axis=-1)

    def shift(self, rows: NDArray[np.intp], amounts: Floats) -> None:
        """Move the newest records of some hosts, each named once; nothing before the first slot."""
        if self._slots:
            self._slots[-1][..., rows] += amounts

    def forget(self, rows: NDArray[np.intp]) -> None:
        """Make all records of these hosts unknown."""
        for values in self._slots:
            values[..., rows] = np.nan

    def grown(self, hosts: int) -> SlotRing:
        """Return a ring of more hosts with the same records; the added ones have none."""
        larger = SlotRing(self._slots.maxlen or 1)
        for values in self._slots:
            wide = np.full((*values.shape[:-1], hosts), np.nan, np.float32)
            wide[..., : values.shape[-1]] = values
            larger._slots.append(wide)
        return larger
