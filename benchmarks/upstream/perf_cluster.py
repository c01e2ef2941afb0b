"""What workloads make on the API server: namespaces, nodes, pods with their volumes; and how all of it goes again.

Used by `perf_operations`. Objects that no controller completes here, volumes and claims, are bound by hand as upstream
does it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient

IN_FLIGHT: Final = 30
"""As upstream's own creation of pods."""
PLURALS: Final = {
    "Node": ("/api/v1", "nodes"),
    "Namespace": ("/api/v1", "namespaces"),
    "Pod": ("/api/v1", "pods"),
    "Service": ("/api/v1", "services"),
    "PersistentVolume": ("/api/v1", "persistentvolumes"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "CSINode": ("/apis/storage.k8s.io/v1", "csinodes"),
}
MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
NOT_FOUND: Final = 404
CONFLICT: Final = 409
Json = dict[str, Any]
NUMBERS: Final = itertools.count(1)


def path(kind: str, namespace: str = "", name: str = "", part: str = "") -> str:
    """Return the path of an object, of a collection or of a subresource."""
    root, plural = PLURALS[kind]
    within = f"/namespaces/{namespace}" if namespace else ""
    return "/".join(one for one in (f"{root}{within}/{plural}", name, part) if one)


def named(body: Json) -> str:
    """Give an object with ``generateName`` a name of its own, and return it."""
    metadata = body["metadata"]
    if "name" not in metadata:
        metadata["name"] = f"{metadata['generateName']}{next(NUMBERS):05x}"
    metadata.pop("generateName", None)
    return str(metadata["name"])


async def spread(work: Iterable[Callable[[], Awaitable[Any]]], in_flight: int = IN_FLIGHT) -> None:
    """Run calls with a fixed number in flight."""
    calls: Iterator[Callable[[], Awaitable[Any]]] = iter(work)

    async def worker() -> None:
        for call in calls:
            await call()

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(worker())


async def make_namespace(client: KubeClient, name: str, labels: dict[str, str]) -> None:
    """Create a namespace, or give one that an earlier workload left these labels and no others."""
    try:
        await client.create(path("Namespace"), {"metadata": {"name": name, "labels": labels}})
    except ApiError as error:
        if error.status != CONFLICT:
            raise
        there = (await client.get(path("Namespace", name=name)))["metadata"].get("labels") or {}
        wanted = {key: None for key in there if not key.startswith("kubernetes.io/")} | labels
        await client.patch(path("Namespace", name=name), {"metadata": {"labels": wanted}})


async def make_node(client: KubeClient, node: Json, strategy: Json | None) -> None:
    """Create a node; a ``nodeAllocatableStrategy`` adds resources to it, and drivers with their limits."""
    node["metadata"].setdefault("labels", {})["kubernetes.io/hostname"] = name = named(node)
    if strategy is not None:
        node["status"]["allocatable"] = {**node["status"]["capacity"], **strategy.get("nodeAllocatable", {})}
    await client.create(path("Node"), node)
    if strategy is None:
        return
    drivers = [
        {"name": driver, "nodeID": name, "allocatable": limit}
        for driver, limit in strategy["csiNodeAllocatable"].items()
    ]
    metadata: Json = {"name": name}
    if migrated := strategy.get("migratedPlugins"):
        metadata["annotations"] = {MIGRATED: ",".join(migrated)}
    body = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": metadata, "spec": {"drivers": drivers}}
    await client.create(path("CSINode"), body)


async def make_volume(client: KubeClient, namespace: str, claim: Json, volume: Json, index: int) -> str:
    """Create a claim and its volume, bound to each other; return the claim's name."""
    name, on = f"pvc-{index}", f"{namespace}-pv-{next(NUMBERS):05x}"
    claim["metadata"]["name"] = name
    claim["spec"]["volumeName"] = on
    volume["metadata"] = {**(volume.get("metadata") or {}), "name": on}
    if "csi" in volume["spec"]:
        volume["spec"]["csi"]["volumeHandle"] = on
    volume["spec"]["claimRef"] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace,
        "name": name,
    }
    await client.create(path("PersistentVolumeClaim", namespace), claim)
    is_bound = {
        "phase": "Bound",
        "accessModes": claim["spec"]["accessModes"],
        "capacity": claim["spec"]["resources"]["requests"],
    }
    await client.patch(path("PersistentVolumeClaim", namespace, name, "status"), {"status": is_bound})
    await client.create(path("PersistentVolume"), volume)
    await client.patch(path("PersistentVolume", name=on, part="status"), {"status": {"phase": "Bound"}})
    return name


async def delete(client: KubeClient, kind: str, namespace: str, name: str) -> None:
    """Delete an object at once; one that is gone is no fault."""
    try:
        await client.delete(path(kind, namespace, name), grace_seconds=0)
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise


async def clear(client: KubeClient) -> None:
    """Delete what workloads made, but for the namespaces: no controller here would finish them."""
    for pod in await client.list(path("Pod")):
        if pod["metadata"].get("finalizers"):
            metadata = pod["metadata"]
            await client.patch_blindly(
                path("Pod", metadata["namespace"], metadata["name"]), {"metadata": {"finalizers": None}}
            )
    now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    for namespace in await client.list(path("Namespace")):
        name = namespace["metadata"]["name"]
        for kind in ("Pod", "PersistentVolumeClaim"):
            await client.request("DELETE", path(kind, name), now)
        if name != "default":
            await client.request("DELETE", path("Service", name), now)
            await client.request("DELETE", f"/api/v1/namespaces/{name}/events", now)
    for kind in ("Node", "CSINode", "PersistentVolume"):
        await client.request("DELETE", path(kind), now)
    while (await client.get(path("Pod"), {"limit": "1"}))["items"]:
        await asyncio.sleep(0.2)
