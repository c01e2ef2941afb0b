"""The nodes of known types, sorted by the actions that they allow.

Made by `controller` at each look. A node that a person has cordoned belongs to that person: neither it nor its pods are
counted, and its machine counts as unavailable. A stopped machine may leave its node object behind: it is off, and
available again. Invariant: each node is in one sort.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from cotide_core.consolidation.removal.watching import Mark, Standing
from cotide_core.provisioning.node_orders import NodeView
from cotide_operator.provisioning.live_view import NodeNow


@dataclass(frozen=True, slots=True)
class SortedNodes:
    """The nodes of known types at one look.

    Attributes
    ----------
    counted : nodes that hold pods or could: open ones, and those that are freed or being freed.
    open, freed, freeing : names of counted nodes, by type. stopping : handed over.
    away : by type, machines that exist and are not available: lost, stopping, cordoned by a person.
    off : by type, machines that are switched off and still have a node object.
    lost, closed : names of nodes by the order that they came for: lost nodes, and nodes that are held cordoned.
    """

    counted: tuple[NodeNow, ...]
    open: Mapping[str, tuple[str, ...]]
    freed: Mapping[str, tuple[str, ...]]
    freeing: Mapping[str, tuple[str, ...]]
    stopping: tuple[NodeView, ...]
    away: Mapping[str, int]
    off: Mapping[str, int]
    unknown: tuple[str, ...]
    lost: Mapping[str, str]
    closed: Mapping[str, str]

    def open_names(self) -> list[str]:
        """Return the names of the open nodes."""
        return [name for names in self.open.values() for name in names]


def sorted_nodes(
    nodes: Sequence[NodeNow],
    unknown: Sequence[str],
    standings: Mapping[str, Standing],
    stopped: Set[str] = frozenset(),
) -> SortedNodes:
    """Sort the nodes by the actions that they allow; ``stopped``: nodes with a stop that the actuator has confirmed."""
    kinds = sorted({node.view.kind for node in nodes})
    sorts: dict[str, dict[str, list[str]]] = {what: {kind: [] for kind in kinds} for what in ("open", "freed", "going")}
    counted, stopping, away, off = [], [], dict.fromkeys(kinds, 0), dict.fromkeys(kinds, 0)
    closed: dict[str, str] = {}
    for node in nodes:
        name, kind = node.view.name, node.view.kind
        mark = standings[name].mark if name in standings else Mark.NONE
        if mark is Mark.STOPPING and not node.view.cordoned:
            mark = Mark.NONE  # a person has uncordoned it: pods come to it
        if mark is Mark.STOPPING:
            if node.lost and name in stopped:
                off[kind] += 1
                continue
            stopping.append(node.view)
        if node.lost or mark is Mark.STOPPING or (node.view.cordoned and mark is Mark.NONE):
            away[kind] += 1
            if node.view.cordoned and node.view.order is not None:
                closed[node.view.order] = name
            continue
        counted.append(node)
        sorts["open" if mark is Mark.NONE else "freed" if mark is Mark.FREED else "going"][kind].append(name)
    by = {what: {kind: tuple(names) for kind, names in found.items()} for what, found in sorts.items()}
    lost = {node.view.order: node.view.name for node in nodes if node.lost and node.view.order is not None}
    return SortedNodes(
        tuple(counted), by["open"], by["freed"], by["going"], tuple(stopping), away, off, tuple(unknown), lost, closed
    )
