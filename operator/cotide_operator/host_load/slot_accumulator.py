"""The open slot of every row, the closed slots that are not learnt from yet, and the highest load of batch pods.

Kept by `live` on the event loop. Four values per row: cpu and memory of online pods, then of batch and gratis pods, all
as shares of the node. Invariants: slots are handed over in order, each once. A row with a new node keeps no value of
its former node, in the open slot or in a closed one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats
from cotide_core.state.host_load import IMPOSSIBLE
from cotide_operator.host_load.node_rows import NodeRows
from cotide_predictors.host_load.slots import SlotClock

Rows = NDArray[np.intp]
_VALUES = np.arange(4)


@dataclass(frozen=True, slots=True, eq=False)
class ClosedSlot:
    """A slot that is over: its number since the epoch, and (4, n) highest shares, nan where unknown."""

    number: int
    values: Floats


class SlotAccumulator:
    """Slots of the rows of one roster.

    Parameters
    ----------
    roster : the owner of the rows. slot_seconds : of the operator's clock.
    """

    def __init__(self, roster: NodeRows, slot_seconds: float) -> None:
        self._roster = roster
        self._slot_seconds = slot_seconds
        self._clock = SlotClock(4 * roster.capacity, slot_seconds=slot_seconds, plausible_max=IMPOSSIBLE)
        self._closed: list[ClosedSlot] = []
        self._vacated: set[int] = set()
        self._held: Floats = np.zeros((2, roster.capacity))
        self._published: Floats = np.full((2, roster.capacity), np.nan)

    @property
    def open_slot(self) -> int | None:
        """Number of the open slot."""
        return self._clock.slot

    @property
    def waiting(self) -> bool:
        """Whether a closed slot waits to be learnt from."""
        return bool(self._closed)

    def fit_roster(self) -> None:
        """Follow the roster: more rows, and rows with a new node."""
        capacity = self._roster.capacity
        if capacity > self._held.shape[1]:
            more = ((0, 0), (0, capacity - self._held.shape[1]))
            self._clock.grow(4 * capacity)
            self._held = np.pad(self._held, more)
            self._published = np.pad(self._published, more, constant_values=np.nan)
        vacated = self._roster.take_vacated()
        if not vacated:
            return
        self._clock.reset((4 * np.array(vacated)[:, None] + _VALUES).ravel())
        self._held[:, vacated], self._published[:, vacated] = 0.0, np.nan
        for slot in self._closed:
            slot.values[:, [row for row in vacated if row < slot.values.shape[1]]] = np.nan
        self._vacated.update(vacated)

    def usage(self, rows: Rows, at_seconds: Floats, shares: Floats) -> None:
        """Record samples (2, k) of online pods' usage, each at its own time."""
        slots = np.floor_divide(at_seconds, self._slot_seconds)
        for slot in np.unique(slots):
            chosen = np.flatnonzero((slots == slot) & np.isfinite(shares).all(axis=0))
            if len(chosen):
                indices = (4 * rows[chosen][:, None] + _VALUES[:2]).ravel()
                self._take(float(at_seconds[chosen].max()), indices, shares[:, chosen].T.ravel())

    def held(self, rows: Rows, now: float, shares: Floats) -> None:
        """Record the present load of batch and gratis pods (2, k)."""
        self._take(now, (4 * rows[:, None] + _VALUES[2:]).ravel(), shares.T.ravel())
        self._held[:, rows] = np.fmax(self._held[:, rows], shares)

    def moved(self, rows: Rows) -> tuple[Rows, Floats]:
        """Return the rows with a new highest batch load of the open slot since the last call, and that load."""
        now, before = self._held[:, rows], self._published[:, rows]
        chosen = rows[(np.isfinite(now) & ~(np.abs(now - before) < 1e-9)).any(axis=0)]
        self._published[:, chosen] = self._held[:, chosen]
        return chosen, self._held[:, chosen]

    def close(self, now: float) -> None:
        """Close the slots that are over by the clock, with or without samples."""
        self._note(self._clock.slot, self._clock.close(now))

    def take_closed(self, rows: Rows, held: Floats) -> tuple[list[ClosedSlot], list[int]]:
        """Return the closed slots, as wide as the roster, and the rows to forget before learning from them.

        Parameters
        ----------
        rows, held : load of batch and gratis pods (2, k) at the start of the open slot.
        """
        closed, self._closed = self._closed, []
        vacated, self._vacated = sorted(self._vacated), set()
        if closed:
            self._held[:] = 0.0
            self._held[:, rows] = held
            self._published = self._held.copy()
        capacity = self._roster.capacity
        wide = [
            ClosedSlot(
                slot.number,
                np.pad(slot.values, ((0, 0), (0, capacity - slot.values.shape[1])), constant_values=np.nan),
            )
            for slot in closed
        ]
        return wide, vacated

    def _take(self, at_seconds: float, indices: Rows, values: Floats) -> None:
        number = self._clock.slot
        self._note(number, self._clock.take(at_seconds, indices, values))

    def _note(self, number: int | None, closed: list[Floats]) -> None:
        if number is not None:
            slots = (values.reshape(-1, 4).T.copy() for values in closed)
            self._closed += [ClosedSlot(number + index, values) for index, values in enumerate(slots)]
