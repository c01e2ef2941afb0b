"""What one watch shows of all pods: when each was created and bound, and what was said of those that were not.

Used by `perf_operations`. Both moments are of one clock, at which the watch showed them, for every scheduler alike.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient

PODS = "/api/v1/pods"
SILENCE_SECONDS = 3600.0
POLL_SECONDS = 0.5
"""Chosen: how long a wait sleeps when no event comes."""
Key = tuple[str, str]
"""Namespace and name."""


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] = []


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: _Pod


@dataclass(slots=True)
class PodSight:
    """What was seen of one pod.

    Attributes
    ----------
    created : monotonic seconds. bound : likewise, None while it has no node.
    refusal : reason and message of its condition ``PodScheduled``; empty before a scheduler looked at it.
    """

    created: float
    labels: Mapping[str, str] = field(default_factory=dict)
    node: str = ""
    bound: float | None = None
    gone: bool = False
    refusal: str = ""

    @property
    def attempted(self) -> bool:
        return bool(self.node or self.gone or self.refusal)

    @property
    def over(self) -> bool:
        """Whether nothing more is to be waited for."""
        return self.bound is not None or self.gone


class PodWatch:
    """All pods by namespace and name, as one watch shows them; ``faults`` is what must never be seen."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._decode = msgspec.json.Decoder(_Event).decode
        self.pods: dict[Key, PodSight] = {}
        self.faults: list[str] = []
        self._changed = asyncio.Event()
        self._version = ""

    async def run(self) -> None:
        """Watch until cancelled."""
        self._version = (await self._client.get(PODS, {"limit": "1"}))["metadata"]["resourceVersion"]
        while True:
            params = {"resourceVersion": self._version, "timeoutSeconds": "7200"}
            async for lines in self._client.watch(PODS, params, SILENCE_SECONDS):
                seen = time.monotonic()
                for line in lines:
                    self._take(self._decode(line), seen)
                self._changed.set()

    def forget(self) -> None:
        """Begin with other pods; events of earlier ones that are still on their way do no harm."""
        self.pods, self.faults = {}, []

    def bound(self, keys: Iterable[Key]) -> list[PodSight]:
        """Return those of some pods that are bound, in the order of their binding."""
        found = [self.pods[key] for key in keys if key in self.pods and self.pods[key].bound is not None]
        return sorted(found, key=lambda pod: pod.bound or 0.0)

    def refusals(self, keys: Iterable[Key]) -> dict[str, int]:
        """Return what was said of those of some pods that are not bound, and of how many."""
        left = (self.pods.get(key) for key in keys)
        return dict(Counter(pod.refusal if pod else "never seen" for pod in left if pod is None or not pod.over))

    async def until(self, done: Callable[[PodSight], bool], keys: Iterable[Key], stall: float, limit: float) -> bool:
        """Wait until all of some pods are so; False after ``limit`` seconds, or ``stall`` without one more."""
        left, begun = set(keys), time.monotonic()
        last = begun
        while left:
            before = len(left)
            left = {key for key in left if key not in self.pods or not done(self.pods[key])}
            now = time.monotonic()
            last = now if len(left) < before else last
            if left and (now - last > stall or now - begun > limit):
                return False
            if left:
                self._changed.clear()
                try:
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._changed.wait()
                except TimeoutError:
                    continue
                await asyncio.sleep(0.02)  # a look costs as much as there are pods left
        return True

    def _take(self, event: _Event, seen: float) -> None:
        if event.type == "ERROR":
            raise ClusterError("the watch of the pods fell too far behind")
        pod = event.object
        self._version = pod.metadata.resource_version or self._version
        key = (pod.metadata.namespace, pod.metadata.name)
        sight = self.pods.setdefault(key, PodSight(seen))
        sight.labels, sight.gone = pod.metadata.labels, event.type == "DELETED"
        if pod.spec.node_name:
            sight.bound = seen if sight.bound is None else sight.bound
            if sight.node not in ("", pod.spec.node_name):
                self.faults.append(f"{key} was on {sight.node} and is on {pod.spec.node_name}")
            sight.node = pod.spec.node_name
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled":
                sight.refusal = f"{condition.reason}: {condition.message}"
