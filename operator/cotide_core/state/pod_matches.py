"""How many pods of which node a selector matches, and whom placed pods keep off: counted as pods come and go.

Owned by `cluster_state.ClusterState`, which tells of each pod that is counted on a row or taken off it; read by
`placement.constraints`. A `Counter` exists for each distinct selector of a waiting pod's rules, a `Keeper` for each
distinct term of placed pods that refuses or prefers pods that come. Both hold a number by row, so that one placement
costs a few additions whatever the size of the cluster, and a domain's count is a sum over the few rows that have any.
As long as no pod has such rules nothing is kept, and nothing is paid. Invariant: the numbers are what a recount over
all placed pods gives (tests/core/placement/test_constraints.py).

Semantics: the Kubernetes documentation, "Assigning Pods to Nodes" and "Pod Topology Spread Constraints".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cotide_core.events import Pod, PodRules, PodTerm, Requirement, Selector
from cotide_core.state.attached_volumes import AttachedVolumes, Attachments
from cotide_core.state.selection.default_spreads import DefaultSpreads
from cotide_core.state.selection.pair_index import Held, HeldPods, Labels, PairIndex

COUNTERS_KEPT: Final = 1024
"""Selectors that are counted before those that no waiting pod has are dropped (chosen)."""
HARD_AFFINITY_WEIGHT: Final = 1
"""What a required affinity of a placed pod weighs among preferences of pods that it selects: kube-scheduler's default
``hardPodAffinityWeight``."""
MEMO_MOST: Final = 16_384
"""Sets of labels whose answers are remembered (chosen: some MB)."""
VISITS_AT_ONCE: Final = 60_000
"""Placed pods that new selectors may look at in one cycle (chosen: some 30 ms); the pods of further ones wait."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which pods are meant."""

    namespaces: tuple[str, ...]
    namespace_selector: Selector | None
    selector: Selector | None


@dataclass(eq=False, slots=True)
class Counter:
    """Number of pods by row that are in all of the scopes; compared by identity, since equal ones are interned."""

    scopes: tuple[Scope, ...]
    living: bool
    """Whether pods on their way out are left out."""
    rows: dict[int, int] = field(default_factory=dict)
    counted: bool = False
    """Whether ``rows`` says anything yet."""
    version: int = 0


@dataclass(eq=False, slots=True)
class Keeper:
    """Number of placed pods by row that refuse pods of a scope in their domain, or would have them there."""

    scope: Scope
    topology_key: str
    weight: int
    """What each adds to the score of its domain; 0: they refuse."""
    number: int
    rows: dict[int, int] = field(default_factory=dict)
    version: int = 0


@dataclass(eq=False, slots=True)
class Peers:
    """All that pods of one kind have to do with other pods; compared by identity, since equal ones are interned."""

    rules: PodRules
    keepers: tuple[Keeper, ...]
    """That refuse them."""
    wishers: tuple[Keeper, ...]
    """That would have them in their domain, or elsewhere."""
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

    def __post_init__(self) -> None:
        rules = self.rules
        required = any(one.required for one in rules.spreads)
        near = bool(self.keepers or rules.affinity or rules.anti_affinity)
        self.refuses = near or required or bool(self.sole_claims or self.attachments)
        wishes = bool(self.wishers or rules.pod_preferences or rules.node_preferences)
        self.only_evens = bool(rules.spreads) and not (self.refuses or wishes)

    @property
    def counters(self) -> tuple[Counter, ...]:
        """All that it takes to decide about them."""
        own = () if self.affinity is None else (self.affinity,)
        return (*own, *self.anti_affinity, *self.spreads, *self.preferences)


