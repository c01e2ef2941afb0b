"""The annotations of consolidation on a node: a mark for people, and a record for the next operator.

Used by `drain_client`, `controller` and `watch_hands`. Nodes with a mark but no record belong to a person who ran
``cotide consolidate --apply``: the operator leaves them alone. Times are epoch seconds of the wall, as the API's.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from cotide_core.consolidation.removal.watching import HOUR_SECONDS, Mark, Standing
from cotide_kube.objects import NodeObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.consolidation.carrier import MARK

RECORD: Final = "cotide.dev/consolidation-record"
"""Annotation of a node: a `NodeRecord` as JSON."""
MAX_MOVES: Final = 1000
"""Latest evictions that one record holds; chosen: a node has a few hundred pods at most."""


class NodeRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The content of the record annotation. `moved`: when we evicted each pod from the node, by uid."""

    since: float = 0.0
    p50_seconds: float = 0.0
    p90_seconds: float = 0.0
    given_back: float = 0.0
    demanded: bool = False
    moved: dict[str, float] = {}

    def text(self) -> str:
        """Return the annotation."""
        return msgspec.json.encode(self).decode()


class Recorded(NamedTuple):
    """The annotations of a node.

    Attributes
    ----------
    holder : its owner: ``operator``, ``watch`` (a terminal's ``--watch --apply``), or ``person``, without a record.
    """

    mark: str
    record: NodeRecord
    holder: str
    cordoned: bool


def record_of(node: NodeObject, name: str = RECORD) -> NodeRecord | None:
    """Return a node's record; None when it has none, an empty one when it can't be read."""
    text = node.metadata.annotations.get(name)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=NodeRecord)
    except msgspec.DecodeError:
        return NodeRecord()


def marked(
    record: NodeRecord | None,
    at: float,
    *,
    cordoned: bool,
    demanded: bool = False,
    forecast: tuple[float, float] = (0.0, 0.0),
) -> NodeRecord:
    """Return a node's record from the moment ``at`` of its cordon or return.

    Parameters
    ----------
    demanded : whether it is given back because pods wait.
    forecast : p50 and p90 seconds until it has emptied by itself.
    """
    after = msgspec.structs.replace(record or NodeRecord(), since=at)
    if cordoned:
        return msgspec.structs.replace(after, p50_seconds=forecast[0], p90_seconds=forecast[1])
    return msgspec.structs.replace(after, given_back=at, demanded=demanded)


def patch_of(mark: Mark, name: str, record: NodeRecord, *, cordoned: bool) -> dict[str, Any]:
    """Return the one patch of a node that writes the mark, the record under its annotation's name, and the cordon."""
    annotations = {MARK: mark.value or None, name: record.text()}
    return {"metadata": {"annotations": annotations}, "spec": {"unschedulable": cordoned or None}}


def moved(record: NodeRecord | None, uid: str, at: float, hour: float = HOUR_SECONDS) -> NodeRecord | None:
    """Return a record with one more eviction, or None for a known one; evictions of an hour ago are left out."""
    record = record or NodeRecord()
    if uid in record.moved:
        return None
    recent = {key: when for key, when in record.moved.items() if when > at - hour}
    latest = dict(list(recent.items())[-(MAX_MOVES - 1) :])
    return msgspec.structs.replace(record, moved={**latest, uid: at})


def standing_of(mark: str, record: NodeRecord, pods: int, clock: Clock) -> Standing:
    """Return the standing of a node with a mark and a record, on the operator's clock."""
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


def left_behind(cache: ObjectCache) -> list[str]:
    """Return the nodes that a consolidating operator still holds cordoned."""
    return [
        name
        for name, node in cache.nodes.items()
        if RECORD in node.metadata.annotations and node.metadata.annotations.get(MARK)
    ]
