"""Requests about pods of one namespace are bounded whoever makes them: a slow tenant leaves connections to others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.cache.object_cache import KINDS, CustomObject, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.controllers.child_pod_writer import AT_ONCE
from cotide_operator.controllers.reconciliation import Controllers


class SlowServer:
    """Never answers a write to pods."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def delete(self, path: str, *, uid: str) -> None:
        await self._hang("delete")

    async def patch(self, path: str, patch: Any, kind: str = "merge") -> dict[str, Any]:
        await self._hang("patch")
        return {}

    async def request(self, method: str, path: str) -> bytes:
        return b"{}"

    async def _hang(self, what: str) -> None:
        self.asked.append(what)
        await asyncio.Event().wait()


async def test_jobs_and_workloads_of_a_namespace_share_the_requests_that_it_may_have_in_flight() -> None:
    server, cache = SlowServer(), ObjectCache()
    spec = {"qos": {"latencyP95Milliseconds": 10}, "selector": {"matchLabels": {"app": "web"}}}
    web = {"metadata": {"name": "web", "namespace": "ns", "uid": "w"}, "spec": spec}
    cache.apply("workloads", "ADDED", msgspec.convert(web, CustomObject))
    for number in range(AT_ONCE):
        ours = ["cotide.dev/job-tracking"]
        kept = {"name": f"kept-{number}", "namespace": "ns", "uid": f"k{number}", "finalizers": ours}
        chosen = {"name": f"web-{number}", "namespace": "ns", "uid": f"w{number}", "labels": {"app": "web"}}
        for metadata in (kept, chosen):
            cache.apply("pods", "ADDED", msgspec.convert({"metadata": metadata}, PodObject))
    for kind in KINDS:
        cache.mark_synced(kind)
    controllers = Controllers(cast(KubeClient, server), cache, DecisionStore(), ScaledClock())
    reconciling = [
        asyncio.ensure_future(controllers.jobs.reconcile("ns/")),
        asyncio.ensure_future(controllers.workloads.reconcile("ns/web")),
    ]
    for _ in range(50):
        await asyncio.sleep(0)
    assert not any(one.done() for one in reconciling), reconciling
    assert len(server.asked) == AT_ONCE
    for one in reconciling:
        one.cancel()
    await asyncio.gather(*reconciling, return_exceptions=True)
