"""How the cpu of each node is fought for, as an agent on it measured.

Written by `state.ClusterState` from `NodeContended`; read by the monitor (`overload_monitor`), which relieves a node
whose services wait, and by the sample collector, which learns from no latency that a service's own limit made.
Invariant: what is missing, out of date or can't be says that nobody waits and nobody is held back.
"""

from __future__ import annotations

import math

import numpy as np

from cotide_core.events import NodeContended
from cotide_core.kernels.array_types import Floats
from cotide_core.state.node_columns import NodeColumns


class Contention:
    """The latest of each row of the columns."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._latest: dict[int, NodeContended] = {}
        """By row; most nodes have no agent."""

    def apply(self, event: NodeContended) -> None:
        """Take in what is told of a known node; what can't be, or is older than the last, changes nothing."""
        row = self._columns.row_of.get(event.node)
        share = event.waiting_share
        if row is None or not math.isfinite(event.at_seconds):
            return
        if share is not None and not (math.isfinite(share) and share >= 0):
            return
        known = self._latest.get(row)
        if known is None or event.at_seconds >= known.at_seconds:
            self._latest[row] = event

    def forget(self, row: int) -> None:
        """Drop what is known of a row: another node may get it."""
        self._latest.pop(row, None)

    def waiting(self, now: float, stale_seconds: float) -> Floats:
        """Return (N,) the share of its time for which the service waits for a cpu that waits most; 0 where unknown."""
        shares = np.zeros(self._columns.size)
        for row, event in self._latest.items():
            if event.waiting_share is not None and _is_fresh(event, now, stale_seconds):
                shares[row] = event.waiting_share
        return shares

    def throttled(self, row: int, now: float, stale_seconds: float) -> bool:
        """Return whether a service on a row was held back by its own limit."""
        event = self._latest.get(row)
        return event is not None and event.throttled and _is_fresh(event, now, stale_seconds)


def _is_fresh(event: NodeContended, now: float, stale_seconds: float) -> bool:
    return now - stale_seconds <= event.at_seconds <= now + stale_seconds
