"""Refusals of nodes by other pods: affinity and anti-affinity, spread, exclusive claims, attached volumes.

Called by `feasibility` for shapes with `Peers`. Evaluates all rows at once from the numbers of `state.pod_matches`, and
again only when one of them, or a node, changed. The order of the rules and the words are kube-scheduler's
(VolumeRestrictions, NodeVolumeLimits, PodTopologySpread, InterPodAffinity), so that a node counts under the same
reason. Invariant: a row passes exactly when kube-scheduler's filters of these names admit the pod
(tests/real/test_constraints.py compares random clusters).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Booleans
from cotide_core.limits import INT32_MOST
from cotide_core.placement.constraints.domains import Domains
from cotide_core.placement.constraints.topology_spread import refused_by_spread
from cotide_core.placement.label_index import LabelIndex
from cotide_core.state.selection.peers import Peers, sums_by_topology
from cotide_core.state.shapes import FitShape
from cotide_core.state.snapshot import Snapshot

CLAIMED: Final = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
FULL: Final = "node(s) exceed max volume count"
NO_DOMAIN: Final = "node(s) didn't match pod topology spread constraints (missing required label)"
SKEWED: Final = "node(s) didn't match pod topology spread constraints"
NO_PEER: Final = "node(s) didn't match pod affinity rules"
PEER: Final = "node(s) didn't match pod anti-affinity rules"
KEPT_OFF: Final = "node(s) didn't satisfy existing pods anti-affinity rules"
REFUSALS: Final = (CLAIMED, FULL, NO_DOMAIN, SKEWED, NO_PEER, PEER, KEPT_OFF)
MAY_LEAVE: Final = (CLAIMED, SKEWED, PEER, KEPT_OFF)
"""Refusals that end when pods leave, as in kube-scheduler; volumes are counted for all pods of a node and stay."""
REMEMBERED: Final = 1024
"""Shapes with kept codes (chosen: 2 bytes a node each, 10 MB at 5,000 nodes). Each pod with its own volumes is a shape.
"""


class PeerCodes:
    """Codes of the rows by shape.

    Parameters
    ----------
    numbers : the codes of `REFUSALS`, in their order.
    """

    def __init__(self, index: LabelIndex, numbers: list[int]) -> None:
        self._index = index
        self._numbers = numbers
        self._known: dict[FitShape, tuple[tuple[int, int, int], NDArray[np.int16]]] = {}
        self._room: dict[str, tuple[tuple[int, int, int], NDArray[np.int64]]] = {}
        """Volumes of a driver that rows may still have attached, as of a stamp."""

    def of(self, shape: FitShape, snapshot: Snapshot) -> NDArray[np.int16]:
        """Return (N,) 0 if no other pod and no domain refuses the shape, otherwise the code of the first reason."""
        assert shape.peers is not None  # noqa: S101 - the caller looked
        matches = snapshot.state.matches
        matches.count_all(shape.peers)
        stamp = (matches.refusing_version(shape.peers), snapshot.columns.spec_clock, snapshot.size)
        known = self._known.pop(shape, None)
        if known is None or known[0] != stamp:
            known = (stamp, self._evaluate(shape, snapshot))
            if len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
        self._known[shape] = known
        return self._with_volumes(shape.peers, snapshot, known[1]) if shape.peers.attachments else known[1]

    def _evaluate(self, shape: FitShape, snapshot: Snapshot) -> NDArray[np.int16]:
        peers = shape.peers
        assert peers is not None  # noqa: S101 - the caller looked
        domains = Domains(self._index, snapshot)
        codes = np.zeros(snapshot.size, np.int16)
        claimed, _, no_domain, skewed, no_peer, peer, kept_off = self._numbers

        def refuse(rows: Booleans, code: int) -> None:
            codes[rows & (codes == 0)] = code

        if peers.sole_claims and snapshot.state.matches.claimed(peers.sole_claims):
            codes[:] = claimed
        for lacking, crowded in refused_by_spread(shape, peers, domains):
            refuse(lacking, no_domain)
            refuse(crowded, skewed)
        if peers.affinity is not None:
            refuse(~_near_all(domains, shape), no_peer)
        for term, counter in zip(peers.rules.anti_affinity, peers.anti_affinity, strict=True):
            rows = snapshot.state.matches.rows(counter)
            if rows:
                refuse(domains.counts(term.topology_key, rows) > 0, peer)
        for key, rows in sums_by_topology(peers.keepers).items():
            if rows:
                refuse(domains.counts(key, rows) > 0, kept_off)
        return codes

    def _with_volumes(self, peers: Peers, snapshot: Snapshot, codes: NDArray[np.int16]) -> NDArray[np.int16]:
        """Return codes with the rows that have too many volumes: a reason behind claims and before all others."""
        claimed, full = self._numbers[:2]
        return np.where(self._beyond_limits(peers, snapshot) & (codes != claimed), np.int16(full), codes)

    def _beyond_limits(self, peers: Peers, snapshot: Snapshot) -> Booleans:
        """Return (N,) whether a row would exceed its node's limit of attached volumes of a driver.

        A volume that is attached there already costs nothing; with nothing new to attach, the limits do not apply.
        """
        attached = snapshot.state.matches.attached
        volumes: dict[str, list[str]] = {}
        for driver, volume in peers.attachments:
            volumes.setdefault(driver, []).append(volume)
        beyond = np.zeros(snapshot.size, np.bool_)
        for driver, wanted in volumes.items():
            new = np.full(snapshot.size, len(wanted), np.int64)
            for volume in wanted:
                for row in attached.rows_of(driver, volume):
                    new[row] -= 1
            beyond |= (new > 0) & (new > self._room_of(driver, snapshot))
        return beyond

    def _room_of(self, driver: str, snapshot: Snapshot) -> NDArray[np.int64]:
        """Return (N,) how many more volumes of a driver rows may have attached; the same for all shapes."""
        attached = snapshot.state.matches.attached
        stamp = (attached.version(((driver, ""),)), snapshot.columns.spec_clock, snapshot.size)
        known = self._room.get(driver)
        if known is None or known[0] != stamp:
            room = np.full(snapshot.size, INT32_MOST, np.int64)
            for row, node in enumerate(snapshot.nodes[: snapshot.size]):
                if node is not None and node.attach_limits:
                    room[row] = dict(node.attach_limits).get(driver, INT32_MOST)
            for row, count in attached.used(driver).items():
                room[row] -= count
            known = self._room[driver] = (stamp, room)
        return known[1]


def _near_all(domains: Domains, shape: FitShape) -> Booleans:
    """Return (N,) whether a pod that all affinity terms select runs in the row's domain of each term.

    If no such pod runs in any domain of the terms, a pod that they select itself is the first of its group. It may go
    to any node with the domains.
    """
    peers = shape.peers
    assert peers is not None and peers.affinity is not None  # noqa: S101, PT018 - the caller looked
    rows = domains.snapshot.state.matches.rows(peers.affinity)
    labelled = np.ones(domains.snapshot.size, np.bool_)
    near = labelled.copy()
    anywhere = False
    for key in dict.fromkeys(term.topology_key for term in peers.rules.affinity):
        labelled &= domains.of(key)[0] >= 0
        counts = domains.counts(key, rows)
        near &= counts > 0
        anywhere = anywhere or bool(counts.any())
    if not anywhere and peers.selects_itself:
        return labelled
    return near & labelled
