"""Rules between pods: counted selectors, and terms of placed pods.

Made by `state.pod_matches`, read by `placement.constraints`. A `Counter` exists for each distinct selector of a waiting
pod's rules. A `Keeper` exists for each distinct term of placed pods that refuses or prefers pods that come. `Peers`
holds all of these for pods of one kind. Invariant: equal ones are one object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from cotide_core.events import PodRules, Selector
from cotide_core.state.attached_volumes import Attachments

PAIRS_A_REQUIREMENT: Final = 2
"""Comparisons in the time that one requirement of new rules takes until its selector is known (measured: 1 us)."""
PAIRS_A_PEERS: Final = 20
"""Comparisons in the time of finding the rules for a pod with known rules (measured: 10 us)."""
CHANGES_A_PAIR: Final = 2
"""Counters that one pod is added to in the time of a comparison (measured: .2 us each)."""
KEEPERS_A_PAIR: Final = 16
"""Keepers that are checked in the time of a comparison (measured: 30 to 50 ns each)."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The selected pods."""

    namespaces: tuple[str, ...]
    namespace_selector: Selector | None
    selector: Selector | None
    number: int = field(init=False, compare=False, repr=False)
    """Its hash, which takes long for a long selector."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", hash((self.namespaces, self.namespace_selector, self.selector)))

    def __hash__(self) -> int:
        return self.number


@dataclass(frozen=True, slots=True)
class RuleScopes:
    """The pods that the rules of a pod select, in the order of the rules."""

    affinity: tuple[Scope, ...]
    anti_affinity: tuple[Scope, ...]
    spreads: tuple[Scope, ...]
    preferences: tuple[Scope, ...]
    selects_itself: bool
    spreads_itself: tuple[bool, ...]


class HashedRules:
    """Rules with their hash, which takes long for long ones."""

    __slots__ = ("_hash", "_rules")

    def __init__(self, rules: PodRules) -> None:
        self._rules = rules
        self._hash = hash(rules)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashedRules) and self._rules == other._rules


@dataclass(eq=False, slots=True)
class Counter:
    """Number of pods by row that are in all of the scopes; compared by identity, since equal ones are interned."""

    scopes: tuple[Scope, ...]
    living: bool
    """Whether pods that are being deleted are left out."""
    rows: dict[int, int] = field(default_factory=dict)
    counted: bool = False
    """Whether ``rows`` is counted."""
    version: int = 0


@dataclass(eq=False, slots=True)
class Keeper:
    """Number of placed pods by row that refuse pods of a scope in their domain, or prefer them there."""

    scope: Scope
    topology_key: str
    weight: int
    """The score that each adds to its domain; 0: they refuse."""
    number: int
    rows: dict[int, int] = field(default_factory=dict)
    version: int = 0


@dataclass(eq=False, slots=True)
class Keepers:
    """The keepers of one label set; compared by identity, since equal ones are interned."""

    number: int
    refusing: tuple[Keeper, ...]
    wishing: tuple[Keeper, ...]
    """Keepers that prefer such pods in their domain, or elsewhere."""
    _seen: int = -1
    """The clock of the last check of the versions."""
    _versions: tuple[int, int] = (0, 0)

    def version(self, clock: int) -> int:
        """Return a number that rises with every change of one of them; `clock` rises with every number."""
        return max(self._latest(clock))

    def refusing_version(self, clock: int) -> int:
        """Return a number that rises with every change of a keeper that refuses."""
        return self._latest(clock)[0]

    def _latest(self, clock: int) -> tuple[int, int]:
        if self._seen != clock:
            refusing = max([keeper.version for keeper in self.refusing], default=0)
            wishing = max([keeper.version for keeper in self.wishing], default=0)
            self._seen, self._versions = clock, (refusing, wishing)
        return self._versions


NO_KEEPERS: Final = Keepers(-1, (), ())


@dataclass(eq=False, slots=True)
class Peers:
    """All rules between pods of one kind and other pods; compared by identity, since equal ones are interned."""

    rules: PodRules
    kept: Keepers
    affinity: Counter | None
    """Pods that all affinity terms together select."""
    anti_affinity: tuple[Counter, ...]
    spreads: tuple[Counter, ...]
    preferences: tuple[Counter, ...]
    selects_itself: bool
    """Whether the affinity terms select the pod itself: then the first of a group may start alone."""
    spreads_itself: tuple[bool, ...]
    sole_claims: tuple[str, ...]
    attachments: Attachments
    refuses: bool = field(init=False)
    """Whether other pods, or domains, may refuse them a node."""
    only_evens: bool = field(init=False)
    """Whether preferred spread constraints are all that there is."""
    pairs: int = field(init=False)
    """Cost of one check of them, in pairs."""

    def __post_init__(self) -> None:
        rules = self.rules
        required = any(spread.required for spread in rules.spreads)
        near = bool(self.keepers or rules.affinity or rules.anti_affinity)
        self.refuses = near or required or bool(self.sole_claims or self.attachments)
        wishes = bool(self.wishers or rules.pod_preferences or rules.node_preferences)
        self.only_evens = bool(rules.spreads) and not (self.refuses or wishes)
        self.pairs = 1 + len(self.keepers) // KEEPERS_A_PAIR + len(self.counters)

    @property
    def keepers(self) -> tuple[Keeper, ...]:
        """Return those that refuse them."""
        return self.kept.refusing

    @property
    def wishers(self) -> tuple[Keeper, ...]:
        """Return those that prefer them in their domain, or elsewhere."""
        return self.kept.wishing

    @property
    def refusing(self) -> tuple[Counter, ...]:
        """Those that may refuse a node."""
        own = () if self.affinity is None else (self.affinity,)
        pairs = zip(self.rules.spreads, self.spreads, strict=True)
        return (*own, *self.anti_affinity, *(counter for spread, counter in pairs if spread.required))

    @property
    def counters(self) -> tuple[Counter, ...]:
        """All counters that a decision about them needs."""
        own = () if self.affinity is None else (self.affinity,)
        return (*own, *self.anti_affinity, *self.spreads, *self.preferences)


def selectors_of(rules: PodRules) -> Iterator[Selector]:
    """Yield the selectors of rules about pods."""
    preferred = (preference.term for preference in rules.pod_preferences)
    for term in (*rules.affinity, *rules.anti_affinity, *preferred):
        yield term.selector or ()
        yield term.namespace_selector or ()
    for spread in rules.spreads:
        yield spread.selector or ()


def sums_by_topology(keepers: Iterable[Keeper]) -> dict[str, dict[int, int]]:
    """Return by topology key the sums of keepers by row, each counted with its weight, a refusal as 1.

    All keepers of one key are summed together: a placed pod may have many terms, and many pods may have the same key.
    """
    found: dict[str, dict[int, int]] = {}
    for keeper in keepers:
        rows = found.setdefault(keeper.topology_key, {})
        weight = keeper.weight or 1
        for row, number in keeper.rows.items():
            rows[row] = rows.get(row, 0) + weight * number
    return found
