"""What the API server makes of our resources: contradictions are refused with the field's path and our sentence."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import pytest
from refused_resources import REFUSED, SELECTOR, TEMPLATE, cases, resource
from schema_violations import Violation, refusal, rules, violations

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials, load_credentials
from cotide_operator.apis.crd_generation import RESOURCES, definition
from cotide_sim.apiserver.testing import server_in_thread

WORKLOADS = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"


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


@pytest.mark.parametrize("case", cases())
async def test_a_contradiction_is_refused_in_the_words_of_a_real_server(credentials: Credentials, case: str) -> None:
    plural, body, sentence = resource(case)
    async with KubeClient(credentials) as client:
        with pytest.raises(ApiError) as refusal:
            await client.create(f"/apis/cotide.dev/v1alpha1/namespaces/default/{plural}", copy.deepcopy(body))
    assert refusal.value.status == 422
    assert sentence in str(refusal.value)


async def test_null_in_an_optional_field_is_as_good_as_none(credentials: Credentials) -> None:
    made = await created(credentials, "nulls", {"template": TEMPLATE, "replicas": None, "selector": None})
    assert not {"replicas", "selector"} & set(made["spec"])


async def test_a_workload_can_be_scaled(credentials: Credentials) -> None:
    await created(credentials, "scaled", {"template": TEMPLATE, "replicas": 1})
    async with KubeClient(credentials) as client:
        await client.patch(f"{WORKLOADS}/scaled/scale", {"spec": {"replicas": 3}})
        assert (await client.get(f"{WORKLOADS}/scaled"))["spec"]["replicas"] == 3


@pytest.mark.parametrize("violation", violations(), ids=lambda one: f"{one.plural} {one.case}")
async def test_each_constraint_of_the_schemas_refuses_with_its_field(
    credentials: Credentials, violation: Violation
) -> None:
    async with KubeClient(credentials) as client:
        said = await refusal(client, "default", violation)
    assert said
    assert all(words in said for words in violation.words), said


def test_each_rule_in_cel_has_a_case() -> None:
    sentences = [sentence for _, _, _, sentence in REFUSED.values()]
    assert [rule for rule in rules() if not any(rule in sentence for sentence in sentences)] == []
