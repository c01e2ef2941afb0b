"""``pods/resize`` of the emulator; that a real server answers the same is shown in the conformance tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from resize_cases import answers, unsupported

from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_sim.apiserver.testing import server_in_thread


@pytest.fixture
async def client() -> AsyncIterator[KubeClient]:
    with server_in_thread() as server:
        async with KubeClient(Credentials(server.url)) as client:
            yield client


async def test_cpu_and_memory_change_and_nothing_else(client: KubeClient) -> None:
    given = await answers(client, "default")
    assert '"requests": {"cpu": "1500m", "memory": "1Gi"}' in given["more cpu"][1]
    assert given["more cpu"][1].endswith("+1")  # a new generation
    assert given["an image and a label"] == given["nothing"]  # dropped without a word
    assert {case: answer[1].partition("is invalid: ")[2] for case, answer in given.items() if answer[0] == 422} == {
        "beyond the limit": 'spec.containers[0].resources.requests: Invalid value: "3": must be less than or equal to'
        " cpu limit of 2",
        "a request taken away": "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        "a limit taken away": "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
        "another resource": "spec: Forbidden: only cpu and memory resources are mutable",
        "an init container": "spec: Forbidden: resources for non-sidecar init containers are immutable",
        "a new container": "spec.containers: Forbidden: containers may not be added or removed on resize",
        "no quantity": 'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal'
        " to 0",
    }


async def test_a_pod_whose_kubelet_does_not_tell_what_it_holds_is_not_resized(client: KubeClient) -> None:
    assert "Pod running on node without support for resize" in await unsupported(client, "default")
