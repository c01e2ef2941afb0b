"""deploy/provisioning beside the operator's own rights: enough to order nodes, no more, and told of when it is away."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import yaml
from manifests import machine_deployments
from real_cluster import ALONE, DEPLOY, RealCluster, apply, kubectl
from rights import Used, granted, rules

from cotide_kube.answers import ApiError

FOLDER: Final = DEPLOY / "provisioning"
HINT: Final = "deploy/provisioning grants the rights"
DEFINITION: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BOOK: Final = "/api/v1/namespaces/cotide-system/configmaps/cotide-node-orders"
SETTINGS: Final = f"""\
{ALONE}policy: fifo
provisioning:
  mode: act
  intervalSeconds: 1
  stepSeconds: 10
  horizonSteps: 2
  machineTypes: [{{name: m, cpu: '4', memory: 16Gi, count: 6, bootSeconds: 4}}]
  actuator:
"""


def shipped() -> set[tuple[str, str, str]]:
    """What the folder grants: group, resource and verb."""
    return {right[:3] for one in yaml.safe_load_all((FOLDER / "rbac.yaml").read_text()) for right in rules(one)}


@contextlib.asynccontextmanager
async def applied(cluster: RealCluster) -> AsyncIterator[None]:
    assert kubectl(cluster.plane, "apply", "-k", str(FOLDER)).returncode == 0
    try:
        yield
    finally:
        assert kubectl(cluster.plane, "delete", "-k", str(FOLDER)).returncode == 0


@pytest.fixture
async def waiting(cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """A cluster with six pods of one core, no node for them, and an operator that learns nothing.

    What is learned is kept in ConfigMaps, too, and the right to write all of them would hide that to the book.
    """
    learned = ("-n", "cotide-system", "delete", "rolebinding", "cotide-learned")
    assert kubectl(cluster.plane, *learned).returncode == 0
    try:
        await six_pods(cluster)
        yield cluster
    finally:
        await apply(cluster.plane, DEPLOY / "overlays" / "reclaimed")
        with contextlib.suppress(ApiError):
            await cluster.client.delete(BOOK)


async def six_pods(cluster: RealCluster) -> None:
    async with cluster.operator(f"{ALONE}policy: fifo\n", name="before"):
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
        spec = {"replicas": 6, "template": {"spec": {"containers": [container]}}}
        body = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "web"}, "spec": spec}
        await cluster.client.create(cluster.path("workloads", "cotide.dev/v1alpha1"), body)

        async def made() -> bool:
            return len(await cluster.client.list(cluster.pods)) == 6

        await cluster.until("six pods are there", made)


async def test_machines_are_ordered_by_the_rights_that_deploy_provisioning_grants_and_by_no_others(
    waiting: RealCluster, tmp_path: Path
) -> None:
    cluster, used, messages = waiting, Used(waiting), tmp_path / "told"
    actuator = f"    command: [/bin/sh, -c, 'echo \"$@\" >> {messages}', switch]\n    askAgainSeconds: 1\n"
    async with cluster.operator(SETTINGS + actuator, name="ordering") as operator:
        await cluster.until("the log says which folder is missing", lambda: HINT in operator.text())
        assert {right[:3] for right, _ in used.missed()} == {("", "configmaps", "get")}
        async with applied(cluster):
            # Six cores and a fifth are two machines of four, and there are the pods of the operator's own Deployment.
            await cluster.until(
                "two are ordered", lambda: messages.exists() and len(messages.read_text().splitlines()) >= 2
            )
            await cluster.until("the answers are written", lambda: ("", "configmaps", "update") in rights_of(used))
    book = {("", "configmaps", verb) for verb in ("get", "create", "update")}
    assert book <= rights_of(used)
    assert rights_of(used) - book <= {right[:3] for right in granted()}
    orders = [line.split()[:2] for line in messages.read_text().splitlines()]
    assert {action for action, _ in orders} == {"start"}
    assert len({order for _, order in orders}) == len(orders), "each once"


async def test_replicas_are_raised_by_the_rights_that_deploy_provisioning_grants_and_by_no_others(
    waiting: RealCluster,
) -> None:
    cluster, used = waiting, Used(waiting)
    target = cluster.path("machinedeployments", "cluster.x-k8s.io/v1beta1")
    with contextlib.suppress(ApiError):
        await cluster.client.create(DEFINITION, machine_deployments())

    async def served() -> bool:
        with contextlib.suppress(ApiError):
            await cluster.client.list(target)
            return True
        return False

    await cluster.until("MachineDeployments are served", served)
    kind = {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineDeployment"}
    await cluster.client.create(target, {**kind, "metadata": {"name": "workers"}, "spec": {"replicas": 0}})
    actuator = f"    scales: {{m: {target}/workers}}\n"
    async with cluster.operator(SETTINGS + actuator, name="raising") as operator:
        await cluster.until("the log says which folder is missing", lambda: HINT in operator.text())
        scale = ("cluster.x-k8s.io", "machinedeployments/scale")
        assert {right[:3] for right, _ in used.missed()} == {(*scale, "get")}
        async with applied(cluster):

            async def raised() -> bool:
                return int((await cluster.client.get(f"{target}/workers"))["spec"]["replicas"]) >= 2

            await cluster.until("two machines are asked for", raised)
    assert {(*scale, "get"), (*scale, "patch")} <= rights_of(used)
    assert rights_of(used) - {(*scale, "get"), (*scale, "patch")} <= {right[:3] for right in granted()}
    await cluster.client.delete(f"{DEFINITION}/machinedeployments.cluster.x-k8s.io")


def rights_of(used: Used) -> set[tuple[str, str, str]]:
    return {right[:3] for right in used.rights()}


def test_the_folder_grants_what_these_runs_use_and_nothing_else() -> None:
    book = {("", "configmaps", verb) for verb in ("get", "create", "update")}
    assert shipped() == book | {("cluster.x-k8s.io", "machinedeployments/scale", verb) for verb in ("get", "patch")}
