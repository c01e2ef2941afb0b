"""What is there of one node, who holds it, and how much of an offer may be published as reclaimed capacity.

Called by the publisher for a node whose outlook or pods changed; pure. An offer is what batch and gratis pods together
may use; those of them that ask for plain cpu and memory hold some of it already, so only the rest is reclaimable.

Invariant: 0 <= publishable <= physical for both resources, whatever was offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cotide_core.classes import WorkloadClass
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.node_columns import CPU_COLUMN, MEMORY_COLUMN
from cotide_core.units import RECLAIMED_CPU, RECLAIMED_MEMORY

Amounts = tuple[int, int]
"""Millicores and bytes."""
_RECLAIMED: Final = (RECLAIMED_CPU, RECLAIMED_MEMORY)


@dataclass(frozen=True, slots=True)
class Holdings:
    """A node's allocatable amounts and what its pods ask for, each as millicores and bytes."""

    physical: Amounts
    online: Amounts
    """Of online pods, plain and reclaimed."""
    plain_batch: Amounts
    """Of batch and gratis pods, plain only."""
    reclaimed: Amounts
    """Of all pods."""


def holdings(state: ClusterState, node: str) -> Holdings | None:
    """Return who holds what of a node; None for one that is not known or offers neither cpu nor memory (yet)."""
    row = state.columns.row_of.get(node)
    if row is None:
        return None
    columns = state.columns
    physical = columns.allocatable[[CPU_COLUMN, MEMORY_COLUMN], row].tolist()
    if not all(physical):
        return None
    gratis, batch, online = columns.held[:, :, row].tolist()
    extended = [columns.resources[name] for name in _RECLAIMED]
    reclaimed = (columns.allocatable[extended, row] - columns.free[extended, row]).tolist()
    by_online = _reclaimed_by_online(state, row) if any(reclaimed) else (0, 0)
    plain = [
        one + other - (all_pods - theirs)
        for one, other, all_pods, theirs in zip(gratis, batch, reclaimed, by_online, strict=True)
    ]
    return Holdings(_pair(physical), _pair(online), _pair(plain), _pair(reclaimed))


def _reclaimed_by_online(state: ClusterState, row: int) -> Amounts:
    """Return reclaimed capacity that online pods ask for: odd, but a pod without a class may."""
    found = [0, 0]
    for record in state.records_on(row):
        if record.pod.workload_class is WorkloadClass.ONLINE:
            for name, amount in record.pod.requests:
                if name in _RECLAIMED:
                    found[_RECLAIMED.index(name)] += amount
    return _pair(found)


def publishable(offered: Amounts, held: Holdings) -> Amounts:
    """Return what of an offer is reclaimable: what plain batch and gratis pods hold is taken off first."""
    return _pair(
        [
            max(0, min(there, amount) - plain)
            for there, amount, plain in zip(held.physical, offered, held.plain_batch, strict=True)
        ]
    )


def beside_requests(held: Holdings) -> Amounts:
    """Return what may be offered where no forecast is believed: allocatable - requests of the online pods."""
    return _pair([max(0, there - asked) for there, asked in zip(held.physical, held.online, strict=True)])


def _pair(amounts: Sequence[int]) -> Amounts:
    return amounts[0], amounts[1]
