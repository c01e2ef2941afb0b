"""History of tasks: arrivals, run times and requests of pods that end.

Fed by the operator's `controller` with the pods that changed; read by `live_plan`, in its thread. Pods of online
services are no tasks: they end when a person scales them down. Pods that come with a node are no tasks either, nor are
pods that ask for reclaimed capacity only: they run in the slack of others. A restart begins with the pods that the API
still shows. A change in the cache that the engine has not received yet is read later: in the older state of the engine,
a deleted pod would run for ever. Invariants: a pod is counted once; the latest `MAX_TASKS` at most of the last
`WINDOW_SECONDS` are remembered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod, PodPhase
from cotide_core.units import CPU, MEMORY
from cotide_operator.cache.object_cache import Kind, ObjectCache
from cotide_operator.provisioning.advice import History
from cotide_operator.provisioning.live_view import comes_with_node

MAX_TASKS: Final = 10_000
"""Ended tasks that are remembered; chosen: k-means of this number takes a quarter of a second."""
WINDOW_SECONDS: Final = 2 * 86_400.0
"""Chosen: the forecast that looks a day back needs one day, and learns its errors from another."""
MAX_CHANGES: Final = 2000
"""Changed pods that are taken at one look; chosen: a few milliseconds."""
RUNS_ON: Final = 2.0
"""A running task is assumed to end at this multiple of its age; chosen without data."""


class Task(NamedTuple):
    """A pod that ended: seconds of the clock, millicores, bytes."""

    arrival: float
    seconds: float
    millicores: float
    memory_bytes: float
    priority: float


class KnownTasks(NamedTuple):
    """Tasks that ended, and pods that have not."""

    ended: tuple[Task, ...]
    open: tuple[Pod, ...]

    def read(self, now: float, run_seconds: float) -> History | None:
        """Return the known tasks, or None without any; ``run_seconds``: the assumed run time of a task without data."""
        since = now - WINDOW_SECONDS
        tasks = [task for task in self.ended if task.arrival >= since]
        guess = float(np.median([task.seconds for task in tasks])) if tasks else run_seconds
        for pod in self.open:
            age = 0.0 if pod.started_seconds is None else now - pod.started_seconds
            lasts = pod.requested_seconds if pod.requested_seconds is not None else guess
            tasks.append(_task(pod, max(lasts, RUNS_ON * age))._replace(arrival=max(pod.created_seconds, since)))
        if not tasks:
            return None
        table = np.array(tasks, dtype=np.float64)
        return History(table[:, 0], table[:, 1], table[:, 2:4], table[:, 4], until=now)


class TaskHistory:
    """Pods that ended, and those that have not.

    Parameters
    ----------
    pods : as the engine received them, by key.
    is_current : whether the engine has the latest change of a pod.
    """

    def __init__(
        self, cache: ObjectCache, pods: Mapping[str, Pod], is_current: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._cache, self._pods, self._is_current = cache, pods, is_current
        self._ended: deque[Task] = deque(maxlen=MAX_TASKS)
        self._open: dict[str, Pod] = {}
        self._changed: dict[str, None] = dict.fromkeys(cache.pods)
        self._counted: dict[str, str] = {}
        """Uid of the ended pods that still exist, by key."""
        cache.subscribe(self._note)

    def _note(self, kind: Kind, key: str) -> None:
        if kind == "pods" and key:
            self._changed[key] = None

    def follow(self, now: float) -> None:
        """Take in some of the pods that changed."""
        for key in list(self._changed)[:MAX_CHANGES]:
            del self._changed[key]
            if self._is_current(key):
                self._take(key, now)
            else:
                self._changed[key] = None  # moves behind all others

    def _take(self, key: str, now: float) -> None:
        before, pod = self._open.get(key), self._pods.get(key)
        if before is not None and (pod is None or pod.uid != before.uid):
            self._end(before, now)
            del self._open[key]
        if pod is None:
            self._counted.pop(key, None)
            return
        if not is_task(pod):
            self._open.pop(key, None)  # it was a task until its class changed: a service's pod is counted elsewhere
            return
        found = self._cache.pods.get(key)
        if found is None or comes_with_node(found) or self._counted.get(key) == pod.uid:
            return
        if pod.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
            self._open.pop(key, None)
            self._counted[key] = pod.uid
            self._end(pod, now)
        else:
            self._open[key] = pod

    def _end(self, pod: Pod, now: float) -> None:
        if pod.started_seconds is not None:  # a pod that never ran has no run time
            ended = pod.finished_seconds if pod.finished_seconds is not None else now
            self._ended.append(_task(pod, ended - pod.started_seconds))

    def copied(self) -> KnownTasks:
        """Return a copy of the known tasks for another thread: a cluster has tens of thousands of tasks."""
        return KnownTasks(tuple(self._ended), tuple(self._open.values()))


def is_task(pod: Pod) -> bool:
    """Whether a pod ends by itself and asks for plain cpu or memory."""
    return pod.workload_class is not WorkloadClass.ONLINE and any(
        amount and name in (CPU, MEMORY) for name, amount in pod.requests
    )


def _task(pod: Pod, seconds: float) -> Task:
    asked = dict(pod.requests)
    return Task(
        pod.created_seconds,
        max(seconds, 1.0),
        float(asked.get(CPU, 0)),
        float(asked.get(MEMORY, 0)),
        float(pod.priority),
    )
