"""The reserved amounts of each node: claims of nominated pods, less what the pods that leave for them still hold.

Owned by `preemption.room_making`, read by it, by `plans` and by `slack_scheduler`. A claim and the victims that leave
for it are two sides of one sum. While victims still hold their amounts the claim takes nothing more, and as they go it
takes the amounts that they free. Claimed named resources and host ports are subtracted from the node's free amounts
(`NodeColumns.reserve`), so every reader leaves them. While a pod that may use a claim looks, the claim is lifted.
Invariant: after `settle`, a node reserves the sum over the claims on it that are not lifted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod
from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.forecast_slack import ENOUGH_ROOM
from cotide_core.reclaiming.nominations import Nomination, Nominations
from cotide_core.state.cluster_state import ClusterState, PodRecord
from cotide_core.units import PODS


class Reservations:
    """Sums over the claims and the leaving pods of one engine.

    Parameters
    ----------
    by_priority : whether a pod is more important than another of its class by its priority.
    """

    def __init__(
        self, state: ClusterState, evictions: Evictions, nominations: Nominations, *, by_priority: bool = False
    ) -> None:
        self._state = state
        self._evictions = evictions
        self._nominations = nominations
        self._by_priority = by_priority
        self._lifted: frozenset[str] = frozenset()
        self._settled: dict[str, tuple[int, int]] = {}
        """For each node with claims, its versions at the last settling."""
        self._claimed: dict[tuple[int, int], Integers] = {}
        """(2 + R, capacity) what is claimed, by importance, as of `_summed`: version of the claims, layout of rows."""
        self._counted: dict[str, Nomination] = {}
        self._summed = (-1, -1, -1)

    def importance(self, pod: Pod) -> tuple[int, int]:
        """Return the key that compares a pod's claim with others."""
        return pod.importance if self._by_priority else (pod.workload_class.rank, 0)

    def asked(self, pod: Pod) -> Floats:
        """Return (2, 1) millicores and bytes that a pod asks for."""
        demand = self._state.demand(pod.requests)
        return np.array([[demand.millicores], [demand.memory_bytes]], np.float64)

    def settle(self, nodes: Iterable[str]) -> None:
        """Reserve on nodes what is claimed there now."""
        columns = self._state.columns
        for name in nodes:
            row = columns.row_of.get(name)
            if row is None:
                self._settled.pop(name, None)
                continue
            claims = self._on(row, "")
            ports = tuple(port for claim in claims for port in claim.shape.fit.host_ports)
            columns.reserve(row, self._amounts(row, claims), ports)
            if self._nominations.on(name):
                self._settled[name] = columns.versions.item(row), columns.spec_versions.item(row)
            else:
                self._settled.pop(name, None)

    def moved(self) -> tuple[list[Nomination], set[str]]:
        """Settle the nodes that changed since the last call; returns the claims that need another look, and these
        nodes.

        The claims belong to three groups. They are pods that fit now, pods with victims that are all gone or will not
        suffice, and pods of a node with changed fields of its own.
        """
        columns, awaited, changed = self._state.columns, list[Nomination](), set[str]()
        for name in self._nominations.nodes():
            row = columns.row_of.get(name)
            if row is None:
                continue
            before = self._settled.get(name, (-1, -1))
            if before[0] == columns.versions.item(row):
                continue
            respecified = before[1] != columns.spec_versions.item(row)
            self.settle([name])
            changed.add(name)
            awaited += [
                nomination
                for nomination in self._nominations.on(name)
                if respecified or self._fits(row, nomination) or self._is_vain(row, nomination)
            ]
        return awaited, changed

    def _is_vain(self, row: int, claim: Nomination) -> bool:
        """Whether all victims of a claim are gone, or the remaining ones will not make enough room."""
        pod = self._state.pod(claim.pod)
        return not self._victims_on(row, [claim]) or (pod is not None and not self.covers(None, row, pod))

    @contextmanager
    def lift(self, claims: Sequence[Nomination]) -> Iterator[None]:
        """Leave some claims out while a pod looks that may use what they keep."""
        before, nodes = self._lifted, {claim.node for claim in claims}
        self._lifted = before | {claim.pod for claim in claims}
        self.settle(nodes)
        try:
            yield
        finally:
            self._lifted = before
            self.settle(nodes)

    @property
    def any(self) -> bool:
        """Whether anything is claimed."""
        return bool(len(self._nominations))

    def beside(self, pod: Pod) -> Integers:
        """Return (2 + R, N) the amounts of claims that a pod must leave: of cpu and memory of the slack, and of each
        resource. The pod must hold no claim.
        """
        columns, importance = self._state.columns, self.importance(pod)
        size = columns.size
        if self._summed != (self._nominations.version, columns.layout, columns.resource_generation):
            self._sum_up()
        beside = np.zeros((2 + len(columns.free), size), np.int64)
        for level, claimed in self._claimed.items():
            if level >= importance:
                beside += claimed[:, :size]
        return beside

    def _sum_up(self) -> None:
        """Sum claims up by importance; of known claims only the changes."""
        columns = self._state.columns
        layout = columns.layout, columns.resource_generation
        if self._summed[1:] != layout:
            self._claimed.clear()
            self._counted.clear()
        claims = {nomination.pod: nomination for nomination in self._nominations}
        for key in [key for key, nomination in self._counted.items() if claims.get(key) is not nomination]:
            self._count(self._counted.pop(key), -1)
        for key, claim in claims.items():
            if key not in self._counted and claim.node in columns.row_of:
                self._counted[key] = claim
                self._count(claim, 1)
        self._summed = (self._nominations.version, *layout)

    def _count(self, claim: Nomination, sign: int) -> None:
        columns = self._state.columns
        claimed = self._claimed.get(claim.importance)
        if claimed is None:
            claimed = np.zeros((2 + len(columns.free), columns.capacity), np.int64)
            self._claimed[claim.importance] = claimed
        row = columns.row_of[claim.node]
        claimed[0, row] += sign * claim.millicores
        claimed[1, row] += sign * claim.memory_bytes
        for column, amount in self._state.demand(claim.requests).amounts:
            claimed[2 + column, row] += sign * amount

    def reserved(self) -> Floats:
        """Return (2, N) cpu and memory of the slack that are claimed, less what the victims still hold."""
        reserved = np.zeros((2, self._state.columns.size))
        for name in self._nominations.nodes():
            row = self._state.columns.row_of.get(name)
            if row is not None:
                reserved[:, row] = np.maximum(0.0, self._of_slack(row, ""))
        return reserved

    def going(self, row: int) -> list[PodRecord]:
        """Return the pods of a row that are on their way out."""
        return [record for record in self._state.records_on(row) if self._evictions.leaving(record)]

    def leaves(self, room: Floats, row: int, pod: Pod, *, without: str) -> bool:
        """Whether the slack of a row takes a pod now and, once the victims are gone, all other nominated pods except
        one.

        Parameters
        ----------
        room : (2, N) slack, claims not counted.
        """
        left = room[:, row] - np.maximum(0.0, self._of_slack(row, without))
        return bool((left >= self.asked(pod)[:, 0] + ENOUGH_ROOM).all())

    def covers(self, room: Floats | None, row: int, pod: Pod) -> bool:
        """Whether a row takes a pod next to the claims that it must leave, once the leaving pods are gone.

        Parameters
        ----------
        room : (2, N) slack, claims not counted; None where requests decide alone.
        """
        resources = [name for name, amount in pod.requests if amount > 0 and name != PODS] + [PODS]
        wanted, columns = dict(pod.requests), self._state.columns
        going = self.going(row)
        others = [nomination for nomination in self._on(row, pod.key) if nomination.importance >= self.importance(pod)]
        for name in resources:
            column = columns.resources.get(name)
            if column is None:
                return False
            left = columns.free.item(column, row) + columns.reserved.item(column, row)
            left += sum(1 if name == PODS else dict(record.pod.requests).get(name, 0) for record in going)
            left -= sum(1 if name == PODS else dict(other.requests).get(name, 0) for other in others)
            if left < (1 if name == PODS else wanted[name]):
                return False
        if room is None:
            return True
        slack = room[:, row] - sum((np.array([other.millicores, other.memory_bytes]) for other in others), np.zeros(2))
        slack += sum((self._frees(record.pod) for record in going), np.zeros(2))
        return bool((slack >= self.asked(pod)[:, 0] + ENOUGH_ROOM).all())

    def crowded(self, row: int, pod: Pod) -> list[Nomination]:
        """Return the claims on a row that no longer fit next to a pod placed there, once the leaving pods are gone. Of
        several it returns the least important.
        """
        columns = self._state.columns
        left = {name: columns.free.item(column, row) + columns.reserved.item(column, row)
                for name, column in columns.resources.items()}  # fmt: skip
        for one, sign in [(pod, -1), *((record.pod, 1) for record in self.going(row))]:
            for name, amount in [*one.requests, (PODS, 1)]:
                left[name] = left.get(name, 0) + sign * amount
        out = []
        for claim in sorted(self._on(row, ""), key=lambda claim: claim.importance, reverse=True):
            wanted = [(name, amount) for name, amount in claim.requests if amount > 0 and name != PODS] + [(PODS, 1)]
            if any(left.get(name, 0) < amount for name, amount in wanted):
                out.append(claim)
                continue
            for name, amount in wanted:
                left[name] -= amount
        return out

    def _on(self, row: int, without: str) -> list[Nomination]:
        """Return the claims on a row except one and those that are lifted."""
        node = self._state.columns.nodes[row]
        claims = () if node is None else self._nominations.on(node.name)
        return [claim for claim in claims if claim.pod != without and claim.pod not in self._lifted]

    def _victims_on(self, row: int, claims: Sequence[Nomination]) -> list[PodRecord]:
        """Return the pods that leave for claims and are still there."""
        keys = {victim for claim in claims for victim in claim.victims}
        records = [self._state.record(key) for key in sorted(keys)]
        return [record for record in records if record is not None and record.row == row]

    def _amounts(self, row: int, claims: Sequence[Nomination]) -> dict[int, int]:
        """Return what claims take of each column, less what their victims still hold."""
        amounts: dict[int, int] = {}
        for claim in claims:
            for column, amount in self._state.demand(claim.requests).amounts:
                amounts[column] = amounts.get(column, 0) + amount
        for record in self._victims_on(row, claims) if amounts else ():
            for column, amount in self._state.demand(record.pod.requests).amounts:
                if column in amounts:
                    amounts[column] -= amount
        return {column: amount for column, amount in amounts.items() if amount > 0}

    def _fits(self, row: int, claim: Nomination) -> bool:
        """Whether a row has the amounts of a claim next to the others on it."""
        columns, others = self._state.columns, self._amounts(row, self._on(row, claim.pod))
        demand = self._state.demand(claim.requests)
        return not demand.missing and all(
            columns.free.item(column, row) + columns.reserved.item(column, row) - others.get(column, 0) >= amount
            for column, amount in demand.amounts
        )

    def _of_slack(self, row: int, without: str) -> Floats:
        """Return (2,) what claims take of the slack, less what their victims still hold."""
        claims = self._on(row, without)
        claimed = sum((np.array([claim.millicores, claim.memory_bytes], np.float64) for claim in claims), np.zeros(2))
        held = [self._state.demand(victim.pod.requests) for victim in self._victims_on(row, claims)]
        return claimed - sum(
            (np.array([demand.millicores, demand.memory_bytes], np.float64) for demand in held), np.zeros(2)
        )

    def _frees(self, pod: Pod) -> Floats:
        """Return (2,) what a pod frees of the slack: an online pod frees nothing until its node's forecast falls."""
        demand = self._state.demand(pod.requests)
        if pod.workload_class is WorkloadClass.ONLINE:
            return np.zeros(2)
        return np.array([demand.millicores, demand.memory_bytes], np.float64)
