"""What the API server makes of our resources: contradictions are refused with the field's path and our sentence."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import pytest

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials, load_credentials
from cotide_operator.crds import RESOURCES, definition
from cotide_sim.apiserver.testing import server_in_thread

WORKLOADS = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"
TEMPLATE = {"spec": {"containers": [{"name": "web", "image": "nginx"}]}}
ONE_WAY = "give either spec.selector, to adopt pods, or spec.template, to let Cotide run them, and not both"
SELECTOR = {"matchLabels": {"app": "web"}}


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Credentials]:
    with server_in_thread() as server:
        kubeconfig = tmp_path_factory.mktemp("served") / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        loaded = load_credentials(str(kubeconfig))
        asyncio.run(define(loaded))
        yield loaded


async def define(credentials: Credentials) -> None:
    async with KubeClient(credentials) as client:
        for resource in RESOURCES:
            await client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(resource))


async def created(credentials: Credentials, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    async with KubeClient(credentials) as client:
        body = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Workload", "metadata": {"name": name}}
        return await client.create(WORKLOADS, {**body, "spec": copy.deepcopy(spec)})


@pytest.mark.parametrize(
    "spec", [{"template": TEMPLATE, "replicas": 2}, {"selector": SELECTOR}], ids=["runs", "adopts"]
)
async def test_one_way_to_have_pods_is_taken(credentials: Credentials, spec: dict[str, Any]) -> None:
    name = "runs" if "template" in spec else "adopts"
    assert (await created(credentials, name, spec))["metadata"]["uid"]


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"selector": SELECTOR, "template": TEMPLATE}, f"spec.selector: Invalid value: {ONE_WAY}"),
        ({"qos": {"latencyP95Milliseconds": 5}}, f"spec.selector: Invalid value: {ONE_WAY}"),
        ({"selector": SELECTOR, "replicas": 2}, "spec.replicas: Invalid value: spec.replicas goes with spec.template"),
        ({"selector": {}}, "spec.selector: Invalid value: spec.selector must name at least one label"),
        ({"selector": {"matchLabels": {}}}, "spec.selector: Invalid value: spec.selector must name at least one label"),
    ],
    ids=["both", "neither", "replicas of adopted pods", "an empty selector", "no label in it"],
)
async def test_a_contradiction_is_refused_in_the_words_of_its_rule(
    credentials: Credentials, spec: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ApiError) as refusal:
        await created(credentials, "contradictory", spec)
    assert refusal.value.status == 422
    assert sentence in str(refusal.value)


async def test_a_name_too_long_for_a_label_is_refused(credentials: Credentials) -> None:
    with pytest.raises(ApiError) as refusal:
        await created(credentials, "w" * 64, {"template": TEMPLATE})
    assert refusal.value.status == 422
    assert "metadata.name must have at most 63 characters" in str(refusal.value)


async def test_a_wrong_shape_is_told_before_any_rule(credentials: Credentials) -> None:
    with pytest.raises(ApiError) as refusal:
        await created(credentials, "contradictory", {"selector": SELECTOR, "replicas": "two"})
    assert 'spec.replicas: Invalid value: "two": must be of type integer' in str(refusal.value)


async def test_a_workload_can_be_scaled(credentials: Credentials) -> None:
    await created(credentials, "scaled", {"template": TEMPLATE, "replicas": 1})
    async with KubeClient(credentials) as client:
        await client.patch(f"{WORKLOADS}/scaled/scale", {"spec": {"replicas": 3}})
        assert (await client.get(f"{WORKLOADS}/scaled"))["spec"]["replicas"] == 3
