"""What of each node is spoken for: claims of nominated pods, less what pods on their way out will free.

Owned by `slack_scheduler`, read by it and by `preemption`. A claim and the victims that leave for it are two sides of
one sum: while victims still hold their amounts the claim takes nothing more, and as they go it takes what they leave.
Invariant: nothing here changes the state; same state, claims and evictions give the same sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod
from cotide_core.kernels.array_types import Floats
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.forecast_slack import ENOUGH_ROOM
from cotide_core.reclaiming.nominations import Nomination, Nominations
from cotide_core.state.cluster_state import ClusterState, PodRecord
from cotide_core.units import PODS


class Reservations:
    """Sums over the claims and the leaving pods of one engine."""

    def __init__(self, state: ClusterState, evictions: Evictions, nominations: Nominations) -> None:
        self._state = state
        self._evictions = evictions
        self._nominations = nominations

    def asked(self, pod: Pod) -> Floats:
        """Return (2, 1) millicores and bytes that a pod asks for."""
        demand = self._state.demand(pod.requests)
        return np.array([[demand.millicores], [demand.memory_bytes]], np.float64)

    def reserved(self, *, on_their_way: bool) -> Floats:
        """Return (2, N) what is claimed; with ``on_their_way`` less what leaving pods still hold and will free."""
        reserved = np.zeros((2, self._state.columns.size))
        for nomination in self._nominations:
            row = self._state.columns.row_of.get(nomination.node)
            if row is not None:
                reserved[:, row] += (nomination.millicores, nomination.memory_bytes)
        if on_their_way:
            for row in np.flatnonzero(reserved.any(axis=0)).tolist():
                coming = sum((self.frees(one, ()) for one in self.going(row)), np.zeros(2))
                reserved[:, row] = np.maximum(0.0, reserved[:, row] - coming)
        return reserved

    def going(self, row: int) -> list[PodRecord]:
        """Return the pods of a row that are on their way out."""
        return [one for one in self._state.records_on(row) if self._evictions.leaving(one)]

    def frees(self, record: PodRecord, resources: Sequence[str]) -> Floats:
        """Return (2 + R,) what a pod frees when it goes: of the slack, and of each resource by name."""
        demand = self._state.demand(record.pod.requests)
        wanted = dict(record.pod.requests)
        by_name = [1 if resource == PODS else wanted.get(resource, 0) for resource in resources]
        online = record.pod.workload_class is WorkloadClass.ONLINE
        # What an online pod asks for is not what its node's predicted peak loses with it: that is for the forecast.
        slack = (0, 0) if online else (demand.millicores, demand.memory_bytes)
        return np.array([*slack, *by_name], np.float64)

    def claimed(self, row: int, resources: Sequence[str], *, without: str) -> Floats:
        """Return (2 + R,) what all pods nominated to a row ask for, but one."""
        claimed = np.zeros(2 + len(resources))
        for one in self._on(row, without):
            wanted = dict(one.requests)
            by_name = [1 if resource == PODS else wanted.get(resource, 0) for resource in resources]
            claimed += (one.millicores, one.memory_bytes, *by_name)
        return claimed

    def leaves(self, room: Floats, row: int, pod: Pod, *, without: str) -> bool:
        """Whether a row takes a pod now and, once the leaving pods are gone, all that are nominated but one.

        Parameters
        ----------
        room : (2, N) slack, claims not counted.
        """
        resources = _resources(pod)
        claimed = self.claimed(row, resources, without=without) - self._coming(row, resources)
        left = self._free(room, row, resources) - np.maximum(0.0, claimed)
        return bool((left >= self._wanted(pod, resources) + ENOUGH_ROOM).all())

    def covers(self, room: Floats, row: int, pod: Pod) -> bool:
        """Whether a row takes a pod beside all others that are nominated to it once the leaving pods are gone."""
        resources = _resources(pod)
        claimed = self.claimed(row, resources, without=pod.key)
        left = self._free(room, row, resources) + self._coming(row, resources) - claimed
        return bool((left >= self._wanted(pod, resources) + ENOUGH_ROOM).all())

    def _on(self, row: int, without: str) -> list[Nomination]:
        node = self._state.columns.nodes[row]
        name = "" if node is None else node.name
        return [one for one in self._nominations.on(name) if one.pod != without]

    def _coming(self, row: int, resources: Sequence[str]) -> Floats:
        return sum((self.frees(one, resources) for one in self.going(row)), np.zeros(2 + len(resources)))

    def _free(self, room: Floats, row: int, resources: Sequence[str]) -> Floats:
        columns = self._state.columns
        free = [columns.free_of(name, row) for name in resources]
        return np.array([*room[:, row], *free], np.float64)

    def _wanted(self, pod: Pod, resources: Sequence[str]) -> Floats:
        wanted = dict(pod.requests)
        by_name = [1 if name == PODS else wanted[name] for name in resources]
        return np.array([*self.asked(pod)[:, 0], *by_name], np.float64)


def _resources(pod: Pod) -> list[str]:
    return [resource for resource, amount in pod.requests if amount > 0 and resource != PODS] + [PODS]
