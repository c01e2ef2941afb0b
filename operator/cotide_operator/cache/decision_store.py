"""The decision store: the latest decision about every pod, for its readers.

The loop writes it after each cycle. The controllers (statuses of Jobs and Workloads), the event recorder and
``/debug/board`` read it. It lives in the operator's own event loop and is never shared between threads; its entries
may be. Invariant: one entry for each decided pod that still exists; an entry is replaced, never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from cotide_core.instructions import NO_FORECAST, Forecast, NodeVerdict


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The latest decision about one pod. Times are seconds of the operator's clock.

    A struct, since each binding creates one: with 17 fields its creation takes a tenth of the time of a frozen
    dataclass. It has no reference cycle, so that the garbage collector can skip those of all pods.
    """

    key: str
    uid: str
    decided_seconds: float
    node: str | None
    """Node of its binding; None while it waits."""
    reason: str
    """A `WaitReason` while it waits, ``Scheduled`` once bound."""
    message: str
    refused: tuple[NodeVerdict, ...] = ()
    forecast: Forecast = NO_FORECAST
    attempts: int = 0
    demotions: int = 0
    queue_position: int | None = None
    """1 for the next pod; None once bound."""
    retry_at_seconds: float | None = None
    predicted_start_seconds: float | None = None
    predicted_finish_seconds: float | None = None
    """End of its planned run, under a policy that plans; None under others, and once bound."""
    nominated_node: str = ""
    """Node where space is freed or reserved for it while it waits; empty for none."""
    victims: tuple[str, ...] = ()
    """Keys of the pods that leave for it; in a note, uids for those of other namespaces."""
    cap: str = ""
    """The limit of its namespace that it waits for."""


class DecisionStore:
    """Latest decisions by pod key, and listeners that receive the key of each changed pod."""

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
        """Replace the decision about a pod and call the listeners."""
        self._decisions[decision.key] = decision
        for listener in self._listeners:
            listener(decision.key)

    def forget(self, key: str) -> None:
        """Drop a deleted pod."""
        self._decisions.pop(key, None)

    def subscribe(self, listener: Callable[[str], None]) -> None:
        """Call ``listener(pod_key)`` on each publication, in the loop's own thread; it must not block."""
        self._listeners.append(listener)
