"""How pods compete for the cpu of each node, as measured by an agent on it.

Written by `state.ClusterState` from `NodeContended`. The monitor (`overload_monitor`) reads it to relieve a node with
waiting services. The sample collector reads it to exclude latencies that a service's own limit caused. Invariant:
missing, outdated or impossible values count as no waiting and no throttling.
"""

from __future__ import annotations

import math

import numpy as np

from cotide_core.events import NodeContended
from cotide_core.kernels.array_types import Floats
from cotide_core.state.node_columns import NodeColumns


class Contention:
    """The latest report of each row of the columns."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._latest: dict[int, NodeContended] = {}
        """By row; most nodes have no agent."""

    def apply(self, event: NodeContended) -> None:
        """Record a report about a known node; an impossible or outdated report changes nothing."""
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
        """Drop the report of a row: another node may get the row."""
        self._latest.pop(row, None)

    def waiting(self, now: float, stale_seconds: float) -> Floats:
        """Return (N,) the highest share of its time that a service of the node waits for a cpu; 0 where unknown."""
        shares = np.zeros(self._columns.size)
        for row, event in self._latest.items():
            if event.waiting_share is not None and _is_fresh(event, now, stale_seconds):
                shares[row] = event.waiting_share
        return shares

    def throttled(self, row: int, now: float, stale_seconds: float) -> bool:
        """Return whether a service on a row was throttled by its own limit."""
        event = self._latest.get(row)
        return event is not None and event.throttled and _is_fresh(event, now, stale_seconds)


def _is_fresh(event: NodeContended, now: float, stale_seconds: float) -> bool:
    return now - stale_seconds <= event.at_seconds <= now + stale_seconds
