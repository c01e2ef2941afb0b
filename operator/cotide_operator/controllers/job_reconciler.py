"""What a Job needs next: a pure comparison of what is wanted with what is seen.

Called by `controllers` for each Job whose pods, spec or decisions changed; I/O, clocks and statuses are elsewhere.

Life of one index (``a`` counts the pods that it needed before)::

    (nothing) --make--> alive a --Succeeded--> completed          for ever, even when the pod is deleted later
                          |  |---Failed-------> failures + 1,  a + 1 --(back-off)--> make
                          |  |-can't start----> failures + 1,  a + 1, deleted --(gone, back-off)--> make
                          |--- lost its node -> evictions + 1, a + 1 ------------> make

Life of one pod, which our finalizer keeps in the API whoever deletes it::

    made --ends, or is deleted and let go--> counted (the status is written) --finalizer taken off--> as any other pod

Invariants: `Progress` never goes back; each pod that ended is counted once, because counting it moves its index on to
the next ``a`` in the same write; a pod is made, and another let go, only after that write, so that a crash between
repeats neither and an end that nobody watched is found. The attempt of a pod (index, ``a``) says whether it is counted:
no list of pods "counted but still there" is needed. Source of the scheme: batch/v1 ("Job tracking with finalizers",
KEP-2307). Like a batch/v1 Job with ``podReplacementPolicy: Failed`` and unlike its default, a pod that is being
deleted is waited for, since it may still succeed; it counts when it ended, or when nobody stops it any more (its grace
is over: unbound, or deleted by force).

As batch/v1 does, a pod whose containers all exited with 0 counts as complete whoever ended it (an eviction that
let it finish wasted nothing), and one that failed with the condition DisruptionTarget, or that its kubelet refused,
counts as an eviction and not towards ``backoffLimit`` (there: ``podFailurePolicy`` with ``Ignore``).

Unlike batch/v1, a pod that its kubelet can't start (its image is missing, say) does not keep its node for ever: once it
was seen so for `starts.start_times.START_SECONDS` on end it counts as a failure and is deleted. So does one that the
kubelet says nothing against, and whose containers are still being created after ``CREATE_SECONDS`` (a volume that
can't be mounted, a pull that hangs). While none of a Job's pods ran since the first of them could not be started, no
more than `PROBES` try (a gang: as many as must start together): others are made once one runs, and those that hold a
node beyond that are taken back, uncounted. The next pods prefer other nodes than those on which one was given up.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from cotide_core.limits import INDEXES_CHARACTERS, INT32_MOST, MAX_INDEXES
from cotide_operator.apis.types import JobSpec
from cotide_operator.controllers.child_pods import ChildPod
from cotide_operator.controllers.starts.start_times import (
    DEFAULT_LIMITS,
    StartLimits,
    Starts,
    StartTimes,
    follow_starts,
)

_INDEX_DIGITS: Final = 9
"""Of an index, or of a count of retries, as they are read back; chosen: far more than `limits.MAX_INDEXES` has."""
BACKOFF_BASE_SECONDS: Final = 10.0
"""First wait after a failure. Source: the batch/v1 Job controller (10 s, doubled each time, six minutes at most)."""
BACKOFF_MAX_SECONDS: Final = 360.0
PROBES: Final = 2
"""Pods of a Job that try to start while none of its pods can; chosen: as many as a burst of refusals may waste."""
AVOIDED_NODES: Final = 16
"""Nodes on which a Job's pods could not be started that its next pods avoid, the latest; chosen."""


class Outcome(StrEnum):
    """How a Job ended; these are also its final phases."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """What must never be forgotten about a Job; it lives in the Job's status."""

    completed: frozenset[int] = frozenset()
    retries: Mapping[int, int] = field(default_factory=dict)
    """Index to number of its current pod, where that is not 0."""
    failures: int = 0
    evictions: int = 0
    outcome: Outcome | None = None

    def retry(self, index: int) -> int:
        """Return the number of an index's current pod."""
        return self.retries.get(index, 0)


