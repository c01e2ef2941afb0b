"""What an end-to-end test needs of an API server, and two that have it: the embedded one and a real one.

Called by the fixture ``server``. Everything else a test asks for through the API, so that it runs on both, and on the
third, whose nodes are real (`node_server`).
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
import yaml
from control_plane import ControlPlane
from relay import Relay, relaying

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials, StaticToken, load_credentials
from cotide_sim.apiserver.http.faults import Fault, Faults
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.kubelets.fleet import Fleet, FleetSettings, running_fleet

TOKEN: Final = "right"
STUBBORN: Final = "stubborn"
"""An image whose container does not go when it is asked to: it runs out its grace period, or until it is killed."""
ENDS: Final = "ends"
"""An image whose container succeeds after a second. Fake nodes run any image, and end pods by their annotations."""
SPACES_OF_ITS_OWN: Final = {"kube-system", "kube-public", "kube-node-lease"}
IN_NAMESPACES: Final = (
    "/apis/cotide.dev/v1alpha1/namespaces/{}/jobs",
    "/apis/cotide.dev/v1alpha1/namespaces/{}/workloads",
    "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "/api/v1/namespaces/{}/pods",
    "/api/v1/namespaces/{}/persistentvolumeclaims",
    "/apis/storage.k8s.io/v1/namespaces/{}/csistoragecapacities",
    "/api/v1/namespaces/{}/secrets",
    "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "/api/v1/namespaces/{}/events",
)
"""What tests and operators leave, owners before what they own."""
IN_THE_CLUSTER: Final = (
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/csidrivers",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
)
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Server(ABC):
    """An API server with nothing of an earlier test on it."""

    deadline_seconds: ClassVar[float]
    """How long a test waits for what must come; chosen: generous, for machines that do other things as well."""
    webhook_host: ClassVar[str] = "127.0.0.1"
    """Where an operator listens whose webhook `lead_service` leads to."""

    @property
    @abstractmethod
    def credentials(self) -> Credentials:
        """Of who may do everything; faults strike who comes with these."""

    @property
    @abstractmethod
    def faults(self) -> Faults: ...

    @abstractmethod
    def drop_watches(self, *, abruptly: bool = False) -> int:
        """End every open watch (cut the connection when abruptly) and return how many there were."""

    @abstractmethod
    async def stop(self) -> None:
        """Take the server away; what it was told stays."""

    @abstractmethod
    async def start(self) -> None:
        """Bring it back at the address that it had."""

    @abstractmethod
    async def token(self, client: KubeClient) -> str:
        """Return the bearer token of somebody who may do everything."""

    @abstractmethod
    def _kubeconfig(self) -> dict[str, Any]: ...

    def strike(self, **fault: Any) -> Fault:
        """Plan a fault; the returned object counts in `met` how often it struck."""
        return self.faults.add(Fault(**fault))

    def kubeconfig(self, folder: Path, *, url: str = "", token: str = "") -> Path:
        """Write a kubeconfig for programs, on request with another address or another token, and return its path."""
        document = self._kubeconfig()
        if url:
            document["clusters"][0]["cluster"]["server"] = url
        if token:
            document["users"][0]["user"] = {"token": token}
        path = folder / f"kubeconfig{'-elsewhere' if url else ''}{f'-{token}' if token else ''}"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    async def until(self, what: str, check: Callable[[], Any]) -> Any:
        """Wait on a condition with a deadline and return what it found."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.deadline_seconds):
                while True:
                    found = check()
                    if asyncio.iscoroutine(found):
                        found = await found
                    if found:
                        return found
                    await asyncio.sleep(0.02)
        return pytest.fail(f"never came true: {what}")

    async def until_open(self, client: KubeClient) -> None:
        """Wait until no node is closed: a real server taints new ones until a controller has seen them ready."""

        async def opened() -> bool:
            return not any(node.get("spec", {}).get("taints") for node in await client.list("/api/v1/nodes"))

        await self.until("the nodes are open", opened)

    async def join(
        self,
        client: KubeClient,
        *names: str,
        cpu: str = "4",
        memory: str = "16Gi",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Have nodes of this size that are ready: here objects, behind which there is no kubelet."""
        offered = {"cpu": cpu, "memory": memory, "pods": "110"}
        status = {"allocatable": offered, "capacity": offered, "conditions": [{"type": "Ready", "status": "True"}]}
        for name in names:
            metadata = {"name": name, "labels": {**(labels or {})}}
            await client.create("/api/v1/nodes", {"metadata": metadata, "status": status})

    async def becomes(self, client: KubeClient, path: str, phase: str, **status: Any) -> None:
        """Have a pod on a node run, or end with 0 or 1: here by writing the status that its kubelet would write."""
        await client.patch(f"{path}/status", {"status": {"phase": phase, **status}})

    @asynccontextmanager
    async def kubelets(self, client: KubeClient, settings: FleetSettings) -> AsyncIterator[Fleet | None]:
        """Run nodes beside the body: fake ones, or None where they are real."""
        async with running_fleet(client, settings) as fleet:
            yield fleet

    def pace(self, speed: float) -> float:
        """Return how fast time goes for nodes that are asked to be so fast."""
        return speed

    async def lead_service(self, client: KubeClient, namespace: str, name: str, port: int) -> None:
        """Lead a Service, as a webhook names it, to a port of this machine."""
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}}
        spec = {"type": "ExternalName", "externalName": "localhost"}
        await client.patch(f"/api/v1/namespaces/{namespace}/services/{name}", {**service, "spec": spec}, "apply")

    @abstractmethod
    async def until_accounts(self, client: KubeClient, *spaces: str) -> None:
        """Wait until pods can be made in namespaces; on a real server each needs its service account first."""

    @abstractmethod
    async def tenant(self, client: KubeClient, namespace: str) -> Credentials:
        """Return who may write pods, Jobs and Workloads of one namespace, and nothing else."""

    async def until_no_definitions(self, client: KubeClient) -> None:
        """Take our custom resources away, for a test of how it is without them."""

        async def gone() -> bool:
            there = [one["metadata"]["name"] for one in await client.list(DEFINITIONS)]
            for name in there:
                with contextlib.suppress(ApiError):
                    await client.delete(f"{DEFINITIONS}/{name}")
            return not there

        await self.until("our custom resources are gone", gone)


class EmulatedServer(Server):
    """The embedded API server, in the test's event loop; each test has its own."""

    deadline_seconds = 30.0

    def __init__(self, data: Path) -> None:
        self._data = data
        self._server = ApiServer(data=data, token=TOKEN)

    @property
    def credentials(self) -> Credentials:
        return Credentials(self._server.url, token=StaticToken(f"Bearer {TOKEN}"))

    @property
    def faults(self) -> Faults:
        return self._server.faults

    def drop_watches(self, *, abruptly: bool = False) -> int:
        return self._server.drop_watches(abruptly=abruptly)

    async def stop(self) -> None:
        await self._server.stop()

    async def start(self) -> None:
        if self._server.port:
            self._server = ApiServer(data=self._data, token=TOKEN, port=self._server.port)
        await self._server.start()

    async def until_accounts(self, client: KubeClient, *spaces: str) -> None:
        """Return at once: any namespace takes pods."""

    async def tenant(self, client: KubeClient, namespace: str) -> Credentials:
        """Return the administrator: there are no rights here, so that it is the test's to keep to its namespace."""
        return self.credentials

    async def token(self, client: KubeClient) -> str:
        return TOKEN

    def _kubeconfig(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load(self._server.kubeconfig())
        return found


class RealServer(Server):
    """kube-apiserver with etcd and kube-controller-manager behind a relay; one for all tests, wiped for each."""

    deadline_seconds = 120.0

    def __init__(self, plane: ControlPlane, relay: Relay) -> None:
        self._plane, self._relay = plane, relay

    @property
    def credentials(self) -> Credentials:
        return Credentials(self._relay.url)

    @property
    def faults(self) -> Faults:
        return self._relay.faults

    def drop_watches(self, *, abruptly: bool = False) -> int:
        return self._relay.drop_watches(abruptly=abruptly)

    async def stop(self) -> None:
        await asyncio.to_thread(self._plane.api_server.end)

    async def start(self) -> None:
        self._plane.start_api_server()
        await asyncio.to_thread(self._plane.wait_until_ready)

    async def until_accounts(self, client: KubeClient, *spaces: str) -> None:
        async def there() -> bool:
            return all([await client.list(f"/api/v1/namespaces/{space}/serviceaccounts") for space in spaces])

        await self.until("the namespaces have their service accounts", there)

    async def tenant(self, client: KubeClient, namespace: str) -> Credentials:
        """Return a service account of the namespace with a role that allows that."""
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        verbs = ["create", "get", "list", "watch", "update", "patch", "delete"]
        groups = {"": ["pods"], "cotide.dev": ["jobs", "workloads"]}
        rules = [{"apiGroups": [group], "resources": kinds, "verbs": verbs} for group, kinds in groups.items()]
        named = {"metadata": {"name": "tenant"}}
        subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
        for path, body in (
            (f"/api/v1/namespaces/{namespace}/serviceaccounts", named),
            (f"{rbac}/roles", {**named, "rules": rules}),
            (f"{rbac}/rolebindings", {**named, "subjects": [subject], "roleRef": role}),
        ):
            with contextlib.suppress(ApiError):  # of an earlier test
                await client.create(path, body)
        token = await self._plane.token(namespace, "tenant")
        return load_credentials(str(self._plane.kubeconfig(f"tenant-{namespace}", token=token)), None)

    async def token(self, client: KubeClient) -> str:
        account = {"kind": "ServiceAccount", "name": "default", "namespace": "kube-system"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        body = {"metadata": {"name": "tests"}, "roleRef": role, "subjects": [account]}
        with contextlib.suppress(ApiError):  # an earlier test has made it
            await client.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body)
        return await self._plane.token("kube-system", "default")

    def _kubeconfig(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((self._plane.folder / "admin.kubeconfig").read_text(encoding="utf-8"))
        return found

    async def wipe(self) -> None:
        """Take away what earlier tests left, but for namespaces and definitions, which no test minds."""
        async with KubeClient(self._plane.admin) as client:
            spaces = [one["metadata"]["name"] for one in await client.list("/api/v1/namespaces")]
            paths = [path.format(space) for path in IN_NAMESPACES for space in spaces if space not in SPACES_OF_ITS_OWN]
            at_once = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
            for path in (*paths, *IN_THE_CLUSTER):
                with contextlib.suppress(ApiError):  # our kinds may not be known
                    await client.request("DELETE", path, at_once)
            for pod in await client.list("/api/v1/pods"):  # nobody is there who would count those of Jobs
                if pod["metadata"].get("finalizers"):
                    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
                    await client.patch(path, {"metadata": {"finalizers": None}})


@asynccontextmanager
async def emulated(folder: Path) -> AsyncIterator[Server]:
    """Run an embedded API server."""
    server = EmulatedServer(folder / "objects.sqlite")
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def real(plane: ControlPlane) -> AsyncIterator[Server]:
    """Give a test the real server."""
    async with relaying(plane.admin) as relay:
        server = RealServer(plane, relay)
        await server.wipe()
        yield server
