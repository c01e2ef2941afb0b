"""Sums over topology domains: nodes that share a value of a label.

Used by the rules of this folder. `state.pod_matches` keeps a number for each row that has pods; a domain's is their
sum. Invariant: a row without the label is in no domain, and its sum is 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Booleans, Integers
from cotide_core.placement.label_index import LabelIndex
from cotide_core.state.snapshot import Snapshot


class Domains:
    """Domains of one moment, by label."""

    def __init__(self, index: LabelIndex, snapshot: Snapshot) -> None:
        self.index = index
        self.snapshot = snapshot
        self._known: dict[str, tuple[NDArray[np.int32], int]] = {}

    def of(self, key: str) -> tuple[NDArray[np.int32], int]:
        """Return (N,) number of each row's domain, negative if it is in none, and an upper bound of the numbers."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.index.domains(key, self.snapshot)
        return found

    def sums(self, key: str, rows: Mapping[int, int], among: Booleans | None = None) -> Integers:
        """Return (D,) the sum of each domain.

        Parameters
        ----------
        rows : numbers by row.
        among : (N,) rows that count; all by default.
        """
        numbers, size = self.of(key)
        sums = np.zeros(size, np.int64)
        if not rows or not size:
            return sums
        where = np.fromiter(rows.keys(), np.intp, len(rows))
        amounts = np.fromiter(rows.values(), np.int64, len(rows))
        counted = numbers[where] >= 0
        if among is not None:
            counted &= among[where]
        np.add.at(sums, numbers[where[counted]], amounts[counted])
        return sums

    def counts(self, key: str, rows: Mapping[int, int], among: Booleans | None = None) -> Integers:
        """Return (N,) the sum of each row's domain, 0 if it is in none."""
        sums = self.sums(key, rows, among)
        return np.append(sums, 0)[self.of(key)[0]]
