"""The best-scored rows of a column of scores, kept up as single scores change.

Used by `candidates`: choosing the best of 5,000 nodes, or the best eight, must not cost a pass over all of them for
every pod. Invariant: the list holds exactly the rows whose (-score, row) is not above the cut, in that order, so the
lowest row wins ties.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.best_rows import best_rows

KEPT: Final = 128
"""Rows that a fresh list holds (chosen: a rebuild, one pass over all scores, is needed about once in so many
placements)."""
_END: Final = (np.inf, 0)


class Ranking:
    """A sorted list of the best rows; rows with a score of -inf never appear."""

    def __init__(self) -> None:
        self._list: list[tuple[float, int]] = []
        self._cut: tuple[float, int] | None = None

    def reset(self) -> None:
        """Forget everything: most scores changed."""
        self._cut = None

    def change(self, row: int, old: float, new: float) -> None:
        """Note that the score of a row changed."""
        if self._cut is None or old == new:
            return
        before, after = (-old, row), (-new, row)
        if before <= self._cut and before < _END:
            del self._list[bisect_left(self._list, before)]
        if after <= self._cut and after < _END:
            insort(self._list, after)
            if len(self._list) > 4 * KEPT:
                del self._list[KEPT:]
                self._cut = self._list[-1]

    def best(self, scores: Floats, count: int) -> list[int]:
        """Return the rows with the `count` highest scores, best first; fewer when fewer are above -inf."""
        if self._cut is None or (len(self._list) < count and self._cut < _END):
            self._build(scores, max(KEPT, 2 * count))
        return [row for _, row in self._list[:count]]

    def _build(self, scores: Floats, kept: int) -> None:
        rows = best_rows(scores, scores > -np.inf, kept)
        self._list = list(zip((-scores[rows]).tolist(), rows.tolist(), strict=True))
        complete = len(scores) <= kept or len(rows) < kept
        self._cut = _END if complete else self._list[-1]
