"""Rules about other pods: translated as they are written, or named where they can't be followed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotide_core.events import NodeTerm, PodRules, PodTerm, Requirement, Spread, WeightedNodeTerm, WeightedPodTerm
from cotide_kube.objects import PodSpec
from cotide_operator.translation.pod_spec import SpecReader

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = (Requirement("app", "In", ("web",)),)


def read(spec: dict[str, Any]) -> tuple[PodRules | None, tuple[str, ...]]:
    facts = SpecReader()(msgspec.convert(spec, PodSpec))
    return facts.rules, facts.unsupported


def term_with(selector: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    chosen = {} if selector is None else {"labelSelector": selector}
    return {"topologyKey": "zone", **chosen, **more}


FAULTS = [
    (
        f"spec.affinity.podAffinity.{REQUIRED}[0].labelSelector.matchExpressions[0].operator",
        {"affinity": {"podAffinity": {REQUIRED: [term_with({"matchExpressions": [{"key": "a", "operator": "Gt"}]})]}}},
    ),
    (
        "terms of spec.affinity (more than 16 for pods and preferred nodes)",
        {"affinity": {"podAntiAffinity": {REQUIRED: [term_with({})] * 17}}},
    ),
    (
        "spec.topologySpreadConstraints (more than 8 entries)",
        {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}] * 9},
    ),
    (
        "selectors of spec.affinity and spec.topologySpreadConstraints (more than 1024 entries)",
        {"affinity": {"podAffinity": {REQUIRED: [term_with({"matchLabels": {str(n): "" for n in range(513)}})]}}},
    ),
]


@pytest.mark.parametrize(("path", "spec"), FAULTS, ids=[case[0] for case in FAULTS])
def test_what_cannot_be_followed_is_named_and_never_dropped(path: str, spec: dict[str, Any]) -> None:
    assert read(spec)[1] == (path,)


def test_terms_are_translated_as_they_are_written() -> None:
    near = term_with({"matchLabels": {"app": "web"}}, namespaces=["b", "a"], matchLabelKeys=["track"])
    apart = term_with(None, namespaceSelector={}, mismatchLabelKeys=["track"])
    spec = {
        "affinity": {
            "podAffinity": {REQUIRED: [near], PREFERRED: [{"weight": 3, "podAffinityTerm": near}]},
            "podAntiAffinity": {REQUIRED: [apart], PREFERRED: [{"weight": 4, "podAffinityTerm": apart}]},
            "nodeAffinity": {
                PREFERRED: [{"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}]
            },
        }
    }
    one = PodTerm("zone", WEB, ("a", "b"), None, ("track",))
    other = PodTerm("zone", None, (), (), (), ("track",))
    disk = NodeTerm((Requirement("disk", "Exists"),))
    liked = (WeightedPodTerm(3, one), WeightedPodTerm(-4, other))
    assert read(spec) == (PodRules((one,), (other,), (), liked, (WeightedNodeTerm(5, disk),)), ())


def test_a_spread_has_the_defaults_of_the_api() -> None:
    plain = {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
    every = {
        **plain,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {},
        "minDomains": 3,
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
        "matchLabelKeys": ["track"],
    }
    rules, _ = read({"topologySpreadConstraints": [plain, every]})
    assert rules is not None
    assert rules.spreads == (
        Spread("zone", 2, None, True, 1, True, False),
        Spread("zone", 2, (), False, 3, False, True, ("track",)),
    )


def test_a_pod_without_rules_has_none() -> None:
    assert read({"nodeSelector": {"a": "b"}}) == (None, ())


def test_what_keeps_others_off_is_kept_of_a_pod_that_cannot_be_placed() -> None:
    apart = {"affinity": {"podAntiAffinity": {REQUIRED: [term_with({})]}}, "resourceClaims": [{"name": "gpu"}]}
    rules, unsupported = read(apart)
    assert unsupported == ("spec.resourceClaims",)
    assert rules is not None
    assert rules.anti_affinity == (PodTerm("zone", ()),)
