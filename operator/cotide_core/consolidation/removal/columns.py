"""`RemovalColumns`: the engine's snapshot laid out for thousands of "what if this node went?".

Made from the state by `columns_of`; read by `what_if` and `drain_plan`. Pods that fit on the same nodes share a shape,
as in the engine. The engine's own `Feasibility` decides what depends on the node itself (labels, taints, cordons,
readiness), once for each distinct constraints. The rest becomes amounts. The engine's resources get these further
columns:

- two columns of physical cpu and memory, which reclaimed capacity may not exceed (as in `Feasibility`);
- two columns of the free amounts by the host-load forecast of a node, and one of the pods that a service there can
  bear;
- a column for each host port that more than one pod holds; each node has one of it. Ports that the same pods hold share
  their column. Addresses are not distinguished: two pods on different addresses of a port, which the engine would let
  share a node, count as a conflict.

Services of exclusive Workloads are counted separately. Invariant: a pod that the kernel puts on a node passes
`Feasibility.code` there after the moves before it (tests/core/consolidation/test_what_if.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from cotide_core.consolidation.removal.gangs import gangs_of, whole_gangs
from cotide_core.consolidation.removal.stays import UNKNOWN, Constraints, Stay, stay_of
from cotide_core.errors import InputError
from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.placement.feasibility import FITS, Feasibility
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.host_load import ONLINE_RANK
from cotide_core.state.node_columns import CPU_COLUMN, MEMORY_COLUMN
from cotide_core.state.shapes import FitShape, Shape, ShapeTable
from cotide_core.state.snapshot import Snapshot

MOST_PORTS: Final = 4096
"""Columns of host ports (chosen)."""

UNLIMITED: Final = 2**62
EXTRA: Final = 5
"""Columns in addition to the engine's resources: physical cpu and memory, forecast cpu and memory, pods that services
bear.
"""


Ports = dict[tuple[str, int], int]
"""Number of the column of a host port, by protocol and port."""


class TargetGuard(Protocol):
    """Refuses nodes where one more pod would break an online service's latency limit."""

    def refused(self, shape: Shape, rows: NDArray[np.intp], snapshot: Snapshot) -> Booleans:
        """Return whether each of the rows is refused for one pod of a shape."""
        ...


@dataclass(frozen=True)
class Outlook:
    """The forecasts about the nodes that might take moved pods.

    Attributes
    ----------
    room : (2, N) cpu and memory that a node may still take by its forecast over the horizon; None without forecasts.
    guard : of latency limits; None without services or forecasts. With a guard, a node with an online service
        takes at most one batch or gratis pod in a plan, since the answers are about one pod more.
    """

    room: Floats | None = None
    guard: TargetGuard | None = None


@dataclass(frozen=True)
class RemovalColumns:
    """Arrays over N rows of nodes, S shapes, P pods, K columns of amounts.

    Attributes
    ----------
    names : (N,) of the nodes, empty for a dead row. keys : (P,) of the pods.
    capacity, free : (N, K) amounts. takes, wants : (S, K) what a pod of a shape holds, and what must be free for it
        (0: not checked).
    allowed : (S, N) whether the node itself takes the shape.
    shape_of, row_of : (P,) of each pod. stays : (P,) its `Stay`. weight : (P,) bytes of memory that it holds.
    services : (N, W) online pods of each Workload with a promise; exclusive : (W,); service_of : (S,), -1 for none.
    p50, p90 : (P,) seconds until it ends by itself.
    gang_of : (P,) the gang that counts a pod among its spare pods, -1 for none. gang_spare : (G,) its pods beyond
        its minimum, below 0 where some are missing.
    whole_of : (P,) the gang that leaves the pod's node as a whole with it, -1 for none.
    shapes : the engine's, by number. resources : names of the first columns.
    """

    names: tuple[str, ...]
    keys: tuple[str, ...]
    capacity: Integers
    free: Integers
    takes: Integers
    wants: Integers
    allowed: Booleans
    shape_of: Integers
    row_of: Integers
    stays: Integers
    weight: Integers
    services: Integers
    exclusive: Booleans
    service_of: Integers
    p50: Floats
    p90: Floats
    gang_of: Integers
    gang_spare: Integers
    whole_of: Integers
    shapes: tuple[Shape, ...]
    resources: tuple[str, ...]

    @property
    def nodes(self) -> int:
        """N, dead rows included."""
        return len(self.names)

    def rows(self, names: list[str]) -> NDArray[np.int64]:
        """Return the rows of nodes by name.

        Raises
        ------
        InputError
            When a name has no node.
        """
        found = {name: row for row, name in enumerate(self.names) if name}
        unknown = next((name for name in names if name not in found), None)
        if unknown is not None:
            raise InputError(f"no node is called {unknown!r}", field="node")
        return np.array([found[name] for name in names], np.int64)


