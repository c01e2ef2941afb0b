"""`DrainClient`: the actions and the view of a `Carrier`, through the operator's own client and cache.

`controller` makes it for one term of leadership. Every cordon and every eviction is written into the node's record
before, or together with, its own request. So a process that is killed at any point leaves a record with at least all
its actions. Invariants: a node without our record is never uncordoned; writes pass the fence of the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cotide_core.consolidation.removal.watching import HOUR_SECONDS, Mark, Standing
from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient
from cotide_kube.objects import NodeObject, PodObject
from cotide_kube.versions import order
from cotide_operator.cache.object_cache import Kind, ObjectCache, controller_of
from cotide_operator.clock import Clock
from cotide_operator.consolidation.carrier import ENDED, MARK, NodeNow, PodNow, node_now, pod_now
from cotide_operator.consolidation.gang_now import GangNow, gang_now
from cotide_operator.consolidation.node_record import (
    RECORD,
    NodeRecord,
    left_behind,
    marked,
    moved,
    patch_of,
    record_of,
    standing_of,
)
from cotide_operator.consolidation.picture import goes_with_node
from cotide_operator.scheduling.disruption_budgets import kept_by_budgets

INDEXED_TOGETHER: Final = 2000
"""Pods that are indexed in one go at the start; chosen: a few milliseconds."""
SHORTEST_SLEEP_SECONDS: Final = 0.1
"""Shortest sleep on the wall, however fast simulated time runs; chosen: the cache follows the server by tens of
milliseconds."""


@dataclass(frozen=True, slots=True)
class _Written:
    """The last write to a node; ``version``: the node's with it, empty before the answer."""

    uid: str
    mark: str
    record: NodeRecord
    cordoned: bool
    version: str = ""


