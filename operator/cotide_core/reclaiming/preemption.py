"""Whom a batch pod evicts: a node and gratis pods on it whose leaving makes room (Jiang et al., Algorithm 1, lines
10-14).

Called by `slack_scheduler` for a pod that found no node. Pods on their way out are counted on before anybody is asked,
so that one pod's need is not met twice. Invariants: only gratis pods go (see `victim_selection` for who may); a plan is
made only where it suffices; same state, same generator, same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig
from cotide_core.kernels.array_types import Booleans, Floats
from cotide_core.placement.feasibility import FITS
from cotide_core.placement.placer import Placer
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.forecast_slack import ENOUGH_ROOM
from cotide_core.reclaiming.reservations import Reservations
from cotide_core.reclaiming.victim_selection import Candidate, drawn, fewest, may_go
from cotide_core.state.cluster_state import ClusterState, PodRecord
from cotide_core.state.snapshot import Snapshot

NODES_CHECKED: Final = 32
"""Nodes whose pods are looked at for victims, those with the most room after it first (chosen: a ms)."""


Admits = Callable[[NDArray[np.intp]], Booleans]


@dataclass(frozen=True, slots=True)
class Plan:
    """Who leaves which row for a pod, and who already leaves it."""

    row: int
    victims: tuple[Candidate, ...]
    coming: tuple[str, ...]
    """Keys of the pods on their way out that are counted on."""


class Preemption:
    """Makes the plans of one engine."""

    def __init__(
        self,
        config: HierarchicalConfig,
        state: ClusterState,
        placer: Placer,
        evictions: Evictions,
        reservations: Reservations,
        generator: np.random.Generator,
    ) -> None:
        self._config = config
        self._state = state
        self._placer = placer
        self._evictions = evictions
        self._reservations = reservations
        self._generator = generator

    def plan(
        self,
        snapshot: Snapshot,
        entry: QueuedPod,
        room: Floats,
        allowed: Booleans,
        lost: Callable[[PodRecord], float],
        now: float,
        admits: Admits,
    ) -> Plan | None:
        """Return who makes room, or None where nobody's leaving would do.

        Parameters
        ----------
        room : (2, N) what batch pods find, claims not counted; the pod must hold no claim.
        allowed : (N,) nodes that may be looked at.
        lost : the work that goes with a victim, in core seconds.
        admits : tells of some rows which the latency guard lets pass, as they are now: a smaller mix is no riskier.
        """
        fit = entry.shape.fit
        fits = (self._placer.feasibility.node_codes(fit, snapshot) == FITS) & allowed
        if fit.host_ports:
            fits &= self._placer.candidates(snapshot, fit).codes == FITS
        asked = self._reservations.asked(entry.pod)
        lacking = asked - (room - self._reservations.reserved(on_their_way=False))
        hopeful = fits & (lacking <= self._state.columns.held[0, :, : snapshot.size] - ENOUGH_ROOM).all(axis=0)
        rows = np.flatnonzero(hopeful)
        if self._config.victims == "random":
            rows = rows[self._generator.permutation(len(rows))]
            rows = rows[admits(rows)]
        else:
            rows = rows[np.argsort(np.maximum(lacking[:, rows], 0).sum(axis=0), kind="stable")]
            rows = _first_admitted(rows, admits)
        best: Plan | None = None
        best_cost: tuple[float, ...] = ()
        for row in rows.tolist():
            found = self._plan_on(row, entry, lacking[:, row], lost, now)
            if found is None:
                continue
            if self._config.victims == "random":
                return found
            pods = [one.record.pod for one in found.victims]
            stubborn, dear = (sum(one.prefer_no_eviction for one in pods), sum(one.deletion_cost for one in pods))
            cost = (stubborn, len(pods), dear, sum(one.lost for one in found.victims), row)
            if best is None or cost < best_cost:
                best, best_cost = found, cost
        return best

    def _plan_on(
        self, row: int, entry: QueuedPod, lacking: Floats, lost: Callable[[PodRecord], float], now: float
    ) -> Plan | None:
        columns, resources = self._state.columns, entry.shape.fit.resources
        demand = self._state.demand(entry.pod.requests)
        if demand.missing:
            return None
        amounts = {name: amount for name, (_, amount) in zip(demand.resources, demand.amounts, strict=True)}
        free = {resource: columns.free_of(resource, row) for resource in resources}
        claimed = self._reservations.claimed(row, resources, without="")[2:]
        short = [
            float(amounts[resource] - free[resource] + claim)
            for resource, claim in zip(resources, claimed.tolist(), strict=True)
        ]
        gap = np.concatenate([lacking + ENOUGH_ROOM, np.array(short)])
        coming = self._reservations.going(row)
        for one in coming:
            gap = gap - self._reservations.frees(one, resources)
        chosen = self._choose(self._candidates(row, resources, lost, now), gap)
        if chosen is None or not (chosen or coming):
            return None
        return Plan(row, tuple(chosen), tuple(one.pod.key for one in coming))

    def _candidates(
        self, row: int, resources: Sequence[str], lost: Callable[[PodRecord], float], now: float
    ) -> list[Candidate]:
        return [
            Candidate(one, self._reservations.frees(one, resources), lost(one))
            for one in self._state.records_on(row)
            if may_go(one, WorkloadClass.GRATIS) and self._evictions.open(one, now)
        ]

    def _choose(self, candidates: list[Candidate], gap: Floats) -> list[Candidate] | None:
        if self._config.victims == "random":
            return drawn(candidates, gap, self._generator)
        return fewest(candidates, gap)


def _first_admitted(rows: NDArray[np.intp], admits: Admits) -> NDArray[np.intp]:
    """Return the first rows that pass, `NODES_CHECKED` at most; asked about as many at once."""
    passed = rows[:0]
    for first in range(0, len(rows), NODES_CHECKED):
        part = rows[first : first + NODES_CHECKED]
        passed = np.concatenate([passed, part[admits(part)]])
        if len(passed) >= NODES_CHECKED:
            break
    return passed[:NODES_CHECKED]
