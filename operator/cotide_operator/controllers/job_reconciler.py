"""What a Job needs next: a pure comparison of the wanted with the observed state.

`controllers` calls it for each Job with changed pods, spec or decisions. I/O, clocks and statuses are elsewhere.

Life of one index (``a`` counts its earlier pods)::

    (nothing) --make--> alive a --Succeeded--> completed          for ever, even when the pod is deleted later
                          |  |---Failed-------> failures + 1,  a + 1 --(back-off)--> make
                          |  |-can't start----> failures + 1,  a + 1, deleted --(gone, back-off)--> make
                          |--- lost its node -> evictions + 1, a + 1 ------------> make

Life of one pod, which our finalizer keeps in the API after a deletion::

    made --ends, or is deleted and released--> counted (the status is written) --finalizer removed--> as any other pod

Invariants: `Progress` never goes back. Each pod that ended is counted once, because the same write moves its index on
to the next ``a``. A pod is made, and another released, only after that write. So a crash in between repeats neither,
and an end that happened while no operator ran is still found. The attempt of a pod (index, ``a``) shows whether it is
counted, so that no list of counted pods is needed.

Source of the scheme: batch/v1 ("Job tracking with finalizers", KEP-2307). A pod that is being deleted may still
succeed, so its successor waits for its end. A batch/v1 Job does this with ``podReplacementPolicy: Failed``, but not by
default. The pod counts when it has ended, or when no kubelet stops it any more: its grace period is over because it was
unbound or deleted by force.

As in batch/v1, a pod counts as complete when all its containers exited with 0, even after an eviction, because no work
was lost. A pod that failed with the condition DisruptionTarget, or that its kubelet refused, counts as an eviction and
not towards ``backoffLimit`` (in batch/v1: ``podFailurePolicy`` with ``Ignore``).

Unlike in batch/v1, a pod that its kubelet can't start (for example because its image is missing) does not keep its node
for ever. After `starts.start_times.START_SECONDS` in this state it counts as a failure and is deleted. The same holds
for a pod without a kubelet error when its containers are still being created after ``CREATE_SECONDS``. Examples are a
volume that can't be mounted, and a pull that hangs.

While none of a Job's pods has run since the first start failure, at most `PROBES` of them try (of a gang, as many as
must start together). Further pods are made once one runs. Pods that hold a node beyond that limit are deleted without
being counted. The next pods prefer other nodes than those of pods that were given up.
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
"""Digits of an index or of a count of retries when it is read back; chosen: far more than `limits.MAX_INDEXES` has."""
BACKOFF_BASE_SECONDS: Final = 10.0
"""First wait after a failure. Source: the batch/v1 Job controller (10 s, doubled each time, six minutes at most)."""
BACKOFF_MAX_SECONDS: Final = 360.0
PROBES: Final = 2
"""Pods of a Job that try to start while none of its pods can; chosen: the number that a burst of refusals may waste."""
AVOIDED_NODES: Final = 16
"""Latest nodes with a failed start of a Job's pod, which its next pods avoid; chosen."""


class Outcome(StrEnum):
    """How a Job ended; these are also its final phases."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """The permanent record of a Job; it lives in the Job's status."""

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
    """State that the controller keeps between two reconciliations, and may lose in a restart."""

    met: set[tuple[int, int]] = field(default_factory=set)
    """Pods (index, retry) that were seen alive: if one is missing later, it was deleted."""
    withdrawn: set[tuple[int, int]] = field(default_factory=set)
    """Pods that the controller deleted itself, for a smaller parallelism."""
    not_before: dict[int, float] = field(default_factory=dict)
    """Clock second by index, before which no further pod is made."""
    starts: StartTimes[tuple[int, int]] = field(default_factory=StartTimes)
    """Since when pods do not start: after a restart their time begins again."""
    obstructed: float | None = None
    """Clock second since which pods can't be started and none ran; None while pods start."""
    ran: float = -math.inf
    """Clock second at which a pod was last seen to run, or to have run."""
    avoided: dict[str, None] = field(default_factory=dict)
    """Nodes where pods were given up and none ran since, the latest last."""

    def copy(self) -> ReconcilerCache:
        """Return an independent copy."""
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
    """Pods that need no finalizer once the progress is written."""
    unfollowed: frozenset[str] = frozenset()
    """Uids of the pods of ``release`` that have no successor for now; Kueue need not keep them for one."""
    slow: frozenset[str] = frozenset()
    """Uids of pods that create their containers for so long that the status must show it."""
    given_up: tuple[ChildPod, ...] = ()
    """Pods that this reconciliation counts as failed, because they were not started in time."""
    held_back: int = 0
    """Pods that are made only once one runs."""
    recheck_seconds: float | None = None
    """Clock second at which a back-off, or a kubelet's time to start a pod, runs out."""


