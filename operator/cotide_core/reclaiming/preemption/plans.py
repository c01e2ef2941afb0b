"""Which node a pod gets that fits on none, and which less important pods leave that node.

Called by `room_making` for a pod that no node takes. One rule of importance: class first (online, batch, gratis), then
priority (`dry_run.Rule`). That batch pods displace gratis pods is a case of it (Jiang et al., Algorithm 1, lines
10-14). `held_by_importance` finds nodes by the amounts that each importance holds. A few of the most promising are then
tried (`dry_run`), and the cheapest one is taken. The order is that of kube-scheduler's DefaultPreemption: fewest
budgets broken, lowest highest importance, smallest sum of priorities, fewest pods, latest start. Invariants: a plan is
made only where it suffices; same state and same generator give the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig
from cotide_core.events import Pod
from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.placement.capacity import Capacity
from cotide_core.placement.feasibility import ports_conflict
from cotide_core.placement.placer import Placer
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.forecast_slack import ENOUGH_ROOM
from cotide_core.reclaiming.preemption.dry_run import Amounts, DryRun, Found, Passes, PodsByRow, Rule, Victim
from cotide_core.reclaiming.preemption.held_by_importance import SLACK, HeldByImportance, Level
from cotide_core.reclaiming.reservations import Reservations
from cotide_core.reclaiming.victim_selection import Candidate, Lost, drawn, may_go
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import FitShape
from cotide_core.state.snapshot import Snapshot
from cotide_core.units import PODS

NODES_ASKED: Final = 32
"""Nodes of one pod's question to the latency guard, those with the most room after it first (chosen: a ms)."""
NODES_TRIED_LEAST: Final = 100
NODES_TRIED_SHARE: Final = 10
"""Nodes that are tried for one pod: this number, or one in this number (kube-scheduler's minCandidateNodesAbsolute and
minCandidateNodesPercentage).
"""
RULES_TRIED: Final = 4
"""Factor on the failed tries where rules about other pods decide (chosen: some 50 ms)."""
SHAPES_KNOWN: Final = 32
"""Shapes with remembered costs of nodes within a cycle (chosen: 100 nodes of each)."""
Admits = Callable[[NDArray[np.intp]], Booleans]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which pods leave which row for a pod, and which leave it already."""

    row: int
    victims: tuple[Victim, ...]
    coming: tuple[str, ...]
    """Keys of the leaving pods that the plan counts on."""


class Preemption:
    """Makes the plans of one engine.

    Parameters
    ----------
    by_priority : whether importance decides; otherwise batch pods displace gratis pods under forecast slack, and no
    others.
    """

    def __init__(
        self,
        config: HierarchicalConfig,
        state: ClusterState,
        placer: Placer,
        evictions: Evictions,
        reservations: Reservations,
        generator: np.random.Generator,
        *,
        by_priority: bool,
    ) -> None:
        self._config = config
        self._state = state
        self._placer = placer
        self._evictions = evictions
        self._reservations = reservations
        self._generator = generator
        self._by_priority = by_priority
        self._by_slack = placer.policy.capacity is Capacity.SLACK
        self._held = HeldByImportance(state)
        self._pods = PodsByRow(state, evictions, early=by_priority)
        self._found: dict[tuple[FitShape, Rule, bool], dict[int, tuple[int, Amounts, Found | None]]] = {}
        """The known cost of nodes in this cycle, with their version and what they lacked."""

    def begin(self) -> None:
        """Begin a cycle: pods may have come and gone, and time passed."""
        self._pods.clear()
        self._found.clear()

    def carried_out(self, row: int) -> None:
        """Take note that the pods of a plan were asked to go."""
        self._pods.forget(row)
        for found in self._found.values():
            found.pop(row, None)

    def rule(self, pod: Pod) -> Rule | None:
        """Return the rule for the pods that a pod may displace; None if it may displace none."""
        lower = equals = self._by_priority
        if self._by_slack and pod.workload_class is WorkloadClass.BATCH:
            lower = self._config.victims != "none"
        if self._by_slack and pod.workload_class is WorkloadClass.GRATIS and self._config.gratis_subtracts != "held":
            equals = False  # the forecast load of the others stays when one of them goes
        return Rule(*pod.importance, lower, equals) if pod.preempts and (lower or equals) else None

    def has_victims(self, pod: Pod, now: float) -> bool:
        """Whether any placed pod may be displaced for this one."""
        rule = self.rule(pod)
        if rule is None:
            return False
        self._held.refresh(now)
        return any(self._is_allowed(rule, level) and held.any() for level, held in self._held.levels.items())

    def plan(
        self,
        snapshot: Snapshot,
        entry: QueuedPod,
        room: Floats | None,
        allowed: Booleans,
        lost: Lost,
        now: float,
        admits: Admits | None,
    ) -> Plan | None:
        """Return which pods make room, or None if no leaving pods would help.

        Parameters
        ----------
        room : (2, N) cpu and memory that pods of its class find, claims not counted; the pod must hold no claim. None
            where its requests decide alone.
        allowed : (N,) nodes that may be looked at.
        lost : the work that is lost with a victim, in core seconds.
        admits : returns which of some rows the latency guard allows, as they are now: a smaller mix is no riskier.
        """
        rule, fit = self.rule(entry.pod), entry.shape.fit
        if rule is None or fit.missing:
            return None
        lacking = self._lacking(snapshot, entry, room)
        may = self._placer.feasibility.may_open(fit, snapshot) & allowed
        passes = self._passes(snapshot, fit)
        trial = DryRun(
            self._state, self._pods, rule, fit.resources, lost, now=now, by_slack=room is not None, passes=passes
        )
        rows, levels = self._promising(snapshot, fit, rule, lacking, may, now, slack=room is not None)
        if rule.rank == WorkloadClass.BATCH.rank and rule.lower and self._config.victims == "random":
            return self._drawn(rows, lacking, trial, admits, now, lost)
        most = max(NODES_TRIED_LEAST, snapshot.node_count // NODES_TRIED_SHARE)
        best: Plan | None = None
        found: Found | None = None
        level = -1
        if len(self._found) >= SHAPES_KNOWN:
            self._found.clear()
        known = self._found.setdefault((fit, rule, room is not None), {})
        gaps: list[Amounts] = list(zip(*lacking.tolist(), strict=True))
        for number, row in enumerate(self._admitted(rows, admits)):
            settled = found is not None and not found.cost[0]
            if settled and (number >= most or (passes is None and levels.item(row) > level)):
                break
            if passes is not None and number >= RULES_TRIED * most:
                break
            tried = self._tried(trial, row, gaps[row], known)
            if tried is not None and (found is None or tried.cost < found.cost):
                found, level = tried, levels.item(row)
                best = Plan(row, tried.victims, tried.coming)
        return best

    def _tried(
        self, trial: DryRun, row: int, gap: Amounts, known: dict[int, tuple[int, Amounts, Found | None]]
    ) -> Found | None:
        """Return the cost of a node; if nothing changed, the result found earlier in this cycle."""
        version = self._state.columns.versions.item(row)
        before = known.get(row)
        if before is not None and before[0] == version and before[1] == gap:
            return before[2]
        found = trial.on(row, gap)
        if trial.is_local:
            known[row] = version, gap, found
        return found

    def _lacking(self, snapshot: Snapshot, entry: QueuedPod, room: Floats | None) -> Floats:
        """Return (K, N) what a pod lacks on each row next to the claims that it leaves; at most 0 where all is
        there.
        """
        fit, columns = entry.shape.fit, self._state.columns
        size = snapshot.size
        free = columns.free[fit.columns, :size] + columns.reserved[fit.columns, :size]
        lacking = fit.amounts - free
        if room is not None:
            lacking = np.concatenate([self._reservations.asked(entry.pod) - room, lacking])
        if self._reservations.any:
            lacking = lacking + self._reservations.beside(entry.pod)[_parts(fit, slack=room is not None)]
        return lacking

    def _promising(
        self, snapshot: Snapshot, fit: FitShape, rule: Rule, lacking: Floats, may: Booleans, now: float, *, slack: bool
    ) -> tuple[NDArray[np.intp], Integers]:
        """Return the rows that suffice once all that may go is gone, the best first. The second value is (N,) the
        importance of the most important pods that must go there, counted from the least.
        """
        self._held.refresh(now)
        levels = sorted(level for level in self._held.levels if self._is_allowed(rule, level))
        parts = _parts(fit, slack=slack)
        pods = SLACK + snapshot.resources[PODS]
        needed = np.full(snapshot.size, -1, np.int64)
        enough = (lacking <= -ENOUGH_ROOM).all(axis=0)
        left, some = lacking.copy(), np.zeros(snapshot.size, np.bool_)
        for number, level in enumerate(levels):
            held = self._held.levels[level][:, : snapshot.size]
            left -= held[parts]
            some |= held[pods] > 0
            new = some & (enough | (left <= -ENOUGH_ROOM).all(axis=0)) & (needed < 0)
            needed[new] = number
        rows = np.flatnonzero(may & (needed >= 0))
        if not len(rows):
            return rows, needed
        short = np.maximum(lacking[:, rows], 0)
        relative = short / np.maximum(1, short.max(axis=1, keepdims=True))
        return rows[np.lexsort((relative.sum(axis=0), needed[rows]))], needed

    @staticmethod
    def _is_allowed(rule: Rule, level: Level) -> bool:
        return rule.allows(level.rank, level.priority) and (not level.reluctant or level.rank == rule.rank)

    def _passes(self, snapshot: Snapshot, fit: FitShape) -> Passes | None:
        """Return a function that decides whether ports and other pods allow the shape on a row; None where neither
        matters.
        """
        peers = self._placer.feasibility.peer_trial(fit, snapshot)
        if peers is None and not fit.host_ports:
            return None

        def passes(row: int, gone: Sequence[Pod]) -> bool:
            if fit.host_ports:
                taken = dict(snapshot.ports[row])
                for port in [port for pod in gone for port in pod.host_ports if port in taken]:
                    taken[port] -= 1
                if ports_conflict(fit.host_ports, [port for port, count in taken.items() if count > 0]):
                    return False
            return peers is None or peers.passes(row, gone)

        return passes

    @staticmethod
    def _admitted(rows: NDArray[np.intp], admits: Admits | None) -> Iterator[int]:
        """Yield the rows that the guard allows, `NODES_ASKED` at most; asks about as many at once."""
        if admits is None:
            yield from rows.tolist()
            return
        passed = 0
        for first in range(0, len(rows), NODES_ASKED):
            part = rows[first : first + NODES_ASKED]
            for row in part[admits(part)].tolist():
                yield row
                passed += 1
                if passed >= NODES_ASKED:
                    return

    def _drawn(
        self, rows: NDArray[np.intp], lacking: Floats, trial: DryRun, admits: Admits | None, now: float, lost: Lost
    ) -> Plan | None:
        """Return a plan of gratis pods on a node, both drawn (Jiang et al., Algorithm 1, lines 11-12)."""
        rows = np.sort(rows)
        rows = rows[self._generator.permutation(len(rows))]
        if admits is not None:
            rows = rows[admits(rows)]
        for row in rows.tolist():
            coming = [pod_record for pod_record in self._state.records_on(row) if self._evictions.leaving(pod_record)]
            gap = lacking[:, row] + ENOUGH_ROOM
            for record in coming:
                gap = gap - np.array(trial.frees(record))
            candidates = [
                Candidate(pod_record, np.array(trial.frees(pod_record), np.float64), lost(pod_record))
                for pod_record in self._state.records_on(row)
                if may_go(pod_record, WorkloadClass.GRATIS, now) and self._evictions.open(pod_record, now)
            ]
            chosen = drawn(candidates, gap, self._generator)
            if chosen is not None and (chosen or coming):
                victims = tuple(Victim(candidate.record, candidate.lost) for candidate in chosen)
                return Plan(row, victims, tuple(pod_record.pod.key for pod_record in coming))
        return None


def _parts(fit: FitShape, *, slack: bool) -> NDArray[np.intp]:
    """Return the rows of a level that a shape asks for."""
    named = [SLACK + column for column, _ in fit.demanded]
    return np.array([*range(SLACK), *named] if slack else named, np.intp)
