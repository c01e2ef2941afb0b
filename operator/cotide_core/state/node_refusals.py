"""Nodes that recently refused a pod: back-off by node and reason.

Owned by `cluster_state.ClusterState`; read by `placement.feasibility`. A kubelet learns of a shortage before the
scheduler does. Without back-off, the next pod would be bound to the node at once and refused at once::

    open --refused--> closed --back-off is over--> half open --a pod is assumed--> trying --it runs--> open
                        ^                              ^                             |
                        |                              `---- it goes for another -----+   (gone, or no answer)
                        `----------- refused again: twice the back-off ---------------'

A closed node takes no pod that the reason concerns, and only one pod at a time tries it. Invariant: each back-off costs
one pod at most; a pod that the reason does not concern never waits. Only pods that this scheduler placed count, so that
a user cannot close a node by binding pods there. An engine passes its back-offs to the one that follows it (`backoffs`,
`restore`). Pure; time comes with the events.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cotide_core.events import NodeBackoffRestored, Pod

FIRST_SECONDS: Final = 10.0
"""First back-off. Chosen: kubelets report a condition within seconds, and terminating pods mostly end within them."""
LONGEST_SECONDS: Final = 300.0
"""Longest back-off; a kubelet's own eviction-pressure-transition-period is 5 minutes."""
PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")
"""Conditions under which kubelets evict and refuse."""
_SHUTDOWNS: Final = frozenset({"NodeShutdown", "Shutdown", "Terminated"})
_DEVICES: Final = frozenset({"UnexpectedAdmissionError", "TopologyAffinityError"})
_SELECTING: Final = "NodeAffinity"
_SHORT: Final = "OutOf"

Amounts = tuple[tuple[int, int], ...]
"""(resource column, amount), as in `ClusterState.demand`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The fields of a pod that decide whether a refusal concerns it."""

    resources: Collection[str]
    """Names, including ``pods``."""
    amounts: Amounts
    selects: bool
    """Whether it has a node selector or a required node affinity."""


@dataclass(slots=True)
class _Backoff:
    reason: str
    asked: Asked
    """Of the refused pod."""
    until_seconds: float
    """Time when it half opens, or, half open, when it is forgotten."""
    closed: bool = True
    refusals: int = 1
    trying: str | None = None
    """Key of the pod that tries the node."""

    def concerns(self, asked: Asked) -> bool:
        """Whether a refusal of one pod probably applies to another."""
        if self.reason.startswith(_SHORT):
            return self.reason[len(_SHORT) :] in asked.resources
        if self.reason == _SELECTING:
            return asked.selects
        return self.reason not in _DEVICES or asked.amounts == self.asked.amounts

    def close(self, until_seconds: float, trying: str | None = None) -> None:
        self.closed, self.until_seconds, self.trying = True, until_seconds, trying


def is_of_the_node(reason: str) -> bool:
    """Whether a kubelet's reason concerns the node, and not only the pod.

    A reason of the pod alone (a sysctl that is not allowed, an AppArmor profile that is missing) must close no node to
    others. Otherwise its owner could close nodes at will.
    """
    return reason in PRESSURES or reason in _SHUTDOWNS or reason in _DEVICES or _names(reason)


def _names(reason: str) -> bool:
    return reason == _SELECTING or (reason.startswith(_SHORT) and len(reason) > len(_SHORT))


def _scope(reason: str, asked: Asked) -> tuple[str, Amounts]:
    """Return the key that groups refusals which count as one."""
    return reason, asked.amounts if reason in _DEVICES else ()


