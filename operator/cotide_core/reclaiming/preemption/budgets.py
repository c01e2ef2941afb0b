"""Which pods disruption budgets would keep if all of some pods went.

Called by `dry_run` for the pods of a node that may go. Pure. Invariant: of the pods of a budget so many violate none
as it allows, the first in the given order.

Source: kube-scheduler's preemption, which counts a pod against each budget that selects it, skips pods that a budget
has counted as disrupted, and takes a budget with an empty selector for one that selects none.
"""

from __future__ import annotations

from collections.abc import Iterable

from cotide_core.events import Pod
from cotide_core.state.selection.budgets import Budgets


def violating(pods: Iterable[Pod], budgets: Budgets) -> set[str]:
    """Return the keys of the pods whose leaving a budget does not allow, those before them going first.

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
