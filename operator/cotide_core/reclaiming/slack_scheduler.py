"""Algorithm 1 of Jiang et al. for one engine: where predicted slack lets batch and gratis pods go, and who makes room.

Called by `cycle.Scheduler` for policies with ``by_slack``. With C the usable capacity of a node, P the predicted peak
of its online pods, B and G what batch and gratis pods hold, and L >= B + G the predicted load of both together::

    batch pods find   C - P - (B + G)
    gratis pods find  C - P - L, or C - P - (B + G) - L where the configuration says ``both``

The node with the most left takes the pod. A batch pod that finds none evicts gratis pods (`preemption`) and is
nominated for the space, which nobody else gets meanwhile (`reservations`). C - P is `host_load.slack`; where no
forecast is believed, P is what online pods ask for and C is all that is allocatable. L already contains what is held
(eq. 14 forecasts the level), so by default it takes the place of B + G. What a kubelet would refuse (`feasibility`) is
refused first.

Invariants: an online pod is never evicted; a node is never filled above C - P by a decision of this module; same state,
same events and same seed give the same decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.events import EvictRefused, NodeUpserted, Pod
from cotide_core.instructions import Evict, EvictCause, NodeVerdict, WaitReason
from cotide_core.kernels.array_types import Booleans, Floats
from cotide_core.placement.candidates import SOFT_TAINT_PENALTY, Candidates
from cotide_core.placement.feasibility import FITS
from cotide_core.placement.placer import Placement, Placer
from cotide_core.placement.refusal_messages import constraint_verdicts
from cotide_core.placement.wait_instructions import Room
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.nominations import Nomination, Nominations
from cotide_core.reclaiming.overload_monitor import Alarms, OverloadMonitor
from cotide_core.reclaiming.preemption import Plan, Preemption
from cotide_core.reclaiming.reservations import ENOUGH_ROOM, Reservations
from cotide_core.state.cluster_state import ClusterState, PodRecord
from cotide_core.state.host_load import slack
from cotide_core.state.shapes import Shape
from cotide_core.state.snapshot import Snapshot


class SlackScheduler:
    """Slack, preemption and the monitor of one engine.

    Parameters
    ----------
    config : its ``hierarchical`` knobs, and the seed of the random choices where these ask for them.
    expected : predicted run seconds (p50, on its node) of bound jobs, by pod key; read when victims are weighed.
    """

    def __init__(
        self, config: SchedulerConfig, state: ClusterState, placer: Placer, expected: Mapping[str, float]
    ) -> None:
        self._config = config.hierarchical or HierarchicalConfig()
        self._state = state
        self._placer = placer
        self._expected = expected
        self._generator = np.random.default_rng(config.seed)
        self._evictions = Evictions(self._config)
        self._nominations = Nominations()
        self._reservations = Reservations(state, self._evictions, self._nominations)
        self._preemption = Preemption(self._config, state, placer, self._evictions, self._reservations, self._generator)
        self._monitor = OverloadMonitor(self._config, self._generator)
        self._slack: Floats = np.zeros((2, 0))
        self._load: Floats = np.zeros((2, 0))
        self._now = 0.0
        self._reopened: dict[Shape, None] = {}

    def begin(self, now: float) -> list[Evict]:
        """Bring everything up to ``now``: what the time ends, what the forecasts say, and whom the monitor evicts."""
        self._now = now
        for key in self._evictions.expire(now):
            self._reopen(self._nominations.drop_where_stays(key))
        self._reopen(self._nominations.expire(now))
        self._reopen(self._nominations.drop_where_gone(self._state.columns.row_of))
        for name in self._monitor.end_cordons(now):
            self._relieve(name)
        self._refresh(now)
        return self._monitor.relieve(self._state, self._evictions, self._lost, now)

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
        moments = (self._evictions.next_change(now), self._nominations.next_change(), self._monitor.next_change(now))
        return max(now, min(moments))

    def place(self, snapshot: Snapshot, entry: QueuedPod) -> Placement:
        """Choose the node that has the most left, or say why there is none."""
        shape, pod = entry.shape, entry.pod
        candidates = self._placer.candidates(snapshot, shape.fit)
        asked = self._reservations.asked(pod)
        room = self._room(gratis=shape.gratis)
        cordoned = self._monitor.cordoned(self._state, self._now)
        fits = (candidates.codes == FITS) & ~cordoned
        for nomination in self._nominations.usable_by(shape, pod.key):
            row = self._state.columns.row_of.get(nomination.node, -1)
            if row >= 0 and fits[row] and self._reservations.leaves(room, row, pod, without=nomination.pod):
                self._nominations.drop(nomination.pod)
                self._nominations.drop(pod.key)
                return Placement(row, None, (), why="the space there was freed for it")
        left = room - self._reservations.reserved(on_their_way=True) - asked
        enough: Booleans = np.logical_and.reduce(left >= ENOUGH_ROOM, axis=0)
        for nomination in self._nominations:
            row = self._state.columns.row_of.get(nomination.node, -1)
            if row >= 0 and enough[row]:
                enough[row] = self._reservations.leaves(room, row, pod, without=pod.key)
        open_rows = fits & enough
        if not open_rows.any():
            return Placement(-1, None, self._refusals(snapshot, candidates, cordoned, enough, gratis=shape.gratis))
        physical = self._state.host_load.physical()
        largest = physical.max(axis=1, keepdims=True)
        shares = np.where(largest > 0, left / np.maximum(1.0, largest), np.inf).min(axis=0)
        soft = self._placer.feasibility.matches(shape.fit, snapshot).soft
        score = np.where(open_rows, np.minimum(shares, 1.0) - SOFT_TAINT_PENALTY * soft, -np.inf)
        row = int(score.argmax())
        self._drop_own(pod.key)
        millicores = max(0, round(float(left[0, row])))
        why = f"most is left there beside the predicted load ({millicores}m of {physical[0, row]:.0f}m cpu after it)"
        return Placement(
            row, None, self._refusals(snapshot, candidates, cordoned, enough, gratis=shape.gratis), why=why
        )

    def make_room(self, snapshot: Snapshot, entry: QueuedPod) -> Room | None:
        """Choose gratis pods to evict for a batch pod that found no node; None when that would not help."""
        pod = entry.pod
        if pod.workload_class is not WorkloadClass.BATCH or not pod.preempts:
            return None
        standing = self._nominations.of(pod.key)
        room = self._room(gratis=False)
        allowed = ~self._monitor.cordoned(self._state, self._now)
        if standing is not None and not self._open(standing.node, snapshot, entry, allowed):
            self._drop_own(pod.key)
            standing = None
        if standing is None:
            plan = self._preemption.plan(snapshot, entry, room, allowed, self._lost, self._now)
        elif not standing.restored or self._covered(standing, room, pod):
            return _room_for(standing)
        else:
            plan = self._completed(snapshot, entry, standing, room, allowed)
        return None if plan is None else self._carry_out(entry, plan)

    def restore(self, entry: QueuedPod, now: float) -> None:
        """Take up a claim that an earlier run made for a pod, before anybody else looks at the space.

        Which pods were asked to go for it is not known any more, only who is on the way out: if these don't suffice,
        `make_room` asks for the rest on the same node, when it is the pod's turn.
        """
        pod = entry.pod
        row = self._state.columns.row_of.get(pod.nominated_node or "")
        if row is None or pod.nominated_node is None or pod.workload_class is not WorkloadClass.BATCH:
            return
        if not pod.preempts:
            return
        coming = frozenset(one.pod.key for one in self._reservations.going(row))
        self._nominate(entry, pod.nominated_node, coming, now, restored=True)

    @property
    def alarms(self) -> Alarms:
        """Which nodes are overloaded and which are cordoned, as of the last `begin`."""
        return self._monitor.alarms

    def _open(self, name: str, snapshot: Snapshot, entry: QueuedPod, allowed: Booleans) -> bool:
        """Whether a node is there and takes pods like this one at all."""
        row = self._state.columns.row_of.get(name)
        codes = self._placer.feasibility.node_codes(entry.shape.fit, snapshot)
        return row is not None and bool(allowed[row]) and bool(codes[row] == FITS)

    def _covered(self, claim: Nomination, room: Floats, pod: Pod) -> bool:
        row = self._state.columns.row_of.get(claim.node)
        return row is not None and self._reservations.covers(room, row, pod)

    def _completed(
        self, snapshot: Snapshot, entry: QueuedPod, claim: Nomination, room: Floats, allowed: Booleans
    ) -> Plan | None:
        """Return a plan for a pod whose claim of an earlier run lacks room: on that node, or else anywhere."""
        self._drop_own(entry.pod.key)
        row = self._state.columns.row_of.get(claim.node)
        if row is not None:
            only = np.zeros(len(allowed), np.bool_)
            only[row] = allowed[row]
            plan = self._preemption.plan(snapshot, entry, room, only, self._lost, self._now)
            if plan is not None:
                return plan
        return self._preemption.plan(snapshot, entry, room, allowed, self._lost, self._now)

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

    def _lost(self, record: PodRecord) -> float:
        """Return the core seconds of work that an eviction of a pod throws away.

        No longer than its predicted run time (p50): beyond it, a job's past says nothing about its worth.
        """
        started = record.pod.started_seconds
        ran = 0.0 if started is None else max(0.0, self._now - started)
        worked = min(ran, self._expected.get(record.pod.key, np.inf))
        return worked * self._state.demand(record.pod.requests).millicores / 1000.0

    def _refresh(self, now: float) -> None:
        """Work the forecasts out for ``now``, and wake those who may profit where there is more room than before."""
        load = self._state.host_load
        peak, believed = load.online_peak(now, self._config.usage_stale_seconds)
        room = slack(load.physical(), peak, believed, self._config.capacity_share)
        batch = load.batch_load(now)
        known = min(self._slack.shape[1], room.shape[1])
        eased = (room[:, :known] > self._slack[:, :known]) | (batch[:, :known] < self._load[:, :known])
        for row in np.flatnonzero(eased.any(axis=0)).tolist():
            if self._state.columns.alive[row]:
                self._state.columns.touch(row, relief=True)
                self._state.relieved.add(row)
        self._slack, self._load = room, batch

    def _room(self, *, gratis: bool) -> Floats:
        """Return (2, N) what batch or gratis pods find, nominations not counted."""
        load = self._state.host_load
        size = self._state.columns.size
        held: Floats = self._state.columns.held[:2, :, :size].sum(axis=0).astype(np.float64)
        if gratis:
            expected = load.batch_load(self._now)
            held = held + expected if self._config.gratis_subtracts == "both" else expected
        return np.asarray(self._slack - held)

    def _reopen(self, ended: Sequence[Nomination]) -> None:
        for nomination in ended:
            self._relieve(nomination.node)
            self._reopened[nomination.shape] = None

    def _drop_own(self, key: str) -> None:
        own = self._nominations.drop(key)
        if own is not None:
            self._relieve(own.node)

    def _relieve(self, name: str) -> None:
        row = self._state.columns.row_of.get(name)
        if row is not None:
            self._state.columns.touch(row, relief=True)
            self._state.relieved.add(row)

    def _name(self, row: int) -> str:
        node = self._state.columns.nodes[row]
        return "" if node is None else node.name

    def _refusals(
        self, snapshot: Snapshot, candidates: Candidates, cordoned: Booleans, enough: Booleans, *, gratis: bool
    ) -> tuple[NodeVerdict, ...]:
        verdicts = constraint_verdicts(snapshot, candidates, self._placer.feasibility.reasons)
        fits = candidates.codes == FITS
        words = f"predicted to need the room for online{' and batch' if gratis else ''} pods"
        slack = WaitReason.INSUFFICIENT_SLACK
        for refused, message in (
            (fits & cordoned, f"cordoned after {self._config.flap_episodes} overloads"),
            (fits & ~cordoned & ~enough, words),
        ):
            if refused.any():
                example = snapshot.name(int(refused.argmax()))
                verdicts.append(NodeVerdict(int(refused.sum()), message, slack, example))
        return tuple(verdicts)


def _room_for(claim: Nomination, evictions: tuple[Evict, ...] = ()) -> Room:
    leaving = len(claim.makes_way)
    message = f"{leaving} gratis pod{'s leave' if leaving > 1 else ' leaves'} {claim.node} for it"
    if not leaving:
        message = f"{claim.node} is kept for it"
    return Room(claim.node, message, tuple(sorted(claim.makes_way)), evictions)
