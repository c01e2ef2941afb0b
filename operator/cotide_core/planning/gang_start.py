"""Starts gangs: all missing members in one cycle, or none.

Called by `cycle.Scheduler` for a popped pod of an incomplete gang. Its members are placed one after another, the
largest first, each as the policy places any pod (slack, guard and rank included). Each counts at once, so that the next
one sees it. If a member finds no node, all placements are rolled back. A planning policy receives the members together
(`planner`). Under forecast slack, gratis pods leave for a gang only if the whole gang finds room; the nodes of the
other members are kept meanwhile. Invariant: one call assumes either as many members as an incomplete gang lacks, or
none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import Evict, Wait, WaitReason
from cotide_core.limits import MAX_GANG_KINDS, MAX_GANG_REQUESTS
from cotide_core.placement.bind_instructions import DecidedBind
from cotide_core.placement.feasibility import FITS
from cotide_core.placement.placer import Placement, Upcoming
from cotide_core.placement.refusal_messages import overall, sentence
from cotide_core.placement.wait_instructions import Room, wait
from cotide_core.planning.planner import PlannerContext
from cotide_core.queueing.capped_pods import Capped
from cotide_core.queueing.gangs import GangStanding
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.state.shapes import FitShape, Shape
from cotide_core.state.snapshot import Snapshot

NOT_NOW: Placement = Placement(-1, None, ())


class GangCapacity(Protocol):
    """The calls to the policy's capacity, for one member after another; see `reclaiming.requested_capacity`."""

    def may_make_room(self, entry: QueuedPod) -> bool:
        """Whether a pod may get room that nodes do not show: claims that it may take, or pods that leave."""
        ...

    def place(self, snapshot: Snapshot, entry: QueuedPod, forecaster: QosForecaster, upcoming: Upcoming) -> Placement:
        """Choose a node for a pod, or return why there is none."""
        ...

    def make_room(
        self, snapshot: Snapshot, entry: QueuedPod, refusal: Placement, forecaster: QosForecaster
    ) -> tuple[Room | None, Placement]:
        """Choose the pods to evict for a pod that found no node."""
        ...

    def mark(self) -> object:
        """Return the mark to pass to `rewind`."""
        ...

    def rewind(self, mark: object) -> None:
        """Forget claims and evictions that were recorded since."""
        ...

    def claim(self, entry: QueuedPod, node: str, mark: object, now: float) -> Room:
        """Keep a node's room for a pod."""
        ...


def has_few_kinds(members: Sequence[QueuedPod]) -> bool:
    """Whether the pods of a gang have few enough kinds for a search for a common start."""
    return len({(member.shape, member.seconds_p50, member.seconds_p90) for member in members}) <= MAX_GANG_KINDS


@dataclass(slots=True)
class GangAttempt:
    """The outcome of one gang's turn."""

    binds: list[DecidedBind] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    evictions: list[Evict] = field(default_factory=list)
    tried: int = 1
    """Number of computed placements."""

    def emit(self, instruction: Wait | None) -> None:
        """Add an instruction to emit, if there is one."""
        if instruction is not None:
            self.waits.append(instruction)


@dataclass(slots=True)
class _Trial:
    placed: dict[QueuedPod, Placement] = field(default_factory=dict)
    rooms: dict[QueuedPod, Room] = field(default_factory=dict)
    refused: Placement = NOT_NOW
    capped: Capped | None = None
    failed: QueuedPod | None = None
    """The member that found no node; None if all did."""
    could: int = 0
    """Number of members that could have started."""


class _Refused(NamedTuple):
    """The conditions of a gang's refusal; the same conditions give the same refusal."""

    relief_clock: int
    lacks: int
    waiting: Counter[Shape]


