"""What one refusal says about other pods: a larger pod of the same type would be refused too.

Used by `guard` before it asks about many nodes. A forecast never falls in counts, input bytes or pressure, so when a
node was refused to a job of some type, size and cpu, it is refused to any job of that type with at least that size
and cpu, for as long as nothing on the node got better. One such job is kept per node and type: the smallest seen.
Invariant: `covering` marks only rows where a refusal follows from one that the forecaster gave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotide_core.columns import Booleans, Floats, Integers
from cotide_core.shapes import Shape
from cotide_core.snapshot import Snapshot


@dataclass(slots=True)
class _Smallest:
    input_bytes: Integers
    millicores: Integers
    reliefs: Integers
    """Relief version of the row when it was refused; -1 for never."""
    probabilities: Floats
    worst: NDArray[np.int32]
    """Number of the service that was most at risk."""


class Refusals:
    """The smallest refused job by type and node."""

    def __init__(self) -> None:
        self._by_type: dict[int, _Smallest] = {}

    def note(
        self,
        snapshot: Snapshot,
        shape: Shape,
        rows: NDArray[np.intp],
        probabilities: Floats,
        worst: NDArray[np.int32],
    ) -> None:
        """Remember that a batch shape was refused on some rows, as they are now, with what probabilities."""
        smallest = self._of(snapshot, shape.type_column)
        size, cpu = shape.input_bytes, shape.fit.millicores
        outdated = smallest.reliefs[rows] != snapshot.relief_versions[rows]
        smaller = (smallest.input_bytes[rows] >= size) & (smallest.millicores[rows] >= cpu)
        take = outdated | smaller
        better = rows[take]
        smallest.input_bytes[better] = size
        smallest.millicores[better] = cpu
        smallest.reliefs[better] = snapshot.relief_versions[better]
        smallest.probabilities[better] = probabilities[take]
        smallest.worst[better] = worst[take]

    def covering(
        self, snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp]
    ) -> tuple[Booleans, Floats, NDArray[np.int32]]:
        """Return for which of the rows a refusal that still stands implies that this batch shape is refused.

        With it come, for all rows, that refusal's probability, which this shape's can't be below, and the service at
        risk; they mean nothing where it is not implied.
        """
        smallest = self._of(snapshot, shape.type_column)
        covered = smallest.reliefs[rows] == snapshot.relief_versions[rows]
        covered &= smallest.input_bytes[rows] <= shape.input_bytes
        covered &= smallest.millicores[rows] <= shape.fit.millicores
        return covered, smallest.probabilities[rows], smallest.worst[rows]

    def covers(self, snapshot: Snapshot, shape: Shape, row: int) -> bool:
        """Return whether a refusal that still stands implies that a batch shape is refused on one row."""
        smallest = self._by_type.get(shape.type_column)
        return (
            smallest is not None
            and row < len(smallest.reliefs)
            and smallest.reliefs.item(row) == snapshot.relief_versions.item(row)
            and smallest.input_bytes.item(row) <= shape.input_bytes
            and smallest.millicores.item(row) <= shape.fit.millicores
        )

    def _of(self, snapshot: Snapshot, column: int) -> _Smallest:
        found = self._by_type.get(column)
        size = snapshot.size
        if found is None:
            found = _Smallest(
                np.zeros(size, np.int64),
                np.zeros(size, np.int64),
                np.full(size, -1, np.int64),
                np.zeros(size),
                np.zeros(size, np.int32),
            )
            self._by_type[column] = found
        missing = size - len(found.reliefs)
        if missing > 0:
            found.input_bytes = np.concatenate([found.input_bytes, np.zeros(missing, np.int64)])
            found.millicores = np.concatenate([found.millicores, np.zeros(missing, np.int64)])
            found.reliefs = np.concatenate([found.reliefs, np.full(missing, -1, np.int64)])
            found.probabilities = np.concatenate([found.probabilities, np.zeros(missing)])
            found.worst = np.concatenate([found.worst, np.zeros(missing, np.int32)])
        return found
