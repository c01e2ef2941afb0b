"""Which parked shapes are woken by what changed.

Owned by `cycle.Scheduler`. Invariant: a shape that one of the changed rows can take is woken; nothing else can have
helped it.
"""

from __future__ import annotations

import numpy as np

from cotide_core.feasibility import FITS
from cotide_core.placement import Placement, Placer
from cotide_core.queueing import SchedulingQueue
from cotide_core.shapes import FitShape, Shape
from cotide_core.snapshot import Snapshot
from cotide_core.state import ClusterState


class Wakes:
    """Wakes the shapes of one engine.

    Parameters
    ----------
    failures : the latest failed placement of each parked shape, kept by the engine.
    """

    def __init__(
        self, state: ClusterState, placer: Placer, queue: SchedulingQueue, failures: dict[Shape, Placement]
    ) -> None:
        self._state = state
        self._placer = placer
        self._queue = queue
        self._failures = failures

    def wake(self, snapshot: Snapshot, now: float) -> None:
        """Wake the shapes that one of the changed rows can take."""
        relieved, eased = self._state.relieved, self._state.eased
        if not relieved and not eased:
            return
        guarded = self._placer.policy.guard is not None
        helped: dict[tuple[FitShape, bool], bool] = {}
        for shape in self._queue.parked_shapes():
            for urgent, rows in ((True, relieved), (False, eased)):
                if not rows or (not urgent and not (guarded and self._was_at_risk(shape))):
                    continue
                if (shape.fit, urgent) not in helped:
                    helped[shape.fit, urgent] = self._takes(snapshot, shape.fit, rows)
                if helped[shape.fit, urgent]:
                    self._queue.wake(shape, now, urgent=urgent)
                    break
        relieved.clear()
        eased.clear()

    def _was_at_risk(self, shape: Shape) -> bool:
        failure = self._failures.get(shape)
        return failure is None or failure.guarded

    def _takes(self, snapshot: Snapshot, shape: FitShape, rows: set[int]) -> bool:
        known = self._placer.known(snapshot, shape)
        if known is not None:
            return any(known.codes.item(row) == FITS for row in rows)
        listed = np.fromiter(sorted(rows), np.intp, len(rows))
        return bool((self._placer.feasibility.codes(shape, snapshot, listed) == FITS).any())
