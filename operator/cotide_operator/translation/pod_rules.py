"""Rules of a pod's spec about other pods, domains and preferred nodes, as core values.

`pod_spec` calls it once for all pods of a template. Invariant: a required term or constraint is either translated as
written or named by `rule_faults`, never dropped. An invalid selector selects nothing, as in Kubernetes, and is named,
too.
"""

from __future__ import annotations

from typing import Final

from cotide_core.events import (
    PodRules,
    PodSelector,
    PodTerm,
    Spread,
    WeightedNodeTerm,
    WeightedPodTerm,
)
from cotide_core.limits import MAX_POD_TERMS, MAX_REQUIREMENTS, MAX_SPREADS
from cotide_kube.objects import (
    Affinity,
    LabelSelector,
    NodeAffinity,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    ReplicaSetObject,
    ServiceObject,
    SpreadConstraint,
)
from cotide_operator.cache.label_selectors import label_selector
from cotide_operator.translation.node_terms import node_term

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_NO_AFFINITY: Final = Affinity()
_NO_PODS: Final = PodAffinity()
_NO_NODES: Final = NodeAffinity()


def pod_rules(spec: PodSpec) -> PodRules | None:
    """Return the rules of a valid spec; None if it has none."""
    wished = spec.affinity or _NO_AFFINITY
    near, apart = wished.pod_affinity or _NO_PODS, wished.pod_anti_affinity or _NO_PODS
    nodes = wished.node_affinity or _NO_NODES
    liked = near.preferred_during_scheduling_ignored_during_execution
    disliked = apart.preferred_during_scheduling_ignored_during_execution
    rules = PodRules(
        affinity=tuple(
            _term(pod_affinity_term) for pod_affinity_term in near.required_during_scheduling_ignored_during_execution
        ),
        anti_affinity=tuple(
            _term(pod_affinity_term) for pod_affinity_term in apart.required_during_scheduling_ignored_during_execution
        ),
        spreads=tuple(_spread(constraint) for constraint in spec.topology_spread_constraints),
        pod_preferences=(
            *(
                WeightedPodTerm(weighted_pod_affinity_term.weight, _term(weighted_pod_affinity_term.pod_affinity_term))
                for weighted_pod_affinity_term in liked
            ),
            *(
                WeightedPodTerm(-weighted_pod_affinity_term.weight, _term(weighted_pod_affinity_term.pod_affinity_term))
                for weighted_pod_affinity_term in disliked
            ),
        ),
        node_preferences=tuple(
            WeightedNodeTerm(preferred_node_term.weight, node_term(preferred_node_term.preference))
            for preferred_node_term in nodes.preferred_during_scheduling_ignored_during_execution
        ),
    )
    return None if rules == _NONE else rules


_NONE: Final = PodRules()


def selects_namespaces(rules: PodRules) -> bool:
    """Whether a term selects namespaces by their labels."""
    preferred = (preference.term for preference in rules.pod_preferences)
    return any(term.namespace_selector for term in (*rules.affinity, *rules.anti_affinity, *preferred))


def rule_faults(spec: PodSpec) -> list[str]:
    """Return the paths of rules that can't be followed: too many, or invalid."""
    wished = spec.affinity or _NO_AFFINITY
    near, apart = wished.pod_affinity or _NO_PODS, wished.pod_anti_affinity or _NO_PODS
    nodes = wished.node_affinity or _NO_NODES
    terms = [
        (f"spec.affinity.{name}.{REQUIRED}[{index}]", term)
        for name, side in (("podAffinity", near), ("podAntiAffinity", apart))
        for index, term in enumerate(side.required_during_scheduling_ignored_during_execution)
    ]
    terms += [
        (f"spec.affinity.{name}.{_PREFERRED}[{index}].podAffinityTerm", weighted_pod_affinity_term.pod_affinity_term)
        for name, side in (("podAffinity", near), ("podAntiAffinity", apart))
        for index, weighted_pod_affinity_term in enumerate(side.preferred_during_scheduling_ignored_during_execution)
    ]
    preferred = len(nodes.preferred_during_scheduling_ignored_during_execution)
    if len(terms) + preferred > MAX_POD_TERMS:
        return [f"terms of spec.affinity (more than {MAX_POD_TERMS} for pods and preferred nodes)"]
    if len(spec.topology_spread_constraints) > MAX_SPREADS:
        return [f"spec.topologySpreadConstraints (more than {MAX_SPREADS} entries)"]
    selectors = [
        (f"{path}.{name}", selector)
        for path, term in terms
        for name, selector in (("labelSelector", term.label_selector), ("namespaceSelector", term.namespace_selector))
    ]
    selectors += [
        (f"spec.topologySpreadConstraints[{index}].labelSelector", constraint.label_selector)
        for index, constraint in enumerate(spec.topology_spread_constraints)
    ]
    named = sum(len(t.namespaces) + len(t.match_label_keys) + len(t.mismatch_label_keys) for _, t in terms)
    named += sum(len(constraint.match_label_keys) for constraint in spec.topology_spread_constraints)
    for preferred_node_term in nodes.preferred_during_scheduling_ignored_during_execution:
        wished_of = (*preferred_node_term.preference.match_expressions, *preferred_node_term.preference.match_fields)
        named += 1 + sum(1 + len(requirement.values) for requirement in wished_of)
    if named + sum(_entries(selector) for _, selector in selectors) > MAX_REQUIREMENTS:
        return [f"selectors of spec.affinity and spec.topologySpreadConstraints (more than {MAX_REQUIREMENTS} entries)"]
    faults = [
        f"{path}.matchExpressions[{index}].operator"
        for path, selector in selectors
        if selector is not None
        for index, expression in enumerate(selector.match_expressions)
        if expression.operator not in _OPERATORS
    ]
    faults += [
        f"spec.topologySpreadConstraints[{index}].whenUnsatisfiable"
        for index, constraint in enumerate(spec.topology_spread_constraints)
        if constraint.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway")
    ]
    return faults


def pod_selector(owner: str, key: str, item: ServiceObject | ReplicaSetObject) -> PodSelector | None:
    """Return the pods that a Service selects or a controller controls; None without any, or for an invalid selector."""
    wished = item.spec.selector
    selector = label_selector(LabelSelector(wished) if isinstance(wished, dict) else wished)
    if not selector or len(selector) > MAX_REQUIREMENTS:
        return None
    return PodSelector(owner, key, selector)


def _entries(selector: LabelSelector | None) -> int:
    if selector is None:
        return 0
    return 2 * len(selector.match_labels) + sum(1 + len(expression.values) for expression in selector.match_expressions)


def _term(term: PodAffinityTerm) -> PodTerm:
    return PodTerm(
        topology_key=term.topology_key,
        selector=label_selector(term.label_selector),
        namespaces=tuple(sorted(set(term.namespaces))),
        namespace_selector=label_selector(term.namespace_selector),
        match_label_keys=term.match_label_keys,
        mismatch_label_keys=term.mismatch_label_keys,
    )


def _spread(constraint: SpreadConstraint) -> Spread:
    return Spread(
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        selector=label_selector(constraint.label_selector),
        required=constraint.when_unsatisfiable == "DoNotSchedule",
        min_domains=constraint.min_domains or 1,
        honors_affinity=constraint.node_affinity_policy != "Ignore",
        honors_taints=constraint.node_taints_policy == "Honor",
        match_label_keys=constraint.match_label_keys,
    )
