"""The admission webhook end to end: the shipped manifests, operators as processes, pods made by plain POSTs."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from control_plane import free_port
from manifests import container, our_pod_manifest
from programs import HEAD, Running, running
from repository import ROOT
from servers import Server

from cotide_core.units import resource_amount
from cotide_kube.client import KubeClient

ADMISSION: Final = ROOT / "deploy" / "admission"
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
ASKS, QUIET = "/api/v1/namespaces/asks/pods", "/api/v1/namespaces/quiet/pods"
CPU, MEMORY = "cotide.dev/reclaimed-cpu", "cotide.dev/reclaimed-memory"
PLAIN: Final = {"requests": {"cpu": "500m", "memory": "1Gi"}}
RECLAIMED: Final = {CPU: 500, MEMORY: 2**30}
BATCH: Final = {"cotide.dev/class": "batch"}
SETTINGS: Final = """\
policy: hierarchical
reclaimed: {{publish: true, minimumIntervalSeconds: 0}}
admission: {{enabled: true, port: {port}}}
leaderElection: {{enabled: {elects}, namespace: cotide-system}}
"""


@pytest.fixture
async def client(server: Server) -> AsyncIterator[KubeClient]:
    """A client on a server with what deploy/admission holds; nobody answers yet."""
    async with KubeClient(server.credentials) as one:
        for space, labels in (("cotide-system", {}), ("asks", {"cotide.dev/reclaim": "enabled"}), ("quiet", {})):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space, "labels": labels}}
            await one.patch(f"/api/v1/namespaces/{space}", body, "apply")
        await server.until_accounts(one, "asks", "quiet")
        await one.create(WEBHOOKS, yaml.safe_load((ADMISSION / "webhook.yaml").read_text(encoding="utf-8")))
        yield one


async def lead_to(server: Server, client: KubeClient, port: int) -> None:
    """Lead the webhook to an operator on this machine, by its Service, whose name the certificate is for."""
    service = yaml.safe_load((ADMISSION / "service.yaml").read_text(encoding="utf-8"))["metadata"]
    await server.lead_service(client, service["namespace"], service["name"], port)
    step = {"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": port}
    await client.patch(f"{WEBHOOKS}/cotide-admission", [step], "json")


@asynccontextmanager
async def operator(
    server: Server, folder: Path, name: str, *, port: int, elects: bool = False
) -> AsyncIterator[Running]:
    """Run ``cotide operator`` until it is ready."""
    config = folder / f"{name}.yaml"
    config.write_text(HEAD + SETTINGS.format(port=port, elects=str(elects).lower()))
    arguments = ["--config", str(config), "--install-crds", "--kubeconfig", str(server.kubeconfig(folder))]
    arguments += ["--metrics-host", server.webhook_host]
    async with running(server, folder / f"{name}.log", *arguments) as one:
        await one.until_ready()
        yield one


def pod(name: str, **metadata: Any) -> Any:
    """A pod of ours that asks for plain cpu and memory."""
    return our_pod_manifest(name, spec={"containers": [container(name="main", resources=PLAIN)]}, **metadata)


async def make(client: KubeClient, path: str, body: Any, *, for_show: bool = False) -> dict[str, Any]:
    return await client.create(path, body, {"dryRun": "All"} if for_show else None)


def requests(made: dict[str, Any]) -> dict[str, Any]:
    """Plain requests as they stand, or amounts of reclaimed resources."""
    resources = made["spec"]["containers"][0]["resources"]
    if CPU not in resources["requests"]:
        assert resources == PLAIN
        return dict(PLAIN["requests"])
    assert resources["limits"] == resources["requests"]
    return {name: resource_amount(name, amount) for name, amount in resources["requests"].items()}


async def until_answered(server: Server, client: KubeClient, by: Running) -> None:
    """Wait until a replica is asked and its answer is taken: a real server learns of a new webhook in its own time."""
    reclaimed = 'cotide_admission_reviews_total{outcome="reclaimed"}'

    async def answered() -> bool:
        before = await by.metric(reclaimed)
        made = await make(client, ASKS, pod("tried", labels=BATCH), for_show=True)
        return requests(made) == RECLAIMED and await by.metric(reclaimed) > before

    await server.until(f"{by.log.stem} is asked", answered)


async def test_a_plain_batch_pod_gets_reclaimed_requests_and_a_node_where_its_namespace_asks_for_it(
    server: Server, client: KubeClient, tmp_path: Path
) -> None:
    port = free_port()
    await lead_to(server, client, port)
    await server.join(client, "n1")
    await server.until_open(client)

    # Before there is an operator, nothing is in the way of anybody.
    assert requests(await make(client, ASKS, pod("early", labels=BATCH))) == PLAIN["requests"]

    async with operator(server, tmp_path, "one", port=port) as one:
        await until_answered(server, client, one)
        made = await make(client, ASKS, pod("counted", labels=BATCH))
        assert requests(made) == RECLAIMED
        assert json.loads(made["metadata"]["annotations"]["cotide.dev/original-resources"]) == {"main": PLAIN}
        assert made["status"]["qosClass"] == "BestEffort"
        owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]
        assert requests(await make(client, ASKS, pod("owned", ownerReferences=owner), for_show=True)) == RECLAIMED
        # Online, opted out, elsewhere.
        assert requests(await make(client, ASKS, pod("web"))) == PLAIN["requests"]
        out = {**BATCH, "cotide.dev/reclaim": "disabled"}
        assert requests(await make(client, ASKS, pod("out", labels=out))) == PLAIN["requests"]
        assert requests(await make(client, QUIET, pod("elsewhere", labels=BATCH))) == PLAIN["requests"]

        async def bound() -> bool:
            return bool((await client.get(f"{ASKS}/counted"))["spec"].get("nodeName"))

        await server.until("the pod is bound", bound)
        assert await one.end(signal.SIGTERM) == 0
        assert " ERROR " not in one.text()

    # With the operator down, too.
    assert requests(await make(client, ASKS, pod("late", labels=BATCH))) == PLAIN["requests"]


async def test_a_standby_answers_with_the_certificate_that_it_shares_and_goes_on_when_the_leader_is_killed(
    server: Server, client: KubeClient, tmp_path: Path
) -> None:
    ports = [free_port(), free_port()]
    async with (
        operator(server, tmp_path, "leader", port=ports[0], elects=True) as leader,
        operator(server, tmp_path, "standby", port=ports[1], elects=True) as standby,
    ):
        assert "deciding with policy" not in standby.text()
        for port, one in zip(ports, (leader, standby), strict=True):
            await lead_to(server, client, port)
            await until_answered(server, client, one)
        await leader.end(signal.SIGKILL)
        assert requests(await make(client, ASKS, pod("after", labels=BATCH))) == RECLAIMED
        assert "renewed" in leader.text()
        assert "renewed" not in standby.text()  # one replica made the certificate
