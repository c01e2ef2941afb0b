"""What consolidation did to pods, seen from one watch: every version of every pod, so that nothing falls between looks.

Used by `consolidation_race`. An eviction is a pod with the condition ``DisruptionTarget`` of the eviction API, each uid
once. A service is a label ``app`` with a floor: the ready pods that its disruption budget wants.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject

EVICTED: Final = "EvictionByEvictionAPI"
SILENCE_SECONDS: Final = 3600.0
ENDED: Final = ("Succeeded", "Failed")


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Seen(NamedTuple):
    uid: str
    app: str
    node: str
    ready: bool
    leaving: bool


@dataclass
class Account:
    """What was counted since it began.

    Attributes
    ----------
    before : pods that were there when it began. evicted : uids; those not in `before` were moved again, or came since.
    least : fewest ready pods of each service at any version.
    broken : one line for each version at which a service fell below its floor.
    longest_wait : wall seconds that a pod was without a node.
    """

    before: frozenset[str] = frozenset()
    evicted: set[str] = field(default_factory=set)
    least: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    longest_wait: float = 0.0


class PodObserver:
    """Follows the pods of one collection.

    Attributes
    ----------
    floors : by service; empty until the load stands.
    waits : since when, on the monotonic clock, by uid of pods that have no node.
    left : pods that waited at the end and got none in the time that was given.
    """

    def __init__(self, client: KubeClient, path: str) -> None:
        self._client, self._path = client, path
        self._event = msgspec.json.Decoder(_Event).decode
        self._pod = msgspec.json.Decoder(PodObject).decode
        self._pods: dict[str, _Seen] = {}
        self._ready: Counter[str] = Counter()
        self._version = ""
        self.floors: dict[str, int] = {}
        self.waits: dict[str, float] = {}
        self.left = 0
        self.account = Account()

    async def run(self) -> None:
        """Watch until cancelled; it must begin before the first pod comes."""
        listed = await self._client.get(self._path, {"limit": "1"})
        self._version = listed["metadata"]["resourceVersion"]
        while True:
            params = {"resourceVersion": self._version, "timeoutSeconds": "7200", "allowWatchBookmarks": "true"}
            async for lines in self._client.watch(self._path, params, SILENCE_SECONDS):
                for line in lines:
                    self._take(self._event(line))

    def begin(self) -> None:
        """Count anew from here."""
        self.account = Account(frozenset(pod.uid for pod in self._pods.values()))

    @property
    def ready(self) -> int:
        """Pods that are ready and stay."""
        return sum(self._ready.values())

    @property
    def there(self) -> list[_Seen]:
        """Pods that stay."""
        return [pod for pod in self._pods.values() if not pod.leaving]

    def nodes(self) -> set[str]:
        """Return the nodes with a pod that stays."""
        return {one.node for one in self.there if one.node}

    def longest_wait(self) -> float:
        """Return for how long a pod was without a node at most, wall seconds, those that still are among them."""
        now = time.monotonic()
        return max([self.account.longest_wait, *(now - since for since in self.waits.values())])

    def _take(self, event: _Event) -> None:
        if event.type == "ERROR":
            raise ClusterError(f"the watch fell behind: {bytes(event.object)[:200]!r}")
        if event.type == "BOOKMARK":  # a pod of nothing but a version, not even containers
            self._version = msgspec.json.decode(event.object)["metadata"]["resourceVersion"]
            return
        pod = self._pod(event.object)
        self._version = pod.metadata.resource_version or self._version
        key = pod.metadata.name
        before = self._pods.pop(key, None)
        conditions = {condition.type: condition for condition in pod.status.conditions}
        leaving = pod.metadata.deletion_timestamp is not None or pod.status.phase in ENDED
        if event.type != "DELETED":
            ready = "Ready" in conditions and conditions["Ready"].status == "True" and not leaving
            now = _Seen(pod.metadata.uid, pod.metadata.labels.get("app", ""), pod.spec.node_name, ready, leaving)
            self._pods[key] = now
        else:
            now = None
        if "DisruptionTarget" in conditions and conditions["DisruptionTarget"].reason == EVICTED:
            self.account.evicted.add(pod.metadata.uid)
        self._count(before, now)
        self._wait(pod.metadata.uid, waits=now is not None and not now.node and not now.leaving)

    def _count(self, before: _Seen | None, now: _Seen | None) -> None:
        for one, sign in ((before, -1), (now, 1)):
            if one is not None and one.ready:
                self._ready[one.app] += sign
        for app in {one.app for one in (before, now) if one is not None}:
            if app in self.floors:
                ready, account = self._ready[app], self.account
                account.least[app] = min(account.least.get(app, ready), ready)
                if ready < self.floors[app]:
                    account.broken.append(f"{app}: {ready} ready, its budget wants {self.floors[app]}")

    def _wait(self, uid: str, *, waits: bool) -> None:
        if waits:
            self.waits.setdefault(uid, time.monotonic())
        elif uid in self.waits:
            waited = time.monotonic() - self.waits.pop(uid)
            self.account.longest_wait = max(self.account.longest_wait, waited)

    def figures(self) -> dict[str, Any]:
        """Return what was counted."""
        account = self.account
        return {
            "nodes_used_after": len(self.nodes()),
            "pods": len(self.there),
            "evictions": len(account.evicted),
            "evictions_of_pods_that_came_since": len(account.evicted - account.before),
            "waiting_at_end": self.left,
            "longest_wait_wall_seconds": round(self.longest_wait(), 1),
            "versions_below_budget": len(account.broken),
            "broken": account.broken[:5],
        }