def columns_of(
    state: ClusterState, constraints: Constraints, now: float, outlook: Outlook | None = None
) -> RemovalColumns:
    """Lay the state of a cluster out; it makes the resource columns that its pods name."""
    outlook = outlook or Outlook()
    records = [record for record in state.records() if record.row >= 0]
    # The room under a latency limit depends on the job; otherwise pods that fit alike are alike.
    table = ShapeTable(by_job=outlook.guard is not None)
    shapes: dict[Shape, int] = {}
    shape_of = np.array(
        [shapes.setdefault(table.of(pod_record.pod, state), len(shapes)) for pod_record in records], np.int64
    )
    snapshot = Snapshot.of(state)
    size, count = snapshot.size, len(shapes)
    fits = {shape: shape.fit for shape in shapes}
    allowed = _allowed(snapshot, list(shapes), outlook.guard)
    ports = _ports(list(fits.values()), np.bincount(shape_of, minlength=count))
    resources = len(snapshot.resources)
    capacity = np.concatenate([snapshot.allocatable, *_extra(snapshot, ports, outlook, full=True)]).T
    free = np.concatenate([snapshot.free, *_extra(snapshot, ports, outlook, full=False)]).T
    takes = np.zeros((count, capacity.shape[1]), np.int64)
    wants = np.zeros_like(takes)
    for number, fit in enumerate(fits.values()):
        _demand(fit, resources, ports, takes[number], wants[number])
    services, exclusive, service_of = _services(snapshot, list(fits.values()))
    facts = [constraints.facts.get(record.pod.key, UNKNOWN) for record in records]
    gang_of, gang_spare, holding = gangs_of(state.records(), records)
    stays = np.array([stay_of(record.pod, constraints, now) for record in records], np.int64)
    row_of = np.array([record.row for record in records], np.int64)
    whole_of = np.full(len(records), -1, np.int64)
    if constraints.rules.gang_most:
        covered = [fact.budgets for fact in facts]
        most = constraints.rules.gang_most
        whole_of = whole_gangs(
            gang_of, gang_spare, holding, row_of, stays, covered, constraints.budgets, most
        )  # fmt: skip
        gang_of[whole_of >= 0] = -1
    bound_to_gang = np.flatnonzero((stays == Stay.NONE) & (gang_of >= 0))
    stays[bound_to_gang[gang_spare[gang_of[bound_to_gang]] <= 0]] = Stay.GANG
    return RemovalColumns(
        names=tuple(snapshot.name(row) for row in range(size)),
        keys=tuple(record.pod.key for record in records),
        capacity=np.ascontiguousarray(capacity),
        free=np.ascontiguousarray(free),
        takes=takes,
        wants=wants,
        allowed=allowed,
        shape_of=shape_of,
        row_of=row_of,
        stays=stays,
        weight=takes[shape_of, MEMORY_COLUMN] if count else np.zeros(0, np.int64),
        services=services,
        exclusive=exclusive,
        service_of=service_of,
        p50=np.array([fact.remaining_p50 for fact in facts]),
        p90=np.array([fact.remaining_p90 for fact in facts]),
        gang_of=gang_of,
        gang_spare=gang_spare,
        whole_of=whole_of,
        shapes=tuple(shapes),
        resources=tuple(snapshot.resources),
    )


