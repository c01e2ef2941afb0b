"""Which pods hold a node and do not start, and since when.

`job_reconciler` and `workload_controller` call it in each reconciliation. Pure. Two obstacles have times of their own.
One is a kubelet error (``cannot_start``, for example a missing image). The other is containers that are being created
without an error (``creating``). Invariant: a time begins when a pod is first seen in that state, and continues without
a gap. It begins again after any progress of the pod, and after a restart of the operator.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from cotide_operator.controllers.child_pods import ChildPod

Attempt = TypeVar("Attempt", bound=Hashable)

START_SECONDS: Final = 600.0
"""Time that a kubelet has to start a pod after an error. Chosen: a Deployment reports a lack of progress after the same
time (``progressDeadlineSeconds``)."""
CREATE_SECONDS: Final = 1800.0
"""Time that a kubelet has to create a pod's containers without an error. Chosen: three times as long. Large images come
late but do come, and so do volumes that change the owner of their files. A cloud's volume waits six minutes for its
last node (attach-detach controller, ``maxWaitForUnmountDuration``)."""
SLOW_SECONDS: Final = 60.0
"""Time after which a status shows that containers are still being created. Chosen: most images are there by then."""


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
"""For pods that are not ours to give up."""


@dataclass(slots=True)
class StartTimes(Generic[Attempt]):
    """Clock seconds since when pods are seen not to start; `Attempt` distinguishes a pod from its predecessors."""

    stuck: dict[Attempt, float] = field(default_factory=dict)
    """Pods that a kubelet can't start."""
    creating: dict[Attempt, float] = field(default_factory=dict)
    """Pods that wait for the creation of their containers."""

    def copy(self) -> StartTimes[Attempt]:
        """Return an independent copy."""
        return StartTimes(dict(self.stuck), dict(self.creating))


@dataclass(frozen=True, slots=True)
class Starts(Generic[Attempt]):
    """The state of pods that hold a node and do not run."""

    late: frozenset[Attempt] = frozenset()
    """Pods that were not started in time."""
    lasting: frozenset[Attempt] = frozenset()
    """Pods that a kubelet has failed to start for `SLOW_SECONDS`."""
    slow: frozenset[str] = frozenset()
    """Uids of pods that have waited `SLOW_SECONDS` for the creation of their containers."""
    next_seconds: float | None = None
    """Clock second at which the next pod becomes late, lasting or slow."""


def follow_starts(
    pods: Mapping[Attempt, ChildPod], times: StartTimes[Attempt], now_seconds: float, limits: StartLimits
) -> Starts[Attempt]:
    """Return the pods that were not started in time since they were first seen in that state.

    Parameters
    ----------
    pods : those that live and are not being deleted.
    times : changed in place.
    now_seconds : the operator's clock.
    """
    times.stuck = {key: times.stuck.get(key, now_seconds) for key, pod in pods.items() if pod.cannot_start}
    times.creating = {key: times.creating.get(key, now_seconds) for key, pod in pods.items() if pod.creating}
    ends = {key: since + limits.refused_seconds for key, since in times.stuck.items()}
    ends |= {key: since + limits.creating_seconds for key, since in times.creating.items()}
    obstacles = (*times.stuck.items(), *times.creating.items())
    notices = {key: min(since + SLOW_SECONDS, ends[key]) for key, since in obstacles}
    due = {key for key, moment in notices.items() if moment <= now_seconds}
    return Starts(
        late=frozenset(key for key, end in ends.items() if end <= now_seconds),
        lasting=frozenset(due & times.stuck.keys()),
        slow=frozenset(pods[key].uid for key in due & times.creating.keys()),
        next_seconds=min(
            (at for at in (*ends.values(), *notices.values()) if now_seconds < at < float("inf")), default=None
        ),
    )