class PodMatches:
    """Counters and keepers of one state.

    Parameters
    ----------
    held : gives all placed pods; asked when the first selector is counted.

    Attributes
    ----------
    active : whether anything is kept; while it is not, only pods with rules of their own are told.
    generation : rises when `peers_of` may answer differently about a pod that it was asked about.
    clock : rises with every number that changes.
    attached : volumes by row.
    defaults : spread constraints of pods that state none.
    """

    def __init__(self, held: Callable[[], Iterable[Held]]) -> None:
        self._all = held
        self.active = False
        self.generation = 0
        self.clock = 0
        self.attached = AttachedVolumes()
        self.defaults = DefaultSpreads()
        self._visits = 0
        self._numbers = 0
        self._namespaces: dict[str, Labels] = {}
        self._held: dict[str, HeldPods] | None = None
        """Placed pods by namespace; None until they are needed."""
        self._counters: dict[tuple[tuple[Scope, ...], bool], Counter] = {}
        self._keepers: dict[tuple[Scope, str, int], Keeper] = {}
        self._near: dict[str, PairIndex[Counter]] = {}
        """Counters by the namespace that they name; those that select namespaces by label under an empty name."""
        self._keeping: dict[str, list[Keeper]] = {}
        self._claims: dict[str, tuple[int, int]] = {}
        """Of each claim for one pod alone: pods that hold it, and the clock of the last change."""
        self._counters_memo: dict[str, dict[Labels, tuple[Counter, ...]]] = {}
        self._keepers_memo: dict[tuple[str, Labels], tuple[Keeper, ...]] = {}
        self._rules: dict[int, tuple[PodRules, int]] = {}
        self._rule_numbers: dict[PodRules, int] = {}
        self._peers: dict[object, Peers] = {}
        self._peers_memo: dict[object, Peers] = {}
        """The same by what a pod says, which takes less to look up."""

    def __len__(self) -> int:
        return len(self._counters) + len(self._keepers)

    def begin(self) -> None:
        """Begin a cycle: new selectors may look at pods again."""
        self._visits = 0

    def hold(self, pod: Pod, row: int, sign: int) -> None:
        """Count a pod on a row (1), or take it off (-1) as it was when it was counted."""
        namespace = pod.key.partition("/")[0]
        if self._held is not None:
            self._keep(self._held, pod, row, sign)
        if self._counters:
            for counter in self._counters_of(pod.labels, namespace):
                if not (counter.living and pod.terminating):
                    self._add(counter, row, sign)
        if pod.rules is not None:
            self.active = True
            for term in pod.rules.anti_affinity:
                self._add(self._keeper(term, 0, pod, namespace), row, sign)
            for term in pod.rules.affinity:
                self._add(self._keeper(term, HARD_AFFINITY_WEIGHT, pod, namespace), row, sign)
            for wish in pod.rules.pod_preferences:
                if wish.weight:
                    self._add(self._keeper(wish.term, wish.weight, pod, namespace), row, sign)
        for claim in pod.sole_claims:
            self.active = True
            self.clock += 1
            self._claims[claim] = (self._claims.get(claim, (0, 0))[0] + sign, self.clock)
        if pod.attachments:
            self.active = True
            self.clock += 1
            self.attached.hold(pod.attachments, row, sign, self.clock)

    def hang(self, before: Attachments, now: Attachments, row: int) -> None:
        """Take in which volumes hang on a row by its node's word, and which no longer."""
        if before != now:
            self.clock += 1
            self.attached.hang(before, now, row, self.clock)

    def change_namespace(self, name: str, labels: Labels) -> None:
        """Take in the labels of a namespace; where selectors read them, all is counted anew when asked for."""
        if self._namespaces.get(name, ()) == labels:
            return
        self._namespaces[name] = labels
        if not labels:
            del self._namespaces[name]
        for counter in self._counters.values():
            if _names(*counter.scopes) != ("",):
                continue
            counter.counted = False
            counter.rows.clear()
            self.clock += 1
            counter.version = self.clock
        self._peers_memo.clear()
        self._counters_memo.clear()
        self._keepers_memo.clear()
        if self._keeping.get(""):
            self.generation += 1

    def peers_of(self, pod: Pod) -> Peers | None:
        """Return what a waiting pod has to do with others; None where that is nothing."""
        by_volumes = bool(pod.sole_claims or pod.attachments)
        namespace = pod.key.partition("/")[0]
        own = self.defaults.rules_of(pod, namespace)
        keepers = self._keepers_of(pod, namespace) if self._keepers else ()
        if own is None and not keepers and not by_volumes:
            return None
        self.active = True
        rules = own or _NO_RULES
        numbers = tuple([keeper.number for keeper in keepers])
        key = (namespace, pod.labels, self._number(rules), numbers, pod.sole_claims, pod.attachments)
        found = self._peers_memo.get(key)
        if found is None:
            if len(self._peers_memo) >= MEMO_MOST:
                self._peers_memo.clear()
            found = self._peers_memo[key] = self._make_peers(pod, namespace, rules, keepers)
        return found

    def _make_peers(self, pod: Pod, namespace: str, rules: PodRules, keepers: tuple[Keeper, ...]) -> Peers:
        labels = dict(pod.labels)
        affinity = tuple(_scope(term, labels, namespace) for term in rules.affinity)
        anti = tuple(_scope(term, labels, namespace) for term in rules.anti_affinity)
        spreads = tuple(
            Scope((namespace,), None, with_own_values(one.selector, labels, one.match_label_keys))
            for one in rules.spreads
        )
        preferred = tuple(_scope(one.term, labels, namespace) for one in rules.pod_preferences)
        itself = all(self._in_scope(scope, namespace, labels) for scope in affinity)
        spread_itself = tuple(selects(scope.selector, labels) for scope in spreads)
        key = (
            self._number(rules), affinity, anti, spreads, preferred, itself, spread_itself,
            tuple(keeper.number for keeper in keepers), pod.sole_claims, pod.attachments,
        )  # fmt: skip
        found = self._peers.get(key)
        if found is None:
            found = self._peers[key] = Peers(
                rules,
                tuple(one for one in keepers if not one.weight),
                tuple(one for one in keepers if one.weight),
                self._counter(affinity, living=False) if affinity else None,
                tuple(self._counter((scope,), living=False) for scope in anti),
                tuple(self._counter((_but_all(scope),), living=True) for scope in spreads),
                tuple(self._counter((scope,), living=False) for scope in preferred),
                itself,
                spread_itself,
                pod.sole_claims,
                pod.attachments,
            )
        return found

    def ready(self, peers: Peers) -> bool:
        """Count what is not counted yet; False where that must wait for the next cycle."""
        for counter in peers.counters:
            if not counter.counted:
                if self._visits >= VISITS_AT_ONCE:
                    return False
                self.rows(counter)
        return True

    def rows(self, counter: Counter) -> Mapping[int, int]:
        """Return how many matching pods are on each row that has any."""
        if not counter.counted:
            self._count(counter)
        return counter.rows

    def version(self, peers: Peers) -> int:
        """Return a number that rises with every change of what concerns these pods."""
        counted: list[Counter | Keeper] = [*peers.counters, *peers.keepers, *peers.wishers]
        latest = max([one.version for one in counted], default=0)
        latest = max(latest, self.attached.version(peers.attachments))
        return max([latest, *(self._claims.get(claim, (0, 0))[1] for claim in peers.sole_claims)])

    def claimed(self, claims: tuple[str, ...]) -> bool:
        """Whether a placed pod holds one of the claims that only one may hold."""
        return any(self._claims.get(claim, (0, 0))[0] > 0 for claim in claims)

    def left_of_claims(self, claims: tuple[str, ...], without: Iterable[Pod]) -> int:
        """Return how many placed pods hold claims that only one may hold, but for some of these pods."""
        held = sum(max(0, self._claims.get(claim, (0, 0))[0]) for claim in claims)
        return held - sum(claim in pod.sole_claims for pod in without for claim in claims) if held else 0

    def counts(self, counter: Counter, pod: Pod) -> bool:
        """Whether a counter that is counted has a placed pod among its own."""
        if counter.living and pod.terminating:
            return False
        return counter in self._counters_of(pod.labels, pod.key.partition("/")[0])

    def keeps(self, keeper: Keeper, pod: Pod) -> int:
        """Return how often a placed pod counts in a keeper that refuses: once for each such term of its own."""
        if pod.rules is None:
            return 0
        namespace = pod.key.partition("/")[0]
        return sum(self._keeper(term, 0, pod, namespace) is keeper for term in pod.rules.anti_affinity)

    def prune(self, used: set[Peers]) -> None:
        """Drop what no waiting pod and no placed pod needs."""
        self._peers = {key: peers for key, peers in self._peers.items() if peers in used}
        wanted = {counter for peers in used for counter in peers.counters}
        kept = {keeper for peers in used for keeper in (*peers.keepers, *peers.wishers)}
        self._counters = {key: one for key, one in self._counters.items() if one in wanted}
        self._near = {}
        for counter in self._counters.values():
            self._note(counter)
        self._keepers = {key: one for key, one in self._keepers.items() if one.rows or one in kept}
        self._keeping = _by_namespace((one, _names(one.scope)) for one in self._keepers.values())
        self._claims = {claim: one for claim, one in self._claims.items() if one[0] > 0}
        self._peers_memo.clear()
        self._counters_memo.clear()
        self._keepers_memo.clear()
        self._rules.clear()
        rules = {peers.rules for peers in used}
        self._rule_numbers = {one: number for one, number in self._rule_numbers.items() if one in rules}

    def _add(self, one: Counter | Keeper, row: int, sign: int) -> None:
        count = one.rows.get(row, 0) + sign
        if count:
            one.rows[row] = count
        else:
            one.rows.pop(row, None)
        self.clock += 1
        one.version = self.clock

    def _counter(self, scopes: tuple[Scope, ...], *, living: bool) -> Counter:
        key = (scopes, living)
        found = self._counters.get(key)
        if found is None:
            found = self._counters[key] = Counter(scopes, living)
            self._note(found)
        return found

    def _note(self, counter: Counter) -> None:
        """List a counter under the namespaces that it names."""
        for name in _names(*counter.scopes):
            near = self._near.get(name)
            if near is None:
                near = self._near[name] = PairIndex()
            near.add(counter, counter.scopes[0].selector)
        self._forget_answers(counter)

    def _forget_answers(self, counter: Counter) -> None:
        for name in _names(*counter.scopes):
            if not name:
                self._counters_memo.clear()
            self._counters_memo.pop(name, None)

    def _count(self, counter: Counter) -> None:
        if self._held is None:
            self._held = {}
            for pod, row in self._all():
                self._keep(self._held, pod, row, 1)
                self._visits += 1
        scope = counter.scopes[0]
        names = list(self._held) if scope.namespace_selector is not None else scope.namespaces
        rows: dict[int, int] = {}
        for name in names:
            held = self._held.get(name)
            if held is not None:
                self._count_in(counter, name, held, rows)
        counter.rows = rows
        counter.counted = True
        self.clock += 1
        counter.version = self.clock
        self._forget_answers(counter)

    @staticmethod
    def _keep(table: dict[str, HeldPods], pod: Pod, row: int, sign: int) -> None:
        namespace = pod.key.partition("/")[0]
        held = table.get(namespace)
        if held is None:
            held = table[namespace] = HeldPods()
        if sign > 0:
            held.hold(pod, row)
        else:
            held.drop(pod)

    def _count_in(self, counter: Counter, namespace: str, held: HeldPods, rows: dict[int, int]) -> None:
        """Add the matching pods of one namespace by row."""
        for labels in held.near(counter.scopes[0].selector):
            self._visits += 1
            if not self._matches(counter, labels, namespace):
                continue
            for pod, row in held.having(labels):
                self._visits += 1
                if not (counter.living and pod.terminating):
                    rows[row] = rows.get(row, 0) + 1

    def _matches(self, counter: Counter, labels: Labels, namespace: str) -> bool:
        read = dict(labels)
        return all(self._in_scope(scope, namespace, read) for scope in counter.scopes)

    def _in_scope(self, scope: Scope, namespace: str, labels: Mapping[str, str]) -> bool:
        if namespace not in scope.namespaces:
            wished = scope.namespace_selector
            if wished is None or (wished and not selects(wished, dict(self._namespaces.get(namespace, ())))):
                return False
        return selects(scope.selector, labels)

    def _counters_of(self, labels: Labels, namespace: str) -> tuple[Counter, ...]:
        known = self._counters_memo.get(namespace)
        if known is None:
            known = self._counters_memo[namespace] = {}
        found = known.get(labels)
        if found is None:
            if len(known) >= MEMO_MOST:
                known.clear()
            near = [one for name in (namespace, "") if name in self._near for one in self._near[name].near(labels)]
            matching = [one for one in dict.fromkeys(near) if one.counted and self._matches(one, labels, namespace)]
            found = known[labels] = tuple(matching)
        return found

    def _keeper(self, term: PodTerm, weight: int, pod: Pod, namespace: str) -> Keeper:
        scope = _scope(term, dict(pod.labels), namespace)
        key = (scope, term.topology_key, weight)
        found = self._keepers.get(key)
        if found is None:
            self._numbers += 1
            found = self._keepers[key] = Keeper(*key, self._numbers)
            for name in _names(scope):
                self._keeping.setdefault(name, []).append(found)
            self._keepers_memo.clear()
            self.generation += 1
        return found

    def _keepers_of(self, pod: Pod, namespace: str) -> tuple[Keeper, ...]:
        key = (namespace, pod.labels)
        found = self._keepers_memo.get(key)
        if found is None:
            if len(self._keepers_memo) >= MEMO_MOST:
                self._keepers_memo.clear()
            labels = dict(pod.labels)
            near = {*self._keeping.get(namespace, ()), *self._keeping.get("", ())}
            matching = [one for one in near if self._in_scope(one.scope, namespace, labels)]
            found = self._keepers_memo[key] = tuple(sorted(matching, key=lambda one: one.number))
        return found

    def _number(self, rules: PodRules) -> int:
        """Return a number for equal rules; hashing them takes as long as all the rest, and most are the same object."""
        known = self._rules.get(id(rules))
        if known is None:
            if len(self._rules) >= MEMO_MOST:
                self._rules.clear()
            self._numbers += 1
            number = self._rule_numbers.setdefault(rules, self._numbers)
            known = self._rules[id(rules)] = (rules, number)
        return known[1]


