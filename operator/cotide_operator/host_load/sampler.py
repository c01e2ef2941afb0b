"""Present usage of the online pods of each node: one sample per node from the readings of its pods.

Called by `live` after each reading of the source. The samples become `NodeUsageSampled` events and records of the open
slot. Invariants: an impossible sample (more than a machine has) or one from too few readings is not made; the event
loop is blocked only for one part of the pods at a time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod, PodPhase
from cotide_core.kernels.array_types import Floats
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.host_load import IMPOSSIBLE, ONLINE_RANK
from cotide_core.state.node_columns import CPU_COLUMN, MEMORY_COLUMN
from cotide_operator.host_load.node_load import believable, node_loads
from cotide_operator.host_load.pod_usage import PodUsages
from cotide_operator.observability.metrics import Metrics

PODS_AT_A_TIME: Final = 5_000
"""Pods read before the loop gets its turn: some 10 ms (chosen)."""
_ENDED: Final = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable:
    """The nodes as the engine knows them at one moment.

    Attributes
    ----------
    names : (N,) in order of the engine's rows. index : their rows.
    physical : (2, N) allocatable millicores and bytes. batch : (2, N) load of batch and gratis pods.
    """

    names: list[str]
    index: dict[str, int]
    physical: Floats
    batch: Floats

    @classmethod
    def of(cls, state: ClusterState) -> NodeTable:
        """Copy the needed columns of the engine's state."""
        columns = state.columns
        names = list(columns.row_of)
        rows = np.array([columns.row_of[name] for name in names], np.intp)
        physical = columns.allocatable[[[CPU_COLUMN], [MEMORY_COLUMN]], rows].astype(np.float64)
        batch = columns.held[:ONLINE_RANK, :, rows].sum(axis=0).astype(np.float64)
        return cls(names, {name: index for index, name in enumerate(names)}, physical, batch)


@dataclass(frozen=True, slots=True, eq=False)
class NodeSamples:
    """One sample of every node.

    Attributes
    ----------
    table : the nodes. online : (2, N) millicores and bytes, nan where there is no sample.
    age_seconds : (N,) wall seconds since its oldest reading; 0 for a node without a pod.
    """

    table: NodeTable
    online: Floats
    age_seconds: Floats


@dataclass(frozen=True, slots=True, eq=False)
class OnlinePods:
    """The online pods that hold on known nodes: P of them.

    Attributes
    ----------
    pods : the pods. rows : (P,) the index of each one's node in the table. requests : (2, P).
    started : (P,) seconds of the operator's clock, nan where unknown.
    """

    pods: list[Pod]
    rows: NDArray[np.intp]
    requests: Floats
    started: Floats


async def online_pods(pods: Mapping[str, Pod], table: NodeTable, state: ClusterState) -> OnlinePods:
    """Collect the online pods, a part at a time."""
    found: list[Pod] = []
    rows: list[int] = []
    requests: list[tuple[int, int]] = []
    everything = list(pods.values())
    for start in range(0, len(everything), PODS_AT_A_TIME):
        if start:
            await asyncio.sleep(0)
        for pod in everything[start : start + PODS_AT_A_TIME]:
            if pod.workload_class is not WorkloadClass.ONLINE or pod.node is None or pod.phase in _ENDED:
                continue
            row = table.index.get(pod.node)
            if row is not None:
                demand = state.demand(pod.requests)
                found.append(pod)
                rows.append(row)
                requests.append((demand.millicores, demand.memory_bytes))
    amounts = np.array(requests, np.float64).reshape(len(found), 2).T
    started = np.array([math.nan if pod.started_seconds is None else pod.started_seconds for pod in found])
    return OnlinePods(found, np.array(rows, np.intp), amounts, started)


class NodeSampler:
    """Makes samples.

    Parameters
    ----------
    state : the engine's; read only.
    pods : all pods as the engine received them, by key.
    usages : their readings.
    """

    def __init__(self, state: ClusterState, pods: Mapping[str, Pod], usages: PodUsages, metrics: Metrics) -> None:
        self._state = state
        self._pods = pods
        self._usages = usages
        self._metrics = metrics

    async def sample(self, wall_now: float, settled_since: float) -> NodeSamples:
        """Return a sample of each node.

        Parameters
        ----------
        settled_since : second of the operator's clock; readings of pods that started later are too low to be used.
        """
        table = NodeTable.of(self._state)
        online = await online_pods(self._pods, table, self._state)
        usage = np.empty((2, len(online.pods)))
        walls = np.empty(len(online.pods))
        for index, pod in enumerate(online.pods):
            if index and index % PODS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            usage[0, index], usage[1, index], walls[index] = self._usages.fresh(pod, wall_now)
        physical = table.physical
        read = np.isfinite(usage)
        believed = believable(usage, physical[:, online.rows])
        settling = online.started > settled_since
        usage[~believed | settling] = np.nan
        nodes = len(table.names)
        loads = node_loads(online.rows, usage[:, :, None], online.requests, nodes)[:, :, 0]
        possible: Flags = np.logical_and.reduce(loads <= IMPOSSIBLE * physical)
        complete: Flags = np.logical_and.reduce(np.isfinite(loads))
        loads[:, ~possible] = np.nan
        oldest = np.full(nodes, math.inf)
        np.minimum.at(oldest, online.rows, np.where(np.isfinite(usage).any(axis=0), walls, math.inf))
        self._count(int((read & ~believed & ~settling).sum()), int((read & settling).sum()), complete, possible)
        return NodeSamples(table, loads, np.maximum(0.0, wall_now - np.minimum(oldest, wall_now)))

    def _count(self, unbelievable: int, settling: int, complete: Flags, possible: Flags) -> None:
        self._metrics.usage_readings.labels("implausible").inc(unbelievable)
        self._metrics.usage_readings.labels("settling").inc(settling)
        samples = self._metrics.node_samples
        samples.labels("taken").inc(int(possible.sum()))
        samples.labels("incomplete").inc(int((~complete).sum()))
        samples.labels("implausible").inc(int((complete & ~possible).sum()))
