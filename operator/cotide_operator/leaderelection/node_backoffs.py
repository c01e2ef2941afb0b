"""A leader's knowledge of nodes that refused pods, as an annotation on the lease for the next leader.

Used by `assembly`. `lease` writes it with each renewal, so that a kill costs only the news since the last one, and no
request is added. It is on the lease because only the operator may write there. A user with the right to create pods
could forge a note on a pod. By `spec.nodeName` they could even make a pod that a kubelet refuses, and so close nodes to
others.

Times are epoch seconds of the machine. Invariant: an unreadable annotation counts as missing, and no node is closed for
longer than the engine itself would close it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

import msgspec

from cotide_core.events import NodeBackoffRestored
from cotide_core.limits import BACKOFFS_BYTES, MAX_BACKOFFS, MAX_EXACT_INT
from cotide_core.state.node_refusals import LONGEST_SECONDS
from cotide_operator.clock import Clock

_LOG = logging.getLogger(__name__)

NODE_BACKOFFS_ANNOTATION: Final = "cotide.dev/node-back-offs"
MAX_REFUSALS: Final = 32
"""Refusals in a row that are taken over; chosen: after five more the back-off is at its maximum already."""


class _Written(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    node: str
    reason: str
    until: float
    refusals: int = 1
    requests: tuple[tuple[str, int], ...] = ()
    trying: str = ""


def written(backoffs: Iterable[NodeBackoffRestored], clock: Clock) -> str:
    """Return the annotation; empty without back-offs. Of too many it holds those that last longest."""
    lasting = sorted(backoffs, key=attrgetter("until_seconds"), reverse=True)[:MAX_BACKOFFS]
    kept: list[bytes] = []
    left = BACKOFFS_BYTES - 2
    for node_backoff_restored in lasting:
        until = round(clock.to_wall(node_backoff_restored.until_seconds), 3)
        line = msgspec.json.encode(
            _Written(
                node_backoff_restored.node,
                node_backoff_restored.reason,
                until,
                node_backoff_restored.refusals,
                node_backoff_restored.requests,
                node_backoff_restored.trying,
            )
        )
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    return f"[{b','.join(kept).decode()}]" if kept else ""


def read(text: str, clock: Clock, now: float) -> list[NodeBackoffRestored]:
    """Return the last leader's knowledge, without entries that it would have forgotten by now.

    Parameters
    ----------
    text : the annotation; empty for none.
    now : seconds of the clock.
    """
    if not text:
        return []
    try:
        if len(text) > BACKOFFS_BYTES:
            raise msgspec.DecodeError(f"{len(text)} characters, at most {BACKOFFS_BYTES} are read")
        found = msgspec.json.decode(text, type=list[_Written])
    except msgspec.DecodeError as error:
        _LOG.warning(
            "annotation %s of the lease can't be read, and counts as missing: %s", NODE_BACKOFFS_ANNOTATION, error
        )
        return []
    return [
        event
        for entry in found[:MAX_BACKOFFS]
        if (event := _event_of(entry, clock.from_wall(entry.until), now)) is not None
    ]


def _event_of(entry: _Written, until: float, now: float) -> NodeBackoffRestored | None:
    if not math.isfinite(until) or now - until > LONGEST_SECONDS:
        return None
    if not all(0 <= amount <= MAX_EXACT_INT for _, amount in entry.requests):
        return None
    refusals = min(MAX_REFUSALS, max(1, entry.refusals))
    until = min(until, now + LONGEST_SECONDS)
    return NodeBackoffRestored(entry.node, entry.reason, until, refusals, entry.requests, entry.trying)
