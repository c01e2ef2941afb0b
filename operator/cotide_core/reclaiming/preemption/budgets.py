"""Which pods disruption budgets would keep if all of some pods went.

Called by `dry_run` for the pods of a node that may go. Pure. Invariant: the first pods of a budget, as many as it
allows, violate none.

Source: kube-scheduler's preemption. It counts a pod against each budget that selects it, and skips pods that a budget
has counted as disrupted. A budget with an empty selector selects no pod.
"""

from __future__ import annotations

from collections.abc import Iterable

from cotide_core.events import Pod
from cotide_core.state.selection.budgets import Budgets


def violating(pods: Iterable[Pod], budgets: Budgets) -> set[str]:
    """Return the keys of the pods that a budget forbids to leave, if those before them go first.

    Parameters
    ----------
    pods : most important first.
    """
    left: dict[str, int] = {}
    found: set[str] = set()
    for pod in pods:
        name = pod.key.partition("/")[2]
        for budget in budgets.of(pod):
            if name in budget.disrupted:
                continue
            left[budget.key] = left.get(budget.key, budget.allowed) - 1
            if left[budget.key] < 0:
                found.add(pod.key)
    return found
