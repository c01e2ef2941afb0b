"""The amounts that each node will have free, from the expected ends of its running pods.

Owned by `planning`, read through the kernel `machine_plan`. A batch or gratis pod is expected to release its resources
after an upper quantile of its run time, an online pod never. A pod that outlives its expected run time is expected to
run for twice as long, again and again: the correction of the replay's kernels. Rows are recomputed when they changed or
when such a moment came, not in every cycle. Times are int64 microseconds of the driver's clock, so that all machines
compute the same plan. Invariant: after `refresh`, the arrays equal a computation of all rows.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.forecasting.run_time_cache import RunTimes
from cotide_core.forecasting.run_time_quantile import PlanQuantile
from cotide_core.forecasting.slowdown_cache import SlowdownCache
from cotide_core.kernels.array_types import Booleans, Integers
from cotide_core.kernels.machines import NEVER
from cotide_core.placement.capacity import PlannedCapacity
from cotide_core.state.cluster_state import ClusterState, PodRecord
from cotide_core.state.host_load import ONLINE_RANK
from cotide_core.state.remembered import Remembered

MICROSECONDS: Final = 1e6
LONGEST_SECONDS: Final = 1e8
"""Upper bound of a forecast: three years, so that no sum overflows."""
SEGMENTS: Final = 16
"""Initial number of segments a machine has room for (chosen; doubled when one needs more)."""
VECTORS_KEPT: Final = 1024
"""The resources that requests occupy, for a generation (chosen: as many as demands of the state)."""
PHYSICAL: Final = 2
"""Further resources of a plan: cpu and memory physically present for batch and gratis pods (see `feasibility`)."""


def microseconds(seconds: float) -> int:
    """Return a moment of the driver's clock as a whole number."""
    return round(seconds * MICROSECONDS)


def planned_length(seconds: float) -> int:
    """Return a run time in whole microseconds, rounded up."""
    return max(1, math.ceil(min(seconds, LONGEST_SECONDS) * MICROSECONDS))


@dataclass(slots=True)
class _Run:
    began: int
    lasts: int

    def end(self, now: int) -> int:
        """Return when the pod is expected to end, always after ``now``."""
        lasts = self.lasts
        while self.began + lasts <= now:
            lasts *= 2
        return self.began + lasts