@dataclass(slots=True)
class ReconcilerCache:
    """What the controller remembers between two looks, and may lose in a restart."""

    met: set[tuple[int, int]] = field(default_factory=set)
    """Pods (index, retry) that were seen alive: one that is missing later was taken away."""
    withdrawn: set[tuple[int, int]] = field(default_factory=set)
    """Pods that we deleted ourselves, for a smaller parallelism."""
    not_before: dict[int, float] = field(default_factory=dict)
    """Index to the clock second before which no further pod is made."""
    starts: StartTimes[tuple[int, int]] = field(default_factory=StartTimes)
    """Since when pods do not start: a restart gives them their time anew."""
    obstructed: float | None = None
    """Clock second since which pods can't be started and none ran; None while pods start."""
    ran: float = -math.inf
    """Clock second at which a pod was last seen to run, or to have run."""
    avoided: dict[str, None] = field(default_factory=dict)
    """Nodes on which pods were given up and none ran since, the latest last."""

    def copy(self) -> ReconcilerCache:
        """Return a copy that changes by itself."""
        return replace(
            self,
            met=set(self.met),
            withdrawn=set(self.withdrawn),
            not_before=dict(self.not_before),
            starts=self.starts.copy(),
            avoided=dict(self.avoided),
        )


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What to do; in this order: write the progress, make pods, delete pods, release pods."""

    progress: Progress
    make: tuple[tuple[int, int], ...] = ()
    """(index, retry) of the pods to make."""
    delete: tuple[ChildPod, ...] = ()
    release: tuple[ChildPod, ...] = ()
    """Pods whose finalizer is of no use once the progress is written."""
    unfollowed: frozenset[str] = frozenset()
    """Uids of those of ``release`` that no other pod follows for now: who keeps them for one need not."""
    slow: frozenset[str] = frozenset()
    """Uids of pods whose containers are being created for so long that it must be said."""
    given_up: tuple[ChildPod, ...] = ()
    """Pods that this look counts as failed, since they were not started in time."""
    held_back: int = 0
    """Pods that are made only once one runs."""
    recheck_seconds: float | None = None
    """Clock second at which a back-off runs out, or a kubelet's time to start a pod."""


def plan_steps(
    spec: JobSpec,
    progress: Progress,
    pods: Sequence[ChildPod],
    memory: ReconcilerCache,
    now_seconds: float,
    limits: StartLimits = DEFAULT_LIMITS,
) -> Generator[None, None, JobPlan]:
    """Return the next steps of a Job, themselves planned in steps: ten thousand pods take a while.

    Parameters
    ----------
    spec : JobSpec
        What is wanted.
    progress : Progress
        As in its status.
    pods : sequence of SeenPod
        Its own children, all of them.
    memory : ReconcilerCache
        Of this Job; changed in place.
    now_seconds : float
        The operator's clock.
    limits : StartLimits
        Of pods that hold a node and do not run.
    """
    starts: Starts[tuple[int, int]] = Starts()
    given_up: tuple[ChildPod, ...] = ()
    alive = [pod for pod in pods if pod.alive]
    if progress.outcome is None:
        waiting = {(pod.index, pod.retry): pod for pod in alive if not pod.deleting}
        yield
        starts = follow_starts(waiting, memory.starts, now_seconds, limits)
        yield
        before, progress = progress, _accounted(spec, progress, pods, memory, now_seconds, starts.late)
        yield
        given_up = _remember_starts(memory, alive, waiting, before, progress, starts.late, now_seconds)
        if len(progress.completed) >= spec.completions:
            progress = replace(progress, outcome=Outcome.SUCCEEDED)
        elif progress.failures > spec.backoff_limit:
            progress = replace(progress, outcome=Outcome.FAILED)
    if progress.outcome is not None:  # what still runs counts no more: nothing is waited for
        released = tuple(pod for pod in pods if pod.tracked)
        return JobPlan(progress, delete=_unwanted(alive), release=released, slow=starts.slow, given_up=given_up)
    yield
    plan = _filled(spec, progress, pods, alive, memory, now_seconds, starts.lasting)
    yield
    rechecks = [seconds for seconds in (plan.recheck_seconds, starts.next_seconds) if seconds is not None]
    counted = _counted(spec, progress, pods, memory)
    withdrawn = frozenset(pod.uid for pod in counted if (pod.index, pod.retry) in memory.withdrawn)
    recheck = min(rechecks, default=None)
    return replace(
        plan, release=counted, unfollowed=withdrawn, slow=starts.slow, given_up=given_up, recheck_seconds=recheck
    )


