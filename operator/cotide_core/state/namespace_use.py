"""Limits that administrators set on namespaces, and the amounts that batch and gratis pods hold of them.

Owned by `cluster_state.ClusterState`, which counts every pod that begins or ends to hold; read by
`queueing.capped_pods`. The limits are annotations of the Namespace object: a tenant that may write pods and Jobs in its
namespace may not write the namespace. Only namespaces with a limit are counted, so that the others cost nothing.
Invariant: the count of a namespace is the sum over its holding batch and gratis pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cotide_core.events import Namespace, Pod
from cotide_core.state.fair_usage import FairUsage

MAX_BATCH_CPU: Final = "cotide.dev/max-batch-cpu"
MAX_BATCH_MEMORY: Final = "cotide.dev/max-batch-memory"
MAX_QUEUED_PODS: Final = "cotide.dev/max-queued-pods"
"""Annotations of a Namespace; see `events.Namespace`."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests in terms of the columns."""

    amounts: tuple[tuple[int, int], ...]
    """(resource column, amount), of the resources that nodes offer; the last is the pod itself."""
    resources: tuple[str, ...]
    """Their names."""
    millicores: int
    """Cpu, plain and reclaimed."""
    memory_bytes: int
    """Memory, plain and reclaimed."""
    missing: str = ""
    """The first resource that no node offers."""
    before: int = 0
    """How many of the amounts come before it; all, if there is none."""


def namespace_of(pod: Pod) -> str:
    """Return the namespace that a pod lives in."""
    return pod.key.partition("/")[0]


def has_limits(namespace: Namespace) -> bool:
    """Whether an administrator limits the amounts that a namespace may hold or queue."""
    limits = (namespace.batch_millicores, namespace.batch_memory_bytes, namespace.queued_pods)
    return any(limit is not None for limit in limits)


class NamespaceUse:
    """Limits and held amounts, by namespace.

    Attributes
    ----------
    limits : of the namespaces that have any.
    eased : namespaces with smaller holdings or changed limits since the reader last emptied the set.
    usage : the past use of all namespaces; None if no order needs it.
    """

    def __init__(self) -> None:
        self.limits: dict[str, Namespace] = {}
        self.eased: set[str] = set()
        self._held: dict[str, tuple[int, int]] = {}
        self.usage: FairUsage | None = None

    def held(self, name: str) -> tuple[int, int]:
        """Return millicores and bytes that the batch and gratis pods of a namespace with limits hold."""
        return self._held.get(name, (0, 0))

    def put(self, namespace: Namespace, holding: Iterable[Demand]) -> None:
        """Set the limits of a namespace, with the demands of its pods."""
        demands = list(holding)
        self.limits[namespace.name] = namespace
        self._held[namespace.name] = (
            sum(demand.millicores for demand in demands),
            sum(demand.memory_bytes for demand in demands),
        )
        self.eased.add(namespace.name)

    def remove(self, name: str) -> None:
        """Forget the limits of a namespace."""
        self.limits.pop(name, None)
        self._held.pop(name, None)
        self.eased.discard(name)

    def count(self, pod: Pod, demand: Demand, sign: int, started_seconds: float | None) -> None:
        """Add (+1) or remove (-1) the demand of a batch or gratis pod.

        Parameters
        ----------
        started_seconds : since when it held the demand without being counted; None for no past use.
        """
        if self.usage is not None:
            self.usage.hold(namespace_of(pod), sign * demand.millicores, sign * demand.memory_bytes, started_seconds)
        if not self.limits or (name := namespace_of(pod)) not in self.limits:
            return
        millicores, memory_bytes = self._held[name]
        self._held[name] = (millicores + sign * demand.millicores, memory_bytes + sign * demand.memory_bytes)
        if sign < 0:
            self.eased.add(name)
