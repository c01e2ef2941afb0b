"""The parked shapes that a change wakes.

Owned by `cycle.Scheduler`. Freed capacity wakes at once, a falling request rate after the back-off. A policy's guard
checks the freed rows first (`queueing_hints_qos`): a shape that it refuses there counts an attempt and stays where it
is. Invariant: a shape that one of the changed rows can take is woken; nothing else can have helped it.
"""

from __future__ import annotations

import math

from cotide_core.forecasts import QosForecaster
from cotide_core.placement.capacity import Capacity
from cotide_core.placement.feasibility import FITS
from cotide_core.placement.placer import Placement, Placer
from cotide_core.placement.queueing_hints_qos import shapes_to_requeue
from cotide_core.queueing.scheduling_queue import SchedulingQueue
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import FitShape, Shape
from cotide_core.state.snapshot import Snapshot


class QueueingHints:
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
        self._hopes: dict[Shape, list[int]] = {}
        """The rows that the guard admits for a shape; the shape was woken in this cycle for them alone."""
        self._screened: dict[int, int] = {}
        """Their versions at the guard's answer."""
        self._peers_seen = 0
        """The clock of `PodMatches` at the last check of its changes."""
        self._nodes_seen = 0
        """The clock of the nodes' own fields at that check."""
        self._put_off: set[Shape] = set()
        """Shapes that wait for the next cycle, since this one used up the comparisons of their namespace."""

    @property
    def has_put_off(self) -> bool:
        """Whether parked shapes wait for a check in the next cycle."""
        return bool(self._put_off)

    def next_change(self, now: float) -> float:
        """Return when `wake` has work without an event: now if this cycle's binds concern parked pods."""
        moved = self._state.matches.clock != self._peers_seen
        return now if moved and any(shape.fit.depends for shape in self._queue.parked_shapes()) else math.inf

    def wake(self, snapshot: Snapshot, now: float, forecaster: QosForecaster) -> None:
        """Wake the shapes that one of the changed rows can take."""
        self._hopes.clear()
        relieved, eased = sorted(self._state.relieved), sorted(self._state.eased)
        if self._state.matches.active:
            self._wake_peers(snapshot, now, relieved)
        if not relieved and not eased:
            return
        policy = self._placer.policy
        guard = policy.guard
        # A node that the guard refuses may still be freed for a batch pod elsewhere: under such policies, all are
        # tried.
        screens = guard is not None and policy.rank.cacheable and policy.capacity is Capacity.REQUESTS
        freed: dict[FitShape, list[int]] = {}
        quieter: dict[FitShape, bool] = {}
        screened: dict[Shape, list[int]] = {}
        for shape in self._by_rows(eased=bool(eased) and guard is not None):
            rows = freed.get(shape.fit)
            if rows is None:
                rows = freed[shape.fit] = self._takes(snapshot, shape.fit, relieved)
            may_ease = False
            if guard is not None and eased and self._was_at_risk(shape):
                if shape.fit not in quieter:
                    quieter[shape.fit] = bool(self._takes(snapshot, shape.fit, eased))
                may_ease = quieter[shape.fit]
            if rows and screens and not (may_ease or shape.online or self._queue.backs_off(shape)):
                screened[shape] = rows
            elif rows or may_ease:
                self._queue.wake(shape, now, urgent=bool(rows))
        if screened:
            self._hopes = self._screen(snapshot, list(screened.items()), forecaster)
            for shape in screened:
                if shape in self._hopes:
                    self._queue.hope(shape, now)
                else:
                    self._refuse(shape, now)
        self._state.relieved.clear()
        self._state.eased.clear()

    def _by_rows(self, *, eased: bool) -> list[Shape]:
        """Return the parked shapes that only changed rows may help; `_wake_peers` checks the others."""
        parked = self._queue.parked_shapes()
        if not self._state.matches.active:
            return parked
        return [shape for shape in parked if not shape.fit.depends or (eased and self._was_at_risk(shape))]

    def _wake_peers(self, snapshot: Snapshot, now: float, relieved: list[int]) -> None:
        """Wake the shapes that depend on other pods if one of these came or went, or a row has more room for them.

        One pod may open any row of its domain, not only its own. So may a node that leaves or that changes its domain.
        """
        seen, self._peers_seen = self._peers_seen, self._state.matches.clock
        nodes_seen, self._nodes_seen = self._nodes_seen, self._state.columns.spec_clock
        rearranged = nodes_seen != self._nodes_seen
        before, self._put_off = self._put_off, set()
        if seen == self._peers_seen and not relieved and not rearranged and not before:
            return
        matches = self._state.matches
        parked = self._queue.parked_shapes()
        for shape in sorted(parked, key=lambda shape: shape not in before) if before else parked:
            peers = shape.fit.peers
            if peers is None or not peers.refuses or matches.claimed(peers.sole_claims):
                continue
            namespace = self._queue.speaks_for(shape)
            if matches.budget.is_spent(namespace):
                self._put_off.add(shape)
                continue
            matches.budget.charge(namespace, peers.pairs)
            if rearranged or shape in before or matches.opened_since(peers, seen):
                helped = bool(self._placer.candidates(snapshot, shape.fit).tally.get(FITS))
            else:
                helped = bool(self._placer.feasibility.taking(shape.fit, snapshot, relieved))
            if helped:
                shape.failed_at = -1
                self._queue.wake(shape, now, urgent=True)

    def is_stale(self, snapshot: Snapshot, shape: Shape, forecaster: QosForecaster) -> bool:
        """Whether other pods have since taken the rows that woke a shape; all other rows refuse it."""
        rows = self._hopes.get(shape)
        if rows is None:
            return False
        if not rows:
            return True
        version, screened = snapshot.versions.item, self._screened
        taken = {row for row in rows if version(row) != screened[row]}
        if not taken:
            return False
        self._screen_again(snapshot, taken, forecaster)
        return not self._hopes[shape]

    def _screen_again(self, snapshot: Snapshot, taken: set[int], forecaster: QosForecaster) -> None:
        """Check the rows with new placements again, for all shapes that were woken for them, in one call."""
        fitting: dict[FitShape, list[int]] = {}
        wanted = []
        for shape, rows in self._hopes.items():
            if not taken.isdisjoint(rows):
                if shape.fit not in fitting:
                    fitting[shape.fit] = self._takes(snapshot, shape.fit, list(taken))
                self._hopes[shape] = [row for row in rows if row not in taken]
                wanted.append((shape, [row for row in rows if row in fitting[shape.fit]]))
        for shape, rows in self._screen(snapshot, wanted, forecaster).items():
            self._hopes[shape].extend(rows)

    def _screen(
        self, snapshot: Snapshot, wanted: list[tuple[Shape, list[int]]], forecaster: QosForecaster
    ) -> dict[Shape, list[int]]:
        guard = self._placer.policy.guard
        for _, rows in wanted:
            for row in rows:
                self._screened[row] = snapshot.versions.item(row)
        return {} if guard is None else shapes_to_requeue(snapshot, guard, wanted, forecaster)

    def _refuse(self, shape: Shape, now: float) -> None:
        self._queue.refused(shape, now)
        if not self._was_at_risk(shape):
            del self._failures[shape]  # one node has room, and a falling rate can help there

    def _was_at_risk(self, shape: Shape) -> bool:
        failure = self._failures.get(shape)
        return failure is None or failure.guarded

    def _takes(self, snapshot: Snapshot, shape: FitShape, rows: list[int]) -> list[int]:
        """Return the rows that a shape fits on."""
        if not rows:
            return []
        known = None if shape.peers is not None else self._placer.known(snapshot, shape)
        if known is not None:
            return [row for row in rows if known.codes.item(row) == FITS]
        return self._placer.feasibility.taking(shape, snapshot, rows)
