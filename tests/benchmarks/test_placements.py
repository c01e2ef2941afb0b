"""The checks of the upstream benchmark find every kind of broken placement, and nothing in one that holds."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from placements import Placements, matches, quantity

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
Json = dict[str, Any]


def machine(name: str, zone: str = "a", taints: list[Json] | None = None, **capacity: str) -> Json:
    """A node of four cores."""
    labels = {HOST: name, ZONE: zone}
    status = {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "10", **capacity}}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints or []}, "status": status}


def placed(name: str, on: str, cpu: str = "100m", namespace: str = "default", port: int = 0, **spec: Any) -> Json:
    """A pod of the application ``web`` on a node."""
    container: Json = {"resources": {"requests": {"cpu": cpu}}}
    if port:
        container["ports"] = [{"hostPort": port}]
    metadata = {"name": name, "namespace": namespace, "labels": {"app": "web"}}
    return {"metadata": metadata, "spec": {"nodeName": on, "containers": [container], **spec}}


def broken(*pods: Json, nodes: list[Json] | None = None, namespaces: list[Json] | None = None) -> Json:
    return Placements(pods, nodes or [machine("n1"), machine("n2", "b")], namespaces or []).violations()


def affinity(kind: str, key: str = HOST, **more: Any) -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}, **more}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def on_nodes(*expressions: Json, field: str = "matchExpressions") -> Json:
    terms = {"nodeSelectorTerms": [{field: list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("2", Fraction(2)),
        ("100m", Fraction(1, 10)),
        ("500Mi", Fraction(500 * 2**20)),
        ("1k", Fraction(1000)),
        ("1Ki", Fraction(1024)),
        (3, Fraction(3)),
        ("1.5G", Fraction(1_500_000_000)),
        ("1e3", Fraction(1000)),
    ],
)
def test_quantities_are_read_as_the_api_writes_them(text: object, amount: Fraction) -> None:
    assert quantity(text) == amount


def test_placements_that_hold_have_no_violation() -> None:
    spread = [
        {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {}}}
    ]
    pods = [
        placed("p1", "n1", "2", port=80, topologySpreadConstraints=spread, affinity=affinity("podAntiAffinity")),
        placed("p2", "n2", "2", port=80, topologySpreadConstraints=spread, affinity=affinity("podAntiAffinity")),
    ]
    assert broken(*pods) == {}


def test_a_node_with_more_requests_than_room_is_overcommitted() -> None:
    assert broken(placed("p1", "n1", "3"), placed("p2", "n1", "1")) == {}
    assert broken(placed("p1", "n1", "3"), placed("p2", "n1", "1001m")) == {"overcommitted": 1}


def test_a_node_with_more_pods_than_it_takes_is_overcommitted() -> None:
    two = [placed("p1", "n1"), placed("p2", "n1")]
    assert broken(*two, nodes=[machine("n1", pods="1")]) == {"overcommitted": 1}


def test_allocatable_counts_before_capacity() -> None:
    node = machine("n1")
    node["status"]["allocatable"] = {"cpu": "1", "pods": "10"}
    assert broken(placed("p1", "n1", "2"), nodes=[node]) == {"overcommitted": 1}


def test_a_host_port_that_two_pods_of_a_node_have_is_found() -> None:
    assert broken(placed("p1", "n1", port=80), placed("p2", "n1", port=80)) == {"host port": 1}


def test_a_node_that_does_not_exist_is_found() -> None:
    assert broken(placed("p1", "elsewhere")) == {"node that does not exist": 1}


@pytest.mark.parametrize(
    ("toleration", "violations"),
    [
        ({}, {"taint": 1}),
        ({"key": "gpu", "operator": "Exists"}, {}),
        ({"key": "gpu", "value": "yes"}, {}),
        ({"key": "gpu", "value": "no"}, {"taint": 1}),
        ({"key": "gpu", "value": "yes", "effect": "NoExecute"}, {"taint": 1}),
        ({"operator": "Exists"}, {}),
    ],
)
def test_a_taint_that_a_pod_does_not_tolerate_is_found(toleration: Json, violations: Json) -> None:
    node = machine("n1", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    pod = placed("p1", "n1", tolerations=[toleration] if toleration else [])
    assert broken(pod, nodes=[node]) == violations


def test_a_taint_that_only_prefers_keeps_no_pod_out() -> None:
    node = machine("n1", taints=[{"key": "gpu", "effect": "PreferNoSchedule"}])
    assert broken(placed("p1", "n1"), nodes=[node]) == {}


def test_a_pod_on_a_cordoned_node_is_found() -> None:
    node = machine("n1")
    node["spec"]["unschedulable"] = True
    assert broken(placed("p1", "n1"), nodes=[node]) == {"taint": 1}


def test_a_node_without_the_labels_that_a_pod_asks_for_is_found() -> None:
    in_b = on_nodes({"key": ZONE, "operator": "In", "values": ["b"]})
    assert broken(placed("p1", "n1", affinity=in_b)) == {"node affinity": 1}
    assert broken(placed("p1", "n2", affinity=in_b)) == {}
    assert broken(placed("p1", "n1", nodeSelector={ZONE: "b"})) == {"node affinity": 1}


def test_a_pod_that_asks_for_one_node_by_name_stands_there() -> None:
    named = on_nodes({"key": "metadata.name", "operator": "In", "values": ["n2"]}, field="matchFields")
    assert broken(placed("p1", "n1", affinity=named)) == {"node affinity": 1}
    assert broken(placed("p1", "n2", affinity=named)) == {}


def test_a_gated_pod_on_a_node_is_found() -> None:
    assert broken(placed("p1", "n1", schedulingGates=[{"name": "wait"}])) == {"scheduling gate": 1}


def test_pods_that_avoid_each_other_on_one_node_are_found() -> None:
    apart = affinity("podAntiAffinity")
    assert broken(placed("p1", "n1", affinity=apart), placed("p2", "n1")) == {"anti-affinity": 1}


def test_a_pod_away_from_those_that_it_wants_to_be_with_is_found() -> None:
    beside = affinity("podAffinity", ZONE)
    assert broken(placed("p1", "n1"), placed("p2", "n2", affinity=beside)) == {"affinity": 1}
    assert broken(placed("p1", "n1"), placed("p2", "n1", affinity=beside)) == {}


def test_the_first_pod_of_a_group_may_stand_anywhere() -> None:
    assert broken(placed("p1", "n1", affinity=affinity("podAffinity"))) == {}


def test_terms_choose_namespaces_by_name_and_by_label() -> None:
    spaces = [{"metadata": {"name": "shop", "labels": {"team": "a"}}}, {"metadata": {"name": "default"}}]
    other = placed("p2", "n1", namespace="shop")
    for more in ({"namespaces": ["shop"]}, {"namespaceSelector": {"matchLabels": {"team": "a"}}}):
        pod = placed("p1", "n1", affinity=affinity("podAntiAffinity", **more))
        assert broken(pod, other, namespaces=spaces) == {"anti-affinity": 1}
    assert broken(placed("p1", "n1", affinity=affinity("podAntiAffinity")), other, namespaces=spaces) == {}


@pytest.mark.parametrize(("skew", "violations"), [(1, {"spread": 1}), (2, {})])
def test_a_skew_beyond_the_largest_is_found(skew: int, violations: Json) -> None:
    constraint = {"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    constraint["labelSelector"] = {"matchLabels": {"app": "web"}}
    pods = [placed(f"p{n}", "n1", topologySpreadConstraints=[constraint]) for n in range(2)]
    assert broken(*pods) == violations


def test_a_spread_that_is_only_preferred_breaks_nothing() -> None:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    pods = [placed(f"p{n}", "n1", topologySpreadConstraints=[constraint]) for n in range(5)]
    assert broken(*pods) == {}


def test_nodes_whose_taints_a_constraint_honours_are_no_domain() -> None:
    nodes = [machine("n1"), machine("n2", "b", taints=[{"key": "gpu", "effect": "NoSchedule"}])]
    constraint = {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    for policy, violations in (("Honor", {}), ("Ignore", {"spread": 1})):
        spread = [{**constraint, "nodeTaintsPolicy": policy}]
        pods = [placed(f"p{n}", "n1", topologySpreadConstraints=spread) for n in range(2)]
        assert broken(*pods, nodes=nodes) == violations


def test_evenness_counts_nodes_and_zones_of_the_pods_that_are_asked_for() -> None:
    pods = [placed("p1", "n1"), placed("p2", "n1"), placed("p3", "n2"), placed("other", "n1")]
    nodes = [machine("n1"), machine("n2", "b"), machine("n3", "c")]
    measured = {("default", f"p{n}") for n in (1, 2, 3)}
    assert Placements(pods, nodes, []).evenness(measured) == {"nodes_used": 2, "most_on_one_node": 2, "zone_skew": 2}


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ({"operator": "In", "values": ["web"]}, True),
        ({"operator": "NotIn", "values": ["web"]}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "DoesNotExist"}, False),
    ],
)
def test_expressions_choose_by_the_value_of_a_label(expression: Json, chosen: bool) -> None:
    assert matches({"matchExpressions": [{"key": "app", **expression}]}, {"app": "web"}) is chosen


def test_no_selector_chooses_nothing_and_an_empty_one_everything() -> None:
    assert (matches(None, {}), matches({}, {})) == (False, True)
