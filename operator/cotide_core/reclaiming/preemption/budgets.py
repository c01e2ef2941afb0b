"""Which pods disruption budgets would keep if all of some pods went.

Called by `dry_run` for the pods of a node that may go. Pure. Invariant: of the pods of a budget so many violate none
as it allows, the first in the given order.

Source: kube-scheduler's preemption, which counts a pod against each budget that selects it, skips pods that a budget
has counted as disrupted, and takes a budget with an empty selector for one that selects none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cotide_core.events import Budget, Pod
from cotide_core.state.selection.selectors import selects


def violating(pods: Iterable[Pod], budgets: Mapping[str, Budget]) -> set[str]:
    """Return the keys of the pods whose leaving a budget does not allow, those before them going first.

    Parameters
    ----------
    pods : most important first.
    """
    left: dict[str, int] = {}
    found: set[str] = set()
    for pod in pods:
        if not pod.labels:
            continue
        namespace, _, name = pod.key.partition("/")
        labels = dict(pod.labels)
        for key, budget in budgets.items():
            if key.partition("/")[0] != namespace or name in budget.disrupted:
                continue
            if not budget.selector or not selects(budget.selector, labels):
                continue
            left[key] = left.get(key, budget.allowed) - 1
            if left[key] < 0:
                found.add(pod.key)
    return found
