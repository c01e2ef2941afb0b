"""Which evictions a disruption budget does not allow, found before anybody is asked.

Called by `evictor` for the victims of one pod: they help only together, so one that must stay spares the others. The
API server has the last word; this look at the mirror saves pods that would be evicted beside one that then stays.
Pure. Invariant: as many victims of a budget pass as the budget's status says may go, in the order of asking.

Source: https://kubernetes.io/docs/tasks/run-application/configure-pdb/
"""

from __future__ import annotations

from collections.abc import Iterable

from cotide_kube.objects import PodDisruptionBudgetObject, PodObject
from cotide_operator.cache.label_selectors import selects
from cotide_operator.cache.object_cache import ObjectCache, key_of


def kept_by_budgets(victims: Iterable[PodObject], mirror: ObjectCache) -> dict[str, str]:
    """Return, by pod key, a sentence for each victim that a budget keeps, the others going before it."""
    left: dict[str, int] = {}
    kept: dict[str, str] = {}
    for pod in victims:
        key = key_of(pod.metadata)
        covering = [budget for budget in mirror.poddisruptionbudgets.values() if covers(budget, pod)]
        if len(covering) > 1:
            kept[key] = f"{len(covering)} disruption budgets cover it, which the API server lets nobody evict"
            continue
        # One that is not ready may go under rules of its own, which the API server knows.
        if not covering or not _ready(pod):
            continue
        name = key_of(covering[0].metadata)
        allowed = left.setdefault(name, covering[0].status.disruptions_allowed)
        if allowed <= 0:
            kept[key] = f"disruption budget {name} lets no further pod go now"
        left[name] = allowed - 1
    return kept


def covers(budget: PodDisruptionBudgetObject, pod: PodObject) -> bool:
    """Whether a budget counts a pod."""
    selector = budget.spec.selector
    if budget.metadata.namespace != pod.metadata.namespace or selector is None:
        return False
    # In policy/v1 an empty selector covers the namespace; only a missing one covers nobody.
    everyone = not (selector.match_labels or selector.match_expressions)
    return everyone or selects(selector, pod.metadata.labels)


def _ready(pod: PodObject) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)
