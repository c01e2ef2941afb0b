"""Keeps the reclaimed capacity in node statuses in step with the outlooks, with few patches.

The assembly starts it for one term of leadership::

    outlooks, cache (nodes, pods) --name--> changed --check, once a second--> turns --rate--> PATCH nodes/<n>/status

`node_status` decides which changes are worth a patch. A node is patched at most once per ``minimumIntervalSeconds``, or
per `AT_ONCE_SECONDS` where trust was lost or the status shows room that does not exist. All nodes together get
``patchesPerSecond``. A refused patch is tried again with growing pauses, always with the values of that moment. Where
publishing is turned off, the same machinery removes all Cotide fields from the nodes.

Invariants: a node without an outlook, or with an unknown size, is never patched. Amounts are never negative and never
below what the node's pods hold. Otherwise they never exceed the physical amount, whatever an outlook states. Values
that a node shows already are not written again, by this process or the next one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cotide_core.errors import ClusterError
from cotide_core.state.reclaimed import Holdings
from cotide_kube.answers import ApiError
from cotide_kube.backoff import Backoff
from cotide_kube.client import KubeClient
from cotide_kube.objects import NodeObject
from cotide_operator.cache.object_cache import Kind, ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.config.host_load_settings import ReclaimedSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reclaimed.node_outlook import NodeOutlook, Outlooks
from cotide_operator.reclaimed.node_patch_queue import NodePatchQueue
from cotide_operator.reclaimed.node_status import (
    NOTHING,
    Shown,
    Urgency,
    Wanted,
    after,
    publication,
    shown,
    standing,
    urgency,
    wanted,
    withdrawal,
)
from cotide_operator.reporting.event_recorder import EventRecorder

_LOG = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
"""Wall seconds between two checks of changed nodes: one check handles a burst of pods on a node; chosen."""
NODES_AT_A_TIME: Final = 200
"""Nodes checked before the loop gets its turn: some 10 ms; chosen."""
WORKERS: Final = 4
"""Patches in flight; chosen: at 10 patches a second an API server may take 0.4 s for each."""
AT_ONCE_SECONDS: Final = 5.0
"""Wall seconds between two urgent patches of one node; chosen: another program that writes there all the time must not
cause a loop."""
UNKNOWN_SECONDS: Final = 5.0
"""Wall seconds between two checks of a node that the engine does not know yet, or not in full; chosen."""
BACKOFF: Final = Backoff(initial_seconds=2.0, cap_seconds=300.0)
"""Pauses between two tries after a refusal, on top of the client's own tries; chosen."""
WARNING_SECONDS: Final = 60.0
"""Wall seconds between two lines about refused patches; chosen: an outage must not fill the log."""


@dataclass(slots=True)
class _Published:
    """What is remembered of one node; losing it in a restart does no harm."""

    uid: str
    patched: float = -math.inf
    """Monotonic second of the last accepted patch."""
    failures: int = 0
    retry: float = -math.inf
    seen: NodeObject | None = None
    """The cache's node that was read, or that the last patch was made for: as long as it is in the cache, ``current``
    holds."""
    current: Shown = NOTHING
    stood: bool | None = None
    """The last `standing` that this process wrote."""


class _Decided(NamedTuple):
    how: Urgency
    node: NodeObject
    current: Shown
    target: Wanted | None
    """None: the node should show no Cotide fields."""


class Publication(NamedTuple):
    """How reclaimed capacity is published.

    Attributes
    ----------
    settings : as configured.
    publish : False: remove the published fields.
    slot_seconds : on the operator's clock; an outlook expires one slot after its end.
    seed : of the pauses between tries; None draws one.
    """

    settings: ReclaimedSettings
    publish: bool
    slot_seconds: float
    seed: int | None = None


