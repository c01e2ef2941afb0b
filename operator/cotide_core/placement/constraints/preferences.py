"""The wishes of a pod, and of placed pods about it: nodes, pods near or far, and a more even spread.

Called by `feasibility` for the scores of shapes with such wishes. Each wish is scaled to 0 to 1 over the nodes that
fit, as kube-scheduler scales it to 0 to 100. Its weight relative to the free share of a node is kube-scheduler's; our
ranks give that share 0 to 1. A wish never forbids a node.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Booleans, Floats
from cotide_core.placement.constraints.domains import Domains
from cotide_core.placement.constraints.topology_spread import evenness
from cotide_core.placement.label_index import LabelIndex
from cotide_core.state.selection.peers import Peers, sums_by_topology
from cotide_core.state.shapes import FitShape
from cotide_core.state.snapshot import Snapshot

WEIGHT: Final = 2.0
"""Weight of each wish relative to the free share at 1: kube-scheduler's default weights of NodeAffinity,
PodTopologySpread, InterPodAffinity and NodeResourcesFit (k8s.io/kubernetes, default_plugins.go).
"""


def prefers(peers: Peers) -> bool:
    """Whether there is any wish."""
    rules = peers.rules
    return bool(rules.node_preferences or rules.pod_preferences or peers.wishers) or any(
        not spread.required for spread in rules.spreads
    )


def preferences(shape: FitShape, snapshot: Snapshot, index: LabelIndex, fits: Booleans, weight: float) -> Floats | None:
    """Return (N,) the addition to the scores of the rows that fit; None if all rows are equal to the wishes."""
    peers = shape.peers
    if peers is None or not fits.any():
        return None
    domains = Domains(index, snapshot)
    total = np.zeros(snapshot.size)
    if peers.rules.node_preferences:
        liked = np.zeros(snapshot.size)
        for preference in peers.rules.node_preferences:
            liked += preference.weight * index.term(preference.term, snapshot)
        most = float(liked[fits].max())
        total += weight * liked / most if most > 0 else 0.0
    if peers.rules.pod_preferences or peers.wishers:
        near = np.zeros(snapshot.size)
        for wish, counter in zip(peers.rules.pod_preferences, peers.preferences, strict=True):
            near += wish.weight * domains.counts(wish.term.topology_key, snapshot.state.matches.rows(counter))
        for key, rows in sums_by_topology(peers.wishers).items():
            near += domains.counts(key, rows)
        least, most = float(near[fits].min()), float(near[fits].max())
        total += weight * (near - least) / (most - least) if most > least else 0.0
    even = evenness(shape, peers, domains, fits)
    return total if even is None else total + weight * even
