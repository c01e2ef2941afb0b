"""One node's agent: reads control groups, asks the law, writes quotas and weights of batch and gratis pods.

::

    every tick   usage -> `control_law` -> quota of each batch pod
    every look   waiting of services (`contention`), their cycles (`cycles`), weights, memory, what ended

No clock and no network here: `service` calls `tick` with the time and the pods. A pod without the class batch or gratis
is a service's, unknown ones included. Invariant: only groups of batch and gratis pods are changed, each change is in
the journal first, and `undo` takes all of them back.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from cotide_node_agent.contention import Contention, ContentionMeter
from cotide_node_agent.control_law import Claim, LawSettings, LawState, Observation, divide, next_allowance
from cotide_node_agent.cycles import CycleMeter
from cotide_node_agent.group_files import Change, GroupFiles, GroupsUnreadable, PodGroup
from cotide_node_agent.undo_journal import UndoJournal

POLL_SECONDS: Final = 1.0
"""Between two looks; chosen: threads and weights cost more to read than usage, and change less."""
SATED_SHARE: Final = 0.8
"""A pod that uses less than it may gets what it uses, and a little more; chosen."""
ROOM_TO_GROW: Final = 1.25
LEAST_CPUS: Final = 0.02
"""The amount that one pod always gets: the kernel's least quota is half of it. Chosen."""
RAISE_SHARE: Final = 0.02
"""A quota is raised when it would grow by this much, and lowered at once; chosen, to write less."""
UNWEIGHTED_CPUS: Final = 0.1
"""The weight of a pod that asks for nothing; chosen."""


class BatchPod(NamedTuple):
    """A batch or gratis pod, as the operator's label and its own requests describe it."""

    uid: str
    gratis: bool
    requested_cpus: float = 0.0
    """Of the node's cpu: its guaranteed amount, unless it is gratis."""
    reclaimed_cpus: float = 0.0
    """Of the published room; its part among others that reclaim."""
    reclaimed_memory_bytes: int = 0


class Reading(NamedTuple):
    """The findings and decisions of one tick, for metrics."""

    services_cpus: float
    batch_cpus: float
    allowance_cpus: float
    factor: float
    contention: Contention
    governed_pods: int
    changed_files: int
    cycles_ratio: float | None = None
    """Highest ratio, over the services, of cycles an instruction to their usual number; None if unknown."""


class _Usage(NamedTuple):
    at: float
    node: float
    pods: Mapping[str, float]
    """Cpu seconds by path; ``node`` without what all pods used."""


