"""Shapes: the fields that two pods must share to be interchangeable for the scheduler.

Made by `cycle.Scheduler` when a pod enters the queue. A `FitShape` decides which nodes can take a pod at all (requests,
constraints, ports, exclusiveness). A `Shape` adds the inputs of a QoS forecast (type, input size, expected rate).
Caches of feasibility, scores and probabilities are kept by shape, so that a thousand pods of a Job cost one evaluation.
Invariant: pods of the same shape get the same answer from every filter and guard in the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import frexp, inf, ldexp

import numpy as np
from numpy.typing import NDArray

from cotide_core.classes import WorkloadClass
from cotide_core.events import HostPort, NodeTerm, OpenClaim, Pod, Toleration
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.namespace_use import namespace_of
from cotide_core.state.node_columns import CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN
from cotide_core.state.selection.peers import Peers
from cotide_core.units import RECLAIMED_CPU, RECLAIMED_MEMORY

Columns = NDArray[np.intp] | slice
"""Resource columns; a slice if they are adjacent, since numpy reads a slice several times faster than a list."""


@dataclass(eq=False, slots=True)
class Constraints:
    """The demands of a pod on the node itself, independent of other pods; compared by identity, since equal ones are
    interned.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    volume_terms: tuple[tuple[NodeTerm, ...], ...] = ()
    """For each volume the alternative terms; one of them must hold."""
    open_claims: tuple[OpenClaim, ...] = ()
    """See `events.Pod`."""


@dataclass(eq=False, slots=True)
class FitShape:
    """Pods that fit on the same nodes; compared by identity, since equal ones are interned."""

    constraints: Constraints
    resources: tuple[str, ...]
    """Names of the R requested resources; the last is ``pods``, and the pod itself counts as one."""
    columns: Columns
    """Their R columns."""
    amounts: NDArray[np.int64]
    """(R, 1)"""
    scored_columns: Columns
    """The columns of the free share: cpu, memory and other requested resources except ``pods``. For pods of reclaimed
    capacity only the requested ones.
    """
    scored_amounts: NDArray[np.int64]
    """The requests, with the defaults that scores count for containers without a request."""
    demanded: tuple[tuple[int, int], ...]
    """(column, amount) of the R resources, for one row at a time."""
    scored: tuple[tuple[int, int], ...]
    """(column, amount) of the free share's resources."""
    host_ports: tuple[HostPort, ...]
    service: str | None
    """Key of the promised Workload of an online pod; None for others."""
    exclusive: bool
    online: bool
    millicores: int
    """Cpu request, plain and reclaimed."""
    physical: NDArray[np.int64] | None
    """(2, 1) cpu and memory requests, plain and reclaimed, of pods of reclaimed capacity; None of others."""
    missing: str = ""
    """The first requested resource that no node offers; it has no column, and refuses every node."""
    before: int = 0
    """How many of the R resources come before it."""
    peers: Peers | None = None
    """The rules between its pods and other pods; None of most, which depend only on the node itself."""
    images: tuple[str, ...] = ()
    """Image names of its containers, if some node has one of them."""
    counts: bool = field(init=False)
    """Whether matching nodes differ only in free amounts for it, without regard to other pods."""

    def __post_init__(self) -> None:
        self.counts = not (self.service or self.exclusive or self.host_ports or self.physical is not None)

    @property
    def depends(self) -> bool:
        """Whether other pods may refuse its pods a node."""
        return self.peers is not None and self.peers.refuses


@dataclass(eq=False, slots=True)
class Shape:
    """Pods that are interchangeable; compared by identity, since equal ones are interned."""

    fit: FitShape
    type: str
    input_bytes: int
    type_column: int
    """Column of the type; -1 for online pods. If the table merges jobs, that of the first."""
    order: int
    """Number of the shape in order of first appearance: breaks ties the same way in every run."""
    failed_at: int = field(default=-1)
    """Relief clock at its last failed search for a node; the search fails again while the clock stands there."""
    failed_peers: int = field(default=-1)
    """Version of other pods' rules at that time; after a change a bind may have made room."""
    gratis: bool = False
    """Whether its pods are of class gratis; False in a table that merges batch and gratis."""
    seconds: float = 0.0
    """Run time for the placement of its pods: their p90, rounded up (see `lasting`); 0 if the policy ignores run times.
    """
    gang: str = ""
    """Key of the gang of its pods: one pod represents a parked shape, and each gang needs its own representative."""
    importance: tuple[int, int] = (0, 0)
    """Rank of the class and priority of its pods; the priority is 0 in a table that merges priorities."""

    online: bool = field(init=False)
    """Whether its pods are of class online."""

    def __post_init__(self) -> None:
        self.online = self.fit.online


