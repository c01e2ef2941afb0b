"""What must hold of gangs: none that has not started holds nodes for longer than its time-out.

Used by `chaos_run`. A gang is partial while some of its pods hold nodes, fewer than it needs, and others of it wait. A
replica that comes new begins to count anew, so that each start of an operator allows the time-out once more. That no
gang waits for ever is the run's own end: every Job succeeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from invariant_checker import ENDED, CheckedPod, InvariantChecker

GRACE_SECONDS: Final = 8.0
"""Until the last pod of a released gang has stopped, on a busy machine. Chosen."""


@dataclass(frozen=True)
class _Since:
    seconds: float
    starts: int
    words: str


class GangChecks:
    """Follows the gangs of one run.

    Parameters
    ----------
    starts : how many operators were started so far.
    """

    def __init__(self, checker: InvariantChecker, namespace: str, starts: Callable[[], int]) -> None:
        self._checker, self._namespace, self._starts = checker, namespace, starts
        self._partial: dict[str, _Since] = {}
        self._started: set[str] = set()
        """Those that were whole, until nobody of them holds a node."""
        self.breaches: list[str] = []
        self.longest_seconds = 0.0
        checker.listeners.append(self._changed)

    def _changed(self, plural: str, old: object, new: object) -> None:
        pod = new if isinstance(new, CheckedPod) else old
        if isinstance(pod, CheckedPod) and pod.job and pod.key.startswith(f"{self._namespace}/"):
            self._look(pod.job)

    def _look(self, job: str) -> None:
        key = f"{self._namespace}/{job}"
        gang = self._checker.jobs.get(key, {}).get("spec", {}).get("gang")
        if gang is None:
            return
        pods = [
            pod for pod in self._checker.pods.values() if pod.job == job and pod.key.startswith(f"{self._namespace}/")
        ]
        alive = [pod for pod in pods if pod.phase not in ENDED and not pod.leaving]
        holding = sum(bool(one.node) for one in alive)
        succeeded = sum(1 for name, _ in self._checker.succeeded if name == key)
        minimum = gang.get("minMember", self._checker.jobs[key]["spec"]["parallelism"])
        if holding + succeeded >= minimum:
            self._started.add(key)
        elif holding == 0:
            self._started.discard(key)
        partial = 0 < holding < minimum - succeeded and holding < len(alive) and key not in self._started
        known = self._partial.get(key)
        if partial and known is None:
            words = f"gang {key}: {holding} of {minimum} held nodes, {succeeded} had succeeded"
            self._partial[key] = _Since(time.monotonic(), self._starts(), words)
        elif not partial and known is not None:
            self._end(key, known, gang["timeoutSeconds"])

    def _end(self, key: str, known: _Since, timeout_seconds: float) -> None:
        del self._partial[key]
        lasted = time.monotonic() - known.seconds
        self.longest_seconds = max(self.longest_seconds, lasted)
        if lasted > timeout_seconds * (1 + self._starts() - known.starts) + GRACE_SECONDS:
            self.breaches.append(f"{known.words} for {lasted:.1f} s, and its time-out is {timeout_seconds:g} s")

    def finish(self) -> list[str]:
        """Return what was broken, what is partial now included."""
        for key, known in list(self._partial.items()):
            gang = self._checker.jobs.get(key, {}).get("spec", {}).get("gang")
            if gang is not None:
                self._end(key, known, gang["timeoutSeconds"])
        return self.breaches
