"""Space that is being freed for a pod; only more important pods may take it.

Owned by `preemption.room_making`. A nomination ends when it is used, when its pod or its node is gone, or when a more
important pod takes the space. It also ends when a victim stays, or after a time. Invariant: each pod has at most one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from cotide_core.state.shapes import Shape


@dataclass(frozen=True, slots=True)
class Nomination:
    """One pod's claim on one node."""

    pod: str
    shape: Shape
    node: str
    millicores: int
    memory_bytes: int
    requests: tuple[tuple[str, int], ...]
    victims: frozenset[str]
    until_seconds: float
    makes_way: frozenset[str] = frozenset()
    """The victims that no earlier claim on the node counts on."""
    importance: tuple[int, int] = (0, 0)
    """Of its pod; only more important pods may take the space."""
    of_gratis: bool = True
    """Whether all victims are gratis pods, for the messages about them."""
    restored: bool = False
    """Whether an earlier run made it: then its victims are unknown."""


class Nominations:
    """The claims in force, by pod key."""

    def __init__(self) -> None:
        self._by_pod: dict[str, Nomination] = {}
        self._by_node: dict[str, dict[str, Nomination]] = {}
        self.version = 0
        """Rises with each claim that comes or ends."""

    def __iter__(self) -> Iterator[Nomination]:
        return iter(self._by_pod.values())

    def __len__(self) -> int:
        return len(self._by_pod)

    def copy(self) -> dict[str, Nomination]:
        """Return the claims as they are."""
        return dict(self._by_pod)

    def take_back(self, kept: dict[str, Nomination]) -> None:
        """Restore the claims of a `copy`."""
        self._by_pod, self._by_node = {}, {}
        self.version += 1
        for nomination in kept.values():
            self.add(nomination)

    def of(self, pod: str) -> Nomination | None:
        """Return a pod's own claim."""
        return self._by_pod.get(pod)

    def on(self, node: str) -> Iterable[Nomination]:
        """Return the claims on a node."""
        return self._by_node.get(node, {}).values()

    def nodes(self) -> list[str]:
        """Return the nodes with claims."""
        return list(self._by_node)

    def below(self, importance: tuple[int, int]) -> list[Nomination]:
        """Return the claims of less important pods."""
        return [nomination for nomination in self._by_pod.values() if nomination.importance < importance]

    def add(self, nomination: Nomination) -> None:
        """Add a claim; it replaces the pod's earlier one."""
        self.version += 1
        before = self._by_pod.get(nomination.pod)
        if before is not None:
            self._leave_node(before)
        self._by_pod[nomination.pod] = nomination
        self._by_node.setdefault(nomination.node, {})[nomination.pod] = nomination

    def drop(self, pod: str) -> Nomination | None:
        """End a pod's claim."""
        ended = self._by_pod.pop(pod, None)
        if ended is not None:
            self.version += 1
            self._leave_node(ended)
        return ended

    def counted_on(self, node: str, victims: Iterable[str]) -> frozenset[str]:
        """Return those of the pods that a claim on a node counts on."""
        counted = {victim for nomination in self.on(node) for victim in nomination.victims}
        return frozenset(counted.intersection(victims))

    def drop_where_stays(self, victim: str) -> list[Nomination]:
        """End the claims that counted on a victim that stays; returns them."""
        ended = [nomination for nomination in self._by_pod.values() if victim in nomination.victims]
        for nomination in ended:
            self.drop(nomination.pod)
        return ended

    def drop_where_gone(self, nodes: Container[str]) -> list[Nomination]:
        """End the claims on nodes that are gone; returns them."""
        ended = [nomination for nomination in self._by_pod.values() if nomination.node not in nodes]
        for nomination in ended:
            self.drop(nomination.pod)
        return ended

    def expire(self, now: float) -> list[Nomination]:
        """End the claims that have expired; returns them."""
        ended = [nomination for nomination in self._by_pod.values() if nomination.until_seconds <= now]
        for nomination in ended:
            self.drop(nomination.pod)
        return ended

    def next_change(self) -> float:
        """Return when the next claim ends by itself; infinite for never."""
        return min((nomination.until_seconds for nomination in self._by_pod.values()), default=float("inf"))

    def _leave_node(self, nomination: Nomination) -> None:
        there = self._by_node[nomination.node]
        del there[nomination.pod]
        if not there:
            del self._by_node[nomination.node]