_NO_RULES: Final = PodRules()


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy a selector; None selects nothing, an empty one everything."""
    return selector is not None and all(holds(one, labels) for one in selector)


def with_own_values(
    selector: Selector | None, labels: Mapping[str, str], match: tuple[str, ...], mismatch: tuple[str, ...] = ()
) -> Selector | None:
    """Return a selector with the pod's own values of ``matchLabelKeys`` and ``mismatchLabelKeys``.

    A key that the selector names already was written there by the API server when the pod was made (no user may name
    it in both), and says what the pod's labels were then.
    """
    if selector is None or not (match or mismatch):
        return selector
    named = {one.key for one in selector}
    added = [Requirement(key, "In", (labels[key],)) for key in match if key in labels and key not in named]
    added += [Requirement(key, "NotIn", (labels[key],)) for key in mismatch if key in labels and key not in named]
    return (*selector, *added)


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy one requirement of a label selector; an operator that it does not know never holds."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


def _scope(term: PodTerm, labels: Mapping[str, str], namespace: str) -> Scope:
    selector = with_own_values(term.selector, labels, term.match_label_keys, term.mismatch_label_keys)
    own = not term.namespaces and term.namespace_selector is None
    return Scope((namespace,) if own else term.namespaces, term.namespace_selector, selector)


def _but_all(scope: Scope) -> Scope:
    """Return the scope that a spread counts: with an empty selector kube-scheduler counts nobody."""
    return scope if scope.selector else Scope(scope.namespaces, scope.namespace_selector, None)


def _names(*scopes: Scope) -> tuple[str, ...]:
    """Return the namespaces of the pods in all of the scopes; an empty name where one selects them by label."""
    by_label = any(scope.namespace_selector is not None for scope in scopes)
    return ("",) if by_label else scopes[0].namespaces


def _by_namespace(found: Iterable[tuple[Keeper, tuple[str, ...]]]) -> dict[str, list[Keeper]]:
    table: dict[str, list[Keeper]] = {}
    for one, names in found:
        for name in names:
            table.setdefault(name, []).append(one)
    return table
