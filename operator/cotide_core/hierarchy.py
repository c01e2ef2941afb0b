"""Algorithm 1 of seed 000 for one engine: where predicted slack lets batch and gratis pods go, and who makes room.

Called by `cycle.Scheduler` for policies with ``by_slack``. With C the usable capacity of a node, P the predicted peak
of its online pods, B and G what batch and gratis pods hold, and L >= B + G the predicted load of both together::

    batch pods find   C - P - (B + G)
    gratis pods find  C - P - L, or C - P - (B + G) - L where the configuration says ``both``

The node with the most left takes the pod. A batch pod that finds none evicts gratis pods (`victims`) and is nominated
for the space, which nobody else gets meanwhile. C - P is `host_load.slack`; where no forecast is believed, P is what
online pods ask for and C is all that is allocatable. L already contains what is held (eq. 14 forecasts the level), so
by default it takes the place of B + G. What a kubelet would refuse (`feasibility`) is refused first.

Invariants: an online pod is never evicted; a node is never filled above C - P by a decision of this module; same state,
same events and same seed give the same decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.candidates import SOFT_TAINT_PENALTY, Candidates
from cotide_core.classes import WorkloadClass
from cotide_core.columns import Booleans, Floats
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.events import EvictRefused, Pod
from cotide_core.evictions import Evictions
from cotide_core.feasibility import FITS
from cotide_core.host_load import slack
from cotide_core.instructions import Evict, EvictCause, NodeVerdict, WaitReason
from cotide_core.nominations import Nomination, Nominations
from cotide_core.overload import OverloadMonitor
from cotide_core.placement import Placement, Placer
from cotide_core.queued import QueuedPod
from cotide_core.shapes import Shape
from cotide_core.snapshot import Snapshot
from cotide_core.state import ClusterState, PodRecord
from cotide_core.units import PODS
from cotide_core.verdicts import constraint_verdicts
from cotide_core.victims import Candidate, drawn, fewest, may_go

NODES_LOOKED_INTO: Final = 32
"""Nodes whose pods are looked at for victims, those with the most room after it first (chosen: a ms)."""
ENOUGH_ROOM: Final = -1e-6
"""Forecasts are floats: a millionth of a millicore short is no shortage."""


@dataclass(frozen=True, slots=True)
class Room:
    """Room that is being made for a pod."""

    message: str
    evictions: tuple[Evict, ...]


class Hierarchy:
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

    def refused(self, event: EvictRefused, now: float) -> None:
        """A victim stays: those who counted on it look for room anew."""
        if self._evictions.refuse(event, now):
            self._reopen(self._nominations.drop_where_stays(event.key))

    def take_reopened(self) -> list[Shape]:
        """Return the shapes whose nominations came to nothing since the last call: they look for room anew."""
        reopened, self._reopened = list(self._reopened), {}
        return reopened

    def next_change(self, now: float) -> float:
        """Return when `begin` has something to do by itself, not before ``now``; infinite for never."""
        if self._state.relieved:
            return now
        moments = (self._evictions.next_change(), self._nominations.next_change(), self._monitor.next_change(now))
        return max(now, min(moments))

    def place(self, snapshot: Snapshot, entry: QueuedPod) -> Placement:
        """Choose the node that has the most left, or say why there is none."""
        shape, pod = entry.shape, entry.pod
        candidates = self._placer.candidates(snapshot, shape.fit)
        asked = self._asked(pod)
        room = self._room(gratis=shape.gratis)
        cordoned = self._monitor.cordoned(self._state, self._now)
        fits = (candidates.codes == FITS) & ~cordoned
        for nomination in self._nominations.usable_by(shape, pod.key):
            row = self._state.columns.row_of.get(nomination.node, -1)
            if row >= 0 and fits[row] and self._leaves(room, row, pod, without=nomination.pod):
                self._nominations.drop(nomination.pod)
                self._nominations.drop(pod.key)
                return Placement(row, None, (), why="the space there was freed for it")
        left = room - self._reserved(on_their_way=True) - asked
        enough: Booleans = np.logical_and.reduce(left >= ENOUGH_ROOM, axis=0)
        for nomination in self._nominations:
            row = self._state.columns.row_of.get(nomination.node, -1)
            if row >= 0 and enough[row]:
                enough[row] = self._leaves(room, row, pod, without=pod.key)
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
        if pod.workload_class is not WorkloadClass.BATCH:
            return None
        standing = self._nominations.of(pod.key)
        if standing is not None:
            return Room(f"waits for gratis pods to leave {standing.node}", ())
        found = self._plan(snapshot, entry)
        if found is None:
            return None
        row, chosen, coming = found
        name = snapshot.name(row)
        demand = self._state.demand(pod.requests)
        keys = frozenset(one.record.pod.key for one in chosen) | coming
        until = self._now + self._config.nomination_seconds
        self._nominations.add(
            Nomination(pod.key, entry.shape, name, demand.millicores, demand.memory_bytes, pod.requests, keys, until)
        )
        out = []
        for one in chosen:
            self._evictions.ask(one.record, self._now)
            victim = one.record.pod
            reason = f"makes room for batch pod {pod.key}; a gratis pod with {one.lost:.0f} core s done"
            out.append(Evict(victim.key, victim.uid, name, reason, EvictCause.PREEMPTED))
        return Room(f"waits for {len(keys)} gratis pods to leave {name}", tuple(out))

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

    def _reserved(self, *, on_their_way: bool) -> Floats:
        """Return (2, N) what is nominated; with ``on_their_way`` less what victims still hold and will free."""
        reserved = np.zeros((2, self._state.columns.size))
        for nomination in self._nominations:
            row = self._state.columns.row_of.get(nomination.node)
            if row is not None:
                reserved[:, row] += (nomination.millicores, nomination.memory_bytes)
        if on_their_way:
            for row in np.flatnonzero(reserved.any(axis=0)).tolist():
                coming = np.sum([self._frees(one, ()) for one in self._going(row)], axis=0) if self._going(row) else 0.0
                reserved[:, row] = np.maximum(0.0, reserved[:, row] - coming)
        return reserved

    def _going(self, row: int) -> list[PodRecord]:
        return [one for one in self._state.records_on(row) if self._evictions.leaving(one)]

    def _leaves(self, room: Floats, row: int, pod: Pod, *, without: str) -> bool:
        """Whether a row takes a pod now and, once the victims are gone, all that are nominated but one."""
        name = self._name(row)
        others = [one for one in self._nominations if one.node == name and one.pod != without]
        resources = [resource for resource, amount in pod.requests if amount > 0 and resource != PODS] + [PODS]
        claimed = np.zeros(2 + len(resources))
        for one in others:
            wanted = dict(one.requests)
            by_name = [1 if resource == PODS else wanted.get(resource, 0) for resource in resources]
            claimed += (one.millicores, one.memory_bytes, *by_name)
        for victim in self._going(row):
            claimed -= self._frees(victim, resources)
        free = [self._state.columns.free[self._state.columns.resource_column(name), row] for name in resources]
        wanted = dict(pod.requests)
        asked = [*self._asked(pod)[:, 0], *(1 if name == PODS else wanted[name] for name in resources)]
        left = np.array([*room[:, row], *free]) - np.maximum(0.0, claimed)
        return bool((left >= np.array(asked) + ENOUGH_ROOM).all())

    def _plan(self, snapshot: Snapshot, entry: QueuedPod) -> tuple[int, list[Candidate], frozenset[str]] | None:
        """Return (row, victims, keys of pods already on their way out that are counted on), or None."""
        pod, fit = entry.pod, entry.shape.fit
        matches = self._placer.feasibility.matches(fit, snapshot)
        fits = (matches.codes == FITS) & ~self._monitor.cordoned(self._state, self._now)
        if fit.host_ports:
            fits &= self._placer.candidates(snapshot, fit).codes == FITS
        asked = self._asked(pod)
        lacking = asked - (self._room(gratis=False) - self._reserved(on_their_way=False))
        hopeful = fits & (lacking <= self._state.columns.held[0, :, : snapshot.size] - ENOUGH_ROOM).all(axis=0)
        rows = np.flatnonzero(hopeful)
        if self._config.victims == "random":
            order = self._generator.permutation(len(rows))
        else:
            order = np.argsort(np.maximum(lacking[:, rows], 0).sum(axis=0), kind="stable")[:NODES_LOOKED_INTO]
        best: tuple[int, list[Candidate], frozenset[str]] | None = None
        best_cost: tuple[float, ...] = ()
        for row in rows[order].tolist():
            found = self._plan_on(row, pod, fit.resources, lacking[:, row])
            if found is None:
                continue
            if self._config.victims == "random":
                return (row, *found)
            chosen, _ = found
            stubborn = sum(one.record.pod.prefer_no_eviction for one in chosen)
            cost = (stubborn, len(chosen), sum(one.lost for one in chosen), row)
            if best is None or cost < best_cost:
                best, best_cost = (row, *found), cost
        return best

    def _plan_on(
        self, row: int, pod: Pod, resources: Sequence[str], lacking: Floats
    ) -> tuple[list[Candidate], frozenset[str]] | None:
        columns = self._state.columns
        name = self._name(row)
        amounts = dict(self._state.demand(pod.requests).amounts)
        short = []
        for resource in resources:
            column = columns.resource_column(resource)
            claims = [dict(self._state.demand(one.requests).amounts) for one in self._nominations if one.node == name]
            claimed = sum(claim.get(column, 0) for claim in claims)
            short.append(float(amounts[column] - columns.free[column, row] + claimed))
        gap = np.concatenate([lacking + ENOUGH_ROOM, np.array(short)])
        records = self._state.records_on(row)
        coming: set[str] = set()
        for one in self._going(row):
            gap = gap - self._frees(one, resources)
            coming.add(one.pod.key)
        candidates = [
            Candidate(one, self._frees(one, resources), self._lost(one))
            for one in records
            if may_go(one, WorkloadClass.GRATIS) and self._evictions.open(one, self._now)
        ]
        if self._config.victims == "random":
            chosen = drawn(candidates, gap, self._generator)
        else:
            chosen = fewest(candidates, gap)
        return None if chosen is None or not (chosen or coming) else (chosen, frozenset(coming))

    def _frees(self, record: PodRecord, resources: Sequence[str]) -> Floats:
        demand = self._state.demand(record.pod.requests)
        wanted = dict(record.pod.requests)
        by_name = [1 if resource == PODS else wanted.get(resource, 0) for resource in resources]
        online = record.pod.workload_class is WorkloadClass.ONLINE
        # What an online pod asks for is not what its node's predicted peak loses with it: that is for the forecast.
        slack = (0, 0) if online else (demand.millicores, demand.memory_bytes)
        return np.array([*slack, *by_name], np.float64)

    def _asked(self, pod: Pod) -> Floats:
        demand = self._state.demand(pod.requests)
        return np.array([[demand.millicores], [demand.memory_bytes]], np.float64)

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
        peak = "predicted peak of online pods"
        words = f"lack room beside the {peak}" + (" and the predicted batch load" if gratis else "")
        slack = WaitReason.INSUFFICIENT_SLACK
        for refused, message in (
            (fits & cordoned, "are kept free of batch pods after repeated overloads"),
            (fits & ~cordoned & ~enough, words),
        ):
            if refused.any():
                example = snapshot.name(int(refused.argmax()))
                verdicts.append(NodeVerdict(int(refused.sum()), message, slack, example))
        return tuple(verdicts)
