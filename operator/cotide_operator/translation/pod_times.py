"""When things happened to a pod, on the operator's clock, and what is known of its past.

Called by `event_source` once for each change, at the moment it arrives and before it is translated. API timestamps
carry whole seconds of the wall, which under simulated time is far too coarse: what was seen live is taken from the
clock, and only what happened before this process watched is read from timestamps. Attempts and demotions of earlier
runs come back from the note on the pod, or else from its Job's status, so that a restart does not reset anybody's turn.
Invariant: the sighting of one pod (uid) never changes once a field is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from cotide_core.errors import InputError
from cotide_core.limits import INT32_MOST
from cotide_kube.objects import PodObject
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.cache.decision_store import Decision
from cotide_operator.cache.object_cache import key_of
from cotide_operator.clock import Clock
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, decode, decode_past

LIVE_WINDOW_SECONDS: Final = 2.0
"""Wall seconds between creation and receipt within which the receipt counts as the creation; chosen above the
timestamps' resolution of one second."""
_BEGAN: Final = ("Running", "Succeeded", "Failed")


class PodTimes(msgspec.Struct, frozen=True, gc=False):
    """What was observed of one pod; times on the operator's clock."""

    uid: str
    created_seconds: float
    started_seconds: float | None = None
    finished_seconds: float | None = None
    attempts: int = 0
    demotions: int = 0


class PodObservations:
    """Observed times by pod key.

    Parameters
    ----------
    clock : Clock
        The operator's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, PodTimes] = {}
        self._listed_seconds: float | None = None

    def __len__(self) -> int:
        return len(self._known)

    def forget(self, key: str) -> None:
        """Drop a pod that is gone."""
        self._known.pop(key, None)

    def of(self, pod: PodObject) -> PodTimes | None:
        """Return what was observed of a pod, None when it was not observed yet."""
        known = self._known.get(key_of(pod.metadata))
        return known if known is not None and known.uid == pod.metadata.uid else None

    def observe(self, pod: PodObject, *, live: bool, job_status: Mapping[str, Any] | None = None) -> PodTimes:
        """Return what is known of a pod after this change.

        Parameters
        ----------
        pod : PodObject
            The object as it is now.
        live : bool
            False while the first list is read: then nothing is happening now, timestamps tell.
        job_status : mapping, optional
            Status of the Job that controls it, for attempts and demotions of an earlier run.
        """
        key = key_of(pod.metadata)
        before = self._known.get(key)
        after = before
        if after is None or after.uid != pod.metadata.uid:
            after = self._first(pod, live=live, job_status=job_status or {})
            before = None
        if pod.status.phase in _BEGAN:
            after = self._with_run(pod, after, live=live, observed=live and before is not None)
        if after is not before:
            self._known[key] = after
        return after

    def refresh(self) -> None:
        """What is not live is from before this moment, and no longer from before an earlier one."""
        self._listed_seconds = None

    def glance(self, pod: PodObject, job_status: Mapping[str, Any]) -> PodTimes:
        """Return what `observe` would of a pod that is not known and not live; remember nothing."""
        seen = self._first(pod, live=False, job_status=job_status)
        began = pod.status.phase in _BEGAN
        return self._with_run(pod, seen, live=False, observed=False) if began else seen

    def keep(self, key: str, seen: PodTimes) -> None:
        """Remember what a glance told of a pod that is not known."""
        self._known[key] = seen

    def _with_run(self, pod: PodObject, known: PodTimes, *, live: bool, observed: bool) -> PodTimes:
        """Return the sighting with what a pod that began tells; ``witnessed`` when it was seen before it did."""
        phase = pod.status.phase
        begun, ended = known.started_seconds, known.finished_seconds
        if begun is None:
            started = _started(pod)
            if started is not None or phase == "Running":
                # Seen only when it was over already: then the timestamps know better than the moment of learning it.
                begun = self._time(started, live=live, now=observed and phase == "Running")
        if ended is None and phase != "Running":
            ended = self._time(_finished(pod), live=live, now=observed)
        if begun == known.started_seconds and ended == known.finished_seconds:
            return known
        return PodTimes(known.uid, known.created_seconds, begun, ended, known.attempts, known.demotions)

    def _first(self, pod: PodObject, *, live: bool, job_status: Mapping[str, Any]) -> PodTimes:
        now = self._moment(live=live)
        created = now
        if pod.metadata.creation_timestamp:
            written = _parsed(pod.metadata.creation_timestamp)
            if written is not None:
                age_wall_seconds = self._clock.to_wall(now) - written
                if not (live and age_wall_seconds < LIVE_WINDOW_SECONDS):
                    created = min(now, self._clock.from_wall(written))
        attempts, demotions = _past(pod, {} if live else job_status)
        return PodTimes(pod.metadata.uid, created, attempts=attempts, demotions=demotions)

    def _time(self, written: float | None, *, live: bool, now: bool) -> float:
        moment = self._moment(live=live)
        return moment if now or written is None else min(moment, self._clock.from_wall(written))

    def _moment(self, *, live: bool) -> float:
        """Return the time, which is one for the whole first list: the clock is not asked for each of its pods."""
        if live:
            return self._clock.now()
        if self._listed_seconds is None:
            self._listed_seconds = self._clock.now()
        return self._listed_seconds


def noted(pods: Iterable[PodObject]) -> Iterator[Decision]:
    """Yield the decisions that are noted on pods and are about those very pods."""
    for pod in pods:
        decision = _noted(pod)
        if decision is not None:
            yield decision


def _noted(pod: PodObject) -> Decision | None:
    note = pod.metadata.annotations.get(DECISION_ANNOTATION)
    if note is None:
        return None
    try:
        decision = decode(note, key_of(pod.metadata)).decision
    except InputError:  # somebody else's words in our annotation
        return None
    # A pod made from a copy of another one's manifest carries that one's note: it is not about this pod.
    return decision if decision.uid == pod.metadata.uid else None


def _past(pod: PodObject, job_status: Mapping[str, Any]) -> tuple[int, int]:
    """Attempts and demotions that an earlier run of the operator wrote down."""
    note = pod.metadata.annotations.get(DECISION_ANNOTATION)
    if note is not None:
        past = decode_past(note)
        # A pod made from a copy of another one's manifest carries that one's note.
        return past[1:] if past is not None and past[0] == pod.metadata.uid else (0, 0)
    return _count(job_status.get("attempts")), _count(job_status.get("demotions"))


def _count(value: object) -> int:
    return min(INT32_MOST, max(0, value)) if isinstance(value, int) else 0


def _parsed(text: str) -> float | None:
    try:
        return parse_timestamp(text)
    except InputError:  # a server's own timestamps are well-formed; a test double's need not stop a cluster
        return None


def _started(pod: PodObject) -> float | None:
    times = [
        state.started_at
        for status in pod.status.container_statuses
        for state in (status.state.running, status.state.terminated)
        if state is not None and state.started_at
    ]
    if not times and pod.status.start_time:
        times = [pod.status.start_time]
    parsed = [seconds for text in times if (seconds := _parsed(text)) is not None]
    return min(parsed) if parsed else None


def _finished(pod: PodObject) -> float | None:
    parsed = [
        seconds
        for status in pod.status.container_statuses
        if status.state.terminated and status.state.terminated.finished_at
        if (seconds := _parsed(status.state.terminated.finished_at)) is not None
    ]
    return max(parsed) if parsed else None
