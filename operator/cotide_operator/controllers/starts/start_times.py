"""Which pods hold a node and do not start, and since when.

Called by `job_reconciler` and `workload_controller` in each look. Pure. Two obstacles have times of their own: what a
kubelet says against a pod (``cannot_start``: its image is missing, say), and containers that are being created while it
says nothing (``creating``). Invariant: a time counts from when a pod was first seen so, on end; a pod that gets on has
its time anew, and so has each pod after a restart of the operator.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from cotide_operator.controllers.child_pods import ChildPod

Attempt = TypeVar("Attempt", bound=Hashable)

START_SECONDS: Final = 600.0
"""That a kubelet has to start a pod which it can't start at once. Chosen: after as long a Deployment says that it
doesn't progress (``progressDeadlineSeconds``)."""
CREATE_SECONDS: Final = 1800.0
"""That a kubelet has to create a pod's containers while it names no obstacle. Chosen: thrice as long, since large
images and volumes whose files change their owner come late and yet come, and a cloud's volume waits six minutes for
its last node (attach-detach controller, ``maxWaitForUnmountDuration``)."""
SLOW_SECONDS: Final = 60.0
"""After which a status says that containers are still being created. Chosen: most images are there by then."""


@dataclass(frozen=True, slots=True)
class StartLimits:
    """How long a Job's pod may keep its node before its containers run, in seconds of the operator's clock.

    Attributes
    ----------
    refused_seconds : see `START_SECONDS`.
    creating_seconds : see `CREATE_SECONDS`.
    """

    refused_seconds: float = START_SECONDS
    creating_seconds: float = CREATE_SECONDS


DEFAULT_LIMITS: Final = StartLimits()
NO_LIMITS: Final = StartLimits(float("inf"), float("inf"))
"""Of pods that are not ours to give up."""


@dataclass(slots=True)
class StartTimes(Generic[Attempt]):
    """Clock seconds since when pods are seen not to start; `Attempt` is what tells a pod from its predecessors."""

    stuck: dict[Attempt, float] = field(default_factory=dict)
    """Pods that a kubelet can't start."""
    creating: dict[Attempt, float] = field(default_factory=dict)
    """Pods whose containers are being created."""

    def copy(self) -> StartTimes[Attempt]:
        """Return a copy that changes by itself."""
        return StartTimes(dict(self.stuck), dict(self.creating))


@dataclass(frozen=True, slots=True)
class Starts(Generic[Attempt]):
    """What is known of pods that hold a node and do not run."""

    late: frozenset[Attempt] = frozenset()
    """Pods that were not started in time."""
    lasting: frozenset[Attempt] = frozenset()
    """Pods that a kubelet can't start and that were seen so for `SLOW_SECONDS`."""
    slow: frozenset[str] = frozenset()
    """Uids of pods whose containers are being created for `SLOW_SECONDS`."""
    next_seconds: float | None = None
    """Clock second at which another is late, lasting or slow."""


def follow_starts(
    pods: Mapping[Attempt, ChildPod], times: StartTimes[Attempt], now_seconds: float, limits: StartLimits
) -> Starts[Attempt]:
    """Return which pods were not started in time, from when they were first seen so on end.

    Parameters
    ----------
    pods : those that live and that nobody deletes.
    times : changed in place.
    now_seconds : the operator's clock.
    """
    times.stuck = {key: times.stuck.get(key, now_seconds) for key, pod in pods.items() if pod.cannot_start}
    times.creating = {key: times.creating.get(key, now_seconds) for key, pod in pods.items() if pod.creating}
    ends = {key: begun + limits.refused_seconds for key, begun in times.stuck.items()}
    ends |= {key: begun + limits.creating_seconds for key, begun in times.creating.items()}
    begun = (*times.stuck.items(), *times.creating.items())
    notices = {one: min(since + SLOW_SECONDS, ends[one]) for one, since in begun}
    due = {key for key, moment in notices.items() if moment <= now_seconds}
    return Starts(
        late=frozenset(key for key, end in ends.items() if end <= now_seconds),
        lasting=frozenset(due & times.stuck.keys()),
        slow=frozenset(pods[key].uid for key in due & times.creating.keys()),
        next_seconds=min(
            (at for at in (*ends.values(), *notices.values()) if now_seconds < at < float("inf")), default=None
        ),
    )