def _remember_starts(
    memory: ReconcilerCache,
    alive: Sequence[ChildPod],
    waiting: Mapping[tuple[int, int], ChildPod],
    before: Progress,
    after: Progress,
    late: frozenset[tuple[int, int]],
    now_seconds: float,
) -> tuple[ChildPod, ...]:
    """Remember whether pods of a Job can be started at all, and where not; return those given up in this look."""
    given_up = tuple(waiting[pair] for pair in sorted(late) if before.retry(pair[0]) == pair[1] < after.retry(pair[0]))
    running = [pod for pod in alive if pod.phase == "Running"]
    for pod in given_up:
        memory.avoided.pop(pod.node or "", None)
        memory.avoided[pod.node or ""] = None
    for node in {*(pod.node or "" for pod in running), *list(memory.avoided)[:-AVOIDED_NODES], ""}:
        memory.avoided.pop(node, None)
    times = memory.starts
    begun = list(times.stuck.values())
    begun += [times.creating[pair] for pair in late if pair in times.creating]
    if not any(pod.kueue_group for pod in waiting.values()):  # a group of Kueue's waits until all of it is there
        memory.obstructed = min([*([] if memory.obstructed is None else [memory.obstructed]), *begun], default=None)
    ended = after.failures - before.failures > len(given_up) or len(after.completed) > len(before.completed)
    if running or ended:
        memory.ran = now_seconds
    if memory.obstructed is not None and memory.ran >= memory.obstructed:
        memory.obstructed = None
    return given_up


def _accounted(
    spec: JobSpec,
    progress: Progress,
    pods: Sequence[ChildPod],
    memory: ReconcilerCache,
    now_seconds: float,
    late: frozenset[tuple[int, int]],
) -> Progress:
    """Count every pod that ended since the last look, or was not started in time."""
    by_attempt = {(pod.index, pod.retry): pod for pod in pods}
    completed, retries = set(progress.completed), dict(progress.retries)
    failures, evictions = progress.failures, progress.evictions
    # Most pods are alive and their indexes' current ones: nothing is to be counted, and ten thousand are told at once.
    going = {
        attempt
        for attempt, pod in by_attempt.items()
        if retries.get(attempt[0], 0) == attempt[1] and attempt not in late and pod.alive
    }
    memory.met.update(pair for pair in going if pair[0] < spec.completions and pair[0] not in completed)
    others = by_attempt.keys() - going
    highest: dict[int, int] = {}
    for index, retry in others:
        highest[index] = max(retry, highest.get(index, 0))
    indexes = {index for index, _ in (*others, *(memory.met - by_attempt.keys()))} - completed
    for index in sorted(index for index in indexes if index < spec.completions):
        while True:
            attempt = index, retries.get(index, 0)
            pod = by_attempt.get(attempt)
            if pod is not None and pod.phase == "Succeeded":
                completed.add(index)
                break
            overdue = pod is not None and pod.alive and attempt in late
            if pod is not None and not overdue and (pod.alive or (pod.deleting and attempt in memory.withdrawn)):
                memory.met.add(attempt)
                break
            if pod is None and attempt in memory.withdrawn:
                memory.withdrawn.discard(attempt)
                memory.met.discard(attempt)
                break
            # A missing pod was taken away if we met it, or if a later pod of its index shows that it was there.
            if pod is None and attempt not in memory.met and highest.get(index, -1) < attempt[1]:
                break
            if pod is None or (pod.lost_its_node and not overdue):
                evictions += 1
            else:
                failures += 1
                memory.not_before[index] = now_seconds + backoff_seconds(failures)
            retries[index] = attempt[1] + 1
            memory.met.discard(attempt)
    return replace(progress, completed=frozenset(completed), retries=retries, failures=failures, evictions=evictions)


def _counted(
    spec: JobSpec, progress: Progress, pods: Sequence[ChildPod], memory: ReconcilerCache
) -> tuple[ChildPod, ...]:
    """Return the pods with our finalizer that ended and are of no account, or in the progress already."""
    return tuple(
        pod
        for pod in pods
        if pod.tracked
        and pod.done
        and (
            pod.index >= spec.completions
            or pod.index in progress.completed
            or pod.retry < progress.retry(pod.index)
            or (pod.index, pod.retry) in memory.withdrawn
        )
    )


def backoff_seconds(failures: int) -> float:
    """Return the wait after the n-th failure of a Job, n from 1: doubled each time up to the maximum."""
    doublings = min(failures - 1, 10)  # 10 s * 2^10 is far beyond the maximum
    return min(BACKOFF_MAX_SECONDS, BACKOFF_BASE_SECONDS * 2.0**doublings)


