"""An infrastructure provider for Cluster API whose machines are fake nodes, and the Cluster that manages itself.

Called by the tests of tests/real/cluster_api. A provider of the field makes a server of a cloud for each of its machine
objects; this one takes the next fake node and says its provider's id, by which Cluster API finds a Machine's node. It
keeps what Cluster API deletes, and whether that had a mark. Bootstrap data is a secret that nobody reads; the control
plane is there already.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

from control_plane import ControlPlane

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_sim.kubelets.fleet import Fleet

_LOG = logging.getLogger(__name__)
CORE: Final = "cluster.x-k8s.io"
INFRASTRUCTURE: Final = f"infrastructure.{CORE}"
CONTROL: Final = f"controlplane.{CORE}"
KINDS: Final = (
    (INFRASTRUCTURE, "StageCluster"),
    (INFRASTRUCTURE, "StageMachine"),
    (INFRASTRUCTURE, "StageMachineTemplate"),
    (CONTROL, "StageControlPlane"),
)
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FINALIZER: Final = f"stage.{INFRASTRUCTURE}/machine"
DELETE: Final = f"{CORE}/delete-machine"
"""Repeated here: what Cluster API calls it is what is tested."""
POLL_SECONDS: Final = 0.1
Json = dict[str, Any]


def path(group: str, plural: str, version: str = "v1beta2") -> str:
    """Return a collection in the namespace of these tests."""
    return f"/apis/{group}/{version}/namespaces/default/{plural}"


def deployments(version: str = "v1beta2") -> str:
    return path(CORE, "machinedeployments", version)


MACHINES: Final = path(CORE, "machines")
STAGED: Final = path(INFRASTRUCTURE, "stagemachines", "v1")


def definition(group: str, kind: str) -> Json:
    """A kind of a provider; its label says which contract of Cluster API it keeps, and in which version."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    metadata = {"name": f"{plural}.{group}", "labels": {f"{CORE}/v1beta2": "v1"}}
    return {
        "metadata": metadata,
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def rights() -> Json:
    """What Cluster API may do with the provider's objects: the label adds it to its role."""
    rule = {"apiGroups": [INFRASTRUCTURE, CONTROL], "resources": ["*"], "verbs": ["*"]}
    metadata = {"name": "stage-provider", "labels": {f"{CORE}/aggregate-to-manager": "true"}}
    return {"metadata": metadata, "rules": [rule]}


async def install(plane: ControlPlane, client: KubeClient) -> None:
    """Make the kinds, and a Cluster `self` whose nodes are those of this control plane."""
    for group, kind in KINDS:
        await client.create(DEFINITIONS, definition(group, kind))
    await client.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", rights())
    kubeconfig = base64.b64encode((plane.folder / "admin.kubeconfig").read_bytes()).decode()
    secret = {"metadata": {"name": "self-kubeconfig", "labels": {f"{CORE}/cluster-name": "self"}}}
    secrets = "/api/v1/namespaces/default/secrets"
    await client.create(secrets, {**secret, "type": f"{CORE}/secret", "data": {"value": kubeconfig}})
    await client.create(secrets, {"metadata": {"name": "bootstrap"}, "stringData": {"value": "none"}})
    host, _, port = plane.url.removeprefix("https://").partition(":")
    endpoint = {"host": host, "port": int(port)}
    ready = {"provisioned": True, "controlPlaneInitialized": True}
    status = {"initialization": ready, "externalManagedControlPlane": True}
    for group, kind in (KINDS[0], KINDS[3]):
        here = path(group, f"{kind.lower()}s", "v1")
        body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "self"}}
        await _until_taken(client, here, {**body, "spec": {"controlPlaneEndpoint": endpoint}})
        await client.patch(f"{here}/self/status", {"status": status})
    references = {
        "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "StageCluster", "name": "self"},
        "controlPlaneRef": {"apiGroup": CONTROL, "kind": "StageControlPlane", "name": "self"},
    }
    body = {"apiVersion": f"{CORE}/v1beta2", "kind": "Cluster", "metadata": {"name": "self"}, "spec": references}
    await _until_taken(client, path(CORE, "clusters"), body)


async def _until_taken(client: KubeClient, here: str, body: Json) -> None:
    """Create an object of a kind that was defined a moment ago."""
    async with asyncio.timeout(60.0):
        while True:
            with contextlib.suppress(ApiError):
                await client.create(here, body)
                return
            await asyncio.sleep(POLL_SECONDS)


def machine_deployment(name: str, template: str) -> Json:
    """A MachineDeployment without machines yet."""
    machine = {
        "clusterName": "self",
        "bootstrap": {"dataSecretName": "bootstrap"},
        "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "StageMachineTemplate", "name": template},
    }
    head = {"apiVersion": f"{CORE}/v1beta2", "kind": "MachineDeployment", "metadata": {"name": name}}
    labels = {f"{CORE}/deployment-name": name}
    made = {"metadata": {"labels": labels}, "spec": machine}
    spec = {"clusterName": "self", "replicas": 0, "selector": {"matchLabels": labels}, "template": made}
    return {**head, "spec": spec}


def machine_template(name: str) -> Json:
    head = {"apiVersion": f"{INFRASTRUCTURE}/v1", "kind": "StageMachineTemplate", "metadata": {"name": name}}
    return {**head, "spec": {"template": {"spec": {}}}}


class MachineProvider:
    """Turns machine objects into fake nodes while `running`.

    Attributes
    ----------
    deleted : Machines that Cluster API began to delete, in turn. unmarked : those of them that had no mark.
    goes : while clear, no machine is gone that is to go.
    """

    def __init__(self, client: KubeClient, fleet: Fleet, names: list[str]) -> None:
        self._client, self._fleet, self._left = client, fleet, list(reversed(names))
        self._node_of: dict[str, str] = {}
        self.deleted: list[str] = []
        self.unmarked: list[str] = []
        self.goes = asyncio.Event()
        self.goes.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work beside the body."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._turn()
            except ClusterError as error:  # the next turn tries again
                _LOG.warning("machine provider: %s", error)
            await asyncio.sleep(POLL_SECONDS)

    async def _turn(self) -> None:
        listed = await self._client.list(STAGED)  # first: a Machine whose object goes is then seen to go
        for machine in await self._client.list(MACHINES):
            metadata = machine["metadata"]
            if metadata.get("deletionTimestamp") and metadata["name"] not in self.deleted:
                self.deleted.append(metadata["name"])
                self.unmarked += [] if DELETE in (metadata.get("annotations") or {}) else [metadata["name"]]
        for staged in listed:
            name, here = staged["metadata"]["name"], f"{STAGED}/{staged['metadata']['name']}"
            if not staged["metadata"].get("deletionTimestamp"):
                if not staged.get("status"):
                    await self._provision(name, here)
            elif self.goes.is_set():
                # The node object is Cluster API's to take away.
                await self._client.patch(here, {"metadata": {"finalizers": None}})

    async def _provision(self, name: str, here: str) -> None:
        node = self._node_of.get(name) or self._node_of.setdefault(name, self._left.pop())
        await self._fleet.switch_on(node, {})
        identity = (await self._client.get(f"/api/v1/nodes/{node}"))["spec"]["providerID"]
        await self._client.patch(here, {"metadata": {"finalizers": [FINALIZER]}, "spec": {"providerID": identity}})
        await self._client.patch(f"{here}/status", {"status": {"initialization": {"provisioned": True}}})
