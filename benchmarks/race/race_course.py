"""What schedulers race on: nodes, services and pods on a real API server, made and cleared away.

Used by `real_race`. Nodes are plain Node objects, Ready and without a kubelet; no controller-manager runs, so nobody
takes their readiness away. A tenth of them carry a service's pod, whose request rate the race itself serves as metrics.
The pods to place are the same for everyone but for their names and ``schedulerName``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final

from race_pods import ZONES, Variety

from cotide_kube.client import KubeClient
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION

RACE: Final = "race"
"""Namespace of the pods to place: the watcher sees nothing else."""
STANDING: Final = "standing"
"""Namespace of what is on its nodes from the beginning."""
PODS: Final = f"/api/v1/namespaces/{RACE}/pods"
EVENTS: Final = f"/api/v1/namespaces/{RACE}/events"
STANDING_PODS: Final = f"/api/v1/namespaces/{STANDING}/pods"
NODES: Final = "/api/v1/nodes"
IN_FLIGHT: Final = 32
SERVICE_SHARE: Final = 10
"""One node in so many carries a service's pod."""
RATES: Final = (1_000, 5_000, 10_000, 50_000)
"""Requests per second of the services, in turn."""
ALIKE: Final = Variety()
"""The pods of most races: one template, no images."""

Json = dict[str, Any]


async def spread(work: Iterable[Callable[[], Awaitable[Any]]], in_flight: int = IN_FLIGHT) -> None:
    """Run calls with a fixed number in flight."""
    iterator: Iterator[Callable[[], Awaitable[Any]]] = iter(work)

    async def worker() -> None:
        for call in iterator:
            await call()

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(worker())


def node(index: int, variety: Variety = ALIKE) -> Json:
    """Return one node of 32 cores."""
    name = node_name(index)
    resources = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    conditions = [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"},
        *({"type": kind, "status": "False"} for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")),
    ]
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": f"zone-{index % ZONES}",
    }
    status: Json = {"allocatable": resources, "capacity": resources, "conditions": conditions}
    if variety.images:
        status["images"] = variety.node_images(index)
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def node_name(index: int) -> str:
    return f"node-{index:05d}"


def standing_pod(
    name: str, on: str, labels: dict[str, str], cpu: str = "2", variety: Variety = ALIKE, index: int = 0
) -> Json:
    """Return a pod that is on its node when it is made."""
    made = variety.pod(name, "nobody", index)
    made["metadata"]["labels"] = {**made["metadata"]["labels"], **labels} if variety.kilobytes else labels
    made["metadata"]["labels"].pop("cotide.dev/class", None)
    made["metadata"]["annotations"] = {}
    made["spec"]["nodeName"] = on
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu, "memory": "256Mi"}}
    return made


async def prepare(client: KubeClient, nodes: int, variety: Variety = ALIKE) -> None:
    """Make namespaces, nodes and services."""
    for namespace in (RACE, STANDING):
        await client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        # The controller that makes this account does not run here, and no pod is admitted without it.
        await client.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    workload = {
        "apiVersion": "cotide.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "web", "namespace": STANDING},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "qos": {"latencyP95Milliseconds": 10}},
    }
    await client.create(f"/apis/cotide.dev/v1alpha1/namespaces/{STANDING}/workloads", workload)
    await spread(lambda i=i: _node(client, i, variety) for i in range(nodes))  # type: ignore[misc]  # the default binds i
    await spread(
        lambda i=i: client.create(STANDING_PODS, standing_pod(f"web-{i}", node_name(i), {"app": "web"}))  # type: ignore[misc]
        for i in range(0, nodes, SERVICE_SHARE)
    )


async def _node(client: KubeClient, index: int, variety: Variety) -> None:
    await client.create(NODES, node(index, variety))
    # Admission taints each new node as not ready; the controller that would take it away does not run.
    await client.patch(f"{NODES}/{node_name(index)}", {"spec": {"taints": None}})


def service_rates(nodes: int) -> str:
    """Return the request rates of the services as a Prometheus text."""
    name = "cotide_sim_service_requests_per_second"
    return "".join(
        f'{name}{{namespace="{STANDING}",pod="web-{i}"}} {RATES[i // SERVICE_SHARE % len(RATES)]}\n'
        for i in range(0, nodes, SERVICE_SHARE)
    )


async def fill(client: KubeClient, names: list[str], scheduler: str, variety: Variety = ALIKE) -> None:
    """Create pods as fast as the server takes them."""
    await spread(lambda i=i, n=n: client.create(PODS, variety.pod(n, scheduler, i)) for i, n in enumerate(names))  # type: ignore[misc]


async def pour(
    client: KubeClient, names: list[str], scheduler: str, per_second: float, variety: Variety = ALIKE
) -> None:
    """Create pods at a steady rate, however long each takes."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.TaskGroup() as group:
        for i, name in enumerate(names):
            await asyncio.sleep(max(0.0, begun + i / per_second - loop.time()))
            group.create_task(client.create(PODS, variety.pod(name, scheduler, i)))


async def stand(client: KubeClient, nodes: int, pods: int, variety: Variety = ALIKE) -> None:
    """Put pods on the nodes without any scheduler."""
    await spread(
        lambda i=i: client.create(
            STANDING_PODS,
            standing_pod(f"full-{i}", node_name(i % nodes), {"app": "full"}, "100m", variety, i),
        )  # type: ignore[misc]
        for i in range(pods)
    )


async def clear(client: KubeClient) -> None:
    """Delete the pods of the race and what was said about them."""
    await client.request("DELETE", PODS, {"gracePeriodSeconds": 0})
    while (await client.get(PODS, {"limit": "1"}))["items"]:
        await asyncio.sleep(0.1)
    await client.request("DELETE", EVENTS)


async def count_events(client: KubeClient) -> int:
    """Return how many events there are about pods of the race."""
    page = await client.get(EVENTS, {"limit": "1"})
    return len(page.get("items") or ()) + int(page["metadata"].get("remainingItemCount") or 0)


async def count_notes(client: KubeClient) -> int:
    """Return how many pods of the race carry the note of their decision."""
    pods = await client.list(PODS)
    return sum(DECISION_ANNOTATION in (pod["metadata"].get("annotations") or {}) for pod in pods)
