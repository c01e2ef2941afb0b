"""Which pods of the node the agent may hold back, as the API server shows them."""

from __future__ import annotations

import pytest
from manifests import pod_object

from cotide_kube.objects import PodObject
from cotide_node_agent.pod_feed import batch_pod

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
