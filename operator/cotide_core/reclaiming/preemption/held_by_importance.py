"""What the pods of each importance hold on each node, so that nodes where their leaving helps are found at once.

Owned by `plans.Preemption`. It follows the journal of changed rows and is made at the first question, so a cluster
without displaced pods pays nothing. Invariant: after `refresh`, each level equals a recount over the placed pods.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.kernels.array_types import Integers
from cotide_core.state.cluster_state import ClusterState, PodRecord

SLACK: int = 2
"""Rows of a level before those of the resources: cpu and memory as batch and gratis pods hold them of the slack."""


class Level(NamedTuple):
    """Pods that go at the same time, the smallest first."""

    reluctant: bool
    """Whether their owners protect them at this time: they go last."""
    rank: int
    priority: int


class HeldByImportance:
    """(2 + R, N) amounts by level; the first two are millicores and bytes of batch and gratis pods, plain and
    reclaimed."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.levels: dict[Level, Integers] = {}
        self._layout = (-1, -1)
        self._cursor = -1
        self._lapses: dict[int, float] = {}
        """By row, when the first protection of a pod there ends, and the row is counted again."""

    def refresh(self, now: float) -> None:
        """Count the rows that changed since the last call, by an event or by time."""
        columns = self._state.columns
        layout, end = (columns.resource_generation, columns.capacity), columns.journal_start + len(columns.journal)
        if layout != self._layout or self._cursor < columns.journal_start:
            self._layout = layout
            self.levels.clear()
            self._lapses.clear()
            for row in range(columns.size):
                self._count(row, now)
        else:
            changed = set(columns.journal[self._cursor - columns.journal_start :])
            for row in changed.union(row for row, at in self._lapses.items() if at <= now):
                for level in self.levels.values():
                    level[:, row] = 0
                self._lapses.pop(row, None)
                self._count(row, now)
        self._cursor = end

    def _count(self, row: int, now: float) -> None:
        for record in self._state.records_on(row):
            self._add(record, row, now)

    def _add(self, record: PodRecord, row: int, now: float) -> None:
        pod = record.pod
        protected = pod.is_protected(now)
        if protected and pod.protected_seconds is not None and pod.started_seconds is not None:
            lapse = pod.started_seconds + pod.protected_seconds
            self._lapses[row] = min(lapse, self._lapses.get(row, lapse))
        key = Level(protected, *pod.importance)
        level = self.levels.get(key)
        if level is None:
            shape = (SLACK + len(self._state.columns.free), self._state.columns.capacity)
            level = self.levels[key] = np.zeros(shape, np.int64)
        demand = self._state.demand(pod.requests)
        if pod.workload_class is not WorkloadClass.ONLINE:
            level[0, row] += demand.millicores
            level[1, row] += demand.memory_bytes
        for column, amount in demand.amounts:
            level[SLACK + column, row] += amount
