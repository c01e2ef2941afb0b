"""Label selectors, evaluated on the labels of one object.

Called by `selector_index` for many selectors, by `state.pod_matches`, budgets and node predicates for a few. Pure.
Invariant: the answers are those of Kubernetes' label selectors.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
"""

from __future__ import annotations

from collections.abc import Mapping

from cotide_core.events import Requirement, Selector


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy a selector; None selects nothing, an empty one everything."""
    return selector is not None and all(holds(requirement, labels) for requirement in selector)


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


def with_own_values(
    selector: Selector | None, labels: Mapping[str, str], match: tuple[str, ...], mismatch: tuple[str, ...] = ()
) -> Selector | None:
    """Return a selector with the pod's own values of ``matchLabelKeys`` and ``mismatchLabelKeys``.

    The API server adds a key that the selector already names when the pod is created (a user may not name it in both).
    The selector then shows the pod's labels at that time.
    """
    if selector is None or not (match or mismatch):
        return selector
    named = {requirement.key for requirement in selector}
    added = [Requirement(key, "In", (labels[key],)) for key in match if key in labels and key not in named]
    added += [Requirement(key, "NotIn", (labels[key],)) for key in mismatch if key in labels and key not in named]
    return (*selector, *added)
