"""The frozen columnar view for the decisions of one cycle.

Made by `cycle.Scheduler` after all events of a cycle were applied; read by feasibility, scoring, mixes and policies. It
is a set of read-only numpy views, so taking one costs microseconds for a cluster of any size. While it is in use, no
event is applied. The placements that the cycle itself assumes show through on purpose, since each decision must see
those before it. It is valid for further cycles until an event moves the arrays. Shapes: N rows, R resources, T job
types; dead rows have ``alive`` False and nothing allocatable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from cotide_core.events import HostPort, Node
from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.state.cells import Cells
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.node_columns import NodeColumns, ServicePod


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Read-only views of the columns; see `columns.NodeColumns` for each array's meaning."""

    size: int
    node_count: int
    nodes: list[Node | None]
    resources: dict[str, int]
    types: tuple[str, ...]
    alive: Booleans
    allocatable: Integers
    free: Integers
    type_counts: Integers
    type_bytes: Integers
    batch_millicores: Integers
    growth_millicores: Integers
    unrequested: Integers
    service_counts: Integers
    exclusive_counts: Integers
    service_rates: Floats
    services: list[list[ServicePod]]
    ports: list[dict[HostPort, int]]
    versions: Integers
    relief_versions: Integers
    spec_versions: Integers
    held: Integers
    cells: Cells
    """Single rows as plain numbers; read only."""
    columns: NodeColumns
    """The live table, for its clocks and its journal of changed rows."""
    layout: int
    """The layout of `columns` when this was taken."""
    state: ClusterState
    """For look-ups by key: promises, rates of a Workload, records."""

    @classmethod
    def of(cls, state: ClusterState) -> Snapshot:
        """View the current state."""
        columns = state.columns
        size = columns.size
        return cls(
            size=size,
            node_count=len(columns),
            nodes=columns.nodes,
            resources=columns.resources,
            types=tuple(columns.type_names),
            alive=_frozen(columns.alive[:size]),
            allocatable=_frozen(columns.allocatable[:, :size]),
            free=_frozen(columns.free[:, :size]),
            type_counts=_frozen(columns.type_counts[:, :size]),
            type_bytes=_frozen(columns.type_bytes[:, :size]),
            batch_millicores=_frozen(columns.batch_millicores[:size]),
            growth_millicores=_frozen(columns.growth_millicores[:size]),
            unrequested=_frozen(columns.unrequested[:, :size]),
            service_counts=_frozen(columns.service_counts[:size]),
            exclusive_counts=_frozen(columns.exclusive_counts[:size]),
            service_rates=_frozen(columns.service_rates[:size]),
            services=columns.services,
            ports=columns.ports,
            versions=_frozen(columns.versions[:size]),
            relief_versions=_frozen(columns.relief_versions[:size]),
            spec_versions=_frozen(columns.spec_versions[:size]),
            held=_frozen(columns.held[:, :, :size]),
            cells=columns.cells(),
            columns=columns,
            layout=columns.layout,
            state=state,
        )

    @property
    def shows_all(self) -> bool:
        """Whether the views still show the whole state."""
        return self.columns.layout == self.layout

    def name(self, row: int) -> str:
        """Return the name of the node on a row; empty for a dead row."""
        node = self.nodes[row]
        return "" if node is None else node.name


def _frozen(view: NDArray[Any]) -> NDArray[Any]:
    view.flags.writeable = False
    return view
