"""Times of a pod's events on the operator's clock, and its known past.

`event_source` calls it once for each change, at its arrival and before its translation. API timestamps carry whole
seconds of the wall, which is far too coarse under simulated time. Times of live events therefore come from the clock;
timestamps serve only for events before this process. Attempts and demotions of earlier runs come from the note on the
pod, or else from its Job's status, so that a restart resets no pod's turn. Invariant: the sighting of one pod (uid)
never changes once a field is known.
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
    """Observed times of one pod, on the operator's clock."""

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
        """Drop a deleted pod."""
        self._known.pop(key, None)

    def of(self, pod: PodObject) -> PodTimes | None:
        """Return the observation of a pod, None before the first one."""
        known = self._known.get(key_of(pod.metadata))
        return known if known is not None and known.uid == pod.metadata.uid else None

    def observe(self, pod: PodObject, *, live: bool, job_status: Mapping[str, Any] | None = None) -> PodTimes:
        """Return the observation of a pod after this change.

        Parameters
        ----------
        pod : PodObject
            The present object.
        live : bool
            False during the first list: then timestamps give the times.
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
        """Set the time before which all later observations that are not live count as made."""
        self._listed_seconds = None

    def glance(self, pod: PodObject, job_status: Mapping[str, Any]) -> PodTimes:
        """Return the result of `observe` for an unknown pod that is not live, without storing it."""
        seen = self._first(pod, live=False, job_status=job_status)
        began = pod.status.phase in _BEGAN
        return self._with_run(pod, seen, live=False, observed=False) if began else seen

    def keep(self, key: str, seen: PodTimes) -> None:
        """Store a glance at an unknown pod."""
        self._known[key] = seen

    def _with_run(self, pod: PodObject, known: PodTimes, *, live: bool, observed: bool) -> PodTimes:
        """Return the sighting with the start and end of a pod; ``witnessed`` if it was seen before its start."""
        phase = pod.status.phase
        started_at, ended = known.started_seconds, known.finished_seconds
        if started_at is None:
            started = _started(pod)
            if started is not None or phase == "Running":
                # Seen only after its end: then the timestamps are better than the moment of receipt.
                started_at = self._time(started, live=live, now=observed and phase == "Running")
        if ended is None and phase != "Running":
            ended = self._time(_finished(pod), live=live, now=observed)
        if started_at == known.started_seconds and ended == known.finished_seconds:
            return known
        return PodTimes(known.uid, known.created_seconds, started_at, ended, known.attempts, known.demotions)

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
        """Return the time, which is the same for the whole first list: the clock is not read for each pod."""
        if live:
            return self._clock.now()
        if self._listed_seconds is None:
            self._listed_seconds = self._clock.now()
        return self._listed_seconds


def noted(pods: Iterable[PodObject]) -> Iterator[Decision]:
    """Yield the decisions in annotations that are about the very pod that carries them."""
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
    except InputError:  # a foreign text in our annotation
        return None
    # A pod from a copy of another pod's manifest carries the note of that other pod.
    return decision if decision.uid == pod.metadata.uid else None


def _past(pod: PodObject, job_status: Mapping[str, Any]) -> tuple[int, int]:
    """Return attempts and demotions that an earlier run of the operator recorded."""
    note = pod.metadata.annotations.get(DECISION_ANNOTATION)
    if note is not None:
        past = decode_past(note)
        # A pod from a copy of another pod's manifest carries the note of that other pod.
        return past[1:] if past is not None and past[0] == pod.metadata.uid else (0, 0)
    return _count(job_status.get("attempts")), _count(job_status.get("demotions"))


def _count(value: object) -> int:
    return min(INT32_MOST, max(0, value)) if isinstance(value, int) else 0


def _parsed(text: str) -> float | None:
    try:
        return parse_timestamp(text)
    except InputError:  # a server's own timestamps are well-formed; a test double's must not stop a cluster
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
