"""The best-scored rows of a column of scores, updated as single scores change, and random choices between equals.

Used by `candidates`: choosing the best of 5,000 nodes, or the best eight, must avoid a pass over all of them for every
pod. Invariant: the list holds exactly the rows with a (-score, position) up to the cut, in that order. The position of
a row is random, so row numbers do not decide ties.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Booleans, Floats
from cotide_core.kernels.best_rows import best_rows

KEPT: Final = 128
"""Rows of a fresh list (chosen: a rebuild, one pass over all scores, is needed about once in as many placements)."""
DRAWS: Final = 1024
"""Number of draws at once (chosen: a call of numpy for each takes ten times as long)."""
_STREAM: Final = 1
"""Part of the seed: it separates these draws from those of a policy that draws nodes."""
_END: Final = (np.inf, 0, 0)


class Ties:
    """Random choices between equally good rows; the same seed and the same calls give the same answers.

    The choice among the best rows is drawn for each pod. The order of equals in a guard's calls is drawn once for each
    number of rows: a new order for each pod would make the answers about the previous pod useless.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM,)))
        self._draws: list[float] = []
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)
        self._positions: NDArray[np.int64] = self._order

    def pick(self, count: int) -> int:
        """Return a number of [0, count), each equally likely."""
        if count == 1:
            return 0
        if not self._draws:
            self._draws = self._generator.random(DRAWS).tolist()
        return int(self._draws.pop() * count)

    def best(self, scores: Floats, among: Booleans) -> int:
        """Return one of the rows with the highest score; -1 if none is open."""
        open_scores = np.where(among, scores, -np.inf)
        top = open_scores.max(initial=-np.inf)
        if top == -np.inf:
            return -1
        rows = np.flatnonzero(open_scores == top)
        return rows.item(self.pick(len(rows)))

    def order(self, size: int) -> NDArray[np.int64]:
        """Return (size,) every row once."""
        if len(self._order) != size:
            self._order = self._generator.permutation(size)
            self._positions = np.empty(size, np.int64)
            self._positions[self._order] = np.arange(size)
        return self._order

    def positions(self, size: int) -> NDArray[np.int64]:
        """Return (size,) each row's place in that order."""
        self.order(size)
        return self._positions


class Ranking:
    """A sorted list of the best rows; rows with a score of -inf never appear.

    Parameters
    ----------
    kept : number of rows of a fresh list.
    """

    def __init__(self, ties: Ties, kept: int = KEPT) -> None:
        self._ties = ties
        self._kept = kept
        self._positions: memoryview = memoryview(b"")
        self._list: list[tuple[float, int, int]] = []
        self._cut: tuple[float, int, int] | None = None

    def reset(self) -> None:
        """Forget everything: most scores changed."""
        self._cut = None

    def change(self, row: int, old: float, new: float) -> None:
        """Record that the score of a row changed."""
        if self._cut is None or old == new:
            return
        position = self._positions[row]
        before, after = (-old, position, row), (-new, position, row)
        if before <= self._cut and before < _END:
            del self._list[bisect_left(self._list, before)]
        if after <= self._cut and after < _END:
            insort(self._list, after)
            if len(self._list) > 4 * self._kept:
                del self._list[self._kept :]
                self._cut = self._list[-1]

    def best(self, scores: Floats, count: int) -> list[int]:
        """Return the rows with the `count` highest scores, best first; fewer when fewer are above -inf."""
        self.fill(scores, count)
        return [row for _, _, row in self._list[:count]]

    def top(self, scores: Floats) -> tuple[float, int]:
        """Return the highest score, and how many rows of the list have it; -inf and 0 if all are -inf."""
        self.fill(scores, 1)
        found = self._list
        if not found:
            return -np.inf, 0
        least = found[0][0]
        if len(found) == 1 or found[1][0] != least:
            return -least, 1
        return -least, bisect_left(found, (least, len(self._positions), 0))

    def row(self, index: int) -> int:
        """Return the row at a position of the list."""
        return self._list[index][2]

    def lacks(self, count: int) -> bool:
        """Whether finding the best ``count`` rows takes a pass over the scores."""
        return self._cut is None or (len(self._list) < count and self._cut < _END)

    def fill(self, scores: Floats, count: int) -> None:
        """Prepare the best ``count`` rows."""
        if self.lacks(count):
            self._build(scores, max(self._kept, 2 * count))

    def _build(self, scores: Floats, kept: int) -> None:
        size = len(scores)
        rows = best_rows(scores, scores > -np.inf, self._ties.order(size), kept)
        positions = self._ties.positions(size)
        self._positions = positions.data
        self._list = list(zip((-scores[rows]).tolist(), positions[rows].tolist(), rows.tolist(), strict=True))
        complete = size <= kept or len(rows) < kept
        self._cut = _END if complete else self._list[-1]
