"""The decision store: the latest decision about every pod, for those who only read decisions.

Written by the loop after each cycle, read by the controllers (statuses of Jobs and Workloads), by the event
recorder and by ``/debug/decisions``. It lives in the operator's own event loop and is never shared between threads; its
entries may be.
Invariant: one entry per pod that was decided on and still exists; an entry is replaced, never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from cotide_core.instructions import NO_FORECAST, Forecast, NodeVerdict


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The latest decision about one pod. Times are seconds of the operator's clock.

    A struct, as one is made for each binding: of 17 fields it is made in a tenth of the time of a frozen dataclass. It
    is in no circle, so that the garbage collector need not look at those of all pods.
    """

    key: str
    uid: str
    decided_seconds: float
    node: str | None
    """Where it was bound; None while it waits."""
    reason: str
    """A `WaitReason` while it waits, ``Scheduled`` once bound."""
    message: str
    refused: tuple[NodeVerdict, ...] = ()
    forecast: Forecast = NO_FORECAST
    attempts: int = 0
    demotions: int = 0
    queue_position: int | None = None
    """1 for the next to be tried; None once bound."""
    retry_at_seconds: float | None = None
    predicted_start_seconds: float | None = None
    predicted_finish_seconds: float | None = None
    """End of what is planned for it, under a policy that plans; None under others, and once bound."""
    nominated_node: str = ""
    """Where space is freed or kept for it while it waits; empty when nowhere."""
    victims: tuple[str, ...] = ()
    """Keys of the pods that leave for it; in a note, uids of those of other namespaces."""
    cap: str = ""
    """The limit of its namespace that it waits for."""


class DecisionStore:
    """Latest decisions by pod key, with listeners that are told which pod changed."""

    def __init__(self) -> None:
        self._decisions: dict[str, Decision] = {}
        self._listeners: list[Callable[[str], None]] = []

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._decisions.values())

    def __len__(self) -> int:
        return len(self._decisions)

    def get(self, key: str) -> Decision | None:
        """Return the latest decision about a pod, by ``namespace/name``."""
        return self._decisions.get(key)

    def publish(self, decision: Decision) -> None:
        """Replace the decision about a pod and tell the listeners."""
        self._decisions[decision.key] = decision
        for listener in self._listeners:
            listener(decision.key)

    def forget(self, key: str) -> None:
        """Drop a pod that is gone."""
        self._decisions.pop(key, None)

    def subscribe(self, listener: Callable[[str], None]) -> None:
        """Call ``listener(pod_key)`` on each publication, in the loop's own thread; it must not block."""
        self._listeners.append(listener)
