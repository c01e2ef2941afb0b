"""Writes ``status.nominatedNodeName`` on a waiting pod that gets a victim's room, as kube-scheduler does.

`evictor` calls it before any victim is evicted, so that a restart in between finds the claim. `decision_reporter` calls
it for pods that already leave, and for claims that failed. Invariant: the claim for the new pod is written before its
victim is evicted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from cotide_core.errors import ClusterError
from cotide_kube.answers import Answer, ApiError
from cotide_kube.client import KubeClient
from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher

AGAIN_SECONDS: Final = 30.0
"""Wall seconds after which a claim that could not be removed is tried again; chosen. Only the operator removes it: for
an autoscaler the pod has its room, and a starting engine reserves room for it."""
NOT_NEEDED: Final = "NotNeeded"
"""Reason of an answer: the pod is gone or has a node."""


class Nominator:
    """Keeps nominations in the API in step with the engine's."""

    def __init__(
        self, client: KubeClient, dispatcher: ApiDispatcher, cache: ObjectCache, decisions: DecisionStore
    ) -> None:
        self._client = client
        self._dispatcher = dispatcher
        self._cache = cache
        self._decisions = decisions
        self._written: dict[str, tuple[str, str]] = {}
        """(uid, node) by pod key, as written; the cache may not show it yet."""
        self._turns: dict[str, asyncio.Lock] = {}
        self._again: set[str] = set()
        """Pods with a claim that is due for removal later."""

    async def write(self, key: str, uid: str, node: str) -> Answer:
        """Write a claim unless it exists; the answer gives whether it does."""
        async with self._turn(key):
            pod = self._cache.pods.get(key)
            gone = pod is None or pod.metadata.uid != uid or pod.metadata.deletion_timestamp is not None
            if pod is None or gone or pod.spec.node_name:
                self.forget(key)
                return Answer(409, NOT_NEEDED, f"pod {key} is gone or has a node")
            if self._written.get(key, (uid, pod.status.nominated_node_name)) == (uid, node):
                return Answer(200)
            answer = await self._patch(key, uid, node)
            if answer.ok:
                self._written[key] = (uid, node)
            elif not answer.code:
                self._written[key] = (uid, "")  # the claim may exist, or appear: it must be removed later
            return answer

    def write_soon(self, key: str, uid: str, node: str) -> None:
        """Queue the write of a claim without a victim, unless the pod has another claim by then."""

        async def work() -> None:
            decision = self._decisions.get(key)
            if decision is not None and decision.nominated_node == node:
                await self.write(key, uid, node)

        self._dispatcher.submit(("nomination", key), work, key.partition("/")[0])

    def withdraw(self, key: str) -> None:
        """Queue the removal of a pod's claim, unless it has another by then."""
        pod = self._cache.pods.get(key)
        if pod is None or not (key in self._written or pod.status.nominated_node_name):
            return
        if not self._dispatcher.submit(("nomination", key), lambda: self._withdraw(key), pod.metadata.namespace):
            self._try_again(key)

    def forget(self, key: str) -> None:
        """Drop a pod that is gone or on a node."""
        self._written.pop(key, None)
        turn = self._turns.get(key)
        if turn is not None and not turn.locked():
            del self._turns[key]

    @contextlib.asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[None]:
        """Order the writes about one pod; for a pod that is deleted meanwhile no state remains."""
        try:
            async with self._turns.setdefault(key, asyncio.Lock()):
                yield
        finally:
            if key not in self._cache.pods:
                self.forget(key)

    async def _withdraw(self, key: str) -> None:
        async with self._turn(key):
            pod, decision = self._cache.pods.get(key), self._decisions.get(key)
            if pod is None or pod.spec.node_name or decision is None or decision.nominated_node:
                return
            answer = await self._patch(key, pod.metadata.uid, None)
            if answer.ok:
                self._written[key] = (pod.metadata.uid, "")
            elif answer.reason != NOT_NEEDED:
                self._try_again(key)

    def _try_again(self, key: str) -> None:
        if key not in self._again:
            self._again.add(key)
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._withdraw_again, key)

    def _withdraw_again(self, key: str) -> None:
        self._again.discard(key)
        self.withdraw(key)

    async def _patch(self, key: str, uid: str, node: str | None) -> Answer:
        namespace, _, name = key.partition("/")
        # With the uid the server refuses the patch if the pod was replaced meanwhile.
        body: dict[str, Any] = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node}}
        try:
            await self._client.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", body)
        except ApiError as error:
            if error.status in (404, 409):
                return Answer(409, NOT_NEEDED, f"pod {key} is gone or was replaced")
            return Answer(error.status, error.reason, error.message)
        except ClusterError as error:
            return Answer(0, "Unreachable", str(error))
        return Answer(200)
