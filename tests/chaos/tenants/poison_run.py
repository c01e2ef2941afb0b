"""A small life of a cluster, step by step, with a poison pill in it or without.

Called by `test_poison_pills`. Each step waits until what it began is done, so that the outcome is a function of the
steps and not of time: two runs of one script differ by the pill alone. What others see is kept without moments,
versions and uids; how long each step took is kept apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from manifests import our_pod_manifest
from operator_world import World
from poison_pills import NAMESPACE, NODE, PILLS, Request
from servers import Server

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.assembly import Operator

OTHERS: Final = "bystander"
PODS: Final = f"/api/v1/namespaces/{OTHERS}/pods"
OURS: Final = f"/apis/cotide.dev/v1alpha1/namespaces/{OTHERS}"
POLICIES: Final = ("qpsm", "fifo", "easy", "fifo-guarded", "hierarchical")
CLASSES: Final = ("online", "batch", "gratis")
STEPS: Final = 8
_TIMES: Final = frozenset(
    {"resourceVersion", "uid", "creationTimestamp", "managedFields", "lastTransitionTime", "startTime", "generation",
     "lastProbeTime", "predictedSeconds", "predictedStart", "predictedFinish", "completionTime", "queuePosition",
     "annotations", "ownerReferences", "selfLink", "deletionTimestamp", "observedGeneration", "volumes", "volumeMounts"}
)  # fmt: skip

"""A real server draws the name of the volume with a pod's token."""

Object = dict[str, Any]


@dataclass
class Sight:
    """What was seen of the bystanders."""

    objects: dict[str, Any] = field(default_factory=dict)
    """Pods, Jobs and Workloads by name, without what is a matter of time."""
    said: list[tuple[str, ...]] = field(default_factory=list)
    """Events: reason, object and sentence."""
    seconds: list[float] = field(default_factory=list)
    """Of each step, from its first write until it was done."""


@dataclass(frozen=True)
class Script:
    """What happens, by its seed."""

    seed: int
    policy: str
    pill: str
    at: int
    """Before which step the pill comes."""
    gone: int
    """Before which step it is taken away again; `STEPS` for never."""

    @classmethod
    def of(cls, seed: int) -> Script:
        """Draw a script; seeds in a row visit every pill."""
        rng = random.Random(f"poison {seed}")
        at = rng.randrange(STEPS)
        pill = list(PILLS)[seed % len(PILLS)]
        return cls(seed, rng.choice(POLICIES), pill, at, rng.randint(at + 1, STEPS))


