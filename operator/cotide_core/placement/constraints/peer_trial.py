"""Whether other pods would admit a pod to a node if some of them were gone.

Made by `feasibility` for one preemption of a shape with `Peers`. It checks a few nodes and many sets of pods, so each
sum over a domain is computed once and a set of pods is a difference to it. Invariant: `passes` equals the answer of
`peer_codes` about the row after these pods left (tests/core/reclaiming/preemption/test_rules.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cotide_core.events import Pod
from cotide_core.kernels.array_types import Integers
from cotide_core.placement.constraints.domains import Domains
from cotide_core.placement.constraints.topology_spread import counted_domains, required_spreads
from cotide_core.placement.label_index import LabelIndex
from cotide_core.state.selection.peers import Counter, Peers, sums_by_topology
from cotide_core.state.shapes import FitShape
from cotide_core.state.snapshot import Snapshot

Rule = Callable[[int, Sequence[Pod]], bool]
"""Whether a row passes without some of its pods."""
Leaving = Callable[[Sequence[Pod]], int]
"""How many of some pods count."""


class PeerTrial:
    """The rules of one shape about other pods, as of one moment."""

    def __init__(self, shape: FitShape, index: LabelIndex, snapshot: Snapshot) -> None:
        assert shape.peers is not None  # noqa: S101 - the caller looked
        self._peers: Peers = shape.peers
        self._matches = snapshot.state.matches
        self._domains = Domains(index, snapshot)
        self._matches.count_all(self._peers)
        self._rules: list[Rule] = [self._claims]
        for spread in required_spreads(self._peers):
            self._rules.append(self._spread(shape, spread))
        if self._peers.affinity is not None:
            self._rules.append(self._affinity(self._peers.affinity))
        for term, counter in zip(self._peers.rules.anti_affinity, self._peers.anti_affinity, strict=True):
            rows = self._matches.rows(counter)
            self._rules.append(self._nothing_left(term.topology_key, rows, self._leaving_of(counter)))
        for key, rows in sums_by_topology(self._peers.keepers).items():
            if rows:
                self._rules.append(self._nothing_left(key, rows, self._leaving_keepers(key)))

    def passes(self, row: int, without: Sequence[Pod]) -> bool:
        """Whether all rules admit the shape to a row once these pods of the row are gone."""
        return all(rule(row, without) for rule in self._rules)

    def _claims(self, row: int, without: Sequence[Pod]) -> bool:
        del row
        return self._matches.left_of_claims(self._peers.sole_claims, without) == 0

    def _leaving_of(self, counter: Counter) -> Leaving:
        return lambda without: sum(self._matches.counts(counter, pod) for pod in without)

    def _leaving_keepers(self, key: str) -> Leaving:
        """Count the pods as the keepers of a topology key count them, all together."""
        keepers = {keeper for keeper in self._peers.keepers if keeper.topology_key == key}
        return lambda without: sum(self._matches.keeps(keepers, pod) for pod in without)

    def _sums(self, key: str, rows: Mapping[int, int]) -> tuple[Integers, list[int]]:
        return self._domains.sums(key, rows), self._domains.of(key)[0].tolist()

    def _nothing_left(self, key: str, rows: Mapping[int, int], leaving: Leaving) -> Rule:
        """No counted pod is left in the row's domain; a row without the label is in none."""
        sums, numbers = self._sums(key, rows)

        def rule(row: int, without: Sequence[Pod]) -> bool:
            domain = numbers[row]
            return domain < 0 or sums.item(domain) - leaving(without) <= 0

        return rule

    def _affinity(self, counter: Counter) -> Rule:
        """A pod that all terms select is left in each term's domain, or the pod is the first of its group."""
        keys = dict.fromkeys(term.topology_key for term in self._peers.rules.affinity)
        rows, leaving = self._matches.rows(counter), self._leaving_of(counter)
        known = [self._sums(key, rows) for key in keys]
        total = sum(rows.values())

        def rule(row: int, without: Sequence[Pod]) -> bool:
            gone = leaving(without)
            if any(numbers[row] < 0 for _, numbers in known):
                return False
            if all(sums.item(numbers[row]) - gone > 0 for sums, numbers in known):
                return True
            return total <= gone and self._peers.selects_itself

        return rule

    def _spread(self, shape: FitShape, constraint: tuple[int, Counter]) -> Rule:
        """The row's domain is not ahead of the emptiest by more than the skew."""
        index, counter = constraint
        spread, itself = self._peers.rules.spreads[index], self._peers.spreads_itself[index]
        numbers, sums, known, counted = counted_domains(shape, self._peers, spread, counter, self._domains)
        enough = int(known.sum()) >= max(1, spread.min_domains)
        lowest = np.sort(sums[known])[:2].tolist()
        leaving = self._leaving_of(counter)
        numbered = numbers.tolist()

        def rule(row: int, without: Sequence[Pod]) -> bool:
            domain = numbered[row]
            if domain < 0:
                return False
            gone = leaving(without) if counted[row] else 0
            matching = sums.item(domain) - gone if known[domain] else 0
            least = 0
            if enough:
                # The emptiest of the others, where the row's own domain was the emptiest before.
                others = lowest[1:] if known[domain] and sums.item(domain) == lowest[0] else lowest[:1]
                least = min([*others, matching] if known[domain] else others)
            return matching + itself - least <= spread.max_skew

        return rule
