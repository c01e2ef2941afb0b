"""Counts, by node, the placed pods that a selector matches and the terms that refuse other pods.

Owned by `cluster_state.ClusterState`, which reports each pod that is counted on a row or removed from it; read by
`placement.constraints`. A `Counter` exists for each distinct selector of a waiting pod's rules. A `Keeper` exists for
each distinct term of placed pods that refuses or prefers pods that come. Both hold a number by row. One placement
therefore costs a few additions, independent of the size of the cluster, and a domain's count is a sum over the few rows
that have any. Without pods with such rules nothing is kept and nothing is computed. Invariant: the numbers equal a
recount over all placed pods (tests/core/placement/test_constraints.py).

Semantics: the Kubernetes documentation, "Assigning Pods to Nodes" and "Pod Topology Spread Constraints".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Any, Final, TypeVar

from cotide_core.events import Pod, PodRules, PodTerm, Selector
from cotide_core.state.attached_volumes import AttachedVolumes, Attachments
from cotide_core.state.selection.default_spreads import DefaultSpreads
from cotide_core.state.selection.pair_budget import PairBudget
from cotide_core.state.selection.peers import (
    CHANGES_A_PAIR,
    KEEPERS_A_PAIR,
    NO_KEEPERS,
    PAIRS_A_PEERS,
    PAIRS_A_REQUIREMENT,
    Counter,
    HashedRules,
    Keeper,
    Keepers,
    Peers,
    RuleScopes,
    Scope,
    selectors_of,
)
from cotide_core.state.selection.scoped_matches import BY_LABEL, Matched, ScopedMatches
from cotide_core.state.selection.selector_index import Labels, LabelSets, SelectorTest
from cotide_core.state.selection.selectors import selects, with_own_values

T = TypeVar("T")
COUNTERS_KEPT: Final = 1024
"""Number of counted selectors before unused ones are dropped (chosen)."""
HARD_AFFINITY_WEIGHT: Final = 1
"""Weight of a required affinity of a placed pod among preferences, for pods that it selects: kube-scheduler's default
``hardPodAffinityWeight``.
"""
MAX_MEMO: Final = 16_384
"""Sets of labels with remembered answers (chosen: some MB)."""
Held = tuple[Pod, int]
"""A placed pod and its row."""
_HeldPods = LabelSets[dict[str, Held]]
"""Placed pods of one namespace by labels and key."""


class PodMatches:
    """Counters and keepers of one state.

    Parameters
    ----------
    held : returns all placed pods; called when the first selector is counted.

    Attributes
    ----------
    active : whether anything is counted; otherwise only pods with their own rules are reported.
    budget : pairs that this cycle may still compare.
    clock : rises with every number that changes.
    attached : volumes by row.
    defaults : spread constraints of pods that state none.
    """

    def __init__(self, held: Callable[[], Iterable[Held]]) -> None:
        self._all = held
        self.active = False
        self.budget = PairBudget()
        self.clock = 0
        self.attached = AttachedVolumes()
        self.defaults = DefaultSpreads()
        self._numbers = 0
        self._namespaces: dict[str, Labels] = {}
        self._held: dict[str, _HeldPods] | None = None
        """Placed pods by namespace; None until they are needed."""
        self._counters: dict[tuple[tuple[Scope, ...], bool], Counter] = {}
        self._keepers: dict[tuple[Scope, str, int], Keeper] = {}
        self._counting: ScopedMatches[Counter] = ScopedMatches(self._counter_within)
        self._keeping: ScopedMatches[Keeper] = ScopedMatches(self._keeper_within)
        self._keeper_sets: dict[tuple[int, ...], Keepers] = {}
        self._claims: dict[str, tuple[int, int]] = {}
        """For each exclusive claim: pods that hold it, and the clock of the last change."""
        self._rules: dict[int, tuple[PodRules, int]] = {}
        self._rule_numbers: dict[HashedRules, int] = {}
        self._peers: dict[tuple[Any, ...], Peers] = {}
        """The first part of a key is the number of the rules."""
        self._scopes: dict[tuple[int, str, Labels], RuleScopes] = {}
        """For rules by number, namespace and labels of their pods."""
        self._peers_memo: dict[object, Peers] = {}
        """The same by the pod's own fields, which is faster to look up."""

    def __len__(self) -> int:
        return len(self._counters) + len(self._keepers)

    def begin(self) -> None:
        """Begin a cycle: pairs may be compared again."""
        self.budget.begin()

    def hold(self, pod: Pod, row: int, sign: int) -> None:
        """Count a pod on a row (1), or remove it (-1) as it was when it was counted."""
        namespace = pod.key.partition("/")[0]
        if self._held is not None:
            self._keep(self._held, pod, row, sign)
        if self._counters:
            counters = self._counters_of(pod.labels, namespace)
            self.budget.charge(namespace, len(counters) // CHANGES_A_PAIR)
            for counter in counters:
                if counter.counted and not (counter.living and pod.terminating):
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
        """Replace the volumes that a node's status lists for a row."""
        if before != now:
            self.clock += 1
            self.attached.hang(before, now, row, self.clock)

    def change_namespace(self, name: str, labels: Labels) -> None:
        """Record the labels of a namespace; selectors that its old or new labels match count again at the next use."""
        before = dict(self._namespaces.get(name, ()))
        now = dict(labels)
        if before == now:
            return
        self._namespaces[name] = labels
        if not labels:
            del self._namespaces[name]
        if self._held is not None and self._held.get(name):  # otherwise nothing is counted there
            self._uncount(name, before, now)
        self._peers_memo.clear()
        self._scopes.clear()
        self._counting.relabel(name)
        self._keeping.relabel(name)

    def _uncount(self, name: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        """Forget the counts of selectors that match a namespace only with its old or only with its new labels."""
        keys = {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
        for counter in self._counters.values():
            scopes = [scope for scope in counter.scopes if _names_any(scope.namespace_selector, keys)]
            if counter.counted and any(
                _selects_namespace(scope, name, before) is not _selects_namespace(scope, name, now) for scope in scopes
            ):
                counter.counted = False
                counter.rows.clear()
                self.clock += 1
                counter.version = self.clock

    def take_changed(self) -> Callable[[Pod], bool]:
        """Return a check of whether `peers_of` may answer differently about a pod than before the last call."""
        is_changed = self._keeping.take_changed()
        return lambda pod: is_changed(pod.key.partition("/")[0], pod.labels)

    def concerns(self, pod: Pod) -> bool:
        """Whether `peers_of` may answer differently about a pod, by the rules of `take_changed`."""
        return self._keeping.lost or (pod.key.partition("/")[0], pod.labels) in self._keeping.changed

    @property
    def has_changed(self) -> bool:
        """Whether there may be such a pod."""
        return self._keeping.lost or bool(self._keeping.changed)

    def peers_of(self, pod: Pod) -> Peers | None:
        """Return the rules between a waiting pod and others; None for no rules."""
        by_volumes = bool(pod.sole_claims or pod.attachments)
        namespace = pod.key.partition("/")[0]
        own = self.defaults.rules_of(pod, namespace)
        kept = self._keepers_of(pod, namespace) if self._keepers else NO_KEEPERS
        if own is None and kept is NO_KEEPERS and not by_volumes:
            return None
        self.active = True
        rules = own or _NO_RULES
        key = (namespace, pod.labels, self._number(rules, namespace), kept.number, pod.sole_claims, pod.attachments)
        found = self._peers_memo.get(key)
        if found is None:
            if len(self._peers_memo) >= MAX_MEMO:
                self._peers_memo.clear()
            found = self._peers_memo[key] = self._make_peers(pod, namespace, rules, kept)
        return found

    def _make_peers(self, pod: Pod, namespace: str, rules: PodRules, kept: Keepers) -> Peers:
        number = self._number(rules, namespace)
        asked = (number, namespace, pod.labels)
        scopes = self._scopes.get(asked)
        if scopes is None:
            if len(self._scopes) >= MAX_MEMO:
                self._scopes.clear()
            scopes = self._scopes[asked] = self._scopes_of(rules, dict(pod.labels), namespace)
        self.budget.charge(namespace, PAIRS_A_PEERS)
        key = (number, scopes, kept.number, pod.sole_claims, pod.attachments)
        found = self._peers.get(key)
        if found is None:
            found = self._peers[key] = Peers(
                rules,
                kept,
                self._counter(scopes.affinity, living=False) if scopes.affinity else None,
                tuple(self._counter((scope,), living=False) for scope in scopes.anti_affinity),
                tuple(self._counter((_but_all(scope),), living=True) for scope in scopes.spreads),
                tuple(self._counter((scope,), living=False) for scope in scopes.preferences),
                scopes.selects_itself,
                scopes.spreads_itself,
                pod.sole_claims,
                pod.attachments,
            )
        return found

    def _scopes_of(self, rules: PodRules, labels: Mapping[str, str], namespace: str) -> RuleScopes:
        affinity = tuple(_scope(term, labels, namespace) for term in rules.affinity)
        spreads = tuple(
            Scope((namespace,), None, with_own_values(spread.selector, labels, spread.match_label_keys))
            for spread in rules.spreads
        )
        return RuleScopes(
            affinity,
            tuple(_scope(term, labels, namespace) for term in rules.anti_affinity),
            spreads,
            tuple(_scope(preference.term, labels, namespace) for preference in rules.pod_preferences),
            all(self._in_scope(scope, namespace, labels) for scope in affinity),
            tuple(selects(scope.selector, labels) for scope in spreads),
        )

    def ready(self, peers: Peers, namespace: str) -> bool:
        """Count the uncounted selectors; False if some of them must wait for the next cycle.

        Parameters
        ----------
        namespace : of the requesting pod; its share is used.
        """
        if self.budget.is_spent(namespace):
            return False
        self.budget.charge(namespace, peers.pairs)
        for counter in peers.counters:
            if not counter.counted:
                if self.budget.is_spent(namespace):
                    return False
                self._count(counter, namespace)
        return True

    def count_all(self, peers: Peers) -> None:
        """Count all uncounted selectors, without a limit."""
        for counter in peers.counters:
            self.rows(counter)

    def rows(self, counter: Counter) -> Mapping[int, int]:
        """Return the number of matching pods on each row that has any."""
        if not counter.counted:
            self._count(counter, counter.scopes[0].namespaces[0] if counter.scopes[0].namespaces else "")
        return counter.rows

    def version(self, peers: Peers) -> int:
        """Return a number that rises with every change to these rules."""
        latest = max([counter.version for counter in peers.counters], default=0)
        latest = max(latest, peers.kept.version(self.clock))
        return max(latest, self.attached.version(peers.attachments), self._claims_version(peers))

    def refusing_version(self, peers: Peers) -> int:
        """Return a number that rises with every change to the refusals of these pods, without attached volumes.

        Preferences, of these pods or of others, refuse nothing.
        """
        latest = max([counter.version for counter in peers.refusing], default=0)
        return max(latest, peers.kept.refusing_version(self.clock), self._claims_version(peers))

    def opened_since(self, peers: Peers, seen: int) -> bool:
        """Return whether a change since a clock's value may open any row to these pods.

        A detached volume is left out: it concerns a row that then has more room. An attached volume opens a row to
        other pods that use it.
        """
        if self.refusing_version(peers) > seen:
            return True
        attached, volumes = self.attached, peers.attachments
        return attached.version(volumes) > seen and attached.is_attached(volumes)

    def _claims_version(self, peers: Peers) -> int:
        return max([self._claims.get(claim, (0, 0))[1] for claim in peers.sole_claims], default=0)

    def claimed(self, claims: tuple[str, ...]) -> bool:
        """Whether a placed pod holds one of the exclusive claims."""
        return any(self._claims.get(claim, (0, 0))[0] > 0 for claim in claims)

    def left_of_claims(self, claims: tuple[str, ...], without: Iterable[Pod]) -> int:
        """Return how many placed pods hold exclusive claims, except some of these pods."""
        held = sum(max(0, self._claims.get(claim, (0, 0))[0]) for claim in claims)
        return held - sum(claim in pod.sole_claims for pod in without for claim in claims) if held else 0

    def counts(self, counter: Counter, pod: Pod) -> bool:
        """Whether an existing count of a counter includes a placed pod."""
        if counter.living and pod.terminating:
            return False
        return counter in self._counters_of(pod.labels, pod.key.partition("/")[0])

    def keeps(self, keepers: Collection[Keeper], pod: Pod) -> int:
        """Return how often a placed pod counts in keepers that refuse: once for each such term of its own."""
        if pod.rules is None:
            return 0
        namespace = pod.key.partition("/")[0]
        return sum(self._keeper(term, 0, pod, namespace) in keepers for term in pod.rules.anti_affinity)

    def prune(self, used: set[Peers]) -> None:
        """Drop the counts that no waiting pod and no placed pod needs."""
        self._peers = {key: peers for key, peers in self._peers.items() if peers in used}
        wanted = {counter for peers in used for counter in peers.counters}
        sets = {peers.kept for peers in used}
        kept = {keeper for keepers in sets for keeper in (*keepers.refusing, *keepers.wishing)}
        unwanted = [counter for counter in self._counters.values() if counter not in wanted]
        for counter in unwanted:
            del self._counters[counter.scopes, counter.living]
        self._counting.remove(_listed_counter(counter)[:2] for counter in unwanted)
        idle = [keeper for keeper in self._keepers.values() if not keeper.rows and keeper not in kept]
        for keeper in idle:
            del self._keepers[keeper.scope, keeper.topology_key, keeper.weight]
        self._keeping.remove(_listed_keeper(keeper)[:2] for keeper in idle)
        self._keeper_sets = {key: keeper_set_ for key, keeper_set_ in self._keeper_sets.items() if keeper_set_ in sets}
        self._claims = {claim: pair for claim, pair in self._claims.items() if pair[0] > 0}
        self._peers_memo.clear()
        self._scopes.clear()
        rules = {key[0] for key in self._peers}
        self._rules = {address: rule for address, rule in self._rules.items() if rule[1] in rules}
        self._rule_numbers = {
            hashed_rules: number for hashed_rules, number in self._rule_numbers.items() if number in rules
        }

    def _add(self, sums: Counter | Keeper, row: int, sign: int) -> None:
        count = sums.rows.get(row, 0) + sign
        if count:
            sums.rows[row] = count
        else:
            sums.rows.pop(row, None)
        self.clock += 1
        sums.version = self.clock

    def _counter(self, scopes: tuple[Scope, ...], *, living: bool) -> Counter:
        key = (scopes, living)
        found = self._counters.get(key)
        if found is None:
            found = self._counters[key] = Counter(scopes, living)
            self._counting.add(*_listed_counter(found))
        return found

    def _count(self, counter: Counter, namespace: str) -> None:
        """Count the placed pods that a counter selects, for a pod of a namespace."""
        if self._held is None:
            self._held = {}
            held = list(self._all())
            for pod, row in held:
                self._keep(self._held, pod, row, 1)
            self.budget.charge(namespace, len(held))
        first = counter.scopes[0]
        names = list(self._held) if first.namespace_selector is not None else first.namespaces
        tests = [SelectorTest(scope.selector) for scope in counter.scopes if scope.selector is not None]
        rows: dict[int, int] = {}
        pairs = 1
        for name in names if len(tests) == len(counter.scopes) else ():
            pairs += 1
            known = self._held.get(name)
            if known is not None and all(self._in_namespace(scope, name) for scope in counter.scopes):
                pairs += self._count_in(counter, tests, known, rows)
        self.budget.charge(namespace, pairs)
        counter.rows = rows
        counter.counted = True
        self.clock += 1
        counter.version = self.clock

    @staticmethod
    def _keep(table: dict[str, _HeldPods], pod: Pod, row: int, sign: int) -> None:
        namespace = pod.key.partition("/")[0]
        held = table.get(namespace)
        if held is None:
            held = table[namespace] = LabelSets()
        pods = held.get(pod.labels)
        if sign > 0:
            if pods is None:
                pods = {}
                held.put(pod.labels, pods)
            pods[pod.key] = (pod, row)
        elif pods is not None and pods.pop(pod.key, None) is not None and not pods:
            held.drop(pod.labels)

    @staticmethod
    def _count_in(counter: Counter, tests: list[SelectorTest], held: _HeldPods, rows: dict[int, int]) -> int:
        """Add the matching pods of one namespace by row; return the pairs that were compared."""
        pairs = 0
        for labels in held.near(counter.scopes[0].selector):
            pairs += 1
            read = dict(labels)
            if not all(test.passes(read) for test in tests):
                continue
            for pod, row in (held.get(labels) or {}).values():
                pairs += 1
                if not (counter.living and pod.terminating):
                    rows[row] = rows.get(row, 0) + 1
        return pairs

    def _in_scope(self, scope: Scope, namespace: str, labels: Mapping[str, str]) -> bool:
        return self._in_namespace(scope, namespace) and selects(scope.selector, labels)

    def _in_namespace(self, scope: Scope, namespace: str) -> bool:
        if scope.namespace_selector == ():
            return True
        return _selects_namespace(scope, namespace, dict(self._namespaces.get(namespace, ())))

    def _counter_within(self, counter: Counter, namespace: str, labels: Labels) -> bool:
        """Whether a counter with a first selector that matches the labels counts pods of such a namespace."""
        first, *others = counter.scopes
        return self._in_namespace(first, namespace) and all(
            self._in_scope(scope, namespace, dict(labels)) for scope in others
        )

    def _keeper_within(self, keeper: Keeper, namespace: str, labels: Labels) -> bool:
        del labels
        return self._in_namespace(keeper.scope, namespace)

    def _counters_of(self, labels: Labels, namespace: str) -> list[Counter]:
        """Return the counters, counted or not, that count pods of a namespace with such labels."""
        return self._matched(self._counting, labels, namespace).items

    def _keeper(self, term: PodTerm, weight: int, pod: Pod, namespace: str) -> Keeper:
        scope = _scope(term, dict(pod.labels), namespace)
        key = (scope, term.topology_key, weight)
        found = self._keepers.get(key)
        if found is None:
            self._numbers += 1
            found = self._keepers[key] = Keeper(*key, self._numbers)
            before = self._keeping.pairs
            self._keeping.add(*_listed_keeper(found))
            self.budget.charge(namespace, self._keeping.pairs - before + len(scope.selector or ()))
        return found

    def _keepers_of(self, pod: Pod, namespace: str) -> Keepers:
        matched = self._matched(self._keeping, pod.labels, namespace)
        if matched.summary is None:
            items = sorted(matched.items, key=lambda item: item.number)
            numbers = tuple([item.number for item in items])
            self.budget.charge(namespace, len(items) // KEEPERS_A_PAIR)
            found = self._keeper_sets.get(numbers)
            if found is None:
                self._numbers += 1
                refusing = tuple([item for item in items if not item.weight])
                wishing = tuple([item for item in items if item.weight])
                found = Keepers(self._numbers, refusing, wishing) if items else NO_KEEPERS
                self._keeper_sets[numbers] = found
            matched.summary = found
        known: Keepers = matched.summary
        return known

    def _matched(self, table: ScopedMatches[T], labels: Labels, namespace: str) -> Matched[T]:
        before = table.pairs
        found = table.of(namespace, labels)
        self.budget.charge(namespace, table.pairs - before)
        return found

    def _number(self, rules: PodRules, namespace: str) -> int:
        """Return a number for equal rules; hashing them takes as long as all the rest, and most are the same object."""
        known = self._rules.get(id(rules))
        if known is None:
            if len(self._rules) >= MAX_MEMO:
                self._rules.clear()
            self._numbers += 1
            self.budget.charge(namespace, PAIRS_A_REQUIREMENT * sum(map(len, selectors_of(rules))))
            number = self._rule_numbers.setdefault(HashedRules(rules), self._numbers)
            known = self._rules[id(rules)] = (rules, number)
        return known[1]


_NO_RULES: Final = PodRules()


def _scope(term: PodTerm, labels: Mapping[str, str], namespace: str) -> Scope:
    selector = with_own_values(term.selector, labels, term.match_label_keys, term.mismatch_label_keys)
    own = not term.namespaces and term.namespace_selector is None
    return Scope((namespace,) if own else term.namespaces, term.namespace_selector, selector)


def _but_all(scope: Scope) -> Scope:
    """Return the scope that a spread counts: with an empty selector kube-scheduler counts no pods."""
    return scope if scope.selector else Scope(scope.namespaces, scope.namespace_selector, None)


def _names(*scopes: Scope) -> tuple[str, ...]:
    """Return the namespaces of the pods in all of the scopes; an empty name if one selects them by label."""
    by_label = any(scope.namespace_selector is not None for scope in scopes)
    return (BY_LABEL,) if by_label else scopes[0].namespaces


def _names_any(selector: Selector | None, keys: Set[str]) -> bool:
    """Whether a requirement of a selector names one of some labels."""
    return selector is not None and any(requirement.key in keys for requirement in selector)


def _selects_namespace(scope: Scope, name: str, labels: Mapping[str, str]) -> bool:
    return name in scope.namespaces or selects(scope.namespace_selector, labels)


def _listed_counter(counter: Counter) -> tuple[Counter, tuple[str, ...], Selector | None]:
    return counter, _names(*counter.scopes), counter.scopes[0].selector


def _listed_keeper(keeper: Keeper) -> tuple[Keeper, tuple[str, ...], Selector | None]:
    return keeper, _names(keeper.scope), keeper.scope.selector
