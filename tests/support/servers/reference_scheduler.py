"""The nodes that a real kube-scheduler finds feasible for a pod, and those that our engine does, on one API server.

kube-scheduler runs with an extender that this module serves: its filter verb is called with the names of the nodes that
passed all plugins, writes them down and refuses them all, so that no pod is ever bound and all pods of a cluster are
asked about in the same state. A pod for which no node passed is never asked about; its condition says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from constraint_cases import NAMESPACES, REFERENCE, Json
from control_plane import ControlPlane
from volume_cases import BOUND, HANGS, NAMESPACE, POOL, SENTINEL, Storage

from cotide_core.placement.feasibility import FITS, Feasibility
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import ShapeTable
from cotide_core.state.snapshot import Snapshot
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.cache.object_cache import KINDS, PATHS, TYPES, Kind, ObjectCache
from cotide_operator.clock import real_clock
from cotide_operator.translation.event_source import EventSource

SETTLED_SECONDS: Final = 60.0
"""Until kube-scheduler has looked at all pods of a cluster; chosen: it takes about one."""


class FilterRecorder:
    """The extender: feasible nodes by uid of the pod."""

    def __init__(self) -> None:
        self.feasible: dict[str, set[str]] = {}
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                names = asked.get("NodeNames") or []
                recorder.feasible[asked["Pod"]["metadata"]["uid"]] = set(names)
                body = json.dumps({"NodeNames": [], "FailedNodes": dict.fromkeys(names, "written down")}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


class Reference:
    """A control plane with nothing on it but what a test makes, and a kube-scheduler that binds nothing."""

    def __init__(self, plane: ControlPlane, client: KubeClient, recorder: FilterRecorder) -> None:
        self.plane, self.client, self._recorder = plane, client, recorder

    async def fill(self, nodes: list[Json], placed: list[Json]) -> None:
        """Make a cluster, after the one before was cleared."""
        await asyncio.gather(*(self._node(node) for node in nodes))
        while not await self._caught_up(nodes):  # before there are pods: one of them may keep off all others
            await asyncio.sleep(0.05)
        await self.create([{key: value for key, value in one.items() if key != "doomed"} for one in placed])
        doomed = [pod_path(one) for one in placed if one.get("doomed")]
        await asyncio.gather(*(self.client.delete(path, grace_seconds=600) for path in doomed))

    async def store(self, made: Storage) -> None:
        """Make the storage of a cluster whose nodes are there, and wait until kube-scheduler sees it."""
        for name, body in made.classes.items():
            await self.client.create(CLASSES, {**body, "metadata": {"name": name}})
        await asyncio.gather(*(self._with_status(VOLUMES, name, body) for name, body in made.volumes.items()))
        await asyncio.gather(*(self._with_status(CLAIMS, name, body) for name, body in made.claims.items()))
        for name, body in made.nodes.items():
            await self.client.create(CSI_NODES, {**body, "metadata": {"name": name}})
        last = await self._sentinel(made, "last", "nobody.example.com")
        while not await self._feasible_for(last):
            await asyncio.sleep(0.05)
        full = await self._sentinel(made, "full", SENTINEL)
        while await self._feasible_for(full):
            await asyncio.sleep(0.05)
        await self._store_capacities(made)
        await self._store_attachments(made)

    async def _store_capacities(self, made: Storage) -> None:
        """Make what drivers tell of their room, and wait until kube-scheduler sees the last."""
        with contextlib.suppress(ApiError):  # of another cluster
            await self.client.create(CSI_DRIVERS, {"metadata": {"name": POOL}, "spec": {"storageCapacity": True}})
        name, asked = made.name("pool-sentinel"), {"requests": {"storage": "1Gi"}}
        waits = {"provisioner": POOL, "volumeBindingMode": "WaitForFirstConsumer"}
        await self.client.create(CLASSES, {"metadata": {"name": name}, **waits})
        claim = {"accessModes": ["ReadWriteOnce"], "resources": asked, "storageClassName": name}
        await self._with_status(CLAIMS, name, {"spec": claim})
        pod = _tolerant(name, [name])
        while await self._feasible_for(pod):  # until the driver is seen, which has no room
            await asyncio.sleep(0.05)
        last = {"storageClassName": name, "nodeTopology": {}, "capacity": "1Gi"}
        for one, body in [*made.capacities.items(), (name, last)]:
            await self.client.create(CAPACITIES, {**body, "metadata": {"name": one}})
        while not await self._feasible_for(pod):
            await asyncio.sleep(0.05)

    async def _store_attachments(self, made: Storage) -> None:
        """Make what hangs on nodes, and wait until kube-scheduler sees the last."""
        pod = await self._sentinel(made, "hangs", HANGS)
        host = made.hosts[0]
        while host not in await self._feasible_for(pod):
            await asyncio.sleep(0.05)
        modes = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
        volume = {**modes, "csi": {"driver": HANGS, "volumeHandle": made.name("hanging")}}
        await self._with_status(VOLUMES, made.name("hanging"), {"spec": volume})
        made.attachment("last", HANGS, made.name("hanging"), host)
        for name, body in made.attachments.items():
            await self.client.create(ATTACHMENTS, {**body, "metadata": {"name": name}})
        while host in await self._feasible_for(pod):
            await asyncio.sleep(0.05)

    async def _sentinel(self, made: Storage, name: str, driver: str) -> Json:
        """Make a pod that any node may take which takes volumes of a driver; the last that is made of each kind."""
        claim, volume = made.name(f"claim-{name}"), made.name(f"volume-{name}")
        waits = {"provisioner": "nobody.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
        await self.client.create(CLASSES, {"metadata": {"name": claim}, **waits})
        modes = {"accessModes": ["ReadWriteOnce"]}
        of = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": claim}
        source = {"driver": driver, "volumeHandle": volume}
        spec = {**modes, "capacity": {"storage": "1Gi"}, "csi": source, "claimRef": of}
        await self._with_status(VOLUMES, volume, {"spec": spec, "status": {"phase": "Bound"}})
        asked = {**modes, "resources": {"requests": {"storage": "1Gi"}}}
        body = {"metadata": {"annotations": BOUND}, "spec": {**asked, "volumeName": volume, "storageClassName": ""}}
        await self._with_status(CLAIMS, claim, {**body, "status": {"phase": "Bound"}})
        await self._with_status(CLAIMS, f"{claim}-open", {"spec": {**asked, "storageClassName": claim}})
        mounts = [claim, f"{claim}-open"]
        return _tolerant(f"sentinel-{name}", mounts)

    async def _feasible_for(self, pod: Json) -> set[str]:
        stored = await self.create([pod])
        seen = await self.feasible(stored)
        await self.forget(stored)
        return next(iter(seen.values()))

    async def _with_status(self, path: str, name: str, body: Json) -> None:
        status = body.get("status")
        bare = {key: value for key, value in body.items() if key != "status"}
        await self.client.create(path, {**bare, "metadata": {**bare.get("metadata", {}), "name": name}})
        if status is not None:
            await self.client.patch(f"{path}/{name}/status", {"status": status})

    async def clear(self) -> None:
        """Take everything away but claims, volumes and classes, which nobody of another cluster names."""
        options = {"gracePeriodSeconds": 0}
        for of in ({"fieldSelector": "spec.nodeName="}, None):  # who waits first, or all would be tried again
            for name in NAMESPACES:
                await self.client.request("DELETE", f"/api/v1/namespaces/{name}/pods", options, of)
        await self.client.request("DELETE", "/api/v1/nodes", {})
        await self.client.request("DELETE", CSI_NODES, {})
        await self.client.request("DELETE", ATTACHMENTS, {})

    async def create(self, pods: Iterable[Json]) -> list[Json]:
        """Create pods and return them as stored."""
        return list(await asyncio.gather(*(self.client.create(pods_path(pod), pod) for pod in pods)))

    async def feasible(self, pods: list[Json]) -> dict[str, set[str]]:
        """Return the nodes that kube-scheduler finds feasible for each of these stored pods, by uid."""
        waiting = {pod["metadata"]["uid"] for pod in pods}
        async with asyncio.timeout(SETTLED_SECONDS):
            while waiting:
                await asyncio.sleep(0.05 if len(pods) == 1 else 0.5)
                for pod in await self.client.list("/api/v1/pods", {"fieldSelector": "spec.nodeName="}):
                    conditions = pod["status"].get("conditions") or ()
                    if any(
                        condition["type"] == "PodScheduled" and condition["status"] == "False"
                        for condition in conditions
                    ):
                        waiting.discard(pod["metadata"]["uid"])
        return {pod["metadata"]["uid"]: self._recorder.feasible.get(pod["metadata"]["uid"], set()) for pod in pods}

    async def forget(self, pods: list[Json]) -> None:
        """Take pods away again."""
        await asyncio.gather(*(self.client.delete(pod_path(pod), grace_seconds=0) for pod in pods))

    async def ours(self, pods: list[Json]) -> dict[str, set[str]]:
        """Return what our engine finds feasible for the same pods, from the same objects as the server stored them."""
        cache = ObjectCache()
        for kind in READ:
            for item in await self.client.list(PATHS[kind]):
                cache.apply(kind, "ADDED", msgspec.convert(item, TYPES[kind]))
        for kind in KINDS:
            cache.mark_synced(kind)
        state = ClusterState()
        source = EventSource(cache, real_clock(), (REFERENCE,))
        for event in source.collect():
            state.apply(event)
        return {pod["metadata"]["uid"]: _feasible(state, key_of(pod)) for pod in pods}

    async def _node(self, node: Json) -> None:
        made = await self.client.create("/api/v1/nodes", node)
        wanted = node["spec"].get("taints", [])
        if node["spec"].get("unschedulable"):
            wanted = [*wanted, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
        if made["spec"].get("taints", []) != wanted:  # admission taints what no kubelet has spoken for
            await self.client.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": wanted or None}})

    async def _caught_up(self, nodes: list[Json]) -> bool:
        """Whether kube-scheduler sees all nodes of this cluster, and no other."""
        tolerates = {"schedulerName": REFERENCE, "tolerations": [{"operator": "Exists"}]}
        spec = {**tolerates, "containers": [{"name": "c", "image": "none"}]}
        sentinel = {"metadata": {"name": "sentinel", "namespace": "plain"}, "spec": spec}
        stored = await self.create([sentinel])
        seen = await self.feasible(stored)
        await self.forget(stored)
        return next(iter(seen.values())) == {node["metadata"]["name"] for node in nodes}


CLAIMS: Final = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
VOLUMES: Final = "/api/v1/persistentvolumes"
CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
CSI_NODES: Final = "/apis/storage.k8s.io/v1/csinodes"
CSI_DRIVERS: Final = "/apis/storage.k8s.io/v1/csidrivers"
CAPACITIES: Final = f"/apis/storage.k8s.io/v1/namespaces/{NAMESPACE}/csistoragecapacities"
ATTACHMENTS: Final = "/apis/storage.k8s.io/v1/volumeattachments"
READ: Final[tuple[Kind, ...]] = (
    "namespaces",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses",
    "csinodes",
    "csidrivers",
    "csistoragecapacities",
    "volumeattachments",
    "pods",
)


@contextlib.asynccontextmanager
async def reference(plane: ControlPlane, folder: Path) -> AsyncIterator[Reference]:
    """Start kube-scheduler with the recorder as its extender."""
    recorder = FilterRecorder()
    config: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(plane.folder / "admin.kubeconfig"), "qps": 2000, "burst": 4000},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": REFERENCE}],
        "extenders": [
            {"urlPrefix": recorder.url, "filterVerb": "filter", "nodeCacheCapable": True, "httpTimeout": "30s"}
        ],
    }
    path = folder / "reference-scheduler.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    with recorder.serving():
        process = plane.start_scheduler(path)
        try:
            async with KubeClient(plane.admin, max_connections=16) as client:
                there = {one["metadata"]["name"] for one in await client.list("/api/v1/namespaces")}
                for name, labels in NAMESPACES.items():
                    if name in there:  # of another test
                        continue
                    await client.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
                    account = {"metadata": {"name": "default"}}
                    await client.create(f"/api/v1/namespaces/{name}/serviceaccounts", account)
                yield Reference(plane, client, recorder)
        finally:
            process.end()


def _tolerant(name: str, mounts: list[str]) -> Json:
    """A pod that any node may take, with these claims."""
    volumes = [{"name": mount, "persistentVolumeClaim": {"claimName": mount}} for mount in mounts]
    spec = {"schedulerName": REFERENCE, "tolerations": [{"operator": "Exists"}], "volumes": volumes}
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"metadata": metadata, "spec": {**spec, "containers": [{"name": "c", "image": "none"}]}}


def pods_path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"


def pod_path(pod: Json) -> str:
    return f"{pods_path(pod)}/{pod['metadata']['name']}"


def key_of(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _feasible(state: ClusterState, key: str) -> set[str]:
    pod = state.pod(key)
    assert pod is not None
    assert not pod.unsupported, pod.unsupported
    if pod.blocked:
        return set()
    shape = ShapeTable().of(pod, state)
    snapshot = Snapshot.of(state)
    codes = Feasibility().codes(shape.fit, snapshot, slice(0, snapshot.size))
    return {snapshot.name(row) for row, code in enumerate(codes.tolist()) if code == FITS and snapshot.alive[row]}
