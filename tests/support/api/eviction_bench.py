"""A binder on an API server that does as it is told, for tests of evictions; and how any binder works.

Called by the tests of bindings and evictions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from cotide_core.errors import ClusterError
from cotide_core.instructions import Evict, EvictCause, Instruction
from cotide_kube.answers import Answer
from cotide_kube.objects import PodDisruptionBudgetObject, PodObject
from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.scheduling.binder import Binder, Report
from cotide_operator.scheduling.evictor import Evictor, EvictReport
from cotide_operator.scheduling.nominator import Nominator


@asynccontextmanager
async def at_work(binder: Binder) -> AsyncIterator[None]:
    """Let a binder run until the block ends."""
    task = asyncio.create_task(binder.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Bench:
    """A binder on an API server that does as it is told; it stands for the client and for the dispatcher."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.said: list[str] = []
        """What reached the API server, in order."""
        self.refuses_patches: ClusterError | None = None
        self.gate: asyncio.Event | None = None
        self.work: list[Callable[[], Awaitable[None]]] = []
        self.cache, self.decisions = ObjectCache(), DecisionStore()
        self.reports: dict[str, EvictReport] = {}
        client: Any = self
        self.nominator = Nominator(client, client, self.cache, self.decisions)
        evictor = Evictor(client, self.cache, self.nominator)
        self.binder = Binder(client, self.cache, [self.take], evictor)
        self.pod("x", {"cotide.dev/class": "batch"}, node="")

    def take(self, report: Report) -> None:
        assert isinstance(report, EvictReport)
        assert report.evict.key not in self.reports, "one report each"
        self.reports[report.evict.key] = report

    async def evict(self, namespace: str, name: str, uid: str) -> Answer:
        self.said.append(f"evict {name}")
        return self.answers.get(name, Answer(201))

    async def delete(self, path: str, *, uid: str) -> None:
        self.said.append(f"delete {path.rpartition('/')[2]} {uid}")

    async def patch(self, path: str, body: dict[str, Any], kind: str = "merge") -> None:
        if "conditions" in body["status"]:
            (condition,) = body["status"]["conditions"]
            words = " ".join(condition[field] for field in ("type", "status", "reason", "message"))
            self.said.append(f"{kind} {path.split('/')[-2]} {body['metadata']['uid']} {words}")
            return
        if self.gate is not None:
            await self.gate.wait()
        if self.refuses_patches is not None:
            raise self.refuses_patches
        self.said.append(f"nominate {path.split('/')[-2]} {body['status']['nominatedNodeName']}")

    def submit(self, key: Hashable, work: Callable[[], Awaitable[None]], namespace: str) -> bool:
        self.work.append(work)
        return True

    def pod(
        self,
        name: str,
        labels: dict[str, str] | None = None,
        node: str = "n",
        nominated: str = "",
        status: dict[str, Any] | None = None,
        **metadata: Any,
    ) -> None:
        body = {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"u-{name}",
                "labels": {"cotide.dev/class": "gratis", "app": name, **(labels or {})},
                **metadata,
            },
            "spec": {"nodeName": node, "schedulerName": "cotide"},
            "status": {
                "phase": "Running" if node else "Pending",
                "conditions": [{"type": "Ready", "status": "True"}],
                "nominatedNodeName": nominated,
                **(status or {}),
            },
        }
        self.cache.apply("pods", "MODIFIED", msgspec.convert(body, PodObject))

    def budget(
        self, name: str, selector: dict[str, Any], allowed: int, namespace: str = "ns", policy: str = "", **status: Any
    ) -> None:
        body = {
            "metadata": {"name": name, "namespace": namespace, "generation": 1},
            "spec": {"selector": selector, **({"unhealthyPodEvictionPolicy": policy} if policy else {})},
            "status": {"disruptionsAllowed": allowed, "observedGeneration": 1, **status},
        }
        self.cache.apply("poddisruptionbudgets", "ADDED", msgspec.convert(body, PodDisruptionBudgetObject))

    async def carry_out(self, *instructions: Instruction) -> dict[str, tuple[int, bool]]:
        """Code of the answer and whether it may be asked again at once, by pod name."""
        task = asyncio.create_task(self.binder.run())
        try:
            self.binder.carry_out(instructions, {})
            async with asyncio.timeout(5):
                await self.binder._drained.wait()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        found = {key[3:]: (report.answer.code, report.retry) for key, report in self.reports.items()}
        self.reports = {}
        return found


def evict(name: str, nominee: str = "x") -> Evict:
    """An eviction that makes room for a pod."""
    return Evict(f"ns/{name}", f"u-{name}", "n", "why", EvictCause.PREEMPTED, f"ns/{nominee}", f"u-{nominee}")
