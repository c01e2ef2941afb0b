"""Takes batch work off a node on which a service is measured over its latency limit: what the guard could not foresee.

Owned by the capacity of a policy that relieves latencies; told of each measured p95, asked in every cycle. The guard
judges a placement by today's rate; when the rate rises later, or the forecast was wrong, only a measurement tells::

    held --over the limit for the observation time--> broken --a round, pause, a round, ...--> held, once measured so

A round takes one pod: gratis before batch, the least work lost first, since one may be enough and its effect takes a
measurement to show. Invariants: online pods are never touched; a node without batch or gratis pods is left alone, and
so is a service that nobody measured since.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig
from cotide_core.events import ServiceSampled
from cotide_core.instructions import Evict, EvictCause
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.victim_selection import Candidate, Lost, may_go
from cotide_core.state.cluster_state import ClusterState


@dataclass(slots=True)
class _Broken:
    since: float
    measured: float
    milliseconds: float
    limit: float
    next_round: float = -math.inf


class LatencyRelief:
    """Watches the measured latencies of one engine.

    Parameters
    ----------
    config : its observation time, pause and age of a measurement are those of the overload monitor.
    """

    def __init__(self, config: HierarchicalConfig) -> None:
        self._config = config
        self._broken: dict[str, _Broken] = {}
        """By pod of a service."""

    def sampled(self, event: ServiceSampled, state: ClusterState, now: float) -> None:
        """Take in a measurement."""
        record = state.record(event.pod)
        promise = None if record is None else state.workload(record.pod.workload)
        latency = event.latency_p95_milliseconds
        if latency is None or promise is None or latency <= promise.latency_p95_milliseconds:
            self._broken.pop(event.pod, None)
            return
        known = self._broken.get(event.pod)
        if known is None:
            known = self._broken[event.pod] = _Broken(now, now, latency, promise.latency_p95_milliseconds)
        known.measured, known.milliseconds = now, latency

    def relieve(self, state: ClusterState, evictions: Evictions, lost: Lost, now: float) -> list[Evict]:
        """Return whom to evict now, one pod a node; each is noted in `evictions`."""
        out: list[Evict] = []
        rows: set[int] = set()
        for key, broken in list(self._broken.items()):
            record = state.record(key)
            stale = now - broken.measured > self._config.usage_stale_seconds
            if record is None or record.row < 0 or stale:
                del self._broken[key]
                continue
            observed = now >= broken.since + self._config.overload_observation_seconds
            if not observed or now < broken.next_round or broken.measured < broken.next_round or record.row in rows:
                continue
            victim = self._victim(state, evictions, lost, record.row, now)
            if victim is None:
                continue
            rows.add(record.row)
            broken.next_round = now + self._config.overload_pause_seconds
            pod = victim.record.pod
            evictions.ask(victim.record, now)
            node = victim.record.node or ""
            reason = (
                f"{record.pod.workload} was measured at {broken.milliseconds:.3g} ms on {node}, its limit is"
                f" {broken.limit:.3g} ms; a {pod.workload_class} pod with {victim.lost:.0f} core s done"
            )
            out.append(Evict(pod.key, pod.uid, node, reason, EvictCause.LATENCY))
        return out

    def next_change(self, now: float) -> float:
        """Return when an observation or a pause ends; infinite for never."""
        moments = [
            max(one.since + self._config.overload_observation_seconds, one.next_round) for one in self._broken.values()
        ]
        return min((moment for moment in moments if moment > now), default=math.inf)

    @staticmethod
    def _victim(state: ClusterState, evictions: Evictions, lost: Lost, row: int, now: float) -> Candidate | None:
        """Return who goes from a row; nobody while an earlier victim is still on its way out."""
        records = state.records_on(row)
        if any(one.pod.terminating and one.pod.workload_class is not WorkloadClass.ONLINE for one in records):
            return None
        asked = evictions.asked()
        if any(one.pod.key in asked for one in records):
            return None
        for cls in (WorkloadClass.GRATIS, WorkloadClass.BATCH):
            candidates = [
                Candidate(one, np.zeros(0), lost(one))
                for one in records
                if may_go(one, cls) and evictions.open(one, now)
            ]
            if candidates:
                return min(candidates, key=lambda one: one.cost)
        return None
