"""Single cells of the columns as plain numbers, for changes by one pod and scores of one row.

Made by `node_columns.NodeColumns` from its own arrays, written by `cluster_state`, read by feasibility and scoring. A
bind touches a dozen cells, and every shape looks at a dozen more. Reading a cell through a memoryview of a column takes
less than half the time of numpy's ``item``; changing it takes a third of the time of indexing. Invariant: cells share
the memory of the arrays, so code that moves an array must make its cells again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from cotide_core.kernels.array_types import Floats, Integers

if TYPE_CHECKING:
    from cotide_core.state.node_columns import NodeColumns


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells by row; tables by column first. See `node_columns.NodeColumns` for each meaning."""

    allocatable: list[memoryview]
    free: list[memoryview]
    type_counts: list[memoryview]
    type_bytes: list[memoryview]
    batch_millicores: memoryview
    growth_millicores: memoryview
    unrequested: list[memoryview]
    """Cpu, then memory."""
    held: list[list[memoryview]]
    """By class rank, then cpu and memory."""
    service_counts: memoryview
    service_rates: memoryview[float]
    versions: memoryview
    relief_versions: memoryview

    @classmethod
    def of(cls, columns: NodeColumns) -> Cells:
        """Return the cells of the current arrays."""
        return cls(
            allocatable=_rows(columns.allocatable),
            free=_rows(columns.free),
            type_counts=_rows(columns.type_counts),
            type_bytes=_rows(columns.type_bytes),
            batch_millicores=cells_of(columns.batch_millicores),
            growth_millicores=cells_of(columns.growth_millicores),
            unrequested=_rows(columns.unrequested),
            held=[_rows(held) for held in columns.held],
            service_counts=cells_of(columns.service_counts),
            service_rates=real_cells_of(columns.service_rates),
            versions=cells_of(columns.versions),
            relief_versions=cells_of(columns.relief_versions),
        )


def cells_of(column: Integers) -> memoryview:
    """Return the cells of one column of whole numbers."""
    return column.data


def real_cells_of(column: Floats) -> memoryview[float]:
    """Return the cells of one column of real numbers."""
    return cast("memoryview[float]", column.data)


def _rows(table: Integers) -> list[memoryview]:
    return [cells_of(column) for column in table]
