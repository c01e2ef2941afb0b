"""The overload monitor: takes batch work off a node when its online pods need the room (Jiang et al., section V).

Called by the capacity of a policy that has one, in every cycle, after the events and before any placement. A node's
load is the measured usage of its online pods plus what batch and gratis pods hold, as in Jiang et al., section I. A
node without a fresh measurement is never judged. In addition, an agent of the node may report how long services wait
for a cpu (`NodeContended`). Above ``overload_contended_share`` the node is over, too, and below half of it calm. The
amount that lacks is then unknown, so one pod leaves after the other. The states of a node::

    calm --over a share for the observation time--> overloaded --below the relieved share--> calm
                                                       |  round of evictions, pause, round, ...
      too many episodes within the window --> cordoned for batch and gratis, for a while

Victims: gratis before batch, the least work lost first. Gratis pods that their owner protects leave only where an
administrator overrides that, and then before any batch pod. Invariants: online pods are never touched. Pods on their
way out count as gone, so none is evicted twice or in their place. Same state, samples and time give the same evictions.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig
from cotide_core.instructions import Evict, EvictCause
from cotide_core.kernels.array_types import Booleans, Floats
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.victim_selection import Candidate, Lost, cheapest, drawn, may_go
from cotide_core.state.cluster_state import ClusterState, PodRecord

RESOURCES = ("cpu", "memory")


@dataclass(slots=True)
class _Node:
    over_since: float | None = None
    overloaded: bool = False
    next_round: float = -np.inf
    episodes: deque[float] = field(default_factory=deque)
    cordoned_until: float = -np.inf


class _Measured(NamedTuple):
    """(2,) load and allocatable amounts of a node, and the share of its time that a service waits for a cpu."""

    load: Floats
    physical: Floats
    waiting: float

    def waits_above(self, share: float) -> bool:
        """Whether services wait for longer than a positive share."""
        return 0 < share < self.waiting


@dataclass(frozen=True, slots=True)
class Alarms:
    """The nodes in trouble, by kind of trouble."""

    over: tuple[str, ...] = ()
    """Nodes with a load above the share, by a fresh measurement."""
    cordoned: tuple[tuple[str, float], ...] = ()
    """(node, until when)."""


class NoMonitor:
    """Takes the place of a monitor where a policy has none: no node is ever judged, and none is cordoned."""

    alarms: Final = Alarms()

    def relieve(self, state: ClusterState, evictions: Evictions, lost: Lost, now: float) -> list[Evict]:
        """Return no evictions."""
        del state, evictions, lost, now
        return []

    def keeps_off(self, now: float) -> bool:
        """Return False."""
        del now
        return False

    def cordoned(self, state: ClusterState, now: float) -> Booleans:
        """Return (N,) False."""
        del now
        return np.zeros(state.columns.size, np.bool_)

    def adopt(self, name: str, until_seconds: float, now: float) -> bool:
        """Return False: nothing would end a cordon that an earlier run under another policy made."""
        del name, until_seconds, now
        return False

    def end_cordons(self, now: float) -> list[str]:
        """Return no names."""
        del now
        return []

    def next_change(self, now: float) -> float:
        """Return infinity."""
        del now
        return float("inf")


class OverloadMonitor:
    """Watches all nodes of one engine.

    Parameters
    ----------
    config : thresholds, pauses and limits.
    generator : draws victims where the configuration chooses ``random``.
    """

    def __init__(self, config: HierarchicalConfig, generator: np.random.Generator) -> None:
        self._config = config
        self._generator = generator
        self._nodes: dict[str, _Node] = {}
        self._over: tuple[str, ...] = ()

    @property
    def alarms(self) -> Alarms:
        """The trouble found when the nodes were last judged."""
        cordoned = [(name, node.cordoned_until) for name, node in self._nodes.items() if node.cordoned_until > -np.inf]
        return Alarms(self._over, tuple(sorted(cordoned)))

    def relieve(self, state: ClusterState, evictions: Evictions, lost: Lost, now: float) -> list[Evict]:
        """Return the evictions to make now, by node in order of rows; each is noted in `evictions`."""
        used, fresh = state.host_load.used(now, self._config.usage_stale_seconds)
        size = state.columns.size
        held = state.columns.held[:2, :, :size].sum(axis=0)
        load = used + held
        for key in evictions.asked():
            record = state.record(key)
            if record is not None and record.row >= 0:
                load[:, record.row] -= _amounts(state, record)
        physical = state.host_load.physical()
        self._forget_gone(state)
        waiting = np.zeros(size)
        if self._config.overload_contended_share > 0:
            waiting = state.contention.waiting(now, self._config.usage_stale_seconds)
        out: list[Evict] = []
        for row in self._to_judge(state, fresh, load, physical, waiting):
            measured = _Measured(load[:, row], physical[:, row], float(waiting[row]))
            out.extend(self._judge(state, evictions, lost, now, row, measured))
        return out

    def keeps_off(self, now: float) -> bool:
        """Whether any node is cordoned."""
        return any(now < node.cordoned_until for node in self._nodes.values())

    def cordoned(self, state: ClusterState, now: float) -> Booleans:
        """Return (N,) whether a row takes no batch and gratis pods."""
        kept_off = np.zeros(state.columns.size, np.bool_)
        for name, node in self._nodes.items():
            row = state.columns.row_of.get(name)
            if row is not None and now < node.cordoned_until:
                kept_off[row] = True
        return kept_off

    def adopt(self, name: str, until_seconds: float, now: float) -> bool:
        """Adopt a cordon that an earlier run noted on a node; False where it is over or can't be ours."""
        node = self._nodes.get(name)
        known = -np.inf if node is None else node.cordoned_until
        if not max(now, known) < until_seconds <= now + self._config.cordon_seconds:
            return False
        self._nodes.setdefault(name, _Node()).cordoned_until = until_seconds
        return True

    def end_cordons(self, now: float) -> list[str]:
        """Open the nodes after the end of their cordon; returns their names."""
        ended = [name for name, node in self._nodes.items() if -np.inf < node.cordoned_until <= now]
        for name in ended:
            self._nodes[name].cordoned_until = -np.inf
        return ended

    def next_change(self, now: float) -> float:
        """Return when a cordon ends, an observation is over or a pause ends; infinite for never."""
        moments = [node.cordoned_until for node in self._nodes.values() if node.cordoned_until > now]
        for node in self._nodes.values():
            if node.overloaded and node.next_round > now:
                moments.append(node.next_round)
            elif node.over_since is not None and not node.overloaded:
                moments.append(node.over_since + self._config.overload_observation_seconds)
        return min((moment for moment in moments if moment > now), default=float("inf"))

    def _to_judge(
        self, state: ClusterState, fresh: Booleans, load: Floats, physical: Floats, waiting: Floats
    ) -> list[int]:
        """Return the rows that are over now, or were over and are not calm again."""
        over = (load > self._config.overload_share * physical).any(axis=0) & fresh
        present = (state.columns.nodes[row] for row in np.flatnonzero(over).tolist())
        self._over = tuple(node.name for node in present if node is not None)
        share = self._config.overload_contended_share
        rows = set(np.flatnonzero(over | (waiting > share) if share > 0 else over).tolist())
        for name, node in self._nodes.items():
            if node.overloaded or node.over_since is not None:
                rows.add(state.columns.row_of[name])
        return sorted(row for row in rows if fresh[row])

    def _judge(
        self, state: ClusterState, evictions: Evictions, lost: Lost, now: float, row: int, measured: _Measured
    ) -> list[Evict]:
        config, load, physical = self._config, measured.load, measured.physical
        present = state.columns.nodes[row]
        if present is None:
            return []
        node = self._nodes.setdefault(present.name, _Node())
        contended = measured.waits_above(config.overload_contended_share)
        over = contended or bool((load > config.overload_share * physical).any())
        if not node.overloaded:
            if not over:
                node.over_since = None
                return []
            node.over_since = now if node.over_since is None else node.over_since
            if now < node.over_since + config.overload_observation_seconds:
                return []
            self._open_episode(node, now)
        elif not measured.waits_above(config.overload_contended_share / 2) and not (
            (load > config.relieved_share * physical).any()
        ):
            node.overloaded, node.over_since = False, None
            return []
        if now < node.next_round:
            return []
        lacking = load - config.relieved_share * physical
        if contended and not (lacking > 0).any() and not _anybody_leaves(state, evictions, row):
            lacking[0] = 1.0  # a millicore: any holder of cpu is enough for a round
        chosen = self._victims(state, evictions, lost, now, row, lacking)
        if chosen:
            node.next_round = now + config.overload_pause_seconds
        why = _why(load, physical)
        if contended:
            why = f"a service there waits for a cpu for {measured.waiting:.0%} of its time, {why}"
        out = []
        for candidate in chosen:
            pod = candidate.record.pod
            evictions.ask(candidate.record, now)
            reason = (
                f"{present.name} is overloaded ({why}); "
                f"a {pod.workload_class} pod with {candidate.lost:.0f} core s done"
            )
            if pod.is_protected(now):
                reason += "; an administrator's setting overrides its do-not-disrupt"
            override = config.overload_overrides_owners and pod.workload_class is WorkloadClass.GRATIS
            out.append(Evict(pod.key, pod.uid, present.name, reason, EvictCause.OVERLOADED, override=override))
        return out

    def _open_episode(self, node: _Node, now: float) -> None:
        config = self._config
        node.overloaded = True
        node.episodes.append(now)
        while node.episodes[0] < now - config.flap_window_seconds:
            node.episodes.popleft()
        if len(node.episodes) >= config.flap_episodes and config.cordon_seconds > 0:
            node.cordoned_until = now + config.cordon_seconds
            node.episodes.clear()

    def _victims(
        self, state: ClusterState, evictions: Evictions, lost: Lost, now: float, row: int, lacking: Floats
    ) -> list[Candidate]:
        """Return gratis pods, then batch pods, that bring the load down; as many as a round allows."""
        chosen: list[Candidate] = []
        records = state.records_on(row)
        for record in records:
            if record.pod.terminating and record.pod.workload_class is not WorkloadClass.ONLINE:
                counted = record.pod.key in evictions.asked()
                lacking = lacking if counted else lacking - _amounts(state, record)
        gratis, batch = WorkloadClass.GRATIS, WorkloadClass.BATCH
        for cls, despite_owner in ((gratis, False), (gratis, True), (batch, False)):
            if (lacking <= 0).all():
                break
            if despite_owner and not self._config.overload_overrides_owners:
                continue
            candidates = [
                Candidate(record, _amounts(state, record), lost(record))
                for record in records
                if may_go(record, cls, now, despite_owner=despite_owner) and evictions.open(record, now)
            ]
            helpful = [candidate for candidate in candidates if (candidate.frees[lacking > 0] > 0).any()]
            found = self._choose(helpful, lacking)
            if found is None:
                found = sorted(helpful, key=lambda candidate: candidate.cost)
            chosen.extend(found)
            lacking = lacking - np.sum([candidate.frees for candidate in found], axis=0) if found else lacking
        return chosen[: self._config.overload_evictions]

    def _choose(self, candidates: list[Candidate], lacking: Floats) -> list[Candidate] | None:
        if self._config.victims == "random":
            return drawn(candidates, lacking, self._generator)
        return cheapest(candidates, lacking)

    def _forget_gone(self, state: ClusterState) -> None:
        self._nodes = {name: node for name, node in self._nodes.items() if name in state.columns.row_of}


def _anybody_leaves(state: ClusterState, evictions: Evictions, row: int) -> bool:
    """Return whether a batch or gratis pod is already on its way off a row."""
    return any(
        record.pod.workload_class is not WorkloadClass.ONLINE
        and (record.pod.terminating or record.pod.key in evictions.asked())
        for record in state.records_on(row)
    )


def _amounts(state: ClusterState, record: PodRecord) -> Floats:
    demand = state.demand(record.pod.requests)
    return np.array([demand.millicores, demand.memory_bytes], np.float64)


def _why(load: Floats, physical: Floats) -> str:
    shares = load / np.maximum(1.0, physical)
    worst = int(shares.argmax())
    return f"{RESOURCES[worst]} at {100 * shares[worst]:.0f} % of what is allocatable"