def plan_steps(
    spec: JobSpec,
    progress: Progress,
    pods: Sequence[ChildPod],
    memory: ReconcilerCache,
    now_seconds: float,
    limits: StartLimits = DEFAULT_LIMITS,
) -> Generator[None, None, JobPlan]:
    """Return the next steps of a Job. The planning runs in steps, because ten thousand pods take a while.

    Parameters
    ----------
    spec : JobSpec
        The wanted state.
    progress : Progress
        The progress from its status.
    pods : sequence of ChildPod
        All its own children.
    memory : ReconcilerCache
        The state of this Job; changed in place.
    now_seconds : float
        The operator's clock.
    limits : StartLimits
        Limits for pods that hold a node and do not run.
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
    if progress.outcome is not None:  # the remaining pods no longer count: all are released at once
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
    """Record whether and where pods of a Job can be started; return those given up in this reconciliation."""
    given_up = tuple(waiting[pair] for pair in sorted(late) if before.retry(pair[0]) == pair[1] < after.retry(pair[0]))
    running = [pod for pod in alive if pod.phase == "Running"]
    for pod in given_up:
        memory.avoided.pop(pod.node or "", None)
        memory.avoided[pod.node or ""] = None
    for node in {*(pod.node or "" for pod in running), *list(memory.avoided)[:-AVOIDED_NODES], ""}:
        memory.avoided.pop(node, None)
    times = memory.starts
    since = list(times.stuck.values())
    since += [times.creating[pair] for pair in late if pair in times.creating]
    if not any(pod.kueue_group for pod in waiting.values()):  # a group of Kueue waits for all its pods
        memory.obstructed = min([*([] if memory.obstructed is None else [memory.obstructed]), *since], default=None)
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
    """Count each pod that ended, or was not started in time, since the last reconciliation."""
    by_attempt = {(pod.index, pod.retry): pod for pod in pods}
    completed, retries = set(progress.completed), dict(progress.retries)
    failures, evictions = progress.failures, progress.evictions
    # Most pods are alive and current for their index, and need no counting: ten thousand of them are sorted out at
    # once.
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
            # A missing pod was deleted if it was seen before, or if a later pod of its index proves that it existed.
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
    """Return the ended pods with our finalizer that do not count, or that the progress already contains."""
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
    """Make the missing pods up to the parallelism, or delete the surplus."""
    stray: list[ChildPod] = []
    current: list[ChildPod] = []
    overdue: list[ChildPod] = []
    for pod in alive:
        if pod.index >= spec.completions or pod.index in progress.completed:
            stray.append(pod)
        elif (pod.cannot_start or pod.creating) and pod.retry < progress.retry(pod.index):
            overdue.append(pod)  # counted before its end: it is deleted, and its successor waits
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
    # A withdrawn pod keeps its name until it is gone.
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
    """Return the pods in the order of deletion: the least work is lost first."""
    return sorted(pods, key=lambda pod: (pod.node is not None, -pod.index))


def _unwanted(pods: Iterable[ChildPod]) -> tuple[ChildPod, ...]:
    return tuple(pod for pod in pods if not pod.deleting)


def read_progress(status: Mapping[str, Any]) -> Progress:
    """Return the progress from a Job's status; missing parts count as not started."""
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
    """Read ``0-3,7`` back; parts that are no range, or beyond the largest index, are skipped and count as not done."""
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