def _allowed(snapshot: Snapshot, shapes: list[Shape], guard: TargetGuard | None) -> Booleans:
    feasibility = Feasibility()
    size = snapshot.size
    allowed = np.zeros((len(shapes), size), np.bool_)
    for number, shape in enumerate(shapes):
        # A pod that keeps others off stays where it is, so that what holds now holds for the whole plan.
        allowed[number] = feasibility.node_codes(shape.fit, snapshot)[:size] == FITS
        if guard is not None:
            rows = np.flatnonzero(allowed[number])
            allowed[number, rows[guard.refused(shape, rows, snapshot)]] = False
    return allowed


def _demand(fit: FitShape, resources: int, ports: Ports, takes: Integers, wants: Integers) -> None:
    """Write what a pod of a shape holds, and what must be free for it."""
    for column, amount in fit.demanded:
        takes[column] = wants[column] = amount
    plain = dict(fit.demanded)
    memory = plain.get(MEMORY_COLUMN, 0) if fit.physical is None else int(fit.physical[1, 0])
    physical, forecast, guarded = resources, resources + 2, resources + 4
    if not fit.online:
        takes[physical : physical + 2] = fit.millicores, memory
        takes[guarded] = wants[guarded] = 1
    if fit.physical is not None:
        wants[physical : physical + 2] = fit.physical[:, 0]
    takes[forecast : forecast + 2] = wants[forecast : forecast + 2] = fit.millicores, memory
    for port in fit.host_ports:
        number = ports.get((port.protocol, port.port))
        if number is not None:
            column = resources + EXTRA + number
            takes[column] = wants[column] = 1


def _ports(fits: list[FitShape], pods_of: Integers) -> Ports:
    """Return the columns of host ports; a port of one pod only has no conflict, and no column.

    Fifteen pods may name 4,000 ports, which would become as many columns of each node. ``pods_of``: of each shape.
    """
    holders: dict[tuple[str, int], list[int]] = {}
    for number, fit in enumerate(fits):
        for port in fit.host_ports:
            holders.setdefault((port.protocol, port.port), []).append(number)
    columns: dict[tuple[int, ...], int] = {}
    found = {
        port: columns.setdefault(tuple(of), len(columns))
        for port, of in holders.items()
        if len(of) > 1 or pods_of[of[0]] > 1
    }
    if len(columns) > MOST_PORTS:
        raise InputError(f"more than {MOST_PORTS} different host ports", field="ports")
    return found


def _extra(snapshot: Snapshot, ports: Ports, outlook: Outlook, *, full: bool) -> tuple[Integers, Integers]:
    """Return the (EXTRA, N) and the (ports, N) columns that follow the engine's: the total, or the free part of it."""
    extra = np.full((EXTRA, snapshot.size), UNLIMITED, np.int64)
    extra[:2] = snapshot.allocatable[CPU_COLUMN : MEMORY_COLUMN + 1]
    first = {
        column: port for port, column in reversed(ports.items())
    }  # of ports with the same pods, which share one column
    of_ports = np.ones((len(first), snapshot.size), np.int64)
    if not full:
        extra[:2] -= snapshot.held[:ONLINE_RANK].sum(axis=0)
        for row in range(snapshot.size):
            for port, holders in snapshot.ports[row].items():
                column = ports.get((port.protocol, port.port))
                if column is not None and first[column] == (port.protocol, port.port):
                    of_ports[column, row] -= holders
    if outlook.room is not None:
        extra[2:4] = np.floor(np.clip(outlook.room, -(2.0**60), 2.0**60)).astype(np.int64)
    if outlook.guard is not None:
        extra[4, snapshot.service_counts > 0] = 1
    return extra, of_ports


def _services(snapshot: Snapshot, fits: list[FitShape]) -> tuple[Integers, Booleans, Integers]:
    names: dict[str, int] = {}
    service_of = np.full(len(fits), -1, np.int64)
    exclusives: list[bool] = []
    for number, fit in enumerate(fits):
        if fit.service is not None:
            if fit.service not in names:
                names[fit.service] = len(names)
                exclusives.append(False)
            service_of[number] = names[fit.service]
            exclusives[names[fit.service]] |= fit.exclusive
    services = np.zeros((snapshot.size, max(len(names), 1)), np.int64)
    for name, number in names.items():
        for row, held in snapshot.state.workload_rows(name).items():
            services[row, number] = held
    return services, np.array(exclusives or [False], np.bool_), service_of
