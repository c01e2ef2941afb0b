"""The nodes that the volumes of a pod admit, for all nodes at once.

Called by `feasibility` to match many nodes. Bound volumes state the nodes that can use them. For a claim that waits for
its pod, a volume exists or can be created on some nodes only. Source: the Kubernetes documentation, "Persistent
Volumes" and "Storage Classes"; kube-scheduler's plugins VolumeBinding and VolumeZone. Invariant: the answer for a row
equals that of `node_predicates.volume_refusal` for its node.
"""

from __future__ import annotations

import numpy as np

from cotide_core.events import NodeTerm, OpenClaim
from cotide_core.kernels.array_types import Booleans
from cotide_core.placement.label_index import LabelIndex
from cotide_core.placement.node_predicates import NO_ROOM, NO_VOLUME, NOT_MADE, VOLUME_MISMATCH
from cotide_core.state.shapes import Constraints
from cotide_core.state.snapshot import Snapshot


def refused_by_volumes(constraints: Constraints, index: LabelIndex, snapshot: Snapshot) -> list[str]:
    """Return (N,) why each row can't take pods with these volumes; empty if it can."""
    words = np.full(snapshot.size, "", object)
    for terms in constraints.volume_terms:
        words[~index.any_of(terms, snapshot) & (words == "")] = VOLUME_MISMATCH
    for claim in constraints.open_claims:
        for name in claim.avoided:
            row = snapshot.columns.row_of.get(name)
            if row is not None and row < snapshot.size and not words[row]:
                words[row] = NOT_MADE
    if constraints.open_claims:
        without, cramped = _without_volumes(constraints.open_claims, index, snapshot)
        words[without & (words == "")] = NO_VOLUME
        words[cramped & (words == "")] = NO_ROOM
    return list(words)


def _without_volumes(claims: tuple[OpenClaim, ...], index: LabelIndex, snapshot: Snapshot) -> tuple[Booleans, Booleans]:
    """Return (N,) where a claim finds no volume and none can be created, and where the room for a new one is missing.

    Each claim takes the first volume that is still free.
    """
    known: dict[tuple[NodeTerm, ...], Booleans] = {}
    everywhere = np.ones(snapshot.size, np.bool_)

    def usable(terms: tuple[NodeTerm, ...]) -> Booleans:
        if not terms:
            return everywhere
        mask = known.get(terms)
        if mask is None:
            mask = known[terms] = index.any_of(terms, snapshot)
        return mask

    taken: dict[str, Booleans] = {}
    without, cramped = ~everywhere, ~everywhere
    for claim in claims:
        lacking = everywhere.copy()
        for volume in claim.volumes:
            here = lacking & usable(volume.terms)
            before = taken.get(volume.name)
            if before is not None:
                here &= ~before
            lacking &= ~here
            if len(claims) > 1:
                taken[volume.name] = here if before is None else before | here
            if not lacking.any():
                break
        if claim.provisions:
            if claim.rooms:
                cramped |= lacking & ~usable(claim.rooms)
            lacking &= ~usable(claim.topologies)
        if claim.node:
            row = snapshot.columns.row_of.get(claim.node, snapshot.size)
            elsewhere = everywhere.copy()
            elsewhere[row : row + 1] = False
            lacking |= elsewhere
        without |= lacking
    return without, cramped
