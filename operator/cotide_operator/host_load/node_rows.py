"""Rows of the forecasters by node, and the capacity of each node that shares refer to.

Called by `live` with every look at the nodes. Rows never move. A node that is gone for longer than a slot gives its row
back; a node that registers again earlier keeps its history. Invariant: after a change of a row's node or of the node's
size, `take_vacated` returns the row before anything is recorded in it.
"""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Floats
from cotide_operator.host_load.sampler import NodeTable

FIRST_ROWS: Final = 64
"""Initial room for nodes (chosen)."""
SPARE_SHARE: Final = 1 / 16
"""Share of the rows in use that is added when there is no room (chosen: an idle row costs the forecasters as much as
one in use, and making room copies their state of all nodes)."""
RESIZED_SHARE: Final = 0.05
"""Above this relative change of the allocatable amount, shares before and after are not comparable (chosen)."""


class NodeRows:
    """Rows by node name.

    Parameters
    ----------
    patience_seconds : clock seconds for which a node that is gone keeps its row.

    Attributes
    ----------
    capacity : number of rows with room. physical : (2, capacity) millicores and bytes of each row's node, nan without.
    row_of : by name.
    """

    def __init__(self, patience_seconds: float) -> None:
        self.capacity = FIRST_ROWS
        self.physical: Floats = np.full((2, FIRST_ROWS), np.nan)
        self.row_of: dict[str, int] = {}
        self._patience_seconds = patience_seconds
        self._last_seen: dict[str, float] = {}
        self._next = 0
        self._spare: list[int] = []
        self._vacated: set[int] = set()

    def follow(self, table: NodeTable, now: float) -> NDArray[np.intp]:
        """Bring the rows up to date; return the row of each node of the table."""
        for name in table.names:
            self._last_seen[name] = now
        for name in [name for name, seen in self._last_seen.items() if seen + self._patience_seconds < now]:
            row = self.row_of.pop(name)
            del self._last_seen[name]
            self.physical[:, row] = np.nan
            self._vacated.add(row)
            heapq.heappush(self._spare, row)
        self._make_room(sum(name not in self.row_of for name in table.names))
        rows = np.array([self._row(name) for name in table.names], np.intp)
        if len(rows):
            self._resize(rows, table.physical)
        return rows

    def take_vacated(self) -> list[int]:
        """Return the rows with a past to forget, each once."""
        vacated, self._vacated = sorted(self._vacated), set()
        return vacated

    def _row(self, name: str) -> int:
        row = self.row_of.get(name)
        if row is not None:
            return row
        if self._spare:
            row = heapq.heappop(self._spare)
        else:
            row = self._next
            self._next += 1
        self.row_of[name] = row
        return row

    def _make_room(self, joining: int) -> None:
        """Add rows for more nodes."""
        needed = self._next + joining - len(self._spare)
        if needed <= self.capacity:
            return
        capacity = -(-int(needed * (1 + SPARE_SHARE)) // FIRST_ROWS) * FIRST_ROWS
        self.physical = np.pad(self.physical, ((0, 0), (0, capacity - self.capacity)), constant_values=np.nan)
        self.capacity = capacity

    def _resize(self, rows: NDArray[np.intp], physical: Floats) -> None:
        before = self.physical[:, rows]
        with np.errstate(invalid="ignore"):
            resized = (np.abs(physical - before) > RESIZED_SHARE * before).any(axis=0)
        self._vacated.update(rows[resized].tolist())
        keep = np.isfinite(before).all(axis=0) & ~resized
        # A share refers to the same capacity until a relevant change.
        self.physical[:, rows] = np.where(keep, before, physical)