class NodeAgent:
    """Holds batch back on one node.

    Parameters
    ----------
    groups : GroupFiles
    journal : UndoJournal
    processes : Path
        The host's proc file system.
    law : LawSettings
    """

    def __init__(
        self, groups: GroupFiles, journal: UndoJournal, processes: Path, law: LawSettings | None = None
    ) -> None:
        self._groups, self._journal = groups, journal
        self._meter = ContentionMeter(groups, processes)
        self._cycles = CycleMeter(groups.counted, range(os.cpu_count() or 1))
        self._cycles_ratio: float | None = None
        self._law, self._state = law or LawSettings(), LawState()
        self._usage: _Usage | None = None
        self._measured_at = float("-inf")
        self._contention = Contention(None, 0)
        self._quotas: dict[str, float] = {}
        self._asked: dict[str, list[Change]] = {}
        """By path the value that was written to the quota's files."""
        self._governed: set[str] = set()

    def tick(
        self, batch: Mapping[str, BatchPod], capacity_cpus: float, published_cpus: float, now: float
    ) -> Reading | None:
        """Measure, decide and write; None at the first call, which can only measure.

        Raises
        ------
        GroupsUnreadable
            When usage can't be read; the caller undoes everything then.
        """
        pods = self._groups.pods()
        governed = [pod for pod in pods if pod.uid in batch]
        services = [pod for pod in pods if pod.uid not in batch]
        before, self._usage = self._usage, self._measure(pods, now)
        if before is None or now <= before.at:
            return None
        rates = _rates(before, self._usage)
        used = max(0.0, rates.pop("")) + sum(rates.get(pod.path, 0.0) for pod in services)
        is_due = now - self._measured_at >= POLL_SECONDS
        if is_due:
            self._measured_at = now
            self._contention = self._meter.look(services, now)
            self._cycles_ratio = self._cycles.look(services)
            self._let_go(pods, governed)
        # Between two looks as well: a pod that is batch for less than a second gets everything back, too.
        self._governed.update(pod.path for pod in governed)
        # If pods are pinned to some cpus, the others are not theirs to use.
        capacity = min(capacity_cpus, self._groups.cpus() or capacity_cpus)
        seen = Observation(capacity, used, published_cpus, self._contention.waiting_share)
        self._state, allowance = next_allowance(self._law, self._state, seen, now)
        self._limit(governed, batch, rates, allowance)
        if is_due:
            self._weigh(governed, services, batch)
        return Reading(
            used,
            sum(rates.get(pod.path, 0.0) for pod in governed),
            allowance,
            self._state.factor,
            self._contention,
            len(governed),
            self.changed_files,
            self._cycles_ratio,
        )

    @property
    def changed_files(self) -> int:
        """How many files differ from the kubelet's values."""
        return len(self._journal)

    def undo(self) -> int:
        """Restore everything, start over, and return how many files there were."""
        self._usage, self._state = None, LawState()
        self._quotas.clear()
        self._asked.clear()
        self._governed.clear()
        self._cycles.close()
        return self._journal.undo()

    def _measure(self, pods: list[PodGroup], now: float) -> _Usage:
        used = {}
        for pod in pods:
            try:
                used[pod.path] = self._groups.cpu_seconds(pod.path)
            except GroupsUnreadable:  # it ended meanwhile
                continue
        return _Usage(now, self._groups.cpu_seconds("") - self._groups.cpu_seconds(self._groups.kubepods), used)

    def _limit(
        self, governed: list[PodGroup], batch: Mapping[str, BatchPod], rates: Mapping[str, float], allowance: float
    ) -> None:
        claims = [self._claim(pod, batch[pod.uid], rates.get(pod.path, 0.0)) for pod in governed]
        for pod, cpus in zip(governed, divide(allowance, claims), strict=True):
            last = self._quotas.get(pod.path)
            is_held = all(self._journal.stands(*change) for change in self._asked.get(pod.path, ()))
            if last is not None and last <= cpus < last * (1 + RAISE_SHARE) and is_held:
                continue
            try:
                changes = self._groups.quota(pod.path, cpus, self._journal.before)
            except (GroupsUnreadable, FileNotFoundError):  # it ended meanwhile
                continue
            taken = [self._journal.change(*change) for change in changes]
            if all(taken):
                self._quotas[pod.path], self._asked[pod.path] = cpus, changes

    def _claim(self, pod: PodGroup, known: BatchPod, rate: float) -> Claim:
        floor = LEAST_CPUS if known.gratis else max(LEAST_CPUS, known.requested_cpus)
        weight = max(known.requested_cpus, known.reclaimed_cpus, UNWEIGHTED_CPUS)
        quota = self._quotas.get(pod.path)
        sated = quota is not None and rate < quota * SATED_SHARE
        return Claim(floor, max(floor, rate * ROOM_TO_GROW) if sated else float("inf"), weight)

    def _weigh(self, governed: list[PodGroup], services: list[PodGroup], batch: Mapping[str, BatchPod]) -> None:
        """Give batch pods the least weight; if their tier holds batch pods only, weight them by their requests."""
        shared = {pod.tier for pod in services} | {"", "burstable"}
        for pod in governed:
            known = batch[pod.uid]
            asked = None if known.gratis or pod.tier in shared else round(1000 * known.reclaimed_cpus)
            self._journal.change(*self._groups.weight(pod.path, asked))
            if known.reclaimed_memory_bytes:
                memory = self._groups.memory(pod.path, known.reclaimed_memory_bytes)
                if memory is not None:
                    self._journal.change(*memory)

    def _let_go(self, pods: list[PodGroup], governed: list[PodGroup]) -> None:
        """Restore what belongs to pods that are no longer batch, and forget those that ended."""
        now, there = {pod.path for pod in governed}, {pod.path for pod in pods}
        for path in self._governed - now:
            self._quotas.pop(path, None)
            self._asked.pop(path, None)
            if path in there:
                self._journal.undo_of(path)
            else:
                self._journal.forget_of(path)
        self._governed = now


def _rates(before: _Usage, now: _Usage) -> dict[str, float]:
    """Return the cpus that each pod used between both, and the node itself under the empty path."""
    passed = now.at - before.at
    # A new pod has used all of it since.
    rates = {path: (used - before.pods.get(path, 0.0)) / passed for path, used in now.pods.items()}
    return {**rates, "": (now.node - before.node) / passed}
