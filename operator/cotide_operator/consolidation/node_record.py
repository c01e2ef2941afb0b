"""What consolidation writes on a node: a mark that a person reads, and a record that the next operator reads.

Used by `live_hands` and `controller`. Nodes that carry a mark without a record belong to a person who ran ``cotide
consolidate --apply``: the operator leaves them alone. Times are epoch seconds of the wall, as the API's.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cotide_core.consolidation.removal.watching import HOUR_SECONDS, Mark, Standing
from cotide_kube.objects import NodeObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.consolidation.carrier import MARK

RECORD: Final = "cotide.dev/consolidation-record"
"""Annotation of a node: a `NodeRecord` as JSON."""
MOVES_MOST: Final = 1000
"""Evictions that one record holds, the latest; chosen: a node has a few hundred pods at most."""


class NodeRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """See the module. `moved`: when each pod was evicted from the node by us, by uid."""

    since: float = 0.0
    p50_seconds: float = 0.0
    p90_seconds: float = 0.0
    given_back: float = 0.0
    demanded: bool = False
    moved: dict[str, float] = {}

    def text(self) -> str:
        """Return the annotation."""
        return msgspec.json.encode(self).decode()


def record_of(node: NodeObject) -> NodeRecord | None:
    """Return what a node's record says; None where there is none, an empty one where it can't be read."""
    text = node.metadata.annotations.get(RECORD)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=NodeRecord)
    except msgspec.DecodeError:
        return NodeRecord()


def moved(record: NodeRecord, uid: str, at: float, hour: float = HOUR_SECONDS) -> NodeRecord:
    """Return a record with one eviction more; those of more than an hour ago are left out."""
    lately = {key: when for key, when in record.moved.items() if when > at - hour}
    latest = dict(list(lately.items())[-(MOVES_MOST - 1) :])
    return msgspec.structs.replace(record, moved={**latest, uid: at})


def standing_of(mark: str, record: NodeRecord, pods: int, clock: Clock) -> Standing:
    """Return where a node with a mark and a record stands, on the operator's clock."""
    known = Mark(mark) if mark in set(Mark) else Mark.NONE
    return Standing(
        mark=known,
        since=clock.from_wall(record.since),
        pods=pods,
        p50_seconds=record.p50_seconds,
        p90_seconds=record.p90_seconds,
        given_back=clock.from_wall(record.given_back) if record.given_back else float("-inf"),
        demanded=record.demanded,
        moved={uid: clock.from_wall(at) for uid, at in record.moved.items()},
    )


def left_behind(mirror: ObjectCache) -> list[str]:
    """Return the nodes that an operator which consolidated holds cordoned."""
    return [
        name
        for name, node in mirror.nodes.items()
        if RECORD in node.metadata.annotations and node.metadata.annotations.get(MARK)
    ]
