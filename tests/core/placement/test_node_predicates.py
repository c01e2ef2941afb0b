"""Labels, affinity, taints and readiness, one node at a time."""

from __future__ import annotations

import pytest

from cotide_core.events import Node, NodeTerm, Requirement, Taint, Toleration
from cotide_core.placement.node_predicates import refusal, soft_taints
from cotide_core.state.shapes import Constraints

LABELS = (("disk", "ssd"), ("size", "8"))


def plain(*taints: Taint, labels: tuple[tuple[str, str], ...] = LABELS, **fields: bool) -> Node:
    return Node("n1", (), labels, taints, **fields)


def term(key: str, operator: str, *values: str) -> Constraints:
    return Constraints(node_terms=(NodeTerm((Requirement(key, operator, values),)),))


@pytest.mark.parametrize(
    ("operator", "key", "values", "fits"),
    [
        ("In", "disk", ("hdd", "ssd"), True),
        ("In", "disk", ("hdd",), False),
        ("In", "missing", ("x",), False),
        ("NotIn", "disk", ("hdd",), True),
        ("NotIn", "disk", ("ssd",), False),
        ("NotIn", "missing", ("x",), True),
        ("Exists", "disk", (), True),
        ("Exists", "missing", (), False),
        ("DoesNotExist", "missing", (), True),
        ("DoesNotExist", "disk", (), False),
        ("Gt", "size", ("7",), True),
        ("Gt", "size", ("8",), False),
        ("Lt", "size", ("9",), True),
        ("Lt", "size", ("8",), False),
        ("Gt", "disk", ("7",), False),
        ("Gt", "missing", ("7",), False),
        ("Gt", "size", ("not a number",), False),
        ("Unheard", "disk", ("ssd",), False),
    ],
)
def test_a_required_term_matches_as_kubernetes_says(
    operator: str, key: str, values: tuple[str, ...], fits: bool
) -> None:
    assert (refusal(plain(), term(key, operator, *values)) is None) is fits


def test_terms_are_alternatives_and_their_requirements_are_not() -> None:
    has, lacks = Requirement("disk", "In", ("ssd",)), Requirement("disk", "In", ("hdd",))
    assert refusal(plain(), Constraints(node_terms=(NodeTerm((lacks,)), NodeTerm((has,))))) is None
    assert refusal(plain(), Constraints(node_terms=(NodeTerm((has, lacks)),))) is not None


def test_an_empty_term_matches_no_node() -> None:
    assert refusal(plain(), Constraints(node_terms=(NodeTerm(),))) is not None


def test_a_field_term_names_the_node() -> None:
    for name, fits in (("n1", True), ("n2", False)):
        wanted = NodeTerm(fields=(Requirement("metadata.name", "In", (name,)),))
        assert (refusal(plain(), Constraints(node_terms=(wanted,))) is None) is fits


def test_a_node_selector_wants_every_label() -> None:
    assert refusal(plain(), Constraints(node_selector=(("disk", "ssd"),))) is None
    mismatch = refusal(plain(), Constraints(node_selector=(("disk", "ssd"), ("zone", "a"))))
    assert mismatch == "node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (Toleration("gpu", "Equal", "yes", "NoSchedule"), True),
        (Toleration("gpu", "", "yes", ""), True),
        (Toleration("gpu", "Equal", "no", "NoSchedule"), False),
        (Toleration("gpu", "Exists", "", ""), True),
        (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("", "Equal", "yes", ""), False),
    ],
)
def test_a_taint_is_tolerated_as_kubernetes_says(toleration: Toleration, fits: bool) -> None:
    tainted = plain(Taint("gpu", "yes", "NoSchedule"))
    assert (refusal(tainted, Constraints(tolerations=(toleration,))) is None) is fits


def test_an_untolerated_taint_is_named() -> None:
    for effect in ("NoSchedule", "NoExecute"):
        assert refusal(plain(Taint("gpu", "yes", effect)), Constraints()) == "node(s) had untolerated taint {gpu: yes}"


def test_a_soft_taint_refuses_nobody_but_is_counted() -> None:
    soft = plain(Taint("old", "", "PreferNoSchedule"))
    assert refusal(soft, Constraints()) is None
    assert soft_taints(soft, ()) == 1
    assert soft_taints(soft, (Toleration("old", "Exists", "", ""),)) == 0


def test_a_cordoned_node_takes_only_pods_that_tolerate_its_taint() -> None:
    assert refusal(plain(unschedulable=True), Constraints()) == "node(s) were unschedulable"
    daemon = Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule")
    assert refusal(plain(unschedulable=True), Constraints(tolerations=(daemon,))) is None


def test_a_node_that_is_not_ready_is_refused() -> None:
    assert refusal(plain(ready=False), Constraints()) == "node(s) were not ready"
