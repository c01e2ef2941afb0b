"""`WatchHands`: the official client with a record on each node, for ``cotide consolidate --watch``.

Used by `rounds`. Every cordon and every eviction is written into the node's record before, or together with, its own
request, as in the operator (`drain_client`). The record has a name of its own: an operator that does not consolidate
gives back the nodes of earlier operators, and must not take these nodes for them. Invariant: a node without this record
is never uncordoned.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from cotide_core.consolidation.removal.watching import HOUR_SECONDS, Mark
from cotide_kube.objects import NodeObject
from cotide_operator.clock import Clock
from cotide_operator.config.settings import Settings
from cotide_operator.consolidation.carrier import MARK
from cotide_operator.consolidation.node_record import (
    RECORD,
    NodeRecord,
    Recorded,
    marked,
    moved,
    patch_of,
    record_of,
)
from cotide_operator.consolidation.official_client import OfficialClient, decoded

WATCH_RECORD: Final = "cotide.dev/consolidation-watch"
"""Annotation of a node: a `NodeRecord` as JSON."""


class WatchHands(OfficialClient):
    """The calls of `carrier.ClusterHands` and of `rounds.RoundHands`.

    Parameters
    ----------
    clock : the machine's.
    settings : as of `OfficialClient`.

    Raises
    ------
    ClusterError
        When there is no usable configuration.
    """

    def __init__(
        self,
        clock: Clock,
        kubeconfig: str | None = None,
        context: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(kubeconfig, context, settings)
        self._clock = clock
        self._known: dict[str, NodeRecord] = {}
        self._draining = ""

    async def records(self) -> dict[str, Recorded]:
        """Return the annotations of the nodes that carry our mark or a record, including the operator's."""
        found = {}
        for raw in await asyncio.to_thread(self._pages, "nodes"):
            node = decoded(raw, NodeObject, "nodes")
            ours = record_of(node, WATCH_RECORD)
            operators = record_of(node, RECORD)
            mark = node.metadata.annotations.get(MARK, "")
            if ours is not None or operators is not None or mark:
                record = ours or operators or NodeRecord()
                holder = "watch" if ours is not None else "operator" if operators is not None else "person"
                found[node.metadata.name] = Recorded(mark, record, holder, node.spec.unschedulable)
            if ours is not None:
                self._known[node.metadata.name] = ours
        return found

    async def mark(self, name: str, mark: str | None, *, cordoned: bool) -> None:
        """Cordon or uncordon a node with our mark and record, in one patch."""
        await self.write(name, Mark(mark or ""), cordoned=cordoned)

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
        now = self._clock.to_wall(self._clock.now())
        record = marked(self._known.get(name), now, cordoned=cordoned, demanded=demanded, forecast=forecast)
        self._draining = name if mark is Mark.DRAINING else ""
        await self._patch(name, record, patch_of(mark, WATCH_RECORD, record, cordoned=cordoned))

    async def evict(self, key: str, uid: str) -> int:
        """Write the eviction into the record of the node that is being drained, then request it."""
        name = self._draining
        now = self._clock.to_wall(self._clock.now())
        after = moved(self._known.get(name), uid, now, HOUR_SECONDS / self._clock.speed)
        if name and after is not None:
            await self._patch(name, after, {"metadata": {"annotations": {WATCH_RECORD: after.text()}}})
        return await super().evict(key, uid)

    async def _patch(self, name: str, record: NodeRecord, body: dict[str, Any]) -> None:
        await asyncio.to_thread(self._patch_node, name, body)
        self._known[name] = record