class ReclaimedPublisher:
    """Patches nodes; made once per term of leadership.

    Parameters
    ----------
    client, cache, clock, recorder, metrics :
        The operator's.
    outlooks : Outlooks
        The publisher subscribes to them.
    holdings_of : callable
        The holdings of a node's pods, by name; None while the engine does not know the node and all of its
        pods.
    how : Publication
    """

    def __init__(
        self,
        client: KubeClient,
        cache: ObjectCache,
        outlooks: Outlooks,
        clock: Clock,
        *,
        holdings_of: Callable[[str], Holdings | None],
        how: Publication,
        recorder: EventRecorder,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._cache = cache
        self._outlooks = outlooks
        self._clock = clock
        self._holdings_of = holdings_of
        self._settings = how.settings
        self._publish = how.publish
        self._slot_seconds = how.slot_seconds
        self._recorder = recorder
        self._metrics = metrics
        self._rng = random.Random(how.seed)
        self._known: dict[str, _Published] = {}
        self._changed: dict[str, None] = {}
        self._later: dict[str, float] = {}
        """Nodes with the monotonic second of their next check."""
        self._over: set[str] = set()
        self._turns = NodePatchQueue(how.settings.patches_per_second)
        self._offers: dict[str, tuple[int | None, int | None]] = {}
        """The offer in each node's status, for the metrics."""
        self._warned = -math.inf
        self._refused = 0
        cache.subscribe(self._mirrored)
        outlooks.subscribe(self._on_outlooks)

    async def run(self) -> None:
        """Publish until cancelled."""
        self._changed.update(dict.fromkeys(self._cache.nodes))
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work())
            while True:
                names = self._to_look_at()
                for start in range(0, len(names), NODES_AT_A_TIME):
                    self._look_at(names[start : start + NODES_AT_A_TIME])
                    await asyncio.sleep(0)
                self._show()
                await asyncio.sleep(POLL_SECONDS)

    def look(self) -> None:
        """Queue the nodes that are worth a patch now."""
        self._look_at(self._to_look_at())
        self._show()

    def _to_look_at(self) -> list[str]:
        now = time.monotonic()
        for outlook in self._outlooks:
            if outlook.node not in self._over and self._is_over(outlook):
                self._over.add(outlook.node)
                self._changed[outlook.node] = None
        for name in [name for name, due in self._later.items() if due <= now]:
            del self._later[name]
            self._changed[name] = None
        changed, self._changed = self._changed, {}
        return list(changed)

    def _look_at(self, names: Sequence[str]) -> None:
        now = time.monotonic()
        for name in names:
            if self._turns.taken(name):
                self._changed[name] = None
                continue
            decided = self._decide(name)
            if decided is None or decided.how is Urgency.NONE:
                self._turns.drop(name)
                if decided is None and name in self._cache.nodes:
                    self._later[name] = now + UNKNOWN_SECONDS
                continue
            due = self._earliest(name, decided.how)
            if due > now:
                self._turns.drop(name)
                self._later[name] = due
                continue
            self._turns.put(name, decided.how)

    def _show(self) -> None:
        for index, metric in enumerate((self._metrics.published_cpu, self._metrics.published_memory)):
            metric.set(sum(amounts[index] or 0 for amounts in self._offers.values()))

    def _on_outlooks(self, outlooks: list[NodeOutlook]) -> None:
        names = [outlook.node for outlook in outlooks]
        self._over.difference_update(names)
        self._changed.update(dict.fromkeys(names))

    def _mirrored(self, kind: Kind, key: str) -> None:
        if kind == "pods":
            pod = self._cache.pods.get(key)
            if pod is not None and pod.spec.node_name:  # a deleted pod ended before: its node is checked
                self._changed[pod.spec.node_name] = None
        elif kind == "nodes" and key:
            self._changed[key] = None
            node = self._cache.nodes.get(key)
            if node is None:
                self._forget(key)
            elif key in self._known and self._known[key].uid != node.metadata.uid:
                self._known[key] = _Published(node.metadata.uid)  # it registered again: old delays do not apply

    def _is_over(self, outlook: NodeOutlook) -> bool:
        return outlook.until_seconds + self._slot_seconds < self._clock.now()

    def _decide(self, name: str) -> _Decided | None:
        """Return what a node shows and should show; None while the node is not known in full.

        What pods hold is looked up last, because each burst of pods brings all nodes here, and most need no patch.
        """
        node = self._cache.nodes.get(name)
        if node is None:
            return None
        known = self._known.setdefault(name, _Published(node.metadata.uid))
        if known.seen is not node:
            known.seen, known.current = node, shown(node)
        current = known.current
        self._offers[name] = current.allocatable
        outlook = self._outlooks.get(name) if self._publish else None
        if outlook is None and (self._publish or not current.anything):
            return _Decided(Urgency.NONE, node, current, None)
        held = self._holdings_of(name)
        if held is None:
            return None
        if outlook is None:
            # While a pod holds reclaimed capacity its kubelet must find it there: see `wanted`. The engine of an
            # operator that has just started does not know yet which pods do.
            return _Decided(Urgency.NONE if any(held.reclaimed) else Urgency.DUE, node, current, None)
        target = wanted(outlook, held, over=self._is_over(outlook))
        share, wall = self._settings.minimum_change_share, time.time()
        how = urgency(current, target, in_use=held.reclaimed, physical=held.physical, share=share, wall_seconds=wall)
        return _Decided(how, node, current, target)

    def _earliest(self, name: str, how: Urgency) -> float:
        """Return the monotonic second of the earliest patch of a node."""
        known = self._known[name]
        interval = self._settings.minimum_interval_seconds
        if how is Urgency.AT_ONCE:
            interval = min(interval, AT_ONCE_SECONDS)
        return max(known.patched + interval, known.retry)

    def _forget(self, name: str) -> None:
        self._turns.drop(name)
        self._known.pop(name, None)
        self._later.pop(name, None)
        self._offers.pop(name, None)

    async def _work(self) -> None:
        while True:
            name = await self._turns.take()
            try:
                await self._patch(name)
            finally:
                self._turns.done(name)

    async def _patch(self, name: str) -> None:
        """Write the present values, if they are still worth a patch."""
        decided = self._decide(name)
        if decided is None or decided.how is Urgency.NONE:
            return
        known, node, current, target = self._known[name], decided.node, decided.current, decided.target
        wall = time.time()
        patch = withdrawal(node) if target is None else publication(node, current, target, wall)
        try:
            await self._client.patch(f"/api/v1/nodes/{name}/status", patch, "strategic")
        except ClusterError as error:
            known.failures += 1
            known.retry = time.monotonic() + BACKOFF.wait_seconds(known.failures, self._rng)
            self._later[name] = known.retry
            self._warn_throttled(name, error)
            return
        known.failures, known.retry, known.patched = 0, -math.inf, time.monotonic()
        known.seen, known.current = node, after(current, target, wall)
        self._changed[name] = None  # for the metrics, and for changes of the meantime
        self._metrics.reclaimed_patches.labels("withdrawn" if target is None else "published").inc()
        if target is None:
            return
        before, stands = known.stood if known.stood is not None else standing(current), standing(target)
        known.stood = before if stands is None else stands
        if before is not None and stands is not None and before is not stands:
            self._recorder.forecast_trust(name, node.metadata.uid, trusted=stands, message=target.message)

    def _warn_throttled(self, name: str, error: ClusterError) -> None:
        gone = isinstance(error, ApiError) and error.status in (404, 409)  # replaced: the watch will report it
        self._metrics.reclaimed_patches.labels("gone" if gone else "refused").inc()
        if gone:
            return
        self._refused += 1
        now = time.monotonic()
        if now - self._warned >= WARNING_SECONDS:
            more = f" (and {self._refused - 1} more patches of nodes)" if self._refused > 1 else ""
            _LOG.warning("reclaimed capacity of node %s could not be written%s: %s", name, more, error)
            self._warned, self._refused = now, 0
