"""What owners write about disruption, on pods and on nodes: docs/features/preemption.md has the table."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from manifests import node_object, pod_object

from cotide_kube.timestamps import format_timestamp
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.translation.eviction_annotations import (
    faults,
    is_protected,
    node_annotation_faults,
    node_protection,
    preferences_of,
)
from cotide_operator.translation.pod_times import PodTimes
from cotide_operator.translation.pods_and_nodes import ownership_of, translate_pod

KARPENTER = "karpenter.sh/do-not-disrupt"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SCALE_DOWN = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
COST = "controller.kubernetes.io/pod-deletion-cost"
DISRUPTION_COST = "karpenter.sh/disruption-cost"
DAY = 86400.0

READABLE: list[tuple[dict[str, str], tuple[bool, float | None, bool, int]]] = [
    ({KARPENTER: "true"}, (True, None, False, 0)),
    ({KARPENTER: "false"}, (False, None, False, 0)),
    ({KARPENTER: "24h"}, (False, DAY, False, 0)),
    ({KARPENTER: "1h30m"}, (False, 5400.0, False, 0)),
    ({KARPENTER: "+.5s"}, (False, 0.5, False, 0)),
    ({KARPENTER: "1.5h500ms"}, (False, 5400.5, False, 0)),
    ({KARPENTER: "24h", SAFE: "false"}, (True, DAY, False, 0)),
    ({SAFE: "false"}, (True, None, False, 0)),
    ({SAFE: "true"}, (False, None, False, 0)),
    ({SAFE: "true", KARPENTER: "true"}, (True, None, False, 0)),
    ({"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}, (False, None, True, 0)),
    ({COST: "-20"}, (False, None, False, -20)),
    ({COST: "2147483647"}, (False, None, False, 2**31 - 1)),
    ({DISRUPTION_COST: "7", COST: "3"}, (False, None, False, 7)),
    ({}, (False, None, False, 0)),
]


@pytest.mark.parametrize(("annotations", "expected"), READABLE)
def test_an_owners_wishes_about_disruption_are_read_from_annotations(
    annotations: dict[str, str], expected: tuple[bool, float | None, bool, int]
) -> None:
    one = pod_object(annotations=annotations)
    pod = translate_pod(one, ownership_of(one, ObjectCache()), PodTimes("u-p", 0.0))
    assert (pod.do_not_disrupt, pod.protected_seconds, pod.prefer_no_eviction, pod.deletion_cost) == expected
    assert faults(annotations) == []


NEVER_A_DURATION = ("yes", "True", "", "24", "1d", "0s", "-5m", "24 h", "1h 30m", "h", "9999999999h", "9" * 5000)


@pytest.mark.parametrize("text", NEVER_A_DURATION)
def test_an_unreadable_protection_of_karpenter_protects_with_a_sentence(text: str) -> None:
    wish = preferences_of({KARPENTER: text})
    assert (wish.do_not_disrupt, wish.protected_seconds, wish.keeps_node) == (True, None, True)
    (fault,) = faults({KARPENTER: text})
    assert fault.startswith(f"annotation {KARPENTER}: ")
    assert fault.endswith("is neither true nor false nor a duration above 0, and protects")
    assert len(fault) < 200


def test_an_unreadable_protection_of_cluster_autoscaler_protects_with_a_sentence() -> None:
    wish = preferences_of({SAFE: "never"})
    assert (wish.do_not_disrupt, wish.movable, wish.keeps_node) == (True, False, False)
    assert faults({SAFE: "never"}) == [f"annotation {SAFE}: 'never' is neither true nor false, and protects"]


@pytest.mark.parametrize("name", [COST, DISRUPTION_COST])
@pytest.mark.parametrize("text", ["", "high", "+10", "008", "1.5", "2147483648", "-2147483649", "9" * 5000, "1 "])
def test_a_cost_that_can_not_be_read_counts_as_not_written(name: str, text: str) -> None:
    assert preferences_of({name: text}).deletion_cost == 0
    (fault,) = faults({name: text})
    assert "is no whole number of 32 bits, and is ignored" in fault


@pytest.mark.parametrize("text", ["true", "false", ""])
def test_the_deschedulers_permission_holds_whatever_its_value(text: str) -> None:
    wish = preferences_of({"descheduler.alpha.kubernetes.io/evict": text})
    assert (wish.movable, wish.do_not_disrupt) == (True, False)


def running(annotation: str, started: float | None) -> Any:
    status = {"phase": "Running", **({} if started is None else {"startTime": format_timestamp(started)})}
    return pod_object(annotations={KARPENTER: annotation}, status=status)


class At(ScaledClock):
    """A clock that stands."""

    def __init__(self, moment: float, speed: float = 1.0) -> None:
        super().__init__(1000.0, speed)
        self._moment = moment

    def now(self) -> float:
        return self._moment


@pytest.mark.parametrize(
    ("started", "now", "protected"),
    [(1000.0, 1000.0, True), (1000.0, 999.0 + DAY, True), (1000.0, 1000.0 + DAY, False), (None, 1e9, True)],
)
def test_a_duration_counts_from_the_start_of_the_pod(started: float | None, now: float, protected: bool) -> None:
    assert is_protected(running("24h", started), At(now)) is protected


def test_a_duration_passes_on_the_operators_clock() -> None:
    """At speed 60 a pod that started 24 minutes of the wall ago started 24 hours ago."""
    assert is_protected(running("24h", 1000.0), At(999.0 + DAY, 60.0))
    assert not is_protected(running("24h", 1000.0), At(1000.0 + DAY, 60.0))
    assert is_protected(running("24h", 1060.0), At(1000.0 + DAY, 60.0)), "it started an hour later"


@pytest.mark.parametrize(
    ("labels", "annotations", "kept"),
    [
        ({}, {}, False),
        ({"node-role.kubernetes.io/worker": ""}, {}, False),
        ({"node-role.kubernetes.io/control-plane": ""}, {}, True),
        ({"node-role.kubernetes.io/master": "true"}, {}, True),
        ({"node-role.kubernetes.io/etcd": "true"}, {}, True),
        ({}, {KARPENTER: "true"}, True),
        ({}, {KARPENTER: "false"}, False),
        ({}, {KARPENTER: "24h"}, True),
        ({}, {SCALE_DOWN: "true"}, True),
        ({}, {SCALE_DOWN: "false"}, False),
        ({}, {SCALE_DOWN: "yes"}, True),
    ],
)
def test_a_node_is_kept_by_its_annotations_and_its_role(
    labels: dict[str, str], annotations: dict[str, str], kept: bool
) -> None:
    assert bool(node_protection(labels, annotations)) is kept


def test_an_unreadable_protection_of_a_node_has_its_sentence() -> None:
    def found(annotations: dict[str, str]) -> list[str]:
        bare = node_object("n", "4")
        metadata = msgspec.structs.replace(bare.metadata, annotations=annotations)
        return node_annotation_faults(msgspec.structs.replace(bare, metadata=metadata))

    assert found({KARPENTER: "true", SCALE_DOWN: "false"}) == []
    assert found({KARPENTER: "24h"}) == [f"annotation {KARPENTER}: '24h' is neither true nor false, and protects"]