class PoisonRun:
    """Carries a script out on a server with nothing on it."""

    def __init__(self, script: Script, server: Server, client: KubeClient, *, poisoned: bool) -> None:
        self._script, self._client, self._server, self._poisoned = script, client, server, poisoned
        self._world = World(server, client)
        self.sight = Sight()
        self.accepted = 0

    async def carry_out(self) -> Sight:
        await self._prepare()
        text = (
            "leaderElection: {enabled: false}\nqueue: {backoffInitialSeconds: 0.05, backoffMaxSeconds: 0.4}\n"
            f"policy: {self._script.policy}\nreclaimed: {{publish: false}}\nhostLoad: {{enabled: false}}\n"
        )
        async with self._running(text) as operator:
            for number in range(STEPS):
                await self._disturb(number)
                begun = time.monotonic()
                await self._step(number)
                self.sight.seconds.append(time.monotonic() - begun)
            await self._server.until("all is written", lambda: self._written(operator))
            await self._look()
        return self.sight

    @contextlib.asynccontextmanager
    async def _running(self, text: str) -> AsyncIterator[Operator]:
        """Run an operator; one that ends by itself fails the run."""
        operator, stop = self._world.make(text), asyncio.Event()
        task = asyncio.create_task(operator.run(stop))
        try:
            await self._server.until("the operator decides", lambda: not operator._missing() or task.done())
            yield operator
            assert not task.done(), f"the operator ended: {task.exception()!r}"
        finally:
            stop.set()
            await task

    async def _prepare(self) -> None:
        for space in (OTHERS, NAMESPACE):
            with contextlib.suppress(ApiError):  # there already, of an earlier run
                await self._client.create("/api/v1/namespaces", {"metadata": {"name": space}})
        await self._server.until_accounts(self._client, OTHERS, NAMESPACE)
        await self._world.nodes(2)
        offered = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        status = {"allocatable": offered, "capacity": offered, "conditions": [{"type": "Ready", "status": "True"}]}
        taint = {"key": "pool", "value": "poison", "effect": "NoSchedule"}
        metadata = {"name": NODE, "labels": {"pool": "poison"}}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [taint]}, "status": status}
        await self._client.create("/api/v1/nodes", body)

    async def _disturb(self, number: int) -> None:
        """Do what others shall not feel, before a step."""
        if not self._poisoned:
            return
        if number == self._script.at:
            for request in PILLS[self._script.pill]():
                self.accepted += await self._send(request)
        if number == self._script.gone:
            at_once = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
            group = f"/apis/cotide.dev/v1alpha1/namespaces/{NAMESPACE}"
            for path in (f"{group}/jobs", f"{group}/workloads", f"/api/v1/namespaces/{NAMESPACE}/pods"):
                with contextlib.suppress(ApiError):
                    await self._client.request("DELETE", path, at_once)

    async def _send(self, request: Request) -> bool:
        """Send text as it is; False where the server refuses it."""
        credentials = self._server.credentials
        kind = "application/merge-patch+json" if request.method == "PATCH" else "application/json"
        headers = {"Content-Type": kind}
        if (token := credentials.token()) is not None:
            headers["Authorization"] = token
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                request.method, credentials.server + request.path, data=request.body.encode(), headers=headers
            ) as response,
        ):
            await response.read()
            return response.status < 300

    async def _step(self, number: int) -> None:
        if number == 3:
            template = {"spec": {"containers": [_container("100m")]}}
            job = {"class": "batch", "completions": 2, "parallelism": 2, "type": "sort", "template": template}
            await self._client.create(f"{OURS}/jobs", _ours("Job", "count", job))
            await self._until_placed("count-0", "count-1")
            for name in ("count-0", "count-1"):
                await self._client.patch(f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}})
            await self._server.until("the Job succeeded", self._job_done)
        elif number == 5:
            spec = {"replicas": 2, "template": {"spec": {"containers": [_container("100m")]}}}
            await self._client.create(f"{OURS}/workloads", _ours("Workload", "web", spec))
            await self._until_placed("web-0", "web-1")
        elif number == 6:
            await self._client.create(
                PODS, our_pod_manifest("large", cls="batch", spec={"containers": [_container("32")]})
            )
            await self._server.until("the large one is told why it waits", self._large_is_explained)
        else:
            await self._client.create(
                PODS, our_pod_manifest(f"p{number}", cls=CLASSES[number % 3], spec={"containers": [_container("500m")]})
            )
            await self._until_placed(f"p{number}")

    async def _until_placed(self, *names: str) -> None:
        async def placed() -> bool:
            pods = {one["metadata"]["name"]: one for one in await self._client.list(PODS)}
            return all(pods.get(name, {}).get("spec", {}).get("nodeName") for name in names)

        await self._server.until(f"{', '.join(names)} on nodes", placed)

    async def _job_done(self) -> bool:
        found = await self._client.get(f"{OURS}/jobs/count")
        return bool(found.get("status", {}).get("phase") == "Succeeded")

    async def _large_is_explained(self) -> bool:
        found = await self._client.get(f"{PODS}/large")
        return any(one["type"] == "PodScheduled" for one in found.get("status", {}).get("conditions", ()))

    async def _written(self, operator: Operator) -> bool:
        """Whether every event and label of the bystanders is there."""
        del operator
        pods = await self._client.list(PODS)
        events = await self._client.list(f"/api/v1/namespaces/{OTHERS}/events")
        scheduled = {event["involvedObject"]["name"] for event in events if event["reason"] == "Scheduled"}
        placed = {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}
        statuses = [(await self._client.get(f"{OURS}/workloads/web")).get("status", {}).get("nodes", [])]
        labelled = all("cotide.dev/class" in pod["metadata"].get("labels", {}) for pod in pods)
        return placed <= scheduled and labelled and any(statuses)

    async def _look(self) -> None:
        for path in (PODS, f"{OURS}/jobs", f"{OURS}/workloads"):
            for one in await self._client.list(path):
                self.sight.objects[f"{path.rpartition('/')[2]} {one['metadata']['name']}"] = timeless(one)
        events = await self._client.list(f"/api/v1/namespaces/{OTHERS}/events")
        self.sight.said = sorted(
            (event["reason"], event["involvedObject"]["name"], event["message"]) for event in events
        )


def timeless(value: Any) -> Any:
    """Return an object without what differs from run to run."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in _TIMES}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def _container(cpu: str) -> Object:
    return {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}


def _ours(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": "cotide.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
