"""Spread over domains: which nodes would make it too uneven, and which make it more even.

Called by `peer_codes` for required constraints and by `preferences` for the others. Source: the Kubernetes
documentation, "Pod Topology Spread Constraints". kube-scheduler's plugin PodTopologySpread counts a domain when one of
its nodes has all labels of the constraints and passes the inclusion policies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.events import Spread
from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.placement.constraints.domains import Domains
from cotide_core.placement.node_predicates import hard_taints_tolerated
from cotide_core.state.selection.peers import Counter, Peers
from cotide_core.state.shapes import FitShape

HOSTNAME: Final = "kubernetes.io/hostname"
POINTS: Final = 100
"""Steps of a score (kube-scheduler's ``MaxNodeScore``). Rounding down separates the most even rows by a whole step,
even if thousands of pods count and one pod more changes little.
"""
Constraint = tuple[Spread, Counter, bool]
"""A constraint, the pods that it counts, and whether it selects the pod itself."""


def refused_by_spread(shape: FitShape, peers: Peers, domains: Domains) -> Iterator[tuple[Booleans, Booleans]]:
    """Yield for each required constraint (N,) rows that lack its label, and (N,) rows that would skew it."""
    for spread, counter, itself in _of(peers, required=True):
        numbers, sums, known, _ = counted_domains(shape, peers, spread, counter, domains)
        enough = known.sum() >= max(1, spread.min_domains)
        least = int(sums[known].min()) if enough else 0
        matching = np.append(np.where(known, sums, 0), 0)[numbers]
        yield numbers < 0, (numbers >= 0) & (matching + itself - least > spread.max_skew)


def required_spreads(peers: Peers) -> list[tuple[int, Counter]]:
    """Return the number and the counter of each required constraint."""
    together = zip(peers.rules.spreads, peers.spreads, strict=True)
    return [(index, counter) for index, (spread, counter) in enumerate(together) if spread.required]


def counted_domains(
    shape: FitShape, peers: Peers, spread: Spread, counter: Counter, domains: Domains
) -> tuple[NDArray[np.int32], Integers, Booleans, Booleans]:
    """Return (N,) each row's domain, (D,) the pods of each, (D,) which domains count, and (N,) which rows do."""
    labelled = _labelled(_of(peers, required=True), domains)
    numbers, size = domains.of(spread.topology_key)
    counted = labelled & _included(shape, spread, domains)
    known = np.bincount(numbers[counted], minlength=size) > 0
    sums = domains.sums(spread.topology_key, domains.snapshot.state.matches.rows(counter), counted)
    return numbers, sums, known, counted


def evenness(shape: FitShape, peers: Peers, domains: Domains, fits: Booleans) -> Floats | None:
    """Return (N,) 0 to 1, how even the spread is with the pod on each row that fits; None without constraints.

    The sum of the counts, each weighted by the logarithm of its number of domains, is reversed, scaled and rounded down
    to whole hundredths as in kube-scheduler. Rows that lack a label get 0, unless the constraints do not require
    labels. For the hostname each node is a domain, regardless of the inclusion policies.
    """
    soft = preferred_spreads(peers)
    if not soft or not fits.any():
        return None
    ranked = ranked_rows(soft, domains)
    scored = fits & ranked
    if not scored.any():
        return None
    cost = np.zeros(domains.snapshot.size)
    matches = domains.snapshot.state.matches
    for spread, counter, _ in soft:
        numbers, size = domains.of(spread.topology_key)
        if spread.topology_key == HOSTNAME:
            number = int(scored.sum())
            matching = np.zeros(len(cost), np.int64)
            for row, count in matches.rows(counter).items():
                matching[row] = count
        else:
            # One more domain for the rows without the label, if there are any.
            number = int((np.bincount(numbers[scored] + 1, minlength=size + 1) > 0).sum())
            matching = domains.counts(
                spread.topology_key, matches.rows(counter), counted_rows(shape, spread, ranked, domains)
            )
        cost += np.where(numbers >= 0, matching * weight_of(number) + (spread.max_skew - 1), 0.0)
    costs = np.rint(cost).astype(np.int64)
    least, most = int(costs[scored].min()), int(costs[scored].max())
    even = np.ones(len(costs)) if most == 0 else POINTS * (most + least - costs) // most / POINTS
    return np.where(ranked, even, 0.0)


def weight_of(domains: int) -> float:
    """Return the weight of a pod for a number of domains: less for few domains (kube-scheduler's formula)."""
    return log(domains + 2)


def preferred_spreads(peers: Peers) -> list[Constraint]:
    """Return the constraints that no row has to fulfil, those by hostname first."""
    return sorted(_of(peers, required=False), key=lambda constraint: constraint[0].topology_key != HOSTNAME)


def ranked_rows(constraints: Sequence[Constraint], domains: Domains) -> Booleans:
    """Return (N,) rows that preferred constraints rank: those with all labels, if labels are required."""
    if any(spread.requires_labels for spread, _, _ in constraints):
        return _labelled(constraints, domains)
    return domains.snapshot.alive


def counted_rows(shape: FitShape, spread: Spread, ranked: Booleans, domains: Domains) -> Booleans:
    """Return (N,) rows with pods that count for their domain."""
    return ranked & _included(shape, spread, domains)


def _of(peers: Peers, *, required: bool) -> list[Constraint]:
    together = zip(peers.rules.spreads, peers.spreads, peers.spreads_itself, strict=True)
    return [pair for pair in together if pair[0].required is required]


def _labelled(constraints: Sequence[Constraint], domains: Domains) -> Booleans:
    labelled = domains.snapshot.alive.copy()
    for spread, _, _ in constraints:
        labelled &= domains.of(spread.topology_key)[0] >= 0
    return labelled


def _included(shape: FitShape, spread: Spread, domains: Domains) -> Booleans:
    """Return (N,) rows that the constraint's inclusion policies count."""
    snapshot, wished = domains.snapshot, shape.constraints
    included = np.ones(snapshot.size, np.bool_)
    if spread.honors_affinity and (wished.node_selector or wished.node_terms):
        included &= domains.index.matches(wished, snapshot)
    if spread.honors_taints:
        known: dict[object, bool] = {}
        for row, node in enumerate(snapshot.nodes[: snapshot.size]):
            if node is None or not node.taints:
                continue
            passes = known.get(node.taints)
            if passes is None:
                passes = known[node.taints] = hard_taints_tolerated(node.taints, wished.tolerations)
            included[row] &= passes
    return included
