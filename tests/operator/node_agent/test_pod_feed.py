"""Which pods of the node the agent may hold back, as the API server shows them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifests import pod_object

from cotide_kube.objects import PodObject
from cotide_node_agent.agent import BatchPod
from cotide_node_agent.pod_feed import batch_pod
from cotide_operator.translation.pod_requests import effective_requests

VICTIM = "0e2f0b6c-5b1c-4b53-8f0e-6a8f4a0a9c11"


def labelled_batch(annotations: dict[str, str]) -> PodObject:
    return pod_object("count", "500m", uid="own", labels={"cotide.dev/class": "batch"}, annotations=annotations)


@pytest.mark.parametrize("value", [VICTIM, "nobody", ""])
def test_a_pod_names_no_other_group_than_its_own(value: str) -> None:
    """Its author writes its annotations: one that named a service would have that held back, and itself left alone."""
    found = batch_pod(labelled_batch({"kubernetes.io/config.hash": value}))
    assert found is not None
    assert found.uid == "own"


def test_a_static_pod_is_a_services_whatever_its_labels_say() -> None:
    assert (
        batch_pod(labelled_batch({"kubernetes.io/config.hash": VICTIM, "kubernetes.io/config.mirror": VICTIM})) is None
    )


def asks(cpu: str, memory: str, **more: Any) -> dict[str, Any]:
    requests = {"cpu": cpu, "cotide.dev/reclaimed-cpu": "100", "cotide.dev/reclaimed-memory": memory}
    return {"name": f"c{cpu}", "resources": {"requests": requests}, **more}


def test_an_init_container_has_what_it_asked_for() -> None:
    """It was held to what the containers after it ask for: its memory was taken back as soon as it had it."""
    spec = {
        "initContainers": [asks("2", "8000"), asks("1", "1000", restartPolicy="Always"), asks("500m", "3000")],
        "containers": [asks("250m", "500"), asks("250m", "500")],
    }
    found = batch_pod(pod_object("count", uid="own", labels={"cotide.dev/class": "batch"}, spec=spec))
    assert found == BatchPod("own", False, 2.0, 0.3, 8000)
    del spec["initContainers"][0]
    found = batch_pod(pod_object("count", uid="own", labels={"cotide.dev/class": "batch"}, spec=spec))
    assert found == BatchPod("own", False, 1.5, 0.3, 4000), "the sidecar goes on beside the containers"


def test_what_is_asked_for_the_whole_pod_counts() -> None:
    spec = {"resources": {"requests": {"cpu": "3"}}, "containers": [{"name": "c"}]}
    found = batch_pod(pod_object("count", uid="own", labels={"cotide.dev/class": "batch"}, spec=spec))
    assert found == BatchPod("own", False, 3.0)


@given(amounts=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=1, max_size=6))
def test_a_pod_asks_for_as_much_as_the_operator_counts(amounts: list[tuple[int, int]]) -> None:
    """Kind of each container (0: plain, 1: init, 2: sidecar), and what it asks for."""
    parts = [asks(f"{amount}", f"{amount}", restartPolicy="Always" if kind == 2 else None) for kind, amount in amounts]
    spec = {
        "initContainers": [part for part, (kind, _) in zip(parts, amounts, strict=True) if kind],
        "containers": [part for part, (kind, _) in zip(parts, amounts, strict=True) if not kind],
    }
    pod = pod_object("count", uid="own", labels={"cotide.dev/class": "batch"}, spec=spec)
    counted = dict(effective_requests(pod.spec).amounts)
    found = batch_pod(pod)
    assert found is not None
    assert found.requested_cpus * 1000 == counted.get("cpu", 0)
    assert found.reclaimed_memory_bytes == counted.get("cotide.dev/reclaimed-memory", 0)