class DrainClient:
    """The calls of `carrier.ClusterHands`.

    Parameters
    ----------
    client, cache, clock : the operator's.
    gave_back : called with a node that was uncordoned again, and whether because pods wait.
    """

    def __init__(
        self, client: KubeClient, cache: ObjectCache, clock: Clock, gave_back: Callable[[str, bool], object]
    ) -> None:
        self._client, self._cache, self._clock = client, cache, clock
        self._gave_back = gave_back
        self.demanded = False
        """Whether the present undo of a carrier happens because pods wait."""
        self._by_owner: dict[str, dict[str, None]] = {}
        self._by_node: dict[str, dict[str, None]] = {}
        self._indexed: dict[str, tuple[str, str]] = {}
        self._written: dict[str, _Written] = {}
        """Writes to nodes that the cache does not show yet."""
        self._read: dict[str, tuple[NodeObject, Standing]] = {}
        """Decoded records, each with the node object that it was read from."""
        cache.subscribe(self._changed)

    async def index(self) -> None:
        """Index the existing pods."""
        for number, key in enumerate(list(self._cache.pods)):
            self._changed("pods", key)
            if number % INDEXED_TOGETHER == 0:
                await asyncio.sleep(0)

    def _changed(self, kind: Kind, key: str) -> None:
        if kind == "nodes" and key not in self._cache.nodes:
            self._written.pop(key, None)
            self._read.pop(key, None)
        if kind != "pods" or not key:
            return
        pod = self._cache.pods.get(key)
        owner = controller_of(pod.metadata) if pod is not None else None
        now = ("" if owner is None else owner.uid, pod.spec.node_name) if pod is not None else ("", "")
        before = self._indexed.get(key, ("", ""))
        if now == before:
            return
        for index, old, new in zip((self._by_owner, self._by_node), before, now, strict=True):
            if old:
                index[old].pop(key, None)
                if not index[old]:
                    del index[old]
            if new:
                index.setdefault(new, {})[key] = None
        if now == ("", ""):
            self._indexed.pop(key, None)
        else:
            self._indexed[key] = now

    async def sleep(self, clock_seconds: float) -> None:
        """Sleep for seconds of the clock."""
        await asyncio.sleep(max(SHORTEST_SLEEP_SECONDS, clock_seconds / self._clock.speed))

    async def node(self, name: str) -> NodeNow | None:
        """Return a node from the cache, or with a newer write of ours."""
        found = self._cache.nodes.get(name)
        if found is None:
            return None
        return replace(node_now(found), cordoned=self._cordoned(found), mark=self._mark(found))

    async def marked(self) -> dict[str, str]:
        """Return the nodes that carry our mark and our record."""
        return {
            name: node.metadata.annotations[MARK]
            for name, node in self._cache.nodes.items()
            if MARK in node.metadata.annotations and RECORD in node.metadata.annotations
        }

    async def pods(self, *, node: str = "", owner: str = "") -> list[PodNow]:
        """Return the pods that have not ended: those on a node, those of an owner, or all."""
        return [pod_now(pod, self._clock) for pod in self._living(node=node, owner=owner)]

    def load(self, node: str) -> int:
        """Return how many pods of a node would need another."""
        pods = self._living(node=node, owner="")
        return sum(pod.metadata.deletion_timestamp is None and not goes_with_node(pod) for pod in pods)

    def _living(self, *, node: str, owner: str) -> list[PodObject]:
        pods = self._cache.pods
        keys: Iterable[str] = pods
        if node or owner:
            keys = self._by_node.get(node, ()) if node else self._by_owner.get(owner, ())
        return [pod for key in keys if (pod := pods.get(key)) is not None and pod.status.phase not in ENDED]

    async def mark(self, name: str, mark: str | None, *, cordoned: bool) -> None:
        """Cordon or uncordon a node with our mark and record, in one patch.

        Raises
        ------
        ClusterError
            When it is refused, or no answer comes.
        """
        await self.write(name, Mark(mark or ""), cordoned=cordoned, demanded=self.demanded)

    async def write(
        self,
        name: str,
        mark: Mark,
        *,
        cordoned: bool,
        demanded: bool = False,
        forecast: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """Do the same with the other fields of a record: p50 and p90 seconds of a node that empties by itself."""
        node = self._cache.nodes.get(name)
        if node is None:
            return
        now = self._clock.to_wall(self._clock.now())
        record = marked(self.record(node), now, cordoned=cordoned, demanded=demanded, forecast=forecast)
        written = _Written(node.metadata.uid, mark.value, record, cordoned)
        await self._patch(node, written, patch_of(mark, RECORD, record, cordoned=cordoned))
        if not cordoned:
            self._gave_back(name, demanded)

    async def gang(self, key: str) -> GangNow | None:
        """Return the state of a pod's gang in the cache; None for a pod without one."""
        return gang_now(self._cache, key)

    async def kept(self, keys: Sequence[str]) -> str:
        """Return a sentence about the first of several pods that a budget would protect if all were evicted; empty for
        none."""
        pods = [pod for key in keys if (pod := self._cache.pods.get(key)) is not None]
        return next(iter(kept_by_budgets(pods, self._cache).values()), "")

    async def evict(self, key: str, uid: str) -> int:
        """Write the eviction into the record of the pod's node, then request it; return the HTTP status, 0 for none."""
        pod = self._cache.pods.get(key)
        node = self._cache.nodes.get(pod.spec.node_name) if pod is not None else None
        if node is not None:
            now = self._clock.to_wall(self._clock.now())
            after = moved(self.record(node), uid, now, HOUR_SECONDS / self._clock.speed)
            if after is not None:
                written = _Written(node.metadata.uid, self._mark(node), after, self._cordoned(node))
                await self._patch(node, written, {"metadata": {"annotations": {RECORD: after.text()}}})
        namespace, _, name = key.partition("/")
        return (await self._client.evict(namespace, name, uid)).code

    async def _patch(self, node: NodeObject, written: _Written, body: dict[str, Any]) -> None:
        name = node.metadata.name
        self._written[name] = written
        try:
            answer = await self._client.patch(f"/api/v1/nodes/{name}", body)
        except ClusterError:
            self._written.pop(name, None)  # refused or unknown: the cache will show it
            raise
        if self._written.get(name) is written:
            version = str((answer.get("metadata") or {}).get("resourceVersion", ""))
            self._written[name] = replace(written, version=version)

    def record(self, node: NodeObject) -> NodeRecord | None:
        """Return a node's record as it was last written."""
        ahead = self._ahead(node)
        return record_of(node) if ahead is None else ahead.record

    def _mark(self, node: NodeObject) -> str:
        ahead = self._ahead(node)
        return node.metadata.annotations.get(MARK, "") if ahead is None else ahead.mark

    def _cordoned(self, node: NodeObject) -> bool:
        ahead = self._ahead(node)
        return node.spec.unschedulable if ahead is None else ahead.cordoned

    def _ahead(self, node: NodeObject) -> _Written | None:
        """Return the last write to a node that the cache does not show yet."""
        written = self._written.get(node.metadata.name)
        if written is None:
            return None
        seen = node.metadata.annotations.get(RECORD) == written.record.text()
        shown, wrote = order(node.metadata.resource_version), order(written.version)
        # After a gap in the watch the node may have a later, foreign state, and never appear as we wrote it.
        seen |= shown is not None and wrote is not None and shown >= wrote
        if seen or written.uid != node.metadata.uid:
            del self._written[node.metadata.name]
            return None
        return written

    def standings(self) -> dict[str, Standing]:
        """Return the nodes with a record of ours; pods are counted on those with a mark."""
        found = {}
        for name, node in self._cache.nodes.items():
            standing = self._standing(node)
            if standing is not None:
                found[name] = standing if standing.mark is Mark.NONE else replace(standing, pods=self.load(name))
        return found

    def _standing(self, node: NodeObject) -> Standing | None:
        """Return the standing of a node without a count of its pods; None without a record.

        A record stays on its node permanently, and all are read some times a second.
        """
        ahead = self._ahead(node)
        if ahead is not None:
            return standing_of(ahead.mark, ahead.record, 0, self._clock)
        known = self._read.get(node.metadata.name)
        if known is not None and known[0] is node:
            return known[1]
        record = record_of(node)
        if record is None:
            self._read.pop(node.metadata.name, None)
            return None
        standing = standing_of(node.metadata.annotations.get(MARK, ""), record, 0, self._clock)
        self._read[node.metadata.name] = node, standing
        return standing

    def taken_out_of_our_hands(self) -> list[str]:
        """Return the nodes that carry our mark although another program or user uncordoned them."""
        marked = [self._cache.nodes[name] for name in left_behind(self._cache)]
        return [node.metadata.name for node in marked if not node.spec.unschedulable and self._ahead(node) is None]
