"""Whether a node is eligible for a pod: node selector and required node affinity.

Called by `admission`. Written separately from the scheduler's own rules on purpose: a fake node with the scheduler's
code could never prove it wrong. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotide_kube.objects import MatchExpression, NodeSelectorTerm, PodSpec


def wants_node(spec: PodSpec, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether the pod's node selector and required node affinity let it run on this node."""
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    return required is None or any(_holds(term, name, labels) for term in required.node_selector_terms)


def _holds(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    if not (term.match_expressions or term.match_fields):
        return False
    return all(_meets(expression, labels) for expression in term.match_expressions) and all(
        _meets(field, {"metadata.name": name}) for field in term.match_fields
    )


def _meets(expression: MatchExpression, labels: Mapping[str, str]) -> bool:
    found, values = labels.get(expression.key), expression.values
    if expression.operator in ("NotIn", "DoesNotExist"):
        return found is None or (expression.operator == "NotIn" and found not in values)
    if found is None:
        return False
    if expression.operator in ("Gt", "Lt"):
        try:
            number, bound = int(found), int(values[0])
        except (ValueError, IndexError):
            return False
        return number > bound if expression.operator == "Gt" else number < bound
    return expression.operator == "Exists" or (expression.operator == "In" and found in values)
