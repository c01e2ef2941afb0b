"""Which pods of one node would leave for a pod: all permitted pods are taken off, and as many as possible are put back.

Called by `plans` for a few nodes. Pods that a disruption budget or their owner protects are put back first, then the
most important ones. Among equals the one that runs longest (online) or with most work to lose (batch, gratis) is put
back first. Pods that leave the node already are counted on first. Pure except for the callables. Invariants: only pods
that the rule allows go; the pods that go suffice; none of them could stay.

Source: kube-scheduler's DefaultPreemption (SelectVictimsOnNode). Among batch and gratis pods of equal rank the choice
is that of `victim_selection`, since their work is lost and its amount is predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.forecast_slack import ENOUGH_ROOM
from cotide_core.reclaiming.preemption.budgets import violating
from cotide_core.reclaiming.victim_selection import Candidate, Lost, fewest
from cotide_core.state.cluster_state import ClusterState, PodRecord
from cotide_core.units import PODS

Amounts = tuple[float, ...]
Passes = Callable[[int, Sequence[Pod]], bool]
"""Whether ports and rules about other pods allow a pod on a row once some pods of the row are gone."""
ONLINE_RANK = WorkloadClass.ONLINE.rank
PRIORITY_OFFSET: Final = 2**31
"""Makes each priority a positive number, so that fewer equal pods have a smaller sum (kube-scheduler's MaxInt32 +
1).
"""


class Rule(NamedTuple):
    """The pods that one pod may displace."""

    rank: int
    priority: int
    lower: bool
    """Pods of lower classes."""
    equals: bool
    """Pods of its class and lower priority."""

    def allows(self, rank: int, priority: int) -> bool:
        """Whether pods of a class and priority may leave for it."""
        if rank == self.rank:
            return self.equals and priority < self.priority
        return self.lower and rank < self.rank


Cost = tuple[int, tuple[int, int], int, tuple[int, ...], int, int, float, float, int]
"""In order: violations, highest importance, pods that would rather stay, sums of priorities by class, pods, protected
pods, work lost, how long ago the most important began, row. The smallest is chosen.
"""


class Victim(NamedTuple):
    """A pod that would go, and the core seconds of work that are lost with it."""

    record: PodRecord
    lost: float


class Found(NamedTuple):
    """What one node would cost."""

    victims: tuple[Victim, ...]
    coming: tuple[str, ...]
    """Keys of the leaving pods that the plan counts on."""
    cost: Cost


class RowPods(NamedTuple):
    """The pods of a row, in one cycle."""

    leaving: list[PodRecord]
    """Pods on their way out."""
    open: list[PodRecord]
    """Pods that may be asked to go, the most important first, and among equals the one that began first."""


class PodsByRow:
    """The pods of rows that were looked at in one cycle: many pods look at the same rows.

    Parameters
    ----------
    early : whether our pods with an unconfirmed binding may go; those of this cycle never go.
    """

    def __init__(self, state: ClusterState, evictions: Evictions, *, early: bool) -> None:
        self._state = state
        self._evictions = evictions
        self._early = early
        self._known: dict[int, tuple[int, RowPods]] = {}

    def clear(self) -> None:
        """Begin a cycle."""
        self._known.clear()

    def forget(self, row: int) -> None:
        """Read a row again: some of its pods were asked to go."""
        self._known.pop(row, None)

    def of(self, row: int, now: float) -> RowPods:
        """Return the pods of a row."""
        version = self._state.columns.versions.item(row)
        known = self._known.get(row)
        if known is not None and known[0] == version:
            return known[1]
        leaving, there = list[PodRecord](), list[PodRecord]()
        for record in self._state.records_on(row):
            if self._evictions.leaving(record):
                leaving.append(record)
            elif self._may_go(record, now):
                there.append(record)
        there.sort(key=lambda record: _willingness(record.pod, now))
        found = RowPods(leaving, there)
        self._known[row] = version, found
        return found

    def _may_go(self, record: PodRecord, now: float) -> bool:
        assumed = record.assumed_seconds
        # A pod that another scheduler is about to bind belongs to that scheduler until the binding is seen.
        confirmed = assumed is None or (self._early and record.pod.ours and assumed < now)
        return confirmed and self._evictions.open(record, now)


def _willingness(pod: Pod, now: float) -> tuple[int, int, float, str]:
    """Return a sort key that puts the most important pod first, and among equals the one that began first."""
    began = now if pod.started_seconds is None else pod.started_seconds
    return (-pod.workload_class.rank, -pod.priority, began, pod.key)


@dataclass(slots=True)
class _Leaving:
    """The pods of a row that may go, during the step that puts pods back."""

    spare: list[float]
    """(K,) what would be free beyond the request."""
    victims: list[Victim]
    gone: list[Pod]


class DryRun:
    """The nodes for one pod.

    Parameters
    ----------
    resources : names of the requested resources; amounts are of these, after cpu and memory of the slack with
        ``by_slack``.
    passes : None where amounts decide alone.
    """

    def __init__(
        self,
        state: ClusterState,
        pods: PodsByRow,
        rule: Rule,
        resources: Sequence[str],
        lost: Lost,
        *,
        now: float,
        by_slack: bool = False,
        passes: Passes | None = None,
    ) -> None:
        self._state = state
        self._pods = pods
        self._rule = rule
        self._resources = tuple(resources)
        self._lost = lost
        self._now = now
        self._by_slack = by_slack
        self._passes = passes
        self._frees: dict[tuple[tuple[tuple[str, int], ...], bool], Amounts] = {}

    @property
    def is_local(self) -> bool:
        """Whether the cost of a node depends on that node alone."""
        return self._passes is None

    def on(self, row: int, gap: Iterable[float]) -> Found | None:
        """Return what would go from a row that lacks amounts; None if all that may go do not suffice.

        Parameters
        ----------
        gap : (K,) what lacks as long as no pod leaves.
        """
        coming, there = self._split(row)
        lacking = list(gap)
        for record in coming:
            lacking = [lack - free for lack, free in zip(lacking, self.frees(record), strict=True)]
        violates = {record.pod.key for record in there if record.pod.is_protected(self._now)}
        if self._state.budgets:
            violates |= violating([record.pod for record in there], self._state.budgets)
        # Across classes a budget and an owner's protection are kept; within one class they are broken last.
        if violates:
            rank = self._rule.rank
            there = [
                pod_record
                for pod_record in there
                if pod_record.pod.workload_class.rank == rank or pod_record.pod.key not in violates
            ]
        spare = [-lack for lack in lacking]
        for record in there:
            spare = [left + free for left, free in zip(spare, self.frees(record), strict=True)]
        leaving = _Leaving(spare, [], [record.pod for record in [*coming, *there]])
        if not self._suffices(row, leaving.spare, leaving.gone):
            return None
        first, rest = list[PodRecord](), there
        if violates:
            first = [record for record in there if record.pod.key in violates]
            rest = [record for record in there if record.pod.key not in violates]
        for part in (first, rest):
            for _, group in groupby(part, key=lambda record: record.pod.importance):
                self._put_back(row, list(group), leaving)
        if not (leaving.victims or coming):
            return None
        broken = violates and sum(victim.record.pod.key in violates for victim in leaving.victims)
        keys = tuple(pod_record.pod.key for pod_record in coming)
        return Found(tuple(leaving.victims), keys, self._cost(row, leaving, broken or 0))

    def frees(self, record: PodRecord) -> Amounts:
        """Return (K,) what a pod frees when it goes."""
        pod = record.pod
        key = pod.requests, pod.workload_class is WorkloadClass.ONLINE
        found = self._frees.get(key)
        if found is None:
            wanted = dict(pod.requests)
            found = tuple(1 if name == PODS else wanted.get(name, 0) for name in self._resources)
            if self._by_slack:
                demand = self._state.demand(pod.requests)
                # A request of an online pod differs from the drop of its node's predicted peak when it leaves.
                found = ((0, 0) if key[1] else (demand.millicores, demand.memory_bytes)) + found
            self._frees[key] = found
        return found

    def _split(self, row: int) -> tuple[list[PodRecord], list[PodRecord]]:
        """Return the pods that leave a row already, and those that may be asked to."""
        leaving, there = self._pods.of(row, self._now)
        allows = self._rule.allows
        # An online pod does not wait for an equal, which may take its time. A job waits, since work is lost otherwise.
        waits = self._rule.rank != ONLINE_RANK
        coming = [record for record in leaving if waits or allows(*record.pod.importance)]
        return coming, [record for record in there if allows(*record.pod.importance)]

    def _began(self, pod: Pod) -> float:
        return self._now if pod.started_seconds is None else pod.started_seconds

    def _suffices(self, row: int, spare: Sequence[float], gone: Sequence[Pod]) -> bool:
        return min(spare) >= ENOUGH_ROOM and (self._passes is None or self._passes(row, gone))

    def _put_back(self, row: int, group: list[PodRecord], leaving: _Leaving) -> None:
        """Put back as many pods of one importance as possible."""
        if group[0].pod.workload_class is not WorkloadClass.ONLINE and self._passes is None:
            self._keep_dearest(group, leaving)
            return
        if group[0].pod.workload_class is not WorkloadClass.ONLINE:
            group.sort(key=self._lost, reverse=True)
        for record in group:
            spare = [left - free for left, free in zip(leaving.spare, self.frees(record), strict=True)]
            gone = leaving.gone if self._passes is None else [pod for pod in leaving.gone if pod is not record.pod]
            if self._suffices(row, spare, gone):
                leaving.spare, leaving.gone = spare, gone
            else:
                leaving.victims.append(Victim(record, self._lost_with(record)))

    def _keep_dearest(self, group: list[PodRecord], leaving: _Leaving) -> None:
        """Put back all batch or gratis pods of one importance, except a few with the least loss."""
        among = [
            Candidate(record, np.array(self.frees(record), np.float64), self._lost_with(record)) for record in group
        ]
        total = np.sum([candidate.frees for candidate in among], axis=0)
        lacking = total - np.array(leaving.spare, np.float64) + ENOUGH_ROOM
        chosen = fewest(among, lacking) or []
        leaving.victims += [Victim(candidate.record, candidate.lost) for candidate in chosen]
        leaving.spare = (
            np.array(leaving.spare) - total + sum((candidate.frees for candidate in chosen), 0.0 * total)
        ).tolist()

    def _lost_with(self, record: PodRecord) -> float:
        """Return the core seconds lost with a pod; a service has no work that it would do again."""
        return 0.0 if record.pod.workload_class is WorkloadClass.ONLINE else self._lost(record)

    def _cost(self, row: int, leaving: _Leaving, broken: int) -> Cost:
        pods = [victim.record.pod for victim in leaving.victims]
        jobs = [pod for pod in pods if pod.workload_class is not WorkloadClass.ONLINE]
        highest = max([pod.importance for pod in pods], default=(-1, 0))
        sums = [0, 0, 0]
        for pod in pods:
            sums[ONLINE_RANK - pod.workload_class.rank] += pod.priority + PRIORITY_OFFSET
        began = min((self._began(pod) for pod in pods if pod.importance == highest), default=self._now)
        return (
            broken,
            highest,
            sum(pod.prefer_no_eviction for pod in jobs),
            tuple(sums),
            len(pods),
            sum(pod.deletion_cost for pod in jobs),
            sum(victim.lost for victim in leaving.victims),
            -began,
            row,
        )
