"""The amounts of one node by holder, and the part of an offer that may be published as reclaimed capacity.

Called by the publisher for a node with a changed outlook or changed pods; pure. An offer is the amount that batch and
gratis pods together may use. Some of them hold plain cpu and memory of it already, so only the rest is reclaimable.

Invariant: 0 <= publishable <= physical for both resources, for any offer.
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
    """A node's allocatable amounts and the requests of its pods, each as millicores and bytes."""

    physical: Amounts
    online: Amounts
    """Of online pods, plain and reclaimed."""
    plain_batch: Amounts
    """Of batch and gratis pods, plain only."""
    reclaimed: Amounts
    """Of all pods."""


def holdings(state: ClusterState, node: str) -> Holdings | None:
    """Return the holdings of a node; None if it is unknown or offers neither cpu nor memory (yet)."""
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
        by_gratis + by_batch - (all_pods - theirs)
        for by_gratis, by_batch, all_pods, theirs in zip(gratis, batch, reclaimed, by_online, strict=True)
    ]
    return Holdings(_pair(physical), _pair(online), _pair(plain), _pair(reclaimed))


def _reclaimed_by_online(state: ClusterState, row: int) -> Amounts:
    """Return reclaimed capacity that online pods request: unusual, but possible for a pod without a class."""
    found = [0, 0]
    for record in state.records_on(row):
        if record.pod.workload_class is WorkloadClass.ONLINE:
            for name, amount in record.pod.requests:
                if name in _RECLAIMED:
                    found[_RECLAIMED.index(name)] += amount
    return _pair(found)


def publishable(offered: Amounts, held: Holdings) -> Amounts:
    """Return the reclaimable part of an offer, without the amounts that plain batch and gratis pods hold."""
    return _pair(
        [
            max(0, min(physical, amount) - plain)
            for physical, amount, plain in zip(held.physical, offered, held.plain_batch, strict=True)
        ]
    )


def beside_requests(held: Holdings) -> Amounts:
    """Return the offer without a credible forecast: allocatable - requests of the online pods."""
    return _pair([max(0, physical - asked) for physical, asked in zip(held.physical, held.online, strict=True)])


def _pair(amounts: Sequence[int]) -> Amounts:
    return amounts[0], amounts[1]
