"""Claims of one engine: the pods that wait for room and their nodes, the pods that take it, and the end of a claim.

The part of a policy's capacity (`requested_capacity`, `slack_scheduler`) that all policies share. The way of a pod that
fits on no node::

    no node --plan--> victims are asked to go --> nominated --they are gone--> its node is tried first --> placed
                                                    |--a victim stays, its node is closed or gone, a more important
                                                       pod takes the room--> tried again at once, elsewhere

While it is nominated, its request is kept from pods that are not more important (`reservations`). Invariants: a pod
asks no other to go while its claim will be met. No pod is placed into the room of a claim of equal or higher
importance.

Source: kube-scheduler's DefaultPreemption and its nominator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.events import EvictRefused
from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import Evict, EvictCause
from cotide_core.kernels.array_types import Booleans, Floats
from cotide_core.placement.feasibility import FITS
from cotide_core.placement.placer import Placement, Placer, Upcoming
from cotide_core.placement.wait_instructions import Room
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.nominations import Nomination, Nominations
from cotide_core.reclaiming.preemption.dry_run import Victim
from cotide_core.reclaiming.preemption.plans import Admits, Plan, Preemption
from cotide_core.reclaiming.reservations import Reservations
from cotide_core.state.cluster_state import ClusterState, PodRecord
from cotide_core.state.shapes import Shape
from cotide_core.state.snapshot import Snapshot


class ClaimsMark(NamedTuple):
    """Claims, evictions and freed rows at one moment of a cycle."""

    nominations: dict[str, Nomination]
    evictions: dict[str, tuple[str, float]]
    relieved: frozenset[int]
    eased: bool
    awaited: dict[str, None]
    gives_way: bool


class RoomMaking:
    """Claims, the plans behind them and the evictions in flight."""

    def __init__(self, config: SchedulerConfig, state: ClusterState, placer: Placer) -> None:
        by_priority = config.preempts_by_priority
        self._config = config.hierarchical or HierarchicalConfig()
        self._state = state
        self._placer = placer
        self._generator = np.random.default_rng(config.seed)
        self._evictions = Evictions(self._config)
        self._nominations = Nominations()
        self._reservations = Reservations(state, self._evictions, self._nominations, by_priority=by_priority)
        self._preemption = Preemption(
            self._config, state, placer, self._evictions, self._reservations, self._generator, by_priority=by_priority
        )
        self._now = 0.0
        self._eased = False
        """Whether some node has more room than at the last question; see `RequestedCapacity.take_eased`."""
        self._awaited: dict[str, None] = {}
        """Pods to try at once: their claim ended, or their room is free now."""
        self._gives_way = False
        """Whether room was given up in this cycle, so that others look again."""
        self._changed: set[str] = set()
        """Nodes with claims that changed since the last call of `outranking`."""

    def take_awaited(self) -> list[str]:
        """Return the pods to try at once since the last call, by key."""
        awaited, self._awaited = list(self._awaited), {}
        return awaited

    def outranking(self, shapes: Sequence[Shape], snapshot: Snapshot) -> list[Shape]:
        """Return the shapes that fit on a changed node, next to the claims of more important pods only."""
        changed, self._changed = self._changed, set()
        out = []
        for shape in shapes if changed else ():
            below = [
                nomination
                for name in changed
                for nomination in self._nominations.on(name)
                if nomination.importance < shape.importance
            ]
            rows = [
                self._state.columns.row_of[nomination.node]
                for nomination in below
                if nomination.node in self._state.columns.row_of
            ]
            if rows:
                with self._reservations.lift(below):
                    codes = self._placer.candidates(snapshot, shape.fit).codes
                    if (codes[rows] == FITS).any():
                        out.append(shape)
        return out

    def holds_claim(self, key: str) -> bool:
        """Whether space is kept or being freed for a pod."""
        return self._nominations.of(key) is not None

    def may_make_room(self, entry: QueuedPod) -> bool:
        """Whether a pod may get hidden room: that of claims which it may take, or of pods that leave."""
        claims = self._nominations
        may_take = claims.of(entry.pod.key) is not None or claims.below(self._reservations.importance(entry.pod))
        return bool(may_take) or self._preemption.has_victims(entry.pod, self._now)

    def make_room(
        self, snapshot: Snapshot, entry: QueuedPod, refusal: Placement, forecaster: QosForecaster
    ) -> tuple[Room | None, Placement]:
        """Choose less important pods to evict for a pod that found no node, where that would help.

        Returns
        -------
        room : None where no pod is asked to leave.
        refusal : of the pod; it also counts the nodes that the guard kept from being freed.
        """
        pod, shape = entry.pod, entry.shape
        if self._preemption.rule(pod) is None:
            return None, refusal
        if shape.online and self._placer.candidates(snapshot, shape.fit).tally.get(FITS):
            return None, refusal
        admits = self._admits(snapshot, entry, forecaster)
        room, allowed = self._room(entry), self._allowed(entry)
        standing = self._nominations.of(pod.key)
        if standing is not None and not self._is_open(standing.node, snapshot, entry, allowed, admits):
            self._drop(pod.key)
            standing = None
        if standing is None:
            plan = self._preemption.plan(snapshot, entry, room, allowed, self._lost, self._now, admits)
        elif self._is_covered(standing, room, entry):
            return room_of(standing), refusal
        else:
            plan = self._completed(snapshot, entry, standing, room, allowed, admits)
        if plan is None:
            return None, self._with_risks(snapshot, entry, refusal)
        return self._carry_out(entry, plan), refusal

    def mark(self) -> object:
        """Return claims, evictions and freed rows as they are."""
        relieved = frozenset(self._state.relieved)
        return ClaimsMark(
            self._nominations.copy(),
            self._evictions.copy(),
            relieved,
            self._eased,
            dict(self._awaited),
            self._gives_way,
        )

    def rewind(self, mark: object) -> None:
        """Forget claims and evictions that were noted since, and wake no pod for them."""
        if not isinstance(mark, ClaimsMark):
            return
        nodes = self._nominations.nodes()
        self._nominations.take_back(mark.nominations)
        self._evictions.take_back(mark.evictions)
        self._reservations.settle({*nodes, *self._nominations.nodes()})
        self._state.relieved.intersection_update(mark.relieved)
        self._eased, self._awaited, self._gives_way = mark.eased, dict(mark.awaited), mark.gives_way

    def claim(self, entry: QueuedPod, node: str, mark: object, now: float) -> Room:
        """Keep a node's room for a pod; its earlier claim on the same node continues."""
        known = mark.nominations.get(entry.pod.key) if isinstance(mark, ClaimsMark) else None
        if known is None or known.node != node:
            return room_of(self._nominate(entry, node, frozenset(), now))
        self._nominations.add(known)
        self._reservations.settle([node])
        return room_of(known)

    def restore(self, entry: QueuedPod, now: float) -> None:
        """Restore a claim that an earlier run made for a pod, before any other looks at the space.

        The pods that were asked to go for it are unknown now, only those on the way out are known. If these don't
        suffice, `make_room` asks for the rest on the same node, when it is the pod's turn.
        """
        if self._placer.policy.plan is not None and not entry.shape.online:
            return  # a plan gives it a start, not a claim
        pod = entry.pod
        row = self._state.columns.row_of.get(pod.nominated_node or "")
        if row is None or pod.nominated_node is None or self._preemption.rule(pod) is None:
            return
        coming = frozenset(record.pod.key for record in self._reservations.going(row))
        self._nominate(entry, pod.nominated_node, coming, now, restored=True)

    def _place_beside_claims(
        self, snapshot: Snapshot, entry: QueuedPod, forecaster: QosForecaster, upcoming: Upcoming
    ) -> Placement:
        """Choose a node: the one that was freed for the pod, one without its room, or that of less important pods."""
        own = self._nominations.of(entry.pod.key)
        below = self._nominations.below(self._reservations.importance(entry.pod))
        found = None
        if own is not None:
            found = self._place_freed(snapshot, entry, own, below, forecaster)
        if found is None:
            with self._reservations.lift([] if own is None else [own]):
                found = self._place(snapshot, entry, forecaster, upcoming)
            if found.row < 0 and below:
                with self._reservations.lift(below if own is None else [own, *below]):
                    found = self._place(snapshot, entry, forecaster, upcoming)
        if found.row >= 0:
            self._settle_in(entry, found.row)
        return found

    def _place_freed(
        self,
        snapshot: Snapshot,
        entry: QueuedPod,
        claim: Nomination,
        below: Sequence[Nomination],
        forecaster: QosForecaster,
    ) -> Placement | None:
        """Return the placement on space that was freed for a pod, or None."""
        row = self._state.columns.row_of.get(claim.node, -1)
        if row < 0 or not self._allowed(entry)[row]:
            return None
        with self._reservations.lift([claim, *(nomination for nomination in below if nomination.node == claim.node)]):
            fits = self._placer.candidates(snapshot, entry.shape.fit).codes.item(row) == FITS
            if not fits or not self._has_slack(entry, row):
                return None
        guard = self._placer.policy.guard
        risk = self._placer.probabilities(snapshot, entry.shape, np.array([row], np.intp), forecaster).item()
        if risk > self._placer.accepted and not entry.shape.online:
            return None
        concerned = guard is not None and guard.concerns(snapshot, entry.shape, row)
        probability = risk if concerned else None
        why = "the space there was freed for it" + self._risk_there(probability)
        basis = self._placer.basis(entry.shape, row) if concerned else 0
        return Placement(row, probability, (), guarded=guard is not None, why=why, basis=basis)

    def _settle_in(self, entry: QueuedPod, row: int) -> None:
        """End the claim of a placed pod, and those of less important pods that have no room next to it."""
        name = self._name(row)
        own = self._nominations.drop(entry.pod.key)
        if own is not None:
            self._reservations.settle([own.node])
            if own.node != name:
                self._relieve(own.node)
                self._gives_way = True
        if self._nominations.on(name):
            importance = self._reservations.importance(entry.pod)
            crowded = self._reservations.crowded(row, entry.pod)
            self._end([nomination for nomination in crowded if nomination.importance < importance])

    def _place(self, snapshot: Snapshot, entry: QueuedPod, forecaster: QosForecaster, upcoming: Upcoming) -> Placement:
        """Choose a node by its free amounts, less the reserved ones."""
        raise NotImplementedError

    def _room(self, entry: QueuedPod) -> Floats | None:
        """Return (2, N) cpu and memory that a pod's class finds, claims not counted; None where requests decide."""
        raise NotImplementedError

    def _allowed(self, entry: QueuedPod) -> Booleans:
        """Return (N,) the nodes that are neither cordoned nor kept from a pod."""
        raise NotImplementedError

    def _has_slack(self, entry: QueuedPod, row: int) -> bool:
        """Whether a row has room for a pod apart from its requests."""
        raise NotImplementedError

    def _lost(self, record: PodRecord) -> float:
        """Return the core seconds of work that an eviction of a pod throws away."""
        raise NotImplementedError

    def _relieve(self, name: str) -> None:
        """Note that a node may take more than before."""
        raise NotImplementedError

    def _admits(self, snapshot: Snapshot, entry: QueuedPod, forecaster: QosForecaster) -> Admits | None:
        """Return a function that decides whether the guard allows a pod on rows; None if the guard plays no part."""
        if self._placer.policy.guard is None or entry.shape.online:
            return None

        def admits(rows: NDArray[np.intp]) -> Booleans:
            passes = self._placer.probabilities(snapshot, entry.shape, rows, forecaster) <= self._placer.accepted
            return np.asarray(passes)

        return admits

    def _with_risks(self, snapshot: Snapshot, entry: QueuedPod, refusal: Placement) -> Placement:
        """Return a refusal that counts the nodes which the guard kept from being freed."""
        del snapshot, entry
        return refusal

    def _risk_there(self, probability: float | None) -> str:
        if probability is None:
            return ""
        accepted = self._placer.accepted
        return f"; a latency limit breaks there with p={probability:.2f}, at most {accepted:.2f} is accepted"

    def _is_open(
        self, name: str, snapshot: Snapshot, entry: QueuedPod, allowed: Booleans, admits: Admits | None
    ) -> bool:
        """Whether a node exists, takes pods like this one at all, and would keep its latency limits with it."""
        row = self._state.columns.row_of.get(name)
        if row is None or not allowed[row] or not self._placer.feasibility.may_open(entry.shape.fit, snapshot)[row]:
            return False
        return admits is None or bool(admits(np.array([row], np.intp))[0])

    def _is_covered(self, claim: Nomination, room: Floats | None, entry: QueuedPod) -> bool:
        row = self._state.columns.row_of.get(claim.node)
        return row is not None and self._reservations.covers(room, row, entry.pod)

    def _completed(
        self,
        snapshot: Snapshot,
        entry: QueuedPod,
        claim: Nomination,
        room: Floats | None,
        allowed: Booleans,
        admits: Admits | None,
    ) -> Plan | None:
        """Return a plan for a pod with a claim that lacks room: on that node, or otherwise anywhere."""
        self._drop(entry.pod.key)
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
        importance = self._reservations.importance(pod)
        self._end([nomination for nomination in self._nominations.on(name) if nomination.importance < importance])
        victims = frozenset(plan_victim.record.pod.key for plan_victim in plan.victims) | frozenset(plan.coming)
        claim = self._nominate(entry, name, victims, self._now)
        out = []
        for plan_victim in plan.victims:
            self._evictions.ask(plan_victim.record, self._now)
            victim, reason = plan_victim.record.pod, self._reason(entry, plan_victim)
            evict = Evict(victim.key, victim.uid, name, reason, EvictCause.PREEMPTED, pod.key, pod.uid)
            out.append(replace(evict, by_priority=victim.workload_class is pod.workload_class))
        self._preemption.carried_out(plan.row)
        return room_of(claim, tuple(out))

    @staticmethod
    def _reason(entry: QueuedPod, chosen: Victim) -> str:
        """Return why a pod goes, and what is lost with it."""
        pod, victim = entry.pod, chosen.record.pod
        kind = f"{victim.workload_class} pod"
        if victim.workload_class is pod.workload_class:
            kind += f" of priority {victim.priority}, below {pod.priority}"
        article = "an" if victim.workload_class is WorkloadClass.ONLINE else "a"
        done = "" if victim.workload_class is WorkloadClass.ONLINE else f" with {chosen.lost:.0f} core s done"
        return f"makes room for {pod.workload_class} pod {pod.key}; {article} {kind}{done}"

    def _nominate(
        self, entry: QueuedPod, node: str, victims: frozenset[str], now: float, *, restored: bool = False
    ) -> Nomination:
        pod, demand = entry.pod, self._state.demand(entry.pod.requests)
        makes_way = victims - self._nominations.counted_on(node, victims)
        gone = [self._state.pod(key) for key in sorted(makes_way)]
        claim = Nomination(
            pod.key,
            entry.shape,
            node,
            demand.millicores,
            demand.memory_bytes,
            pod.requests,
            victims,
            now + self._config.nomination_seconds,
            makes_way=makes_way,
            importance=self._reservations.importance(pod),
            of_gratis=all(record is not None and record.workload_class is WorkloadClass.GRATIS for record in gone),
            restored=restored,
        )
        before = self._nominations.of(pod.key)
        self._nominations.add(claim)
        self._reservations.settle([node] if before is None else [before.node, node])
        return claim

    def _update_claims(self, now: float) -> None:
        """End the claims that time ends, and find the pods with changed nodes."""
        self._now = now
        self._gives_way = False
        self._preemption.begin()
        for key in self._evictions.expire(now):
            record = self._state.record(key)
            if record is None or not record.pod.terminating:  # a leaving pod may take its time
                self._end(self._nominations.drop_where_stays(key))
        for nomination in self._nominations.expire(now):
            if self._still_leave(nomination):
                self._nominations.add(replace(nomination, until_seconds=now + self._config.nomination_seconds))
            else:
                self._end([nomination])
        self._end(self._nominations.drop_where_gone(self._state.columns.row_of))
        awaited, changed = self._reservations.moved()
        self._awaited |= dict.fromkeys(nomination.pod for nomination in awaited)
        self._changed |= changed

    def _still_leave(self, claim: Nomination) -> bool:
        """Whether pods that a claim counts on are on their way out."""
        records = [self._state.record(key) for key in claim.victims]
        return any(record is not None and record.row >= 0 and record.pod.terminating for record in records)

    def _forget_claim(self, key: str) -> None:
        """Forget a pod that is gone or ended."""
        self._evictions.gone(key)
        self._drop(key)

    def _refuse(self, event: EvictRefused, now: float) -> None:
        """Take note that a victim stays."""
        if self._evictions.refuse(event, now):
            self._end(self._nominations.drop_where_stays(event.key))

    def _end(self, claims: Iterable[Nomination]) -> None:
        """End claims and let their pods try again at once; others may take what they kept."""
        for claim in list(claims):
            self._nominations.drop(claim.pod)
            self._reservations.settle([claim.node])
            self._relieve(claim.node)
            self._gives_way = True
            self._awaited[claim.pod] = None

    def _drop(self, key: str) -> None:
        """End a pod's own claim."""
        own = self._nominations.drop(key)
        if own is not None:
            self._reservations.settle([own.node])
            self._relieve(own.node)
            self._gives_way = True

    def _name(self, row: int) -> str:
        node = self._state.columns.nodes[row]
        return "" if node is None else node.name


def room_of(claim: Nomination, evictions: tuple[Evict, ...] = ()) -> Room:
    """Return the message to a pod about the room that is made for it."""
    leaving, kind = len(claim.makes_way), "gratis" if claim.of_gratis else "less important"
    message = f"{leaving} {kind} pod{'s leave' if leaving > 1 else ' leaves'} {claim.node} for it"
    if not leaving:
        message = f"{claim.node} is kept for it"
    return Room(claim.node, message, tuple(sorted(claim.makes_way)), evictions)
