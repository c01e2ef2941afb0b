"""The comparisons that one cycle may make: pairs of a selector and an object, of a keeper and a pod, of a claim and a
pod.

Owned by `state.pod_matches`. `cycle.Scheduler` checks it before work that can wait for the next cycle; `EventSource`
counts claims of pods with its own budget, before the cycle. Decisions are bounded by number elsewhere; one decision may
compare thousands of pairs. Each namespace has a share, so that pods with costly rules leave room for those of others.
Invariant: only numbers decide, so that a replay defers alike. The first work of a cycle may always go on, so that each
cycle makes progress.
"""

from __future__ import annotations

from typing import Final

PAIRS_A_CYCLE: Final = 60_000
"""Chosen: some 30 ms."""
SHARE: Final = 2
"""One namespace may compare this fraction of a cycle's pairs (one part of so many). Chosen."""


class PairBudget:
    """Pairs of one cycle.

    Parameters
    ----------
    most : int
        Pairs in all.
    """

    def __init__(self, most: int = PAIRS_A_CYCLE) -> None:
        self._most = most
        self._total = 0
        self._of: dict[str, int] = {}
        self._asked = False

    def begin(self) -> None:
        """Begin a cycle."""
        self._total = 0
        self._of.clear()
        self._asked = False

    def charge(self, namespace: str, pairs: int) -> None:
        """Count pairs that were compared for pods of a namespace."""
        if pairs:
            self._total += pairs
            self._of[namespace] = self._of.get(namespace, 0) + pairs

    def is_spent(self, namespace: str) -> bool:
        """Whether work for pods of a namespace must wait for the next cycle."""
        if self._total < self._most // SHARE:
            return False
        if not self._asked:
            self._asked = True
            return False
        return self._total >= self._most or self._of.get(namespace, 0) >= self._most // SHARE
