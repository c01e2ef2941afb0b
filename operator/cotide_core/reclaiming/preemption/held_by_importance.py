"""What the pods of each importance hold of each node, so that nodes where their leaving helps are found at once.

Owned by `plans.Preemption`; kept up with the journal of changed rows, and made when it is first asked for, so that a
cluster in which no pod is displaced pays nothing. Invariant: after `refresh`, each level is what a recount over the
placed pods gives.
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
    """Whether their owners say that they must not be disrupted: they go last."""
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

    def refresh(self) -> None:
        """Count the rows that changed since the last call."""
        columns = self._state.columns
        layout, end = (columns.resource_generation, columns.capacity), columns.journal_start + len(columns.journal)
        if layout != self._layout or self._cursor < columns.journal_start:
            self._layout = layout
            self.levels.clear()
            for row in range(columns.size):
                self._count(row)
        elif end > self._cursor:
            for row in set(columns.journal[self._cursor - columns.journal_start :]):
                for level in self.levels.values():
                    level[:, row] = 0
                self._count(row)
        self._cursor = end

    def _count(self, row: int) -> None:
        for record in self._state.records_on(row):
            self._add(record, row)

    def _add(self, record: PodRecord, row: int) -> None:
        pod = record.pod
        key = Level(pod.do_not_disrupt, *pod.importance)
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
