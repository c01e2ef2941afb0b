"""The share of time that services wait for a cpu that others have.

Two signals; the first that the kernel offers is used::

    pressure   the group's ``cpu.pressure`` (version 2): the share of time that some task of the pod waited
    run queue  /proc/THREAD/schedstat: of the time that threads of the pod ran or could have run, the share waited;
               none where a turn waited for no longer than it takes to begin one

A pod that its own quota held back since the last look waits for its own limit. It is left out and counted separately.
Called by `agent`. Sources: the kernel's accounting/psi and scheduler/sched-stats. Invariant: a pod or thread that is
new since the last look counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from cotide_node_agent.group_files import GroupFiles, GroupsUnreadable, PodGroup

MAX_THREADS: Final = 2000
"""Threads that are looked at in one look; chosen: 2,000 files take some 10 ms. Pods beyond it count for nothing."""


TURN_SECONDS: Final = 1e-4
"""Mean wait below which waiting for a turn is the switch itself, even where turns are as short; chosen."""


class Contention(NamedTuple):
    """What one look found."""

    waiting_share: float | None
    """Of the pod with the longest wait, between 0 and 1; None if no pod gave a figure."""
    throttled_pods: int
    """Services that their own limit held back since the last look."""


class ContentionMeter:
    """Compares each look with the last one.

    Parameters
    ----------
    groups : GroupFiles
    processes : Path
        The proc file system of the host's process namespace.
    """

    def __init__(self, groups: GroupFiles, processes: Path) -> None:
        self._groups, self._processes = groups, processes
        self._stalls: dict[str, float] = {}
        self._throttled: dict[str, int] = {}
        self._threads: dict[int, tuple[float, float, float]] = {}
        """Nanoseconds that a thread ran, and that it waited; how often it got a turn."""
        self._at: float | None = None

    def look(self, pods: Iterable[PodGroup], now: float) -> Contention:
        """Return how long services have waited since the last look."""
        passed = now - self._at if self._at is not None else 0.0
        self._at = now
        stalls: dict[str, float] = {}
        throttled: dict[str, int] = {}
        threads: dict[int, tuple[float, float, float]] = {}
        shares, held_back = [], 0
        for pod in pods:
            try:
                throttled[pod.uid] = self._groups.throttling(pod.path).periods
                stall = self._groups.stall_seconds(pod.path)
            except GroupsUnreadable:  # it ended meanwhile
                continue
            if stall is not None:
                stalls[pod.uid] = stall
                share = (stall - self._stalls[pod.uid]) / passed if pod.uid in self._stalls and passed > 0 else None
            else:
                share = self._run_queue_share(pod, threads)
            if throttled[pod.uid] > self._throttled.get(pod.uid, throttled[pod.uid]):
                held_back += 1
            elif share is not None:
                shares.append(min(1.0, max(0.0, share)))
        self._stalls, self._throttled, self._threads = stalls, throttled, threads
        return Contention(max(shares, default=None), held_back)

    def _run_queue_share(self, pod: PodGroup, threads: dict[int, tuple[float, float, float]]) -> float | None:
        ran = waited = turns = 0.0
        known = False
        for thread in self._groups.threads(pod.path):
            if len(threads) >= MAX_THREADS:
                break
            try:
                words = (self._processes / str(thread) / "schedstat").read_text(encoding="ascii").split()
                figures = float(words[0]), float(words[1]), float(words[2])
            except (OSError, ValueError, IndexError):  # it ended, or the kernel keeps no such figures
                continue
            threads[thread] = figures
            if thread in self._threads:
                known = True
                ran += figures[0] - self._threads[thread][0]
                waited += figures[1] - self._threads[thread][1]
                turns += figures[2] - self._threads[thread][2]
        if waited < turns * TURN_SECONDS * 1e9:
            return 0.0
        return waited / (ran + waited) if known and ran + waited > 0 else (0.0 if known else None)