class NodeRefusals:
    """The refusals of kubelets, by node and reason.

    Attributes
    ----------
    by_node : back-offs by node, then by reason and requested devices; empty for a node that never refused.
    closed : nodes that take no pod of some kind now, in order of their first refusal.
    """

    def __init__(self) -> None:
        self.closed: dict[str, None] = {}
        self.by_node: dict[str, dict[tuple[str, Amounts], _Backoff]] = {}
        self._trials: dict[str, str] = {}
        """Node by key of the pod that tries it."""

    def refuse(self, node: str, key: str, asked: Asked, reason: str, at_seconds: float) -> bool:
        """Record a refusal; False if its reason is the pod's own.

        A pod that was on its way before the node was closed adds nothing: it belongs to the same burst.
        """
        if not is_of_the_node(reason):
            return False
        scope = _scope(reason, asked)
        known = self.by_node.setdefault(node, {}).get(scope)
        if known is None:
            self.by_node[node][scope] = _Backoff(reason, asked, at_seconds + FIRST_SECONDS)
        elif known.trying == key:
            known.refusals += 1
            known.close(at_seconds + backoff_seconds(known.refusals))
        self._trials.pop(key, None)
        self._settle(node)
        return True

    def refusal(self, node: str, asked: Asked) -> str | None:
        """Return the reason why a node takes no pod like this now, or None."""
        for known in self.by_node.get(node, {}).values():
            if known.closed and known.concerns(asked):
                return known.reason
        return None

    def place(self, node: str, key: str, asked: Asked, now: float) -> None:
        """Record that a pod is assumed on a node: on a half-open node it becomes the trial."""
        for known in self.by_node.get(node, {}).values():
            if not known.closed and known.concerns(asked):
                known.close(now + backoff_seconds(known.refusals), key)
                self._trials[key] = node
        self._settle(node)

    def passed(self, key: str) -> str | None:
        """Record that a pod runs or ran; return the node that it tried and that is open again, if any."""
        node = self._trials.pop(key, "")
        reasons = self.by_node.get(node, {})
        tried = [scope for scope, known in reasons.items() if known.trying == key]
        for scope in tried:
            del reasons[scope]
        self._settle(node)
        return node if tried else None

    def left(self, key: str) -> str | None:
        """Record that a pod left without an answer; return the node that it tried and that the next pod may try, if
        any.
        """
        node = self._trials.pop(key, "")
        tried = [known for known in self.by_node.get(node, {}).values() if known.trying == key]
        for known in tried:
            known.closed, known.trying = False, None
            known.until_seconds += LONGEST_SECONDS
        self._settle(node)
        return node if tried else None

    def tries(self, key: str, node: str) -> bool:
        """Whether a pod is the trial of a node."""
        return self._trials.get(key) == node

    def backoffs(self, names: Sequence[str], now: float) -> list[NodeBackoffRestored]:
        """Return the known back-offs, for an engine that follows; a half-open node may be tried from now on.

        Parameters
        ----------
        names : resources by their column.
        """
        return [
            NodeBackoffRestored(
                node,
                known.reason,
                known.until_seconds if known.closed else now,
                known.refusals,
                tuple((names[column], amount) for column, amount in known.asked.amounts),
                known.trying or "",
            )
            for node, reasons in self.by_node.items()
            for known in reasons.values()
        ]

    def restore(self, event: NodeBackoffRestored, asked: Asked, trying: str | None) -> bool:
        """Restore a back-off of a previous engine; False if it contains nothing new.

        Parameters
        ----------
        asked : by the refused pod.
        trying : key of the pod that tries the node, if its outcome is still open.
        """
        scope = _scope(event.reason, asked)
        if not is_of_the_node(event.reason) or scope in self.by_node.get(event.node, {}):
            return False
        backoff = _Backoff(event.reason, asked, event.until_seconds, refusals=event.refusals, trying=trying)
        self.by_node.setdefault(event.node, {})[scope] = backoff
        if trying is not None:
            self._trials[trying] = event.node
        self._settle(event.node)
        return True

    def relieve(self, node: str, ended: Iterable[str]) -> None:
        """Forget refusals for conditions that a node no longer has."""
        for reason in ended:
            self.by_node.get(node, {}).pop((reason, ()), None)
        self._settle(node)

    def forget(self, node: str) -> None:
        """Drop a deleted node."""
        self.by_node.pop(node, None)
        self.closed.pop(node, None)

    def advance(self, now: float) -> list[str]:
        """Half open the due back-offs, and forget those without a trial for long; return the nodes that were opened.

        A trial that took as long as a back-off makes way for another.
        """
        opened = []
        for node in list(self.by_node):
            for scope, known in list(self.by_node[node].items()):
                if known.until_seconds > now:
                    continue
                if not known.closed:
                    del self.by_node[node][scope]
                    continue
                self._trials.pop(known.trying or "", None)
                known.closed, known.trying, known.until_seconds = False, None, now + LONGEST_SECONDS
                opened.append(node)
            self._settle(node)
        return opened

    def next_change(self) -> float:
        """Return when `advance` has work; infinite for never."""
        times = (known.until_seconds for reasons in self.by_node.values() for known in reasons.values())
        return min(times, default=math.inf)

    def _settle(self, node: str) -> None:
        """Update ``closed`` and the list of nodes after a change to a node."""
        reasons = self.by_node.get(node)
        if not reasons:
            self.forget(node)
        elif any(known.closed for known in reasons.values()):
            self.closed.setdefault(node)
        else:
            self.closed.pop(node, None)


def backoff_seconds(refusals: int) -> float:
    """Return the back-off after the n-th refusal in a row, n from 1: doubled each time up to the longest."""
    return float(min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(refusals - 1, 10)))


def asked_by(pod: Pod, amounts: Amounts, resources: Collection[str]) -> Asked:
    """Return the fields of a pod that decide whether a refusal concerns it."""
    return Asked(resources, amounts, bool(pod.node_selector or pod.node_terms))