def _filled(
    spec: JobSpec,
    progress: Progress,
    pods: Sequence[ChildPod],
    alive: Sequence[ChildPod],
    memory: ReconcilerCache,
    now_seconds: float,
    lasting: frozenset[tuple[int, int]],
) -> JobPlan:
    """Make what is missing up to the parallelism, or take away what is too much."""
    stray: list[ChildPod] = []
    current: list[ChildPod] = []
    overdue: list[ChildPod] = []
    for pod in alive:
        if pod.index >= spec.completions or pod.index in progress.completed:
            stray.append(pod)
        elif (pod.cannot_start or pod.creating) and pod.retry < progress.retry(pod.index):
            overdue.append(pod)  # counted before it ended: it is deleted, and waited for
        else:
            current.append(pod)
    stray += overdue
    wanted = 0 if spec.suspend else min(spec.parallelism, spec.completions - len(progress.completed))
    surplus = _first_to_go(current)[: len(current) - wanted] if len(current) > wanted else []
    limit = wanted
    if memory.obstructed is not None:
        limit = min(wanted, max(PROBES, spec.gang_size if spec.gang is not None else 0))
        stuck = [pod for pod in current if pod.cannot_start and not pod.deleting]
        given_back = [pod for pod in stuck if (pod.index, pod.retry) in lasting]
        surplus = surplus or _first_to_go(given_back)[: max(0, len(stuck) - limit)]
    if surplus:
        memory.withdrawn.update((pod.index, pod.retry) for pod in surplus)
        return JobPlan(progress, delete=_unwanted((*stray, *surplus)), held_back=wanted - limit)
    make: list[tuple[int, int]] = []
    waits: list[float] = []
    room = limit - len(current) - len(overdue)
    # One that was withdrawn has its name until it is gone.
    taken = {pod.index for pod in pods if pod.alive or pod.retry == progress.retry(pod.index)} if room > 0 else set()
    for index in range(spec.completions):
        if len(make) >= room:
            break
        if index in taken or index in progress.completed:
            continue
        earliest = memory.not_before.get(index, now_seconds)
        if earliest > now_seconds:
            waits.append(earliest)
            continue
        make.append((index, progress.retry(index)))
    held = wanted - max(limit, len(current))
    return JobPlan(progress, tuple(make), _unwanted(stray), held_back=held, recheck_seconds=min(waits, default=None))


def _first_to_go(pods: Iterable[ChildPod]) -> list[ChildPod]:
    """Return the pods in the order in which they are taken away: the least work is lost."""
    return sorted(pods, key=lambda pod: (pod.node is not None, -pod.index))


def _unwanted(pods: Iterable[ChildPod]) -> tuple[ChildPod, ...]:
    return tuple(pod for pod in pods if not pod.deleting)


def read_progress(status: Mapping[str, Any]) -> Progress:
    """Return the progress that a Job's status holds; what is not there counts as not begun."""
    phase = status.get("phase")
    return Progress(
        completed=frozenset(read_indexes(str(status.get("completedIndexes") or ""))),
        retries=_read_retries(str(status.get("retriedIndexes") or "")),
        failures=_count(status.get("failures")),
        evictions=_count(status.get("evictions")),
        outcome=Outcome(phase) if phase in set(Outcome) else None,
    )


def write_indexes(indexes: Iterable[int]) -> str:
    """Write indexes as ranges: ``0-3,7``."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def read_indexes(text: str) -> set[int]:
    """Read ``0-3,7`` back; parts that are no range, or beyond any Job, are passed over as if not done."""
    indexes: set[int] = set()
    for part in text[:INDEXES_CHARACTERS].split(","):
        first, dash, last = part.partition("-")
        start, end = _index(first), _index(last if dash else first)
        if start is not None and end is not None:
            indexes.update(range(start, min(end, MAX_INDEXES - 1) + 1))
    return indexes


def _index(text: str) -> int | None:
    """Return a whole number of few digits; None for anything else."""
    return int(text) if text.isdecimal() and len(text) <= _INDEX_DIGITS else None


def write_retries(retries: Mapping[int, int]) -> str:
    """Write the indexes that needed further pods: ``2:1,5:3``."""
    return ",".join(f"{index}:{retry}" for index, retry in sorted(retries.items()) if retry)


def _read_retries(text: str) -> dict[int, int]:
    retries: dict[int, int] = {}
    for part in text[:INDEXES_CHARACTERS].split(","):
        first, _, second = part.partition(":")
        index, retry = _index(first), _index(second)
        if index is not None and retry is not None and index < MAX_INDEXES:
            retries[index] = retry
    return retries


def _count(value: object) -> int:
    return min(INT32_MOST, max(0, value)) if isinstance(value, int) else 0
