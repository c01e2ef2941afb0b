"""The controllers on an embedded API server, and the resources that tests apply there.

The test's reflector stands for kopf: it asks for a look when a spec is new or an object goes, and again when that
failed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import yaml
from manifests import job_manifest, workload_manifest

from cotide_core.errors import CotideError
from cotide_core.instructions import Forecast
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_kube.reflector import Reflector
from cotide_operator.apis.crd_generation import RESOURCES, definition
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import KINDS, PATHS, TYPES, CustomObject, ObjectCache, key_of
from cotide_operator.clock import ScaledClock
from cotide_operator.controllers.job_controller import ReconcileOptions
from cotide_operator.controllers.kopf_handlers import retry_seconds
from cotide_operator.controllers.reconciliation import Controllers
from cotide_operator.usage.service_readings import QueryFault, ServiceReading
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.apiserver.testing import running_server

DEADLINE_SECONDS = 15.0
SOON_SECONDS = 5.0
"""Half of what a look that waits for nothing but its pods may take: decisions must not wait for it."""
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
WORKLOADS = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"
TEMPLATE = {
    "metadata": {"labels": {"team": "data"}, "annotations": {"note": "kept"}},
    "spec": {"containers": [{"name": "work", "image": "none", "resources": {"requests": {"cpu": "1"}}}]},
}


class Readings:
    def __init__(self) -> None:
        self.by_key: dict[str, ServiceReading] = {}
        self.faults: dict[str, QueryFault] | None = None

    def get(self, workload_key: str) -> ServiceReading | None:
        return self.by_key.get(workload_key)


class World:
    """One server, one client, and an operator's controllers that can be killed and started again."""

    def __init__(self, server: ApiServer, client: KubeClient, refresh_seconds: float = 0.05) -> None:
        self.server, self.client, self._refresh_seconds = server, client, refresh_seconds
        self.readings = Readings()
        self.cache, self.decisions = ObjectCache(), DecisionStore()
        self.controllers: Controllers | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._stop = asyncio.Event()

    def start(self, speed: float = 1.0, *, reclaim: bool = False) -> None:
        """Start controllers that remember nothing."""
        self.cache, self.decisions, self._stop = ObjectCache(), DecisionStore(), asyncio.Event()
        clock = ScaledClock(0.0, speed)
        self.controllers = Controllers(
            self.client,
            self.cache,
            self.decisions,
            clock,
            readings=self.readings,
            options=ReconcileOptions(refresh_seconds=self._refresh_seconds, reclaim=reclaim),
        )
        self._handled: dict[tuple[Any, str], tuple[Any, ...]] = {}
        self._tasks = [asyncio.create_task(self._reflect(kind)) for kind in KINDS]
        self._tasks.append(asyncio.create_task(self.controllers.run(self._stop)))

    async def kill(self) -> None:
        """End them without a farewell."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _reflect(self, kind: Any) -> None:
        async for change in Reflector[Any](self.client, PATHS[kind], TYPES[kind]):
            if change.object is None:
                self.cache.mark_synced(kind)
            else:
                self.cache.apply(kind, change.kind, change.object)
                if kind in ("jobs", "workloads"):
                    self._ask(kind, change.kind == "DELETED", change.object)

    def _ask(self, kind: Any, deleted: bool, item: CustomObject) -> None:
        metadata = item.metadata
        essence = metadata.generation, dict(metadata.labels), dict(metadata.annotations)
        seen = (metadata.uid, essence, metadata.deletion_timestamp, deleted)
        key = key_of(metadata)
        if self._handled.get((kind, key)) != seen:
            self._handled[kind, key] = seen
            self._tasks.append(asyncio.create_task(self._reconcile(kind, key, deleted)))

    async def _reconcile(self, kind: Any, key: str, deleted: bool) -> None:
        assert self.controllers is not None
        for retry in itertools.count():
            try:
                await self.controllers.reconcile(kind, key, deleted=deleted)
            except CotideError:
                await asyncio.sleep(retry_seconds(retry) / 5)
            else:
                break

    async def pods(self) -> dict[str, dict[str, Any]]:
        return {pod["metadata"]["name"]: pod for pod in await self.client.list(PODS)}

    async def until(self, what: Callable[[], Any], seconds: float = DEADLINE_SECONDS) -> Any:
        """Wait until something is true of the cluster; fail with what it was last."""
        last: Any = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    last = await what()
                    if last:
                        return last
                    await asyncio.sleep(0.01)
        except TimeoutError:
            objects = [await self.client.list(path) for path in (PODS, JOBS, WORKLOADS)]
            raise AssertionError(f"never came true; the cluster: {objects}") from None

    async def until_pods(self, *names: str) -> dict[str, dict[str, Any]]:
        async def there() -> dict[str, dict[str, Any]] | None:
            pods = await self.pods()
            return pods if set(pods) == set(names) else None

        found: dict[str, dict[str, Any]] = await self.until(there)
        return found

    async def until_status(
        self, path: str, check: Callable[[dict[str, Any]], Any], seconds: float = DEADLINE_SECONDS
    ) -> dict[str, Any]:
        async def holds() -> dict[str, Any] | None:
            status: dict[str, Any] = (await self.client.get(path)).get("status") or {}
            return status if check(status) else None

        found: dict[str, Any] = await self.until(holds, seconds)
        return found

    async def run_pod(self, name: str, node: str = "node-a") -> None:
        uid = (await self.client.get(f"{PODS}/{name}"))["metadata"]["uid"]
        assert (await self.client.bind("default", name, uid, node)).ok
        await self.run_pod_status(name)

    async def run_pod_status(self, name: str) -> None:
        """Let the kubelet of a pod that is bound say that it runs and is ready."""
        ready = {"type": "Ready", "status": "True"}
        await self.set_status(name, phase="Running", conditions=[ready], startTime="2026-11-20T13:00:00Z")

    async def set_status(self, name: str, **status: Any) -> None:
        await self.client.patch(f"{PODS}/{name}/status", {"status": status})

    async def decide(self, name: str, **more: Any) -> None:
        """Publish a decision about a pod that waits, as the loop would."""
        uid = (await self.client.get(f"{PODS}/{name}"))["metadata"]["uid"]
        values: dict[str, Any] = {
            "key": f"default/{name}",
            "uid": uid,
            "decided_seconds": 1000.0,
            "node": None,
            "reason": "QosAtRisk",
            "message": "0/2 nodes are available: 2 would break the latency limit of default/web (p=0.90).",
            "forecast": Forecast(0.9, 120.0, 300.0, "heuristic", "heuristic"),
            "attempts": 2,
            "demotions": 1,
            "queue_position": 3,
        }
        self.decisions.publish(Decision(**{**values, **more}))


@asynccontextmanager
async def world(refresh_seconds: float = 0.05, *, refusing: bool = True) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_server())
        client = await stack.enter_async_context(KubeClient(credentials(server)))
        for resource in RESOURCES:
            made = definition(resource)
            if not refusing:  # definitions of an older version: what they let pass must be told all the same
                schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
                schema["properties"]["spec"].pop("x-kubernetes-validations", None)
            await client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", made)
        one = World(server, client, refresh_seconds)
        one.start()
        try:
            yield one
        finally:
            await one.kill()


def credentials(server: ApiServer) -> Credentials:
    config = yaml.safe_load(server.kubeconfig())
    return Credentials(config["clusters"][0]["cluster"]["server"])


def job(name: str = "count", **spec: Any) -> dict[str, Any]:
    """A Job of the world's template."""
    return job_manifest(name, **{"namespace": "default", "template": TEMPLATE, **spec})


def workload(name: str = "web", **spec: Any) -> dict[str, Any]:
    """A Workload of the world's namespace."""
    return workload_manifest(name, namespace="default", **spec)


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((one for one in status.get("conditions", ()) if one["type"] == kind), {})