class Availability:
    """Free amounts over time, by row.

    Attributes
    ----------
    times, free, sizes : (N, K), (N, K, R + 2), (N,); see `kernels.machines`. The first time of a row is far past.
    outlived : rows that the latest `refresh` recomputed, with a pod that has outlived its first expected end.
    """

    def __init__(
        self,
        state: ClusterState,
        run_times: RunTimes,
        stretches: SlowdownCache,
        quantile: PlanQuantile,
        capacity: PlannedCapacity,
    ) -> None:
        self._quantile = quantile
        self.capacity = capacity
        self._ceiling: Integers = np.zeros((2, 0), np.int64)
        self.run_times = run_times
        self.stretches = stretches
        self._state = state
        self._segments = SEGMENTS
        self._seen = self._spec = -1
        self._resources_seen = -1
        self._runs: dict[int, dict[str, _Run]] = {}
        self._ends: dict[int, list[int]] = {}
        self._vectors: Remembered[tuple[tuple[str, int], ...], Integers] = Remembered(VECTORS_KEPT)
        self.outlived: set[int] = set()
        self._make(0, 0)

    def _make(self, rows: int, resources: int) -> None:
        self.times: Integers = np.full((rows, self._segments), -NEVER, np.int64)
        self.free: Integers = np.zeros((rows, self._segments, resources), np.int64)
        self.sizes: Integers = np.ones(rows, np.int64)
        self._due: Integers = np.full(rows, -NEVER, np.int64)
        self._worked_out: dict[int, int] = {}
        self._vectors.clear()

    def began(self, record: PodRecord, now: int, lasts: int) -> None:
        """Record a pod that was just started on a row."""
        self._runs.setdefault(record.row, {})[record.pod.uid] = _Run(now, lasts)
        insort(self._ends.setdefault(record.row, []), now + lasts)

    def refresh(self, now: int) -> Booleans:
        """Recompute the rows that changed, and those with a pod that outlived its expected end.

        Returns (N,) the rows with something free earlier than expected.
        """
        columns = self._state.columns
        resources = len(columns.free) + PHYSICAL
        if self.sizes.shape[0] != columns.size or self.free.shape[2] != resources:
            self._make(columns.size, resources)
            self._spec = -1
        if columns.resource_generation != self._resources_seen:  # a node may have received the column of another
            self._resources_seen = columns.resource_generation
            self._vectors.clear()
        gained: Booleans = columns.spec_versions[: columns.size] > self._spec
        self._spec = columns.spec_clock
        ceiling = self.capacity.ceiling()
        stale = (columns.versions[: columns.size] > self._seen) | (self._due <= now)
        if ceiling.shape == self._ceiling.shape:
            stale |= (ceiling != self._ceiling).any(axis=0)
        self._ceiling = ceiling
        changed = np.flatnonzero(stale)
        self._seen = columns.clock
        self.outlived.clear()
        if len(changed):
            rows = changed.tolist()
            running = {row: self._running(row) for row in rows}
            self.run_times.learn(record.pod for records in running.values() for record in records)
            for row, records in running.items():
                gained[row] |= self._work_out(row, records, now)
        return gained

    def next_end(self) -> int:
        """Return the first moment at which a pod will have outlived its expected end; `NEVER` for none."""
        return int(self._due.min()) if len(self._due) else NEVER

    def ends_until(self, row: int, moment: int) -> int:
        """Return how many pods of a row are expected to end by a moment."""
        return bisect_right(self._ends.get(row, []), moment)

    def widen(self) -> None:
        """Make room for twice as many segments."""
        self._segments *= 2
        times, free = self.times, self.free
        rows, known, resources = free.shape
        self.times = np.zeros((rows, self._segments), np.int64)
        self.free = np.zeros((rows, self._segments, resources), np.int64)
        self.times[:, :known], self.free[:, :known] = times, free

    def vector(self, requests: tuple[tuple[str, int], ...]) -> Integers:
        """Return (R + 2,) the amounts that requests occupy."""
        found = self._vectors.get(requests)
        if found is None:
            demand = self._state.demand(requests)
            found = np.zeros(self.free.shape[2], np.int64)
            for column, amount in demand.amounts:
                found[column] += amount
            found[-PHYSICAL:] = demand.millicores, demand.memory_bytes
            self._vectors.make_room()
            self._vectors.keep(requests, found)
        return found

    def _running(self, row: int) -> list[PodRecord]:
        return [
            record for record in self._state.records_on(row) if record.pod.workload_class is not WorkloadClass.ONLINE
        ]

    def _work_out(self, row: int, records: list[PodRecord], now: int) -> bool:
        columns = self._state.columns
        before = self._runs.pop(row, {})
        runs: dict[str, _Run] = {}
        ends: list[tuple[int, Integers]] = []
        for record in records:
            pod = record.pod
            run = before.get(pod.uid)
            if run is None:
                seconds = self._quantile.seconds(*self.run_times.of(pod)) * self.stretches.factor(
                    self.stretches.type_of(pod), columns.service_rates[row]
                )
                run = _Run(now, planned_length(seconds))
            if pod.started_seconds is not None:
                run.began = min(now, microseconds(pod.started_seconds))
            if run.began + run.lasts <= now:
                self.outlived.add(row)
            runs[pod.uid] = run
            ends.append((run.end(now), self.vector(pod.requests)))
        ends.sort(key=lambda item: item[0])
        while len(ends) + 1 > self._segments:
            self.widen()
        if runs:
            self._runs[row] = runs
        early = any(run.end(self._worked_out.get(row, now)) > now for uid, run in before.items() if uid not in runs)
        self._worked_out[row] = now
        times, free = self.times[row], self.free[row]
        at_last = free[self.sizes[row] - 1].copy()
        free[0, :-PHYSICAL] = columns.free[:, row]
        held = columns.held[:ONLINE_RANK, :, row].sum(axis=0)
        free[0, -PHYSICAL:] = self._ceiling[:, row] - held
        size = 1
        times[0] = -NEVER
        for end, vector in ends:
            if size == 1 or times[size - 1] != end:
                times[size], free[size] = end, free[size - 1]
                size += 1
            free[size - 1] += vector
        self.sizes[row] = size
        self._ends[row] = [end for end, _ in ends]
        self._due[row] = ends[0][0] if ends else NEVER
        return early or bool((free[size - 1] > at_last).any())
