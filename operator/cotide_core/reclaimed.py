"""What is there of one node, who holds it, and how much of an offer may be published as reclaimed capacity.

Called by the publisher for a node whose outlook or pods changed; pure. An offer is what batch and gratis pods together
may use; those of them that ask for plain cpu and memory hold some of it already, so only the rest is reclaimable.

Invariant: 0 <= publishable <= physical for both resources, whatever was offered.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotide_core.classes import WorkloadClass
from cotide_core.state import ClusterState
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU, RECLAIMED_MEMORY

Amounts = tuple[int, int]
"""Millicores and bytes."""


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
    there = [int(state.columns.allocatable[state.columns.resource_column(name), row]) for name in (CPU, MEMORY)]
    if not all(there):
        return None
    online, plain, reclaimed = [0, 0], [0, 0], [0, 0]
    for record in state.records_on(row):
        wanted = dict(record.pod.requests)
        is_online = record.pod.workload_class is WorkloadClass.ONLINE
        for place, (name, extended) in enumerate(((CPU, RECLAIMED_CPU), (MEMORY, RECLAIMED_MEMORY))):
            held, borrowed = wanted.get(name, 0), wanted.get(extended, 0)
            reclaimed[place] += borrowed
            if is_online:
                online[place] += held + borrowed
            else:
                plain[place] += held
    return Holdings(_pair(there), _pair(online), _pair(plain), _pair(reclaimed))


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


def _pair(amounts: list[int]) -> Amounts:
    return amounts[0], amounts[1]
