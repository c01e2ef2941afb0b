"""Disruption budgets, and which of them count a pod.

Owned by `cluster_state`, read by preemption. A budget's numbers change with each pod of it that comes or goes, its
selector hardly ever. The matches of a label set are therefore remembered until a selector changes. Invariant: a budget
with an empty selector counts no pod, as in kube-scheduler's preemption.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cotide_core.events import Budget, Pod
from cotide_core.state.selection.selector_index import Labels, SelectorIndex

MAX_LABEL_SETS: Final = 4096
"""Label sets of one namespace with remembered budgets (chosen: 1 MB)."""


@dataclass(eq=False, slots=True)
class _Namespace:
    index: SelectorIndex[str] = field(default_factory=SelectorIndex)
    budgets: dict[str, Budget] = field(default_factory=dict)
    answers: dict[Labels, list[str]] = field(default_factory=dict)


class Budgets:
    """Budgets by namespace and key."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _Namespace] = {}

    def __bool__(self) -> bool:
        return bool(self._namespaces)

    def put(self, budget: Budget) -> None:
        """Add a budget, or its new numbers."""
        known = self._namespaces.setdefault(budget.key.partition("/")[0], _Namespace())
        before = known.budgets.get(budget.key)
        known.budgets[budget.key] = budget
        if before is None or before.selector != budget.selector:
            known.index.add(budget.key, budget.selector or None)
            known.answers.clear()

    def remove(self, key: str) -> None:
        """Forget a budget."""
        name = key.partition("/")[0]
        known = self._namespaces.get(name)
        if known is None or known.budgets.pop(key, None) is None:
            return
        known.index.remove(key)
        known.answers.clear()
        if not known.budgets:
            del self._namespaces[name]

    def of(self, pod: Pod) -> list[Budget]:
        """Return the budgets that count a pod."""
        known = self._namespaces.get(pod.key.partition("/")[0])
        if known is None or not pod.labels:
            return []
        keys = known.answers.get(pod.labels)
        if keys is None:
            if len(known.answers) >= MAX_LABEL_SETS:
                known.answers.clear()
            keys = known.answers[pod.labels] = known.index.matching(pod.labels)
        return [known.budgets[key] for key in keys]