class GangStarts:
    """Starts the gangs of one engine.

    Parameters
    ----------
    plans, join : of the planner: whether pods of a shape are planned, and to hand one over.
    """

    def __init__(self, context: PlannerContext, capacity: GangCapacity) -> None:
        self._gangs = context.gangs
        self._state = context.state
        self._placer = context.placer
        self._queue = context.queue
        self._capacity = capacity
        self._assumptions = context.assumptions
        self._shape_now = context.shape_now
        self._failed: dict[str, _Refused] = {}
        """The refusal of each gang that found no room."""

    def attempt(
        self,
        entry: QueuedPod,
        snapshot: Snapshot,
        now: float,
        qos: QosForecaster,
        plans: Callable[[Shape], bool],
        join: Callable[[QueuedPod, float], None],
    ) -> GangAttempt | None:
        """Try the gang of a popped pod; None if the gang is complete and the pod may go alone."""
        if self._gangs.is_known_whole(entry.shape.gang):
            return None
        standing = self._gangs.standing(entry.shape.gang)
        if standing.leaves:
            # The whole gang is asked to leave: its waiting members wait until the others are gone.
            self._queue.leave_to_gang(entry, now)
            attempt = GangAttempt()
            words = f"gang {entry.shape.gang}: waits until its leaving members are gone"
            attempt.emit(wait(entry, WaitReason.WAITING_FOR_GANG, words))
            return attempt
        if standing.lacks == 0:
            return None
        if len(standing.waiting) < standing.lacks:
            return self._too_few(standing, now)
        waiting = sorted(standing.waiting, key=lambda member: self._queue.key_of(member, now))
        members, spare = waiting[: standing.lacks], waiting[standing.lacks :]
        for queued_pod in spare:
            self._aside(queued_pod, now)
        tied = any(member.shape.fit.peers is not None for member in members)
        # A plan ignores the rules between members, and checks all nodes for each kind of member. A gang with such
        # rules, or with many kinds, therefore starts without a plan.
        if not tied and all(plans(member.shape) for member in members) and has_few_kinds(members):
            return self._hand_over(standing, members, now, join)
        return self._start(standing, members, snapshot, now, qos)

    def forget(self) -> None:
        """Drop all remembered refusals, because the forecasts changed."""
        self._failed.clear()

    def _too_few(self, standing: GangStanding, now: float) -> GangAttempt:
        attempt = GangAttempt()
        gang, present = standing.gang, standing.holding + standing.succeeded + len(standing.waiting)
        words = f"gang {gang.key}: {present} of {gang.minimum} are present and can start, waits for the others"
        for entry in standing.waiting:
            self._aside(entry, now)
            attempt.emit(wait(entry, WaitReason.WAITING_FOR_GANG, words))
        return attempt

    def _hand_over(
        self, standing: GangStanding, members: Sequence[QueuedPod], now: float, join: Callable[[QueuedPod, float], None]
    ) -> GangAttempt:
        """Give all members to the plan together; none if their namespace may not hold them all."""
        for member in members:
            self._queue.take(member, now)
        capped = self._queue.over_held_together(members)
        if capped is not None:
            # Searched by bisection: summing each prefix of 1,024 members would take a thousand sums.
            together = self._queue.over_held_together
            could = bisect_left(range(len(members)), True, key=lambda last: together(members[: last + 1]) is not None)
            trial = _Trial(capped=capped, failed=members[could], could=could)
            return self._refused(standing, members, trial, 0, now)
        for member in members:
            join(member, now)
        return GangAttempt(tried=0)

    def _start(
        self, standing: GangStanding, members: list[QueuedPod], snapshot: Snapshot, now: float, qos: QosForecaster
    ) -> GangAttempt:
        key = standing.gang.key
        kinds = Counter(entry.shape for entry in standing.waiting)
        tied = any(member.shape.fit.peers is not None for member in members)
        if self._failed.get(key) == self._refusal(standing, kinds) and not tied:
            return self._again(members, now)
        needs = Counter(member.shape.fit for member in members)
        if len(needs) > MAX_GANG_REQUESTS:
            self._note_refusal(standing, kinds)
            return self._too_unlike(standing, members, now)
        members.sort(key=lambda member: (-member.shape.fit.millicores, member.sequence))
        could = self._at_most(needs, snapshot)
        if could < len(members) and not any(self._capacity.may_make_room(member) for member in members):
            verdicts = self._placer.refusals(snapshot, members[0].shape.fit)
            trial = _Trial(refused=Placement(-1, None, verdicts), failed=members[-1], could=could)
            self._note_refusal(standing, kinds)
            return self._refused(standing, members, trial, snapshot.node_count, now)
        saved = self._capacity.mark()
        trial = self._try(members, snapshot, now, qos)
        if trial.failed is None and not trial.rooms:
            self._failed.pop(key, None)
            attempt = GangAttempt(tried=len(members))
            for member in members:
                attempt.binds.append(self._assumptions.settle(member, trial.placed[member], snapshot, now))
                self._gangs.touch(member.pod.key)
            return attempt
        for entry in trial.placed:
            self._state.retract(entry.pod.key)
        if trial.failed is None:
            return self._make_room(standing, members, trial, saved, snapshot, now)
        self._capacity.rewind(saved)
        if trial.capped is None:
            self._note_refusal(standing, kinds)
        return self._refused(standing, members, trial, snapshot.node_count, now)

    def _refusal(self, standing: GangStanding, kinds: Counter[Shape]) -> _Refused:
        return _Refused(self._state.columns.relief_clock, standing.lacks, kinds)

    def _note_refusal(self, standing: GangStanding, kinds: Counter[Shape]) -> None:
        if len(self._failed) > 2 * len(self._gangs.members):
            self._failed = {key: refused for key, refused in self._failed.items() if key in self._gangs.members}
        self._failed[standing.gang.key] = self._refusal(standing, kinds)

    def _too_unlike(self, standing: GangStanding, members: Sequence[QueuedPod], now: float) -> GangAttempt:
        """Leave the members of a gang with too many kinds waiting: a user must change them."""
        attempt = GangAttempt()
        words = (
            f"gang {standing.gang.key}: its pods have more than {MAX_GANG_REQUESTS} kinds of requests and rules "
            "and can't start together: make their requests and rules alike"
        )
        for member in members:
            self._queue.take(member, now)
            self._park(member, now)
            attempt.emit(wait(member, WaitReason.MISCONFIGURED, words))
        return attempt

    def _try(self, members: Sequence[QueuedPod], snapshot: Snapshot, now: float, qos: QosForecaster) -> _Trial:
        """Place one member after another, as far as possible."""
        trial = _Trial()
        ahead: Upcoming = lambda: [member.shape for member in members[len(trial.placed) + 1 :]]  # noqa: E731 - of this loop
        for member in members:
            trial.capped = self._queue.over_held(member)
            if trial.capped is not None:
                trial.failed = member
                break
            found, room = self._place(snapshot, member, qos, ahead)
            if found.row >= 0:
                self._state.assume(member.pod.key, snapshot.name(found.row), now)
                trial.placed[member] = found
                continue
            if room is None:
                trial.failed, trial.refused = member, found
                break
            trial.rooms[member] = room
        trial.could = len(trial.placed)
        return trial

    def _place(
        self, snapshot: Snapshot, member: QueuedPod, qos: QosForecaster, ahead: Upcoming
    ) -> tuple[Placement, Room | None]:
        """Choose a node for a member, or room that others make.

        Members that were placed before it may keep it off by their own rules. It has the shape of these rules only
        during the trial: if the gang does not start, the rules are gone.
        """
        shape, member.shape = member.shape, self._shape_now(member)
        try:
            found = self._capacity.place(snapshot, member, qos, ahead)
            if found.row >= 0:
                return found, None
            room, found = self._capacity.make_room(snapshot, member, found, qos)
            return found, room
        finally:
            member.shape = shape

    def _at_most(self, needs: Mapping[FitShape, int], snapshot: Snapshot) -> int:
        """Return how many members fit at most, by requests alone; exact for equal members without a guard.

        Members with rules about other pods all count, since each placement may open nodes to the next. So do those of
        many kinds: placing them gives the answer as fast.
        """
        if len(needs) > MAX_GANG_KINDS:
            return sum(needs.values())
        counted = 0
        for fit, alike in needs.items():
            if fit.peers is not None:
                counted += alike
                continue
            rows = np.flatnonzero(self._placer.candidates(snapshot, fit).codes == FITS)
            most = np.full(len(rows), 1 if fit.host_ports or fit.exclusive else alike, np.int64)
            for column, amount in fit.demanded:
                if amount > 0:
                    np.minimum(most, snapshot.free[column, rows] // amount, out=most)
            counted += min(alike, int(most.sum()))
        return counted

    def _make_room(
        self,
        standing: GangStanding,
        members: Sequence[QueuedPod],
        trial: _Trial,
        saved: object,
        snapshot: Snapshot,
        now: float,
    ) -> GangAttempt:
        """Evict for the members that found no node, and keep the nodes that the others found."""
        attempt = GangAttempt(tried=len(members))
        gang = standing.gang
        leaving = sum(len(room.evictions) for room in trial.rooms.values())
        words = f"gang {gang.key}: {trial.could} of {len(members)} can start, waits for room for the others"
        for member in members:
            room = trial.rooms.get(member)
            if room is None:
                room = self._capacity.claim(member, snapshot.name(trial.placed[member].row), saved, now)
            attempt.evictions.extend(room.evictions)
            message = f"{words}. preemption: {room.message}"
            self._queue.take(member, now)
            self._park(member, now)
            attempt.emit(wait(member, WaitReason.INSUFFICIENT_SLACK, message, room=room))
        attempt.tried += leaving
        return attempt

    def _refused(
        self, standing: GangStanding, members: Sequence[QueuedPod], trial: _Trial, nodes: int, now: float
    ) -> GangAttempt:
        """Leave all members waiting: one of each shape represents the others."""
        attempt = GangAttempt(tried=1 + trial.could)
        gang, capped = standing.gang, trial.capped
        if capped is not None:
            capped = self._queue.over_held_together(members) or capped
        words = f"gang {gang.key}: {trial.could} of {len(members)} can start, waits for room for all at once"
        reason = WaitReason.WAITING_FOR_TURN if capped is not None else WaitReason.INSUFFICIENT_SLACK
        if trial.refused.refused:
            words = f"{words}: {sentence(trial.refused.refused, nodes)}"
            reason = overall(trial.refused.refused)
        if capped is not None:
            words = f"gang {gang.key}: {trial.could} of {len(members)} can start: {capped.message}"
        speakers = {member.shape: member for member in reversed(members)}
        speaks = members[0] if trial.failed is None else trial.failed
        speakers[speaks.shape] = speaks
        for member in members:
            self._queue.take(member, now)
            if member is not speakers[member.shape]:
                self._queue.leave_to_gang(member, now)
                self._emit_quiet(attempt, member, standing, speaks)
            elif capped is not None and member is speaks:
                self._queue.cap(member, now, members)
                attempt.emit(wait(member, reason, words, cap=capped.limit))
            elif capped is not None:
                self._queue.leave_to_gang(member, now)
                self._emit_quiet(attempt, member, standing, speaks)
            else:
                self._park(member, now)
                attempt.emit(wait(member, reason, words, placement=trial.refused))
        return attempt

    @staticmethod
    def _emit_quiet(attempt: GangAttempt, entry: QueuedPod, standing: GangStanding, speaks: QueuedPod) -> None:
        """Emit a fixed message that refers to another member, so that changing numbers are not repeated for each
        member.
        """
        gang = standing.gang
        words = f"gang {gang.key}: waits until {gang.minimum} can start at once; see {speaks.pod.key}"
        if entry.last_reason is None or entry.last_reason is not entry.quiet_reason:
            attempt.emit(wait(entry, WaitReason.WAITING_FOR_GANG, words))
            entry.quiet_reason = entry.last_reason

    def _again(self, members: Sequence[QueuedPod], now: float) -> GangAttempt:
        """Leave members as they were, because nothing changed since their refusal."""
        speakers = {member.shape: member for member in reversed(members)}
        for member in members:
            self._queue.take(member, now)
            if member is speakers[member.shape]:
                self._queue.failed(member, now)
            else:
                self._queue.leave_to_gang(member, now)
        return GangAttempt()

    def _park(self, entry: QueuedPod, now: float) -> None:
        """Leave a refused member until something changes.

        A member with rules about other pods is tried again after its back-off instead. A trial of its own gang that is
        rolled back would move the counts that wake it.
        """
        if entry.shape.fit.peers is None:
            self._queue.failed(entry, now)
        else:
            entry.attempts += 1
            self._queue.back_off(entry, now)

    def _aside(self, entry: QueuedPod, now: float) -> None:
        self._queue.leave_to_gang(entry, now)