class ShapeTable:
    """Interns the shapes of pods.

    Parameters
    ----------
    by_class : whether batch and gratis pods get shapes of their own; for policies that treat them differently.
    by_job : whether pods of different type or input size do. A policy without forecasts of them treats them alike, and
        each additional shape costs an attempt whenever resources are released.
    by_namespace : whether pods of different namespaces do: one pod represents a parked shape, and under an order by
        shares each namespace needs its own.
    by_priority : whether pods of different class or priority do: they may displace others, and respect other claims.
    by_peers : whether rules about other pods, and images, are read; False if kube-scheduler has checked them.
    """

    def __init__(
        self,
        *,
        by_class: bool = False,
        by_job: bool = True,
        by_peers: bool = True,
        by_namespace: bool = False,
        by_priority: bool = False,
    ) -> None:
        self._by_peers = by_peers
        self._by_priority = by_priority
        self._by_namespace = by_namespace
        self._by_class = by_class
        self._by_job = by_job
        self._constraints: dict[object, Constraints] = {}
        self._fits: dict[object, FitShape] = {}
        self._shapes: dict[object, Shape] = {}
        self._count = 0

    def of(self, pod: Pod, state: ClusterState, seconds: float = 0.0) -> Shape:
        """Return the shape of a pod; makes the column of its type, if there is room for one more.

        Parameters
        ----------
        seconds : run time for its placement; 0 if it does not matter.
        """
        workload = state.workload(pod.workload)
        online = pod.workload_class is WorkloadClass.ONLINE
        service = workload.key if workload is not None and online else None
        exclusive = workload is not None and online and workload.exclusive
        constraints = (pod.node_selector, pod.node_terms, pod.tolerations, pod.volume_terms, pod.open_claims)
        peers = state.matches.peers_of(pod) if self._by_peers else None
        images = state.images.wished(pod.images) if self._by_peers and pod.images else ()
        unrequested = (pod.unrequested_millicores, pod.unrequested_memory_bytes)
        fit_key = (pod.requests, constraints, pod.host_ports, service, exclusive, online, peers, images, unrequested)
        gratis = self._by_class and pod.workload_class is WorkloadClass.GRATIS
        names_job = self._by_job and not online
        key: object = (fit_key, pod.type, pod.input_bytes) if names_job else fit_key
        if gratis:
            key = (key, gratis)
        elif self._by_class and not online and not pod.preempts:
            key = (key, "never preempts")  # one pod represents a parked shape
        if self._by_priority:
            key = (key, "importance", pod.importance, pod.preempts)
        if pod.gang is not None:
            key = (key, "gang", pod.gang.key)
        lasts = lasting(seconds) if seconds and not online else 0.0
        if lasts:
            key = (key, "lasts", lasts)
        if self._by_namespace:
            key = (key, "in", namespace_of(pod))
        column = -1 if online else state.columns.type_column(pod.type)
        shape = self._shapes.get(key)
        if shape is None:
            fit = self._fits.get(fit_key)
            if fit is None:
                wished = self._constraints.get(constraints)
                if wished is None:
                    wished = self._constraints[constraints] = Constraints(*constraints)
                fit = self._fits[fit_key] = _fit_shape(pod, state, wished, service, exclusive, online)
                fit.peers = peers
                fit.images = images
            shape = Shape(fit, pod.type if names_job else "", pod.input_bytes if names_job else 0, column, self._count)
            shape.gratis = gratis
            shape.seconds = lasts
            shape.gang = "" if pod.gang is None else pod.gang.key
            shape.importance = pod.importance if self._by_priority else (pod.workload_class.rank, 0)
            self._count += 1
            self._shapes[key] = shape
        return shape

    def drop_stale(self, state: ClusterState) -> set[FitShape]:
        """Drop and return the fit shapes with resources that have another column by now, or have received one."""
        known = state.columns.resources
        stale = {
            fit
            for fit in self._fits.values()
            if (fit.missing and fit.missing in known)
            or any(known.get(name) != column for name, (column, _) in zip(fit.resources, fit.demanded, strict=True))
        }
        if stale:
            self._shapes = {key: shape for key, shape in self._shapes.items() if shape.fit not in stale}
            self._fits = {key: fit for key, fit in self._fits.items() if fit not in stale}
        return stale

    def prune(self, used: set[Shape]) -> None:
        """Drop the shapes that no waiting pod has: a trace may bring a new size with every job."""
        self._shapes = {key: shape for key, shape in self._shapes.items() if shape in used}
        fits = {shape.fit for shape in self._shapes.values()}
        self._fits = {key: fit for key, fit in self._fits.items() if fit in fits}
        wished = {fit.constraints for fit in fits}
        self._constraints = {key: value for key, value in self._constraints.items() if value in wished}

    def __len__(self) -> int:
        return len(self._shapes)


def lasting(seconds: float) -> float:
    """Return a run time rounded up to 1 or 1.5 times a power of two, so that few shapes come of many run times."""
    if not 0.0 < seconds < inf:
        return 0.0
    part, power = frexp(seconds)  # seconds = part x 2^power, part in [0.5, 1)
    return ldexp(0.5 if part == 0.5 else 0.75 if part <= 0.75 else 1.0, power)


def _fit_shape(
    pod: Pod, state: ClusterState, constraints: Constraints, service: str | None, exclusive: bool, online: bool
) -> FitShape:
    demand = state.demand(pod.requests)
    reclaims = any(amount and name in (RECLAIMED_CPU, RECLAIMED_MEMORY) for name, amount in pod.requests)
    scored = tuple((column, amount) for column, amount in demand.amounts if column != PODS_COLUMN)
    if not (reclaims and scored):
        counted = {CPU_COLUMN: pod.unrequested_millicores, MEMORY_COLUMN: pod.unrequested_memory_bytes}
        for column, amount in scored:
            counted[column] = counted.get(column, 0) + amount
        scored = tuple(sorted(counted.items()))
    return FitShape(
        constraints=constraints,
        resources=demand.resources,
        columns=_neighbours([column for column, _ in demand.amounts]),
        amounts=np.array([[amount] for _, amount in demand.amounts], np.int64),
        scored_columns=_neighbours([column for column, _ in scored]),
        scored_amounts=np.array([[amount] for _, amount in scored], np.int64),
        demanded=demand.amounts,
        scored=scored,
        host_ports=pod.host_ports,
        service=service,
        exclusive=exclusive,
        online=online,
        millicores=demand.millicores,
        physical=np.array([[demand.millicores], [demand.memory_bytes]], np.int64) if reclaims else None,
        missing=demand.missing,
        before=demand.before,
    )


def _neighbours(columns: list[int]) -> Columns:
    first = columns[0]
    if columns == list(range(first, first + len(columns))):
        return slice(first, first + len(columns))
    return np.array(columns, np.intp)
