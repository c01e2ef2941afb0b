"""Placements that count at once: the state counts a chosen node as taken before its confirmation.

Used by `cycle` for placements of the present and by `planning` for starts of a plan, so that the next decision sees
what the last one took. Invariant: a pod is assumed once between two calls of `let_go`.
"""

from __future__ import annotations

from collections.abc import Iterator

from cotide_core.placement.bind_instructions import DecidedBind
from cotide_core.placement.placer import Placement
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.queueing.scheduling_queue import SchedulingQueue
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.node_columns import CPU_COLUMN
from cotide_core.state.snapshot import Snapshot


class Assumptions:
    """The pods of one engine that were placed and are not confirmed yet."""

    def __init__(self, state: ClusterState, queue: SchedulingQueue) -> None:
        self._state = state
        self._queue = queue
        self._in_flight: dict[str, QueuedPod] = {}

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._in_flight.values())

    def assume(self, entry: QueuedPod, placement: Placement, snapshot: Snapshot, now: float) -> DecidedBind:
        """Count a pod on the row of its placement."""
        self._state.assume(entry.pod.key, snapshot.name(placement.row), now)
        return self.settle(entry, placement, snapshot, now)

    def settle(self, entry: QueuedPod, placement: Placement, snapshot: Snapshot, now: float) -> DecidedBind:
        """Record a placement that the state counts already as decided."""
        row = placement.row
        node = snapshot.name(row)
        entry.attempts += 1
        self._queue.placed(entry, now)
        self._in_flight[entry.pod.key] = entry
        cells, waited = snapshot.cells, now - entry.pod.created_seconds
        offered = cells.allocatable[CPU_COLUMN][row]
        pressure = cells.batch_millicores[row] / (offered if offered > 1 else 1)
        return DecidedBind(entry, node, placement, waited if waited > 0.0 else 0.0, cells.service_rates[row], pressure)

    def let_go(self, key: str) -> QueuedPod | None:
        """Forget a pod that was confirmed, refused or deleted; returns its placement if it was assumed."""
        return self._in_flight.pop(key, None)
