"""Spread constraints of pods that state none: which pods count as one service, and how they are spread.

Owned by `pod_matches.PodMatches`. Services, ReplicaSets, StatefulSets and ReplicationControllers are kept by namespace.
A pod's selector combines all Services that select it and the owner that controls it. Only online pods are spread.
Invariant: a pod without such a selector, or with spread constraints of its own, gets none.

Source: kube-scheduler's helper ``DefaultSelector`` and ``PodTopologySpreadArgs`` (k8s.io/kubernetes,
pkg/scheduler/framework/plugins/helper/spread.go and podtopologyspread/plugin.go).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from cotide_core.classes import WorkloadClass
from cotide_core.config import SYSTEM_SPREADS, DefaultSpread
from cotide_core.events import Pod, PodRules, PodSelector, Requirement, Selector, Spread
from cotide_core.state.selection.selector_index import Labels, SelectorIndex

SERVICE: Final = "Service"
MAX_MEMO: Final = 16_384
"""Remembered answers about sets of labels of one namespace (chosen: some MB)."""
_NO_RULES: Final = PodRules()


@dataclass(slots=True)
class _Namespace:
    services: SelectorIndex[str] = field(default_factory=SelectorIndex)
    """By name."""
    selectors: dict[str, Selector] = field(default_factory=dict)
    """Those of Services, by name."""
    owners: dict[str, Selector] = field(default_factory=dict)
    """By ``Kind/name``."""
    answers: dict[tuple[Labels, str, int], tuple[PodRules | None, PodRules | None]] = field(default_factory=dict)
    """A pod's own rules and those with default constraints, by labels, controller and the identity of the own rules.
    The entry holds the own rules, so that the identity stays theirs.
    """
    interned: dict[tuple[int, Selector], PodRules] = field(default_factory=dict)
    """The rules with default constraints by own rules and selector: one object for equal ones."""


class DefaultSpreads:
    """Selectors of one state, and the constraints that they are put into.

    Attributes
    ----------
    constraints : without a selector; none: pods are not spread by default.
    changed : namespaces with changed selectors since the reader last emptied the set.
    """

    def __init__(self) -> None:
        self.constraints: tuple[DefaultSpread, ...] = SYSTEM_SPREADS
        self.changed: set[str] = set()
        self._namespaces: dict[str, _Namespace] = {}

    def __len__(self) -> int:
        return len(self._namespaces)

    def put(self, selector: PodSelector) -> None:
        """Add the selector of a Service or a controller."""
        name, _, rest = selector.key.partition("/")
        found = self._namespaces.get(name)
        if found is None:
            found = self._namespaces[name] = _Namespace()
        if selector.owner == SERVICE:
            found.services.add(rest, selector.selector)
            found.selectors[rest] = selector.selector
        else:
            found.owners[f"{selector.owner}/{rest}"] = selector.selector
        self._forget_answers(name, found)

    def remove(self, owner: str, key: str) -> None:
        """Forget the selector of a Service or a controller."""
        name, _, rest = key.partition("/")
        found = self._namespaces.get(name)
        if found is None:
            return
        if owner == SERVICE:
            found.services.remove(rest)
            found.selectors.pop(rest, None)
        else:
            found.owners.pop(f"{owner}/{rest}", None)
        self._forget_answers(name, found)
        if not found.selectors and not found.owners:
            del self._namespaces[name]

    def rules_of(self, pod: Pod, namespace: str) -> PodRules | None:
        """Return the rules of a pod, with default constraints if it states none and something selects it."""
        own = pod.rules
        found = self._namespaces.get(namespace)
        if found is None or not self.constraints or pod.workload_class is not WorkloadClass.ONLINE:
            return own
        if own is not None and own.spreads:
            return own
        key = (pod.labels, pod.controller, id(own))
        known = found.answers.get(key)
        if known is None:
            if len(found.answers) >= MAX_MEMO:
                found.answers.clear()
                found.interned.clear()
            known = found.answers[key] = (own, self._with_defaults(pod, found))
        return known[1]

    def _with_defaults(self, pod: Pod, found: _Namespace) -> PodRules | None:
        selector = self._merged(pod, found)
        if not selector:
            return pod.rules
        rules = found.interned.get((id(pod.rules), selector))
        if rules is None:
            spreads = tuple(
                Spread(
                    constraint.topology_key,
                    constraint.max_skew,
                    selector,
                    constraint.required,
                    requires_labels=constraint.requires_labels,
                )
                for constraint in self.constraints
            )
            rules = found.interned[id(pod.rules), selector] = replace(pod.rules or _NO_RULES, spreads=spreads)
        return rules

    @staticmethod
    def _merged(pod: Pod, found: _Namespace) -> Selector:
        merged: dict[Requirement, None] = {}
        for name in found.services.matching(pod.labels):
            merged.update(dict.fromkeys(found.selectors[name]))
        merged.update(dict.fromkeys(found.owners.get(pod.controller, ())))
        return tuple(
            sorted(merged, key=lambda requirement: (requirement.key, requirement.operator, requirement.values))
        )

    def _forget_answers(self, name: str, found: _Namespace) -> None:
        found.answers.clear()
        found.interned.clear()
        self.changed.add(name)
