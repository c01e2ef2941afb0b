"""Node selector terms as core values: from a pod's node affinity, and from the nodes that reach a volume.

Called by `constraints`, `pod_rules` and `volumes`. Invariant: an empty term matches no node, as in Kubernetes.
"""

from __future__ import annotations

from typing import Final

from cotide_core.events import NodeTerm, Requirement
from cotide_kube.objects import LabelSelector, MatchExpression, NodeSelector, NodeSelectorTerm

MATCHES_NOTHING: Final = NodeTerm(labels=(Requirement("", "In"),))
"""The meaning of an empty term: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/."""


def alternatives(required: NodeSelector | None) -> tuple[NodeTerm, ...]:
    """Return the alternatives of a node selector; empty without one."""
    if required is None:
        return ()
    return tuple(node_term(term) for term in required.node_selector_terms) or (MATCHES_NOTHING,)


def node_term(term: NodeSelectorTerm) -> NodeTerm:
    """Return one term."""
    if not (term.match_expressions or term.match_fields):
        return MATCHES_NOTHING
    return NodeTerm(
        labels=tuple(_requirement(expression) for expression in term.match_expressions),
        fields=tuple(_requirement(expression) for expression in term.match_fields),
    )


def selected(selector: LabelSelector) -> NodeTerm:
    """Return the labels of nodes that a label selector selects; an empty selector selects all nodes, as no term
    does."""
    pairs = tuple(Requirement(key, "In", (value,)) for key, value in sorted(selector.match_labels.items()))
    return NodeTerm(labels=(*pairs, *(_requirement(expression) for expression in selector.match_expressions)))


def _requirement(expression: MatchExpression) -> Requirement:
    return Requirement(expression.key, expression.operator, tuple(expression.values))
