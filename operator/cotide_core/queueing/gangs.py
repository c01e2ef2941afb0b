"""Gangs: which pods belong together, how many of them hold a node, and since when too few do.

Owned by `cycle.Scheduler`; the code that starts pods reads it (`planning.gang_start`, `planning.planner`). Pods without
a gang leave no state here. The nodes that its members hold decide the state of a gang::

      none --all that it needs assumed in one cycle--> whole --its members succeed--> over
                                                        |  ^
             (a bind is refused, a member fails or goes) v  | (all that lacks starts at once)
                                                       partial --time-out, if it never started--> released: all leave

A gang has started once its minimum was bound. Its running members continue when it loses a member later. The
replacement takes the gang's own place in the queue, and the gang waits for it.

The counts are computed from the state on demand. A new engine therefore sees half-bound gangs correctly, and their
time-out restarts. Such a gang has started if all its waiting pods came after its first member ran. A member that
succeeded counts as holding a node, even after its deletion.

Invariants: a gang that never started, holds fewer nodes than its minimum and has a waiting member is released within
its time-out. A gang with members that were asked to leave starts no pod until those members have left or stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cotide_core.classes import WorkloadClass
from cotide_core.events import Gang, Pod, PodPhase
from cotide_core.queueing.queued_pod import QueuedPod, QueueState
from cotide_core.queueing.scheduling_queue import SchedulingQueue
from cotide_core.state.cluster_state import ClusterState, PodRecord

_CAN_START: Final = frozenset(
    {
        QueueState.ACTIVE,
        QueueState.BACKOFF,
        QueueState.PARKED,
        QueueState.PLANNED,
        QueueState.GANG,
        QueueState.IN_HAND,
    }
)
_HAS_A_TURN: Final = _CAN_START - {QueueState.GANG} | {QueueState.CAPPED, QueueState.ASIDE}
LEAVES_SECONDS: Final = 90.0
"""A member that was asked to leave counts as staying after this time, as in evictions (`config.HierarchicalConfig`)."""

AGAIN_SECONDS: Final = 30.0
"""Between two rounds of releasing one gang: as long as the pause after a refused eviction."""


class GangNeed(StrEnum):
    """What a gang waits for that may not run yet."""

    MEMBERS = "members"
    """Fewer members exist and may start than it lacks: not created yet, gated, capped or behind a full queue."""
    ROOM = "room"
    BINDINGS = "bindings"
    """All have a node, and some bindings are unconfirmed."""


@dataclass(frozen=True, slots=True)
class GangWait:
    """The need of a gang, and since when."""

    need: GangNeed
    since_seconds: float


@dataclass(frozen=True, slots=True)
class GangStanding:
    """The state of a gang at one moment."""

    gang: Gang
    holding: int
    """Members that have a node, or an assumed node, and are not leaving."""
    succeeded: int
    waiting: tuple[QueuedPod, ...]
    """Members that can start now, as far as the queue knows, in order of arrival."""
    members: int
    leaves: bool
    """Whether members that were asked to leave still run; until they have gone no pod of the gang starts."""
    assumed: int = 0
    """Members of ``holding`` with an unconfirmed binding."""

    @property
    def lacks(self) -> int:
        """Number of pods that must start together before any pod of the gang may run."""
        return max(0, self.gang.minimum - self.holding - self.succeeded)

    @property
    def partial(self) -> bool:
        """Whether nodes are held in vain so far: some members are bound, too few, and others wait or are being bound.

        A decided binding ends the waiting only when it is confirmed. Otherwise a binding that is lost each time would
        keep the nodes of the other members for ever.
        """
        bound = self.holding - self.assumed
        few = bound + self.succeeded < self.gang.minimum
        return bound > 0 and few and bool(self.waiting or self.assumed)

    @property
    def need(self) -> GangNeed | None:
        """The need of the gang; None if it is complete or over, or if no pod of it may start or holds a node."""
        if self.lacks == 0:
            bound = self.holding - self.assumed
            return GangNeed.BINDINGS if bound + self.succeeded < self.gang.minimum else None
        if len(self.waiting) >= self.lacks:
            return GangNeed.ROOM
        return GangNeed.MEMBERS if self.waiting or self.holding else None


class Gangs:
    """The gangs of one engine."""

    def __init__(self, state: ClusterState, queue: SchedulingQueue) -> None:
        self._state = state
        self._queue = queue
        self.members: dict[str, dict[str, None]] = {}
        """Keys of pods, by gang; empty while there is no gang."""
        self._gang_of: dict[str, str] = {}
        self._rules: dict[str, Gang] = {}
        self._succeeded: dict[str, set[str]] = {}
        """Uids, so that a member counts once."""
        self._changed: dict[str, None] = {}
        self._partial: dict[str, float] = {}
        """Since when."""
        self._started: set[str] = set()
        """Gangs that bound their minimum, until no member holds a node."""
        self._since: dict[str, float] = {}
        """Creation time of the first member of each gang."""
        self._leaving: dict[str, dict[str, tuple[str, float]]] = {}
        """Members that were asked to leave: uid and time."""
        self._whole: set[str] = set()
        """Gangs that were complete and had no leaving member, since the last `settle`."""
        self._holding: dict[str, int] = {}
        """Members that hold a node or succeeded, of gangs that were asked to leave since then."""
        self.waits: dict[str, GangWait] = {}
        """Waiting members of gangs that may not run yet, as of the last `settle`. A new engine counts from zero."""
        self.released: dict[GangNeed, int] = {}
        """Number of releases by time-out, by the unmet need of the gang."""

    def __iter__(self) -> Iterator[GangStanding]:
        return (self.standing(key) for key in self.members)

    @property
    def partial(self) -> int:
        """Number of gangs that hold nodes in vain so far."""
        return len(self._partial)

    def note(self, pod: Pod) -> None:
        """Record a pod as it was just reported."""
        key = "" if pod.gang is None else pod.gang.key
        before = self._gang_of.get(pod.key, "")
        if before and before != key:
            self.gone(pod.key)
        if pod.gang is None:
            return
        self.members.setdefault(key, {})[pod.key] = None
        self._gang_of[pod.key] = key
        self._rules[key] = pod.gang
        self._since[key] = min(pod.created_seconds, self._since.get(key, math.inf))
        if pod.phase is PodPhase.SUCCEEDED:
            self._succeeded.setdefault(key, set()).add(pod.uid)
        self._changed[key] = None

    def gone(self, key: str) -> None:
        """Forget a deleted pod."""
        gang = self._gang_of.pop(key, None)
        if gang is None:
            return
        del self.members[gang][key]
        self._changed[gang] = None

    def touch(self, key: str) -> None:
        """Record that a pod started or stopped holding a node."""
        gang = self._gang_of.get(key)
        if gang is not None:
            self._changed[gang] = None

    def stays(self, key: str) -> None:
        """Record that a pod which was asked to leave stays."""
        gang = self._gang_of.get(key)
        if gang is not None and self._leaving.get(gang, {}).pop(key, None) is not None:
            self._changed[gang] = None

    def standing(self, key: str) -> GangStanding:
        """Return the state of a gang, by its key."""
        holding, assumed, waiting = 0, 0, []
        members = self.members.get(key, {})
        for name in members:
            record = self._state.record(name)
            if record is None:
                continue
            if record.node is not None:
                ended = record.pod.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)
                holds = not ended and not record.pod.terminating
                holding += holds
                assumed += holds and record.assumed_seconds is not None
                continue
            entry = self._queue.get(name)
            if entry is not None and entry.queue_state in _CAN_START:
                waiting.append(entry)
        rule, leaves = self._rules[key], bool(self._leaving.get(key))
        succeeded = max(rule.succeeded, len(self._succeeded.get(key, ())))
        standing = GangStanding(rule, holding, succeeded, tuple(waiting), len(members), leaves, assumed)
        if standing.lacks == 0 and not leaves:
            self._whole.add(key)
        return standing

    def is_known_whole(self, key: str) -> bool:
        """Whether a gang was complete since the last `settle`; members that start meanwhile leave it complete.

        Without this, each of thousands of members that may leave alone would count all the others.
        """
        return key in self._whole

    def settle(self, now: float) -> None:
        """Update the changed gangs: which pods may try by themselves, and since when a gang is partial."""
        changed, self._changed = self._changed, {}
        self._whole.clear()
        self._holding.clear()
        self._end_leaving(changed, now)
        for key in changed:
            if not self.members.get(key):
                self._forget(key)
                continue
            standing = self.standing(key)
            self._note_start(standing)
            self._note_wait(standing, now)
            if standing.partial:
                self._partial.setdefault(key, now)
            else:
                self._partial.pop(key, None)
            if not standing.leaves:
                self._give_turns(standing, now)

    def due(self, now: float) -> list[str]:
        """Return the keys of the overdue gangs; a gang that stays partial returns again after a pause."""
        over = [key for key in self._unstarted() if self._partial[key] + self._rules[key].timeout_seconds <= now]
        lost = {key for key in over if self._has_lost(self.standing(key))}
        self._started |= lost
        late = [key for key in over if key not in lost]
        for key in late:
            self._partial[key] = now + AGAIN_SECONDS - self._rules[key].timeout_seconds
        return late

    def release(self, key: str) -> None:
        """Count a gang that its time-out releases."""
        need = self.standing(key).need or GangNeed.BINDINGS
        self.released[need] = self.released.get(need, 0) + 1

    def holders(self, key: str) -> list[PodRecord]:
        """Return the members of a gang that are bound to a node and not leaving.

        Leaves out online members: the caller asks these members to leave with their gang, and an online pod is never
        evicted.
        """
        found = [self._state.record(name) for name in self.members.get(key, {})]
        return [
            record
            for record in found
            if record is not None
            and record.row >= 0
            and record.assumed_seconds is None
            and not record.pod.terminating
            and record.pod.workload_class is not WorkloadClass.ONLINE
        ]

    def mates(self, pod: Pod) -> list[PodRecord]:
        """Return the other members of a pod's gang that are bound and not leaving, except online ones."""
        return (
            [] if pod.gang is None else [holder for holder in self.holders(pod.gang.key) if holder.pod.key != pod.key]
        )

    def is_broken_up(self, key: str) -> bool:
        """Whether too few members of a gang stay once those have gone that were asked to leave."""
        known = self._holding.get(key)
        if known is None:
            standing = self.standing(key)
            known = self._holding[key] = standing.holding + standing.succeeded
        return known - len(self._leaving.get(key, ())) < self._rules[key].minimum

    def ask(self, record: PodRecord, now: float) -> bool:
        """Record that a member is asked to leave; False if it was asked already."""
        gang = self._gang_of[record.pod.key]
        asked = self._leaving.setdefault(gang, {})
        known = asked.get(record.pod.key)
        if known is not None and known[0] == record.pod.uid:
            return False
        asked[record.pod.key] = (record.pod.uid, now)
        self._whole.discard(gang)
        self._changed[gang] = None
        for entry in self.standing(gang).waiting if len(asked) == 1 else ():
            if entry.queue_state is QueueState.PLANNED:
                self._queue.leave_to_gang(entry, now)
        return True

    def next_change(self, now: float) -> float:
        """Return when `settle` or `due` has work without a new event, not before ``now``; infinite for never."""
        if self._changed:
            return now
        ends = [self._partial[key] + self._rules[key].timeout_seconds for key in self._unstarted()]
        ends += [since + LEAVES_SECONDS for asked in self._leaving.values() for _, since in asked.values()]
        return max(now, min(ends, default=math.inf))

    def places(self, entries: Iterable[QueuedPod]) -> None:
        """Give members that their gangs lack the gangs' place in the queue; further members keep their own."""
        lacks: dict[str, bool] = {}
        for entry in entries:
            gang = entry.pod.gang
            if gang is None:
                continue
            if gang.key not in lacks:
                lacks[gang.key] = self.standing(gang.key).lacks > 0
            entry.gang_since_seconds = self._since[gang.key] if lacks[gang.key] else None

    def _forget(self, key: str) -> None:
        for kept in (
            self.members, self._rules, self._succeeded, self._partial, self._leaving, self.waits, self._since
        ):  # fmt: skip
            kept.pop(key, None)
        self._started.discard(key)

    def _unstarted(self) -> list[str]:
        """Return the partial gangs with a running start time-out."""
        return [key for key in self._partial if key not in self._started]

    def _note_start(self, standing: GangStanding) -> None:
        bound = standing.holding - standing.assumed
        if bound + standing.succeeded >= standing.gang.minimum:
            self._started.add(standing.gang.key)
        elif standing.holding == 0:
            self._started.discard(standing.gang.key)

    def _has_lost(self, standing: GangStanding) -> bool:
        """Return whether all waiting members of a gang came after its first member ran, as replacements of lost
        members.
        """
        ran = [holder.pod.started_seconds for holder in self.holders(standing.gang.key)]
        first = min((seconds for seconds in ran if seconds is not None), default=math.inf)
        return bool(standing.waiting) and all(entry.pod.created_seconds > first for entry in standing.waiting)

    def _note_wait(self, standing: GangStanding, now: float) -> None:
        key, need = standing.gang.key, standing.need
        known = self.waits.get(key)
        if need is None:
            self.waits.pop(key, None)
        elif known is None or known.need is not need:
            self.waits[key] = GangWait(need, now)

    def _end_leaving(self, changed: dict[str, None], now: float) -> None:
        for gang, asked in list(self._leaving.items()):
            for key, (uid, since) in list(asked.items()):
                record = self._state.record(key)
                stays = record is not None and record.pod.uid == uid and record.row >= 0
                if not stays or since + LEAVES_SECONDS <= now:
                    del asked[key]
                    changed[gang] = None
            if not asked:
                del self._leaving[gang]

    def _give_turns(self, standing: GangStanding, now: float) -> None:
        """Let members try that were left to their gang: all members of a complete gang, otherwise one if no other is
        trying.
        """
        if len(standing.waiting) < standing.members:
            for name in self.members[standing.gang.key]:
                if (entry := self._queue.get(name)) is not None:
                    self._queue.regrouped(entry, standing.lacks)
        planned = [entry for entry in standing.waiting if entry.queue_state is QueueState.PLANNED]
        if planned and standing.lacks not in (0, len(planned)):
            # The plan holds other members than the gang lacks now.
            for entry in planned:
                self._queue.leave_to_gang(entry, now)
        aside = [entry for entry in standing.waiting if entry.queue_state is QueueState.GANG]
        if not aside:
            return
        if standing.lacks == 0:
            for entry in aside:
                self._queue.recall(entry, now)
        elif len(standing.waiting) >= standing.lacks and not any(
            entry.queue_state in _HAS_A_TURN for entry in standing.waiting
        ):
            self._queue.recall(aside[0], now)
