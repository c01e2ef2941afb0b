"""Algorithm 1 of Jiang et al. for one engine: where predicted slack lets batch and gratis pods go, and who makes room.

Called by `cycle.Scheduler` for policies whose capacity is forecast slack. With C the usable capacity of a node, P the
predicted peak of its online pods, B and G what batch and gratis pods hold, and L >= B + G the predicted load of both
together::

    batch pods find   C - P - (B + G)
    gratis pods find  C - P - L; C - P - (B + G) - L where the configuration says ``both``, C - P - (B + G) for ``held``

The node with the most left takes the pod, unless the policy has a rank for them or a guard: then the guard is asked
about nodes that have enough, and a node that it refuses is neither taken nor freed. A batch pod that finds none
evicts gratis pods (`preemption`) and is nominated for the space, which nobody else gets meanwhile (`reservations`). C
- P is `host_load.slack`; where no forecast is believed, P is what online pods ask for and C is all that is
allocatable. L already contains what is held (eq. 14 forecasts the level), so by default it takes the place of B + G.
What a kubelet would refuse (`feasibility`) is refused first.

Invariants: an online pod is never evicted; a node is never filled above C - P by a decision of this module; same state,
same events and same seed give the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.events import EvictRefused, NodeUpserted, Pod
from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import Evict, EvictCause, NodeVerdict, WaitReason
from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.kernels.open_rows import CORDONED, LATER, OPEN, SHORT
from cotide_core.placement.candidates import SOFT_TAINT_PENALTY, Candidates
from cotide_core.placement.feasibility import FITS, Codes
from cotide_core.placement.placer import LOOKAHEAD, WIDTH, OpenNodes, Placement, Placer, Upcoming
from cotide_core.placement.wait_instructions import Room
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.reclaiming.forecast_slack import ENOUGH_ROOM, Claims, ForecastSlack, OpenRows
from cotide_core.reclaiming.nominations import Nomination, Nominations
from cotide_core.reclaiming.preemption import Admits, Plan, Preemption
from cotide_core.reclaiming.requested_capacity import RequestedCapacity, kept_for_gang
from cotide_core.reclaiming.reservations import Reservations
from cotide_core.state.cluster_state import ClusterState, PodRecord
from cotide_core.state.node_columns import CPU_COLUMN
from cotide_core.state.shapes import FitShape, Shape
from cotide_core.state.snapshot import Snapshot
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU, RECLAIMED_MEMORY

MOST_AHEAD: Final = 248
"""Pairs of a pod behind in the queue and a node that a call of the forecaster asks about as well (chosen: beside eight
of the pod at hand as many as `SmallBatch` answers in machine code)."""


class ClaimsMark(NamedTuple):
    """Claims, evictions and freed rows at one moment of a cycle."""

    nominations: dict[str, Nomination]
    evictions: dict[str, tuple[str, float]]
    relieved: frozenset[int]
    eased: bool
    reopened: dict[Shape, None]


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
        self._nominations = Nominations()
        self._reservations = Reservations(state, self._evictions, self._nominations)
        self._preemption = Preemption(self._config, state, placer, self._evictions, self._reservations, self._generator)
        self._forecast = ForecastSlack(self._config, state)
        self._nobody: Booleans = np.zeros(0, np.bool_)
        self._nothing: Floats = np.zeros((2, 0))
        self._reopened: dict[Shape, None] = {}
        self._at_risk: list[int] = []
        """Rows that the guard kept from being freed for the pod at hand."""

    def begin(self, now: float, forecaster: QosForecaster) -> list[Evict]:
        """Bring everything up to ``now``: what the time ends, what the forecasts say, and whom the monitor evicts."""
        self._now = now
        self._lost_of_gang.clear()
        for key in self._evictions.expire(now):
            self._reopen(self._nominations.drop_where_stays(key))
        self._reopen(self._nominations.expire(now))
        self._reopen(self._nominations.drop_where_gone(self._state.columns.row_of))
        self._end_cordons(now)
        self._refresh(now)
        return self._relieve_nodes(now, forecaster)

    def gone(self, key: str) -> None:
        """Forget a pod that is gone or ended."""
        self._evictions.gone(key)
        dropped = self._nominations.drop(key)
        if dropped is not None:
            self._relieve(dropped.node)

    def take(self, event: EvictRefused | NodeUpserted, now: float) -> None:
        """Take in what concerns evictions and cordons: a victim stays, or a node tells of an earlier run's cordon."""
        if isinstance(event, NodeUpserted):
            until = event.node.cordoned_until_seconds
            if until is not None:
                self._monitor.adopt(event.node.name, until, now)
        elif self._evictions.refuse(event, now):
            self._reopen(self._nominations.drop_where_stays(event.key))

    def take_reopened(self) -> list[Shape]:
        """Return the shapes whose nominations came to nothing since the last call: they look for room anew."""
        reopened, self._reopened = list(self._reopened), {}
        return reopened

    def next_change(self, now: float) -> float:
        """Return when `begin` has something to do by itself, not before ``now``; infinite for never."""
        if self._state.relieved:
            return now
        moments = (self._evictions.next_change(now), self._nominations.next_change(), self._next_relief(now))
        return max(now, min(moments))

    def place(self, snapshot: Snapshot, entry: QueuedPod, forecaster: QosForecaster, upcoming: Upcoming) -> Placement:
        """Choose a node that has enough left, the best that the guard lets pass, or say why there is none."""
        shape, pod = entry.shape, entry.pod
        if shape.online:
            return self._placer.place(snapshot, shape, forecaster, upcoming)
        candidates = self._placer.candidates(snapshot, shape.fit)
        if len(self._nominations):
            fits = (candidates.codes == FITS) & self._allowed(entry)
            freed = self._place_freed(snapshot, entry, self._forecast.room(shape), fits, forecaster)
            if freed is not None:
                return freed
        among, claims = self._with_slack(snapshot, entry, candidates)
        found = self._placer.place_among(among, snapshot, shape, forecaster, lambda: self._likely(snapshot, upcoming()))
        if found.row < 0:
            # A node that has too little slack may be freed for it, and then the guard has a say.
            return found._replace(guarded=found.guarded or self._placer.policy.guard is not None)
        self._drop_own(pod.key)
        row, asked = found.row, self._state.demand(pod.requests)
        left = self._forecast.room_on(shape, row) - claims.reserved.item(0, row) - asked.millicores
        offered = snapshot.cells.allocatable[CPU_COLUMN][row]
        most = "enough is" if self._chooses_by_more else "most is"
        millicores = max(0, round(left))
        why = f"{most} left there beside the predicted load ({millicores}m of {offered:.0f}m cpu after it)"
        return found._replace(why=why + self._risk_there(found.probability))

    def open_nodes(self, snapshot: Snapshot, entry: QueuedPod) -> OpenNodes:
        """Return the nodes that have room for a pod now, whatever a guard says of them."""
        shape = entry.shape
        if shape.online:
            return self._placer.fitting(snapshot, shape)
        return self._with_slack(snapshot, entry, self._placer.candidates(snapshot, shape.fit))[0]

    def _with_slack(self, snapshot: Snapshot, entry: QueuedPod, candidates: Candidates) -> tuple[OpenNodes, Claims]:
        """Return the nodes with enough slack for a batch or gratis pod, and what of them is not its to take."""
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
        """Return what of the nodes is not a pod's to take, whatever the forecasts say; none is denied on which it does
        not fit, as most are not that were nominated."""
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
        return Claims(cordoned, denied, self._reservations.reserved(on_their_way=True))

    def _likely(self, snapshot: Snapshot, upcoming: Sequence[Shape]) -> list[tuple[Shape, Integers]]:
        """Return which batch and gratis shapes the next decisions will ask the guard about, and on which nodes.

        The pods before a pod will take some of the best nodes, so the k-th is expected to look at those from rank k on.
        A wrong guess costs a call, never another decision.
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
        """Return the best-ranked nodes with a service that have room for a shape; none where its candidates are not
        remembered, since a guess must leave what is remembered as it is."""
        candidates = self._placer.known(snapshot, shape.fit)
        if candidates is None:
            return np.zeros(0, np.int64)
        cpu, memory = self._asked_by(shape.fit)[:, 0].tolist()
        return self._forecast.likely_open(shape, np.array(candidates.best(2 * LOOKAHEAD), np.int64), (cpu, memory))

    def make_room(
        self, snapshot: Snapshot, entry: QueuedPod, refusal: Placement, forecaster: QosForecaster
    ) -> tuple[Room | None, Placement]:
        """Choose gratis pods to evict for a batch pod that found no node, where that would help and the guard agrees.

        Returns
        -------
        room : None where nobody is asked to leave.
        refusal : of the pod; tells also of the nodes that the guard kept from being freed.
        """
        pod = entry.pod
        if pod.workload_class is not WorkloadClass.BATCH or not pod.preempts or self._config.victims == "none":
            return None, refusal
        self._at_risk = []
        admits = self._asks(snapshot, entry.shape, forecaster)
        standing = self._nominations.of(pod.key)
        room = self._forecast.room(entry.shape)
        allowed = self._allowed(entry)
        if standing is not None and not self._open(standing.node, snapshot, entry, allowed, admits):
            self._drop_own(pod.key)
            standing = None
        if standing is None:
            plan = self._preemption.plan(snapshot, entry, room, allowed, self._lost, self._now, admits)
        elif not standing.restored or self._covered(standing, room, pod):
            return _room_for(standing), refusal
        else:
            plan = self._completed(snapshot, entry, standing, room, allowed, admits)
        if plan is None:
            return None, self._with_risks(snapshot, entry.shape, refusal)
        return self._carry_out(entry, plan), refusal

    def _allowed(self, entry: QueuedPod) -> Booleans:
        """Return (N,) the nodes that are neither cordoned nor kept from a pod."""
        cordoned, kept = self._monitor.cordoned(self._state, self._now), self.kept_off(entry)
        return ~cordoned if kept is None else ~cordoned & ~kept

    def mark(self) -> object:
        """Return claims, evictions and freed rows as they are."""
        relieved = frozenset(self._state.relieved)
        return ClaimsMark(self._nominations.copy(), self._evictions.copy(), relieved, self._eased, dict(self._reopened))

    def rewind(self, mark: object) -> None:
        """Forget claims and evictions that were noted since, and wake nobody for them."""
        if not isinstance(mark, ClaimsMark):
            return
        nominations, evictions, relieved, self._eased, self._reopened = mark
        self._nominations.take_back(nominations)
        self._evictions.take_back(evictions)
        self._state.relieved.intersection_update(relieved)

    def claim(self, entry: QueuedPod, node: str, mark: object, now: float) -> Room:
        """Keep a node's room for a pod; where it had a claim on it before, that one goes on."""
        known = mark.nominations.get(entry.pod.key) if isinstance(mark, ClaimsMark) else None
        if known is None or known.node != node:
            return _room_for(self._nominate(entry, node, frozenset(), now))
        self._nominations.add(known)
        return _room_for(known)

    def restore(self, entry: QueuedPod, now: float) -> None:
        """Take up a claim that an earlier run made for a pod, before anybody else looks at the space.

        Which pods were asked to go for it is not known any more, only who is on the way out: if these don't suffice,
        `make_room` asks for the rest on the same node, when it is the pod's turn.
        """
        if self._placer.policy.plan is not None:
            return  # a plan gives it a start, not a claim
        pod = entry.pod
        row = self._state.columns.row_of.get(pod.nominated_node or "")
        if row is None or pod.nominated_node is None or pod.workload_class is not WorkloadClass.BATCH:
            return
        if not pod.preempts or self._config.victims == "none":
            return
        coming = frozenset(one.pod.key for one in self._reservations.going(row))
        self._nominate(entry, pod.nominated_node, coming, now, restored=True)

    @property
    def by_requests(self) -> bool:
        """Whether requests alone bound batch and gratis pods."""
        return False

    def ceiling(self) -> Integers:
        """Return (2, N) millicores and bytes that batch pods find beside the predicted peak, whatever they hold."""
        return np.floor(self._forecast.slot - ENOUGH_ROOM).astype(np.int64)

    def leave_out(self, shape: Shape, may: Booleans) -> None:
        """Set (N,) ``may`` to False where pods of a shape get nothing now: on cordoned nodes, and gratis pods also
        where the predicted load of batch and gratis pods takes what is left."""
        super().leave_out(shape, may)
        if shape.gratis:
            fit = shape.fit
            may &= np.logical_and.reduce(self._forecast.room(shape) >= self._asked_by(fit) + ENOUGH_ROOM, axis=0)

    def admits(self, entry: QueuedPod, row: int) -> bool:
        """Whether a row has room for a pod at this moment."""
        left = self._forecast.room(entry.shape)[:, row] - self._reservations.asked(entry.pod)[:, 0]
        return super().admits(entry, row) and bool((left >= ENOUGH_ROOM).all())

    def _place_freed(
        self, snapshot: Snapshot, entry: QueuedPod, room: Floats, fits: Booleans, forecaster: QosForecaster
    ) -> Placement | None:
        """Return the placement on space that was freed for a pod like this, or None."""
        pod = entry.pod
        for nomination in self._nominations.usable_by(entry.shape, pod.key):
            row = self._state.columns.row_of.get(nomination.node, -1)
            if not (row >= 0 and fits[row] and self._reservations.leaves(room, row, pod, without=nomination.pod)):
                continue
            risk = self._placer.probabilities(snapshot, entry.shape, np.array([row], np.intp), forecaster).item()
            if risk > self._placer.accepted:
                continue
            self._nominations.drop(nomination.pod)
            self._nominations.drop(pod.key)
            guard = self._placer.policy.guard
            concerned = guard is not None and guard.concerns(snapshot, entry.shape, row)
            probability = risk if concerned else None
            why = "the space there was freed for it" + self._risk_there(probability)
            basis = self._placer.basis(entry.shape, row) if concerned else 0
            return Placement(row, probability, (), guarded=guard is not None, why=why, basis=basis)
        return None

    @property
    def _chooses_by_more(self) -> bool:
        """Whether something else than the slack that is left decides among nodes with enough of it."""
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

    def _risk_there(self, probability: float | None) -> str:
        if probability is None:
            return ""
        accepted = self._placer.accepted
        return f"; a latency limit breaks there with p={probability:.2f}, at most {accepted:.2f} is accepted"

    def _asks(self, snapshot: Snapshot, shape: Shape, forecaster: QosForecaster) -> Admits:
        """Return what tells of rows whether the guard lets a pod of a shape pass there, and remembers where not."""

        def admits(rows: NDArray[np.intp]) -> Booleans:
            passes = self._placer.probabilities(snapshot, shape, rows, forecaster) <= self._placer.accepted
            self._at_risk.extend(rows[~passes].tolist())
            return np.asarray(passes)

        return admits

    def _with_risks(self, snapshot: Snapshot, shape: Shape, refusal: Placement) -> Placement:
        """Return a refusal that counts the nodes which the guard kept from being freed among those at risk."""
        room, asked = self._forecast.slot - self._held(), self._asked_by(shape.fit)
        lacks = ~np.logical_and.reduce(room - asked >= ENOUGH_ROOM, axis=0)
        rows = np.array(sorted({row for row in self._at_risk if lacks[row]}), np.intp)
        words = _short_of_slack(gratis=False)
        counted = next((one for one in refusal.refused if one.message == words), None)
        if not len(rows) or counted is None or counted.nodes < len(rows):
            return refusal
        rest = counted.nodes - len(rows)
        kept = [replace(one, nodes=rest) if one is counted else one for one in refusal.refused]
        rest_of_it = refusal._replace(refused=tuple(one for one in kept if one.nodes))
        return self._placer.at_risk(snapshot, shape, rows, rest_of_it)

    @staticmethod
    def _asked_by(fit: FitShape) -> Floats:
        """Return (2, 1) millicores and bytes, plain and reclaimed, that pods of a shape ask for."""
        amounts = dict(zip(fit.resources, fit.amounts[:, 0].tolist(), strict=True))
        cpu = amounts.get(CPU, 0) + amounts.get(RECLAIMED_CPU, 0)
        memory = amounts.get(MEMORY, 0) + amounts.get(RECLAIMED_MEMORY, 0)
        return np.array([[cpu], [memory]], np.float64)

    def _open(self, name: str, snapshot: Snapshot, entry: QueuedPod, allowed: Booleans, admits: Admits) -> bool:
        """Whether a node is there, takes pods like this one at all, and would not break a latency limit with it."""
        row = self._state.columns.row_of.get(name)
        codes = self._placer.feasibility.node_codes(entry.shape.fit, snapshot)
        if row is None or not allowed[row] or codes[row] != FITS:
            return False
        return bool(admits(np.array([row], np.intp))[0])

    def _covered(self, claim: Nomination, room: Floats, pod: Pod) -> bool:
        row = self._state.columns.row_of.get(claim.node)
        return row is not None and self._reservations.covers(room, row, pod)

    def _completed(
        self,
        snapshot: Snapshot,
        entry: QueuedPod,
        claim: Nomination,
        room: Floats,
        allowed: Booleans,
        admits: Admits,
    ) -> Plan | None:
        """Return a plan for a pod whose claim of an earlier run lacks room: on that node, or else anywhere."""
        self._drop_own(entry.pod.key)
        row = self._state.columns.row_of.get(claim.node)
        if row is not None:
            only = np.zeros(len(allowed), np.bool_)
            only[row] = allowed[row]
            plan = self._preemption.plan(snapshot, entry, room, only, self._lost, self._now, admits)
            if plan is not None:
                return plan
        return self._preemption.plan(snapshot, entry, room, allowed, self._lost, self._now, admits)

    def _carry_out(self, entry: QueuedPod, plan: Plan) -> Room:
        pod, name = entry.pod, self._name(plan.row)
        victims = frozenset(one.record.pod.key for one in plan.victims) | frozenset(plan.coming)
        claim = self._nominate(entry, name, victims, self._now)
        out = []
        for one in plan.victims:
            self._evictions.ask(one.record, self._now)
            victim = one.record.pod
            reason = f"makes room for batch pod {pod.key}; a gratis pod with {one.lost:.0f} core s done"
            out.append(Evict(victim.key, victim.uid, name, reason, EvictCause.PREEMPTED, pod.key, pod.uid))
        return _room_for(claim, tuple(out))

    def _nominate(
        self, entry: QueuedPod, node: str, victims: frozenset[str], now: float, *, restored: bool = False
    ) -> Nomination:
        pod, demand = entry.pod, self._state.demand(entry.pod.requests)
        until = now + self._config.nomination_seconds
        claim = Nomination(
            pod.key,
            entry.shape,
            node,
            demand.millicores,
            demand.memory_bytes,
            pod.requests,
            victims,
            until,
            makes_way=victims - self._nominations.counted_on(node, victims),
            restored=restored,
        )
        self._nominations.add(claim)
        return claim

    def _refresh(self, now: float) -> None:
        """Work the forecasts out for ``now``, and wake those who may profit where there is more room than before."""
        for row in self._forecast.refresh(now).tolist():
            if self._state.columns.alive[row]:
                self._relieve_row(row)

    def _reopen(self, ended: Sequence[Nomination]) -> None:
        for nomination in ended:
            self._relieve(nomination.node)
            self._reopened[nomination.shape] = None

    def _drop_own(self, key: str) -> None:
        own = self._nominations.drop(key)
        if own is not None:
            self._relieve(own.node)

    def _name(self, row: int) -> str:
        node = self._state.columns.nodes[row]
        return "" if node is None else node.name

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


def _room_for(claim: Nomination, evictions: tuple[Evict, ...] = ()) -> Room:
    leaving = len(claim.makes_way)
    message = f"{leaving} gratis pod{'s leave' if leaving > 1 else ' leaves'} {claim.node} for it"
    if not leaving:
        message = f"{claim.node} is kept for it"
    return Room(claim.node, message, tuple(sorted(claim.makes_way)), evictions)
