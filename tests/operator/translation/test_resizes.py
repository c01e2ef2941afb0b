"""While a kubelet resizes a container in place, the pod counts with the largest of what is asked, set and put aside."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from manifests import container, pod_object

from cotide_kube.objects import PodObject
from cotide_operator.cache.pod_interning import PodKeeping
from cotide_operator.translation.pod_requests import effective_requests, resized
from cotide_operator.translation.pod_spec import SpecReader

INFEASIBLE = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
DEFERRED = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}


def pod(asked: str, set_: str | None = None, aside: str | None = None, **status: Any) -> PodObject:
    """A pod that asks for ``asked``; its kubelet has ``set_`` in force and holds ``aside`` for it."""
    one: dict[str, Any] = container(set_)
    if aside is not None:
        one["allocatedResources"] = {"cpu": aside}
    return pod_object("p", asked, namespace="s", uid="u", status={"containerStatuses": [one], **status})


CASES = [
    ("a downsize that is pending holds what it held", pod("1", "4", "4"), 4000),
    ("so it does when only one of the two says it", pod("1", "4"), 4000),
    ("an upsize counts at once", pod("4", "1", "1"), 4000),
    ("one that is put aside and not yet set does, too", pod("2", "1", "3"), 3000),
    ("a deferred upsize may come any time", pod("4", "1", "1", **DEFERRED), 4000),
    ("an infeasible upsize never comes", pod("400", "1", "2", **INFEASIBLE), 2000),
    ("nor one that an older kubelet calls so", pod("400", "1", "2", resize="Infeasible"), 2000),
    ("what says the same is the spec", pod("1", "1", "1"), 1000),
]


@pytest.mark.parametrize(("found", "millicores"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize("keep", [PodKeeping(), lambda one: one], ids=["kept", "as it came"])
def test_a_pod_counts_with(found: PodObject, millicores: int, keep: Any) -> None:
    kept = keep(found)
    assert dict(SpecReader()(kept.spec, kept.status).requests) == {"cpu": millicores}


def test_a_sidecar_counts_the_same_way() -> None:
    body = {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"initContainerStatuses": [{"name": "s", "allocatedResources": {"cpu": "3"}}]},
    }
    found = msgspec.convert(body, PodObject)
    assert dict(effective_requests(found.spec, found.status).amounts) == {"cpu": 4000}


def test_pod_level_resources_count_the_same_way() -> None:
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}], "resources": {"requests": {"cpu": "1"}}},
        "status": {"resources": {"requests": {"cpu": "4"}}, "allocatedResources": {"cpu": "2"}},
    }
    found = msgspec.convert(body, PodObject)
    assert dict(effective_requests(found.spec, found.status).amounts) == {"cpu": 4000}


def test_what_a_kubelet_repeats_costs_no_memory() -> None:
    kept = PodKeeping()(pod("1", "1", "1"))
    assert kept.status.container_statuses[0].resources is None
    assert not resized(kept.spec, kept.status)


def test_of_containers_that_ask_for_the_same_each_counts_and_one_is_read() -> None:
    many = [{"name": f"c{number}", "resources": {"requests": {"cpu": "2m"}}} for number in range(1_000)]
    odd = [{"name": f"o{number}", "resources": {"requests": {"cpu": "none"}}} for number in range(2)]
    limited = [{"name": "l", "resources": {"requests": {"cpu": "2m"}, "limits": {"cpu": "2m", "memory": "5"}}}]
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": [*many, *odd, *limited]},
        "status": {"containerStatuses": [{"name": "c7", "allocatedResources": {"cpu": "9m"}}]},
    }
    found = msgspec.convert(body, PodObject)
    asked, held = effective_requests(found.spec), effective_requests(found.spec, found.status)
    assert dict(asked.amounts) == {"cpu": 1_001 * 2, "memory": 5}
    assert dict(held.amounts) == {"cpu": 1_000 * 2 + 9, "memory": 5}
    assert [fault.partition(" ")[0] for fault in asked.faults] == ["spec.containers[1000].resources.requests[cpu]"]
