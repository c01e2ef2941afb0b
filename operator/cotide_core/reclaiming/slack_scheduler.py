"""Algorithm 1 of Jiang et al. for one engine: places batch and gratis pods in predicted slack, and makes room.

Called by `cycle.Scheduler` for policies with forecast slack as their capacity. Let C be the usable capacity of a node
and P the predicted peak of its online pods. B and G are what batch and gratis pods hold, and L >= B + G is the
predicted load of both together::

    batch pods find   C - P - (B + G)
    gratis pods find  C - P - L; C - P - (B + G) - L with the configuration ``both``, C - P - (B + G) with ``held``

The node with the most left takes the pod, unless the policy has a rank or a guard. The guard is asked about nodes that
have enough, and a node that it refuses is neither taken nor freed. A batch pod that finds none displaces gratis pods
(`preemption`). It is nominated for the space, which is kept for it (`reservations`). C - P is `host_load.slack`.
Without a trusted forecast, P is what online pods ask for and C is all that is allocatable. L already contains what is
held (eq. 14 forecasts the level), so by default it takes the place of B + G. Refusals of a kubelet (`feasibility`) come
first.

Invariants: an online pod is never evicted for a batch or gratis pod. No decision of this module fills a node above C -
P. Same state, same events and same seed give the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.config import SchedulerConfig
from cotide_core.events import Pod
from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import Evict, NodeVerdict, WaitReason
from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.kernels.open_rows import CORDONED, LATER, OPEN, SHORT
from cotide_core.placement.candidates import SOFT_TAINT_PENALTY, Candidates
from cotide_core.placement.feasibility import FITS, Codes
from cotide_core.placement.placer import LOOKAHEAD, WIDTH, OpenNodes, Placement, Placer, Upcoming
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.reclaiming.forecast_slack import ENOUGH_ROOM, Claims, ForecastSlack, OpenRows
from cotide_core.reclaiming.nominations import Nomination
from cotide_core.reclaiming.preemption.plans import Admits
from cotide_core.reclaiming.requested_capacity import RequestedCapacity, kept_for_gang
from cotide_core.state.cluster_state import ClusterState, PodRecord
from cotide_core.state.node_columns import CPU_COLUMN
from cotide_core.state.shapes import FitShape, Shape
from cotide_core.state.snapshot import Snapshot
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU, RECLAIMED_MEMORY

MOST_AHEAD: Final = 248
"""Pairs of a later pod in the queue and a node that a call of the forecaster asks about as well. Chosen: next to eight
pairs of the current pod, as many as `SmallBatch` answers in machine code.
"""


class SlackScheduler(RequestedCapacity):
    """Slack, preemption and the monitor of one engine.

    Parameters
    ----------
    config : its ``hierarchical`` knobs, and the seed of the random choices where these ask for them.
    expected : predicted run seconds (p50, on its node) of bound jobs, by pod key; read when victims are weighed.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        state: ClusterState,
        placer: Placer,
        expected: Mapping[str, float],
        mates: Callable[[Pod], Sequence[PodRecord]] = lambda _: (),
    ) -> None:
        super().__init__(config, state, placer, expected, mates)
        self._forecast = ForecastSlack(self._config, state)
        self._nobody: Booleans = np.zeros(0, np.bool_)
        self._nothing: Floats = np.zeros((2, 0))
        self._at_risk: list[int] = []
        """Rows that the guard kept from being freed for the current pod."""

    def begin(self, now: float, forecaster: QosForecaster) -> list[Evict]:
        """Update to ``now``: end what the time ends, and refresh the forecasts. Returns the monitor's evictions."""
        self._lost_of_gang.clear()
        self._update_claims(now)
        self._end_cordons(now)
        self._refresh(now)
        return self._relieve_nodes(now, forecaster)

    def next_change(self, now: float) -> float:
        """Return when `begin` next has something to do by itself, at ``now`` or later; infinite for never."""
        return now if self._state.relieved else super().next_change(now)

    def _place(self, snapshot: Snapshot, entry: QueuedPod, forecaster: QosForecaster, upcoming: Upcoming) -> Placement:
        """Choose the best node that has enough left and passes the guard, or return the reason why there is none."""
        shape, pod = entry.shape, entry.pod
        if shape.online:
            return super()._place(snapshot, entry, forecaster, upcoming)
        candidates = self._placer.candidates(snapshot, shape.fit)
        among, claims = self._with_slack(snapshot, entry, candidates)
        found = self._placer.place_among(among, snapshot, shape, forecaster, lambda: self._likely(snapshot, upcoming()))
        if found.row < 0:
            # A node with too little slack may be freed for the pod, and then the guard decides, too.
            return found._replace(guarded=found.guarded or self._placer.policy.guard is not None)
        row, asked = found.row, self._state.demand(pod.requests)
        left = self._forecast.room_on(shape, row) - claims.reserved.item(0, row) - asked.millicores
        offered = snapshot.cells.allocatable[CPU_COLUMN][row]
        most = "enough is" if self._chooses_by_more else "most is"
        millicores = max(0, round(left))
        why = f"{most} left there next to the predicted load ({millicores}m of {offered:.0f}m cpu after it)"
        return found._replace(why=why + self._risk_there(found.probability))

    def open_nodes(self, snapshot: Snapshot, entry: QueuedPod) -> OpenNodes:
        """Return the nodes that have room for a pod now, whatever a guard decides."""
        shape = entry.shape
        if shape.online:
            return self._placer.fitting(snapshot, shape)
        return self._with_slack(snapshot, entry, self._placer.candidates(snapshot, shape.fit))[0]

    def _with_slack(self, snapshot: Snapshot, entry: QueuedPod, candidates: Candidates) -> tuple[OpenNodes, Claims]:
        """Return the nodes with enough slack for a batch or gratis pod. The second value is the part of them that it
        may not take.
        """
        shape, demand = entry.shape, self._state.demand(entry.pod.requests)
        asked = demand.millicores, demand.memory_bytes
        claims = self._claims(entry, candidates.codes)
        found = self._forecast.open_to(shape, candidates.codes, claims, asked)
        open_nodes, refused = found.rows, self._refusals(snapshot, shape, candidates, found)
        kept = self.kept_off(entry)
        if kept is not None:
            refused = (*refused, *kept_for_gang(snapshot, open_nodes & kept))
            open_nodes &= ~kept
        some = open_nodes.any() if kept is not None else found.of(OPEN)[0] > 0
        scores = self._scores(snapshot, shape, candidates, claims, asked) if some else np.zeros(len(open_nodes))
        return OpenNodes(open_nodes, scores, refused), claims

    def _claims(self, entry: QueuedPod, codes: Codes) -> Claims:
        """Return the part of the nodes that a pod may not take, whatever the forecasts are. No node is denied where the
        pod does not fit. That is so for most nominated nodes.
        """
        size = self._state.columns.size
        if len(self._nobody) != size:
            self._nobody, self._nothing = np.zeros(size, np.bool_), np.zeros((2, size))
        cordoned = self._nobody
        if self._monitor.keeps_off(self._now):
            cordoned = self._monitor.cordoned(self._state, self._now)
        if not len(self._nominations):
            return Claims(cordoned, self._nobody, self._nothing)
        pod, room = entry.pod, self._forecast.room(entry.shape)
        denied = np.zeros(size, np.bool_)
        for nomination in self._nominations:
            row = self._state.columns.row_of.get(nomination.node, -1)
            if row >= 0 and not denied[row] and codes.item(row) == FITS:
                denied[row] = not self._reservations.leaves(room, row, pod, without=pod.key)
        return Claims(cordoned, denied, self._reservations.reserved())

    def _likely(self, snapshot: Snapshot, upcoming: Sequence[Shape]) -> list[tuple[Shape, Integers]]:
        """Return the batch and gratis shapes that the next decisions will ask the guard about, and their nodes.

        The pods before a pod will take some of the best nodes, so the k-th pod probably looks at those from rank k on.
        A wrong guess costs a call and leaves the decision the same.
        """
        relief, rest = snapshot.columns.relief_clock, MOST_AHEAD
        last: dict[Shape, int] = {}
        first: dict[Shape, int] = {}
        for rank, other in enumerate(upcoming, start=1):
            if not other.online and other.failed_at != relief:
                first.setdefault(other, rank)
                last[other] = rank
        ranked: dict[tuple[FitShape, float], Integers] = {}
        likely = []
        for other, begin in first.items():
            best = ranked.get((other.fit, other.seconds))
            if best is None:
                best = ranked[other.fit, other.seconds] = self._best_with_slack(snapshot, other)
            there = best[begin : last[other] + WIDTH][:rest]
            if len(there):
                likely.append((other, there))
                rest -= len(there)
        return likely

    def _best_with_slack(self, snapshot: Snapshot, shape: Shape) -> Integers:
        """Return the best-ranked nodes with a service that have room for a shape. Return none if its candidates are not
        remembered. A guess must leave the memory as it is.
        """
        candidates = self._placer.known(snapshot, shape.fit)
        if candidates is None:
            return np.zeros(0, np.int64)
        cpu, memory = self._asked_by(shape.fit)[:, 0].tolist()
        return self._forecast.likely_open(shape, np.array(candidates.best(2 * LOOKAHEAD), np.int64), (cpu, memory))

    @property
    def by_requests(self) -> bool:
        """Whether requests alone bound batch and gratis pods."""
        return False

    def ceiling(self) -> Integers:
        """Return (2, N) millicores and bytes that batch pods find next to the predicted peak, whatever they hold."""
        return np.floor(self._forecast.slot - ENOUGH_ROOM).astype(np.int64)

    def leave_out(self, shape: Shape, may: Booleans) -> None:
        """Set (N,) ``may`` to False where pods of a shape get nothing now: on cordoned nodes. For gratis pods also
        where the predicted load of batch and gratis pods takes what is left.
        """
        super().leave_out(shape, may)
        if shape.gratis:
            fit = shape.fit
            may &= np.logical_and.reduce(self._forecast.room(shape) >= self._asked_by(fit) + ENOUGH_ROOM, axis=0)

    def admits(self, entry: QueuedPod, row: int) -> bool:
        """Whether a row has room for a pod at this moment."""
        left = self._forecast.room(entry.shape)[:, row] - self._reservations.asked(entry.pod)[:, 0]
        return super().admits(entry, row) and bool((left >= ENOUGH_ROOM).all())

    @property
    def _chooses_by_more(self) -> bool:
        """Whether something other than the remaining slack decides among nodes with enough of it."""
        return self._placer.policy.ranks_slack or self._placer.policy.guard is not None

    def _scores(
        self, snapshot: Snapshot, shape: Shape, candidates: Candidates, claims: Claims, asked: tuple[int, int]
    ) -> Floats:
        """Return (N,) scores of the nodes that have enough left."""
        if self._placer.policy.ranks_slack:
            return candidates.scores if self._placer.keeps_scores else self._placer.fitting(snapshot, shape).scores
        left = self._forecast.room(shape) - claims.reserved - np.array(asked, np.float64)[:, np.newaxis]
        largest = self._state.host_load.physical().max(axis=1, keepdims=True)
        shares = np.where(largest > 0, left / np.maximum(1.0, largest), np.inf).min(axis=0)
        soft = self._placer.feasibility.matches(shape.fit, snapshot).soft
        return np.asarray(np.minimum(shares, 1.0) - SOFT_TAINT_PENALTY * soft)

    def _room(self, entry: QueuedPod) -> Floats | None:
        return None if entry.shape.online else self._forecast.room(entry.shape)

    def _has_slack(self, entry: QueuedPod, row: int) -> bool:
        room, pod = self._room(entry), entry.pod
        return room is None or self._reservations.leaves(room, row, pod, without=pod.key)

    def _is_covered(self, claim: Nomination, room: Floats | None, entry: QueuedPod) -> bool:
        # Forecasts that change while victims leave are no reason to ask others as well.
        return (not entry.shape.online and not claim.restored) or super()._is_covered(claim, room, entry)

    def _admits(self, snapshot: Snapshot, entry: QueuedPod, forecaster: QosForecaster) -> Admits | None:
        """Return a function that decides by the guard whether a pod passes on rows. It remembers the refused ones."""
        self._at_risk = []
        asks = super()._admits(snapshot, entry, forecaster)
        if asks is None:
            return None

        def admits(rows: NDArray[np.intp]) -> Booleans:
            passes = asks(rows)
            self._at_risk.extend(rows[~passes].tolist())
            return passes

        return admits

    def _with_risks(self, snapshot: Snapshot, entry: QueuedPod, refusal: Placement) -> Placement:
        """Return a refusal that counts the nodes which the guard kept from being freed among those at risk."""
        shape = entry.shape
        if shape.online:
            return refusal
        room, asked = self._forecast.slot - self._held(), self._asked_by(shape.fit)
        lacks = ~np.logical_and.reduce(room - asked >= ENOUGH_ROOM, axis=0)
        rows = np.array(sorted({row for row in self._at_risk if lacks[row]}), np.intp)
        words = _short_of_slack(gratis=False)
        counted = next((node_verdict for node_verdict in refusal.refused if node_verdict.message == words), None)
        if not len(rows) or counted is None or counted.nodes < len(rows):
            return refusal
        rest = counted.nodes - len(rows)
        kept = [
            replace(node_verdict, nodes=rest) if node_verdict is counted else node_verdict
            for node_verdict in refusal.refused
        ]
        rest_of_it = refusal._replace(refused=tuple(node_verdict for node_verdict in kept if node_verdict.nodes))
        return self._placer.at_risk(snapshot, shape, rows, rest_of_it)

    @staticmethod
    def _asked_by(fit: FitShape) -> Floats:
        """Return (2, 1) millicores and bytes, plain and reclaimed, that pods of a shape ask for."""
        amounts = dict(zip(fit.resources, fit.amounts[:, 0].tolist(), strict=True))
        cpu = amounts.get(CPU, 0) + amounts.get(RECLAIMED_CPU, 0)
        memory = amounts.get(MEMORY, 0) + amounts.get(RECLAIMED_MEMORY, 0)
        return np.array([[cpu], [memory]], np.float64)

    def _refresh(self, now: float) -> None:
        """Compute the forecasts for ``now``. Wakes the pods that may profit where there is more room than before."""
        for row in self._forecast.refresh(now).tolist():
            if self._state.columns.alive[row]:
                self._relieve_row(row)

    def _refusals(
        self, snapshot: Snapshot, shape: Shape, candidates: Candidates, found: OpenRows
    ) -> tuple[NodeVerdict, ...]:
        verdicts = list(self._placer.unfit(snapshot, candidates))
        count, first = found.of(CORDONED)
        if count:
            verdicts.append(self._cordoned_verdict(count, snapshot.name(first)))
        words = _short_of_slack(gratis=shape.gratis and self._config.gratis_subtracts != "held")
        for kind, message in ((SHORT, words), (LATER, f"{words} before it would end")):
            count, first = found.of(kind)
            if count:
                verdicts.append(NodeVerdict(count, message, WaitReason.INSUFFICIENT_SLACK, snapshot.name(first)))
        return tuple(verdicts)


def _short_of_slack(*, gratis: bool) -> str:
    return f"predicted to need the room for online{' and batch' if gratis else ''} pods"
