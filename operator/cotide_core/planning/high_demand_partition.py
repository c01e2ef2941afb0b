"""A separate part of the nodes for pods of more than half a machine: HYBRID (Naghshnejad 2019, section 3.3.3), as a
plan.

A method of `planning`. Two such pods never share a machine. They run one at a time, shortest first, on the largest M1 =
floor((M - 2) / 4) + 1 of the M nodes; all others run by smallest volume on the rest, as in `offline.hybrid`. A machine
is as large as the largest node.

The paper's machines are all alike and empty; here nodes differ and hold online pods. A pod is therefore planned on all
nodes if its part has no room for it even after all pods end. So are the pods of a part when a pod there outlives its
forecast. Invariant: on two or more alike nodes, with all pods there from the start and run times as planned, the
schedule is that of `offline.hybrid`.
"""

from __future__ import annotations

import numpy as np

from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Booleans
from cotide_core.planning.earliest_start import PlanMethod
from cotide_core.planning.problem import PlanProblem
from cotide_core.queueing.ordering import ShortestFirst, full_key
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.state.node_columns import CPU_COLUMN, MEMORY_COLUMN
from cotide_core.state.snapshot import Snapshot
from cotide_core.units import counted

_PHYSICAL = slice(CPU_COLUMN, MEMORY_COLUMN + 1)
LEAST_NODES = 2
"""HYBRID needs two machines or more; a single node is shared."""


def machine_shares(machines: int) -> tuple[int, int]:
    """Return how many machines run high-demand and low-demand jobs (M1 and M2, which add up to M)."""
    if machines < 2:
        raise InputError(f"{counted(machines, 'machine')}; at least 2 needed", field="machines")
    high = (machines - 2) // 4 + 1
    return high, machines - high


class HighDemandPartition(PlanMethod):
    """The earliest start in a pod's part of the nodes."""

    def arranged(self, waiting: list[QueuedPod], snapshot: Snapshot, now: float) -> list[QueuedPod]:
        """Return pods of high demand by run time, then the others by volume, as they came.

        The two groups use different nodes, so their relative order does not matter; classes and priorities come first.
        """
        half = self._largest(snapshot) / 2
        shortest = ShortestFirst()
        high = [self._is_high(entry, half) for entry in waiting]
        apart = sorted(
            (entry for entry, is_high in zip(waiting, high, strict=True) if is_high),
            key=lambda entry: full_key(shortest, entry, now),
        )
        others = [entry for entry, is_high in zip(waiting, high, strict=True) if not is_high]
        return sorted(apart + others, key=lambda entry: full_key(shortest, entry, now)[:2])

    def restrict(self, problem: PlanProblem, snapshot: Snapshot) -> None:
        """Leave each part to its pods."""
        nodes = int(snapshot.alive.sum())
        if nodes < LEAST_NODES:
            return
        largest = self._largest(snapshot)
        size = snapshot.allocatable[_PHYSICAL]
        share = (size / np.maximum(1, largest)[:, None]).min(axis=0)
        order = np.lexsort((np.arange(snapshot.size), -share, ~snapshot.alive))
        high: Booleans = np.zeros(snapshot.size, np.bool_)
        high[order[: machine_shares(nodes)[0]]] = True
        whole = self.context.availability
        at_last = whole.free[np.arange(len(whole.sizes)), whole.sizes - 1][:, problem.used]
        outlived: Booleans = np.zeros(snapshot.size, np.bool_)
        outlived[sorted(whole.outlived)] = True
        for of, entry in enumerate(problem.firsts):
            fit = problem.fit[of]
            part = high if self._is_high(entry, largest / 2) else ~high
            need = problem.need[of]
            room = ((at_last >= need) | (need == 0)).all(axis=1)
            if entry.shape.gang or (outlived & part).any():
                # A gang may need more than its part can ever provide.
                continue  # an overdue pod must not delay those behind it: now they may start anywhere
            if (problem.may[fit] & part & room).any():
                problem.may[fit] &= part

    @staticmethod
    def _largest(snapshot: Snapshot) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return (2,) millicores and bytes of the largest node, resource by resource."""
        found: np.ndarray[tuple[int], np.dtype[np.float64]]
        found = snapshot.allocatable[_PHYSICAL].max(axis=1, initial=0).astype(np.float64)
        return found

    def _is_high(self, entry: QueuedPod, half: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
        demand = self.context.state.demand(entry.pod.requests)
        return bool(demand.millicores > half[0] or demand.memory_bytes > half[1])
