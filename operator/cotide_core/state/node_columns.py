"""The columns of the cluster: one row per node, numpy arrays over rows.

Written only by `state.ClusterState`; all other modules read them through a `snapshot.Snapshot`. Rows of deleted nodes
go to a free list and are used again, lowest first, so that the same events always give the same rows. A resource has a
column while a node offers it and a pod requests it. The first `RESOURCES_KEPT` have one without a pod, so a node's
names alone take no more room. A job type has a column once a pod of it waits or runs. A resource that is no longer
offered or requested gives its column to the next. All amounts are int64 in the units of `units`. Invariant: ``free[c,
row] = allocatable[c, row] - reserved[c, row] - sum of the requests of the pods on the row for c``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.events import HostPort, Node
from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.state.cells import Cells
from cotide_core.units import CPU, MEMORY, PODS, RECLAIMED_CPU, RECLAIMED_MEMORY

FIRST_CAPACITY: Final = 64
"""Initial number of rows of a new table (chosen; it doubles when full)."""
FIRST_COLUMNS: Final = 8
"""Initial number of resource columns of a new table (chosen; it doubles when full)."""
ALWAYS: Final = (CPU, MEMORY, PODS, RECLAIMED_CPU, RECLAIMED_MEMORY)
"""Resources with a permanent column. Scoring therefore finds cpu at 0, memory at 1 and pods at 2, and the held
reclaimed capacity is known before its publication.
"""
RESOURCES_KEPT: Final = 32
"""Up to this number of columns, a resource keeps its own when no node offers it or no pod requests it: it usually
returns (chosen).
"""
MAX_RESOURCES: Final = 128
"""Resource columns that a table of any length may have (chosen: 17 MB at 8,192 rows)."""
RESOURCE_CELLS: Final = 2**19
"""Cells that a short table may use for more columns: 1,024 columns at 512 rows. A resource beyond both bounds has no
column, and its pods wait. Chosen: upstream's own workload has 400 names, one on each node; 4 MB in each of three
tables.
"""
MAX_TYPES: Final = 256
"""Job types with their own column at the same time. Further types share the column of pods without a type; forecasts
assume the worst known type for them (chosen: 33 MB at 5,000 nodes).
"""
CPU_COLUMN: Final = 0
MEMORY_COLUMN: Final = 1
PODS_COLUMN: Final = 2
RATE_HORIZONS: Final = 5
"""Horizons of forecast rates that are kept (chosen: each doubles or more, up to hours)."""
UNMEASURED_RATE: Final = -1.0
"""Represents an unmeasured rate in ``promised_ahead``, less its estimate (see `unmeasured`)."""


def unmeasured(estimated: float) -> float:
    """Return the number below 0 that represents an estimated rate in the columns."""
    return UNMEASURED_RATE - estimated


@dataclass(slots=True)
class ServicePod:
    """An online pod with a promise, counted on a row: a part of a mix."""

    key: str
    workload: str
    limit_milliseconds: float
    requests_per_second: float | None
    """None without a measurement."""
    ahead: tuple[float, ...] = ()
    """Highest rates forecast up to the end of each horizon; empty without a forecast."""
    estimated: float = 0.0
    """Estimated requests/s of an unmeasured pod (`rate_forecasts.RateEstimates`)."""

    def rate_within(self, horizon: int) -> float:
        """Return the highest rate up to the end of a horizon, counted from 1; at least the present rate, which is
        horizon 0. An unmeasured pod has its estimate.
        """
        rate = self.requests_per_second
        if rate is None:
            return self.estimated
        return max(rate, self.ahead[horizon - 1]) if horizon and self.ahead else rate


class NodeColumns:
    """Growing columnar table of nodes.

    Attributes
    ----------
    size : rows in use or once in use; every array has at least this many columns.
    allocatable, free : (R, capacity) amounts by resource column.
    reserved : (R, capacity) amounts that are kept for waiting pods; `free` excludes them (see `reserve`).
    type_counts, type_bytes : (T, capacity) batch and gratis pods of each job type, and their summed input.
    batch_millicores : (capacity,) cpu requests of batch and gratis pods, plain and reclaimed.
    growth_millicores : (capacity,) cpu that pods with phases will request beyond their present requests, in the mean of
        their remaining phases; below 0 for less.
    unrequested : (2, capacity) cpu and memory that scores count for containers without a request, in addition to
        requests.
    held : (3, 2, capacity) cpu and memory, plain and reclaimed, that pods of each class rank hold (0 gratis, 1 batch,
        2 online).
    online_counts : (capacity,) online pods, including those without requests.
    service_counts, exclusive_counts : (capacity,) online pods with a promise, and those of exclusive Workloads.
    service_rates : (capacity,) their summed requests per second, as far as measured.
    promised_limits, promised_numbers : (K, capacity) the limit in milliseconds and the number of the Workload of each
        of them, in order of their keys: ``services`` as arrays, for compiled code.
    promised_ahead, rates_ahead : (1 + RATE_HORIZONS, K, capacity) and (1 + RATE_HORIZONS, capacity) requests per second
        of each of them (`unmeasured` if estimated) and their sum, estimates included. The first row is the present; the
        others reach to the end of each horizon as far as forecast, and are kept from `keep_horizons` on.
    keeps_horizons : whether any rate was forecast yet.
    type_names : of the job types by column; empty where a column is spare.
    types_refused : whether a type got no column of its own since the last `release_types`.
    resource_generation : rises when a resource gets a column or loses it.
    workload_names : of the Workloads by number.
    versions : (capacity,) rises with every change of the row.
    relief_versions : (capacity,) rises when the row may have become *better* for some pod.
    spec_versions : (capacity,) rises when labels, taints, readiness or the node itself changed.
    layout : rises when a view of the arrays no longer shows everything: they moved, or a node came or went.
    """

    def __init__(self) -> None:  # noqa: PLR0915 - the columns, one a line
        self.size = 0
        self.capacity = FIRST_CAPACITY
        self.nodes: list[Node | None] = []
        self.row_of: dict[str, int] = {}
        self.services: list[list[ServicePod]] = []
        self.ports: list[dict[HostPort, int]] = []
        self.resources: dict[str, int] = {}
        self.resource_generation = 0
        self._offers: dict[str, dict[int, int]] = {}
        """The offered amount of each row by resource, except those of `ALWAYS`."""
        self._tables = [_table(self.capacity) for _ in range(3)]
        """The tables behind ``allocatable``, ``free`` and ``reserved``, which show their first columns; the others are
        spare.
        """
        self.types: dict[str, int] = {}
        self.type_names: list[str] = []
        self.types_refused = False
        self._spare_types: list[int] = []
        self.allocatable: Integers = np.zeros((0, self.capacity), np.int64)
        self.free: Integers = np.zeros((0, self.capacity), np.int64)
        self.reserved: Integers = np.zeros((0, self.capacity), np.int64)
        self._kept: dict[int, tuple[dict[int, int], tuple[HostPort, ...]]] = {}
        """The parts of `reserved` of a row, by column, and the ports that are kept with them."""
        self.type_counts: Integers = np.zeros((0, self.capacity), np.int64)
        self.type_bytes: Integers = np.zeros((0, self.capacity), np.int64)
        self.alive: Booleans = np.zeros(self.capacity, np.bool_)
        self.batch_millicores: Integers = np.zeros(self.capacity, np.int64)
        self.growth_millicores: Integers = np.zeros(self.capacity, np.int64)
        self.unrequested: Integers = np.zeros((2, self.capacity), np.int64)
        self.held: Integers = np.zeros((3, 2, self.capacity), np.int64)
        self.online_counts: Integers = np.zeros(self.capacity, np.int64)
        self.service_counts: Integers = np.zeros(self.capacity, np.int64)
        self.exclusive_counts: Integers = np.zeros(self.capacity, np.int64)
        self.service_rates: Floats = np.zeros(self.capacity, np.float64)
        self.keeps_horizons = False
        self.promised_ahead: Floats = np.zeros((1 + RATE_HORIZONS, 1, self.capacity))
        self.rates_ahead: Floats = np.zeros((1 + RATE_HORIZONS, self.capacity))
        self.promised_limits: Floats = np.zeros((1, self.capacity))
        self.promised_numbers: Integers = np.zeros((1, self.capacity), np.int64)
        self.workload_names: list[str] = []
        self._workload_numbers: dict[str, int] = {}
        self._spare_numbers: list[int] = []
        self._service_names: tuple[str, ...] = ()
        self.versions: Integers = np.zeros(self.capacity, np.int64)
        self.relief_versions: Integers = np.zeros(self.capacity, np.int64)
        self.spec_versions: Integers = np.zeros(self.capacity, np.int64)
        self.clock = 0
        self.relief_clock = 0
        self.spec_clock = 0
        self.layout = 0
        self.journal: list[int] = []
        self.journal_start = 0
        self._spare: list[int] = []
        self._cells: Cells | None = None
        for resource in ALWAYS:
            self._append_column(resource)

    def __len__(self) -> int:
        return len(self.row_of)

    def cells(self) -> Cells:
        """Return the cells of the arrays; valid until `layout` rises."""
        if self._cells is None:
            self._cells = Cells.of(self)
        return self._cells

    def is_offered(self, resource: str) -> bool:
        """Return whether a node offers a resource."""
        return resource in ALWAYS or resource in self._offers

    def make_column(self, resource: str, is_asked: Callable[[str], bool]) -> bool:
        """Give a resource without a column one with the offers of the nodes; returns whether there was room for it.

        Parameters
        ----------
        is_asked : whether a pod requests a resource; one that is offered and requested keeps its column.
        """
        spare = self._spare_column(is_asked) if len(self.resources) >= RESOURCES_KEPT else None
        if spare is None and len(self.resources) >= max(MAX_RESOURCES, RESOURCE_CELLS // self.capacity):
            return False
        if spare is None:
            column = self._append_column(resource)
        else:
            self.layout += 1
            self.resource_generation += 1
            column = self.resources.pop(spare)
            self.resources[resource] = column
            self.allocatable[column] = 0
            self.free[column] = 0
            self.reserved[column] = 0
            for kept, _ in self._kept.values():
                kept.pop(column, None)
            for row in self._offers.get(spare, ()):
                self.touch(row, relief=False)
        for row, amount in self._offers.get(resource, {}).items():
            self.allocatable[column, row] = self.free[column, row] = amount
            self.touch(row, relief=True)
        return True

    def _append_column(self, resource: str) -> int:
        self.layout += 1
        self.resource_generation += 1
        column = len(self.resources)
        if column == len(self._tables[0]):
            self._tables = [_doubled(table) for table in self._tables]
        self.resources[resource] = column
        self._show_columns()
        return column

    def _show_columns(self) -> None:
        count = len(self.resources)
        self.allocatable, self.free, self.reserved = (table[:count] for table in self._tables)
        self._cells = None

    def _spare_column(self, is_asked: Callable[[str], bool]) -> str | None:
        return next(
            (name for name in self.resources if name not in ALWAYS and not (name in self._offers and is_asked(name))),
            None,
        )

    def free_of(self, resource: str, row: int) -> int:
        """Return the free amount of a resource on a row; 0 if no node offers it."""
        column = self.resources.get(resource)
        return 0 if column is None else int(self.free[column, row])

    def type_column(self, job_type: str) -> int:
        """Return the column of a job type, made if it is new and there is room for one more."""
        column = self.types.get(job_type)
        if column is None:
            if self._spare_types:
                column = heapq.heappop(self._spare_types)
                self.type_names[column] = job_type
            elif len(self.types) < MAX_TYPES or not job_type:
                column = len(self.type_names)
                self.type_names.append(job_type)
                self.type_counts = _with_one_more(self.type_counts)
                self.type_bytes = _with_one_more(self.type_bytes)
                self._cells = None
            else:
                self.types_refused = True
                return self.type_column("")
            self.layout += 1
            self.types[job_type] = column
        return column

    def release_types(self, used: set[int]) -> bool:
        """Free the columns of types without counted pods, except these; returns whether there were any.

        After that, answers that are cached by the column of a type must be dropped.
        """
        self.types_refused = False
        counted: list[bool] = np.asarray(self.type_counts.any(axis=1)).tolist()
        spare = [name for name, column in self.types.items() if column not in used and not counted[column] and name]
        for name in spare:
            column = self.types.pop(name)
            self.type_names[column] = ""
            self.type_bytes[column] = 0
            heapq.heappush(self._spare_types, column)
        if spare:
            self.layout += 1
        return bool(spare)

    def workload_number(self, key: str) -> int:
        """Return the number of a Workload, assigned at its first use."""
        number = self._workload_numbers.get(key)
        if number is None:
            if self._spare_numbers:
                number = heapq.heappop(self._spare_numbers)
                self.workload_names[number] = key
            else:
                number = len(self.workload_names)
                self.workload_names.append(key)
            self._workload_numbers[key] = number
            self._service_names = ()
        return number

    def forget_workload(self, key: str) -> None:
        """Free the number of a Workload that no row lists any more."""
        number = self._workload_numbers.pop(key, None)
        if number is not None:
            heapq.heappush(self._spare_numbers, number)

    def service_names(self) -> tuple[str, ...]:
        """Return the keys of the Workloads by number; the same tuple until a new one comes."""
        if not self._service_names:
            self._service_names = tuple(self.workload_names)
        return self._service_names

    def list_services(self, row: int) -> None:
        """Copy ``services`` of a row into the arrays."""
        services = self.services[row]
        while len(self.promised_limits) < len(services):
            more = np.zeros((1 + RATE_HORIZONS, 1, self.capacity))
            self.promised_ahead = np.concatenate([self.promised_ahead, more], axis=1)
            self.promised_limits = np.concatenate([self.promised_limits, np.zeros((1, self.capacity))])
            self.promised_numbers = _with_one_more(self.promised_numbers)
        for index, service in enumerate(services):
            self.list_rates(index, service, row)
            self.promised_limits[index, row] = service.limit_milliseconds
            self.promised_numbers[index, row] = self.workload_number(service.workload)

    def list_rates(self, index: int, service: ServicePod, row: int) -> None:
        """Copy the rates of a row's service into the arrays."""
        rate = service.requests_per_second
        if rate is None:
            rate = unmeasured(service.estimated)
        elif service.ahead:
            self.promised_ahead[:, index, row] = [service.rate_within(horizon) for horizon in range(1 + RATE_HORIZONS)]
            return
        if self.keeps_horizons:  # the present one for all horizons
            self.promised_ahead[:, index, row] = rate
        else:
            self.promised_ahead[0, index, row] = rate

    def sum_rates(self, row: int) -> None:
        """Sum a row's rates from scratch: adding and subtracting floats would drift."""
        services = self.services[row]
        now = sum([max(0.0, service.requests_per_second or 0.0) for service in services])
        (self._cells or self.cells()).service_rates[row] = now
        now = sum([max(0.0, service.rate_within(0)) for service in services])
        if not self.keeps_horizons:
            self.rates_ahead[0, row] = now
        elif not any(service.ahead for service in services):
            self.rates_ahead[:, row] = now
        else:
            for horizon in range(1 + RATE_HORIZONS):
                self.rates_ahead[horizon, row] = sum(max(0.0, service.rate_within(horizon)) for service in services)

    def keep_horizons(self) -> None:
        """Keep rates by horizon from now on, because the first of them are forecast."""
        if not self.keeps_horizons:
            self.keeps_horizons = True
            self.promised_ahead[1:] = self.promised_ahead[0]
            self.rates_ahead[1:] = self.rates_ahead[0]

    def upsert(self, node: Node) -> int:
        """Write a node's own columns and return its row; what its pods hold is kept."""
        row = self.row_of.get(node.name)
        before = None if row is None else self.nodes[row]
        if row is None:
            row = self._take_row()
            self.row_of[node.name] = row
            self.layout += 1
            self.alive[row] = True
        self.nodes[row] = node
        self._offer(row, before, node)
        fresh = np.zeros(len(self.free), np.int64)
        for resource, amount in node.allocatable:
            column = self.resources.get(resource)
            if column is not None:
                fresh[column] = amount
        self.free[:, row] += fresh - self.allocatable[:, row]
        self.allocatable[:, row] = fresh
        if before is None or _spec(before) != _spec(node):
            self.spec_clock += 1
            self.spec_versions[row] = self.spec_clock
        self.touch(row, relief=True)
        return row

    def offered(self) -> tuple[float, float]:
        """Return the millicores and bytes that all nodes offer together."""
        cpu, memory = self.allocatable[[CPU_COLUMN, MEMORY_COLUMN]].sum(axis=1).tolist()
        return float(cpu), float(memory)

    def remove(self, name: str) -> int:
        """Free a node's row; the caller has removed its pods before. Returns the freed row."""
        row = self.row_of.pop(name)
        self.layout += 1
        self._offer(row, self.nodes[row], None)
        self.nodes[row] = None
        self.alive[row] = False
        self.reserve(row, {})
        self.allocatable[:, row] = 0
        self.free[:, row] = 0
        self.spec_clock += 1
        self.spec_versions[row] = self.spec_clock
        self.touch(row, relief=False)
        heapq.heappush(self._spare, row)
        return row

    def reserve(self, row: int, amounts: dict[int, int], ports: tuple[HostPort, ...] = ()) -> None:
        """Reserve amounts, by column, and host ports of a row for waiting pods; replaces the previous reservation.

        The amounts are subtracted from ``free``, so that every reader respects them; a smaller reservation alone wakes
        no pod.
        """
        before = self._kept.get(row, ({}, ()))
        if before == (amounts, ports):
            return
        for kept, sign in ((before, 1), ((amounts, ports), -1)):
            for column, amount in kept[0].items():
                self.free[column, row] += sign * amount
                self.reserved[column, row] -= sign * amount
            for port in kept[1]:
                taken = self.ports[row]
                taken[port] = taken.get(port, 0) - sign
                if not taken[port]:
                    del taken[port]
        if amounts or ports:
            self._kept[row] = (dict(amounts), ports)
        else:
            del self._kept[row]
        self.touch(row, relief=False)

    def touch(self, row: int, *, relief: bool) -> None:
        """Record that a row changed; `relief` if the change may admit a pod that was refused before."""
        columns = self._cells or self  # cells for one row cost more than they save while columns are being made
        self.clock += 1
        columns.versions[row] = self.clock
        if relief:
            self.relief_clock += 1
            columns.relief_versions[row] = self.relief_clock
        self.journal.append(row)
        if len(self.journal) > 4 * self.capacity:
            # Half is dropped; a cache that was behind it finds its position missing and restarts.
            dropped = len(self.journal) // 2
            del self.journal[:dropped]
            self.journal_start += dropped

    def _offer(self, row: int, before: Node | None, now: Node | None) -> None:
        """Record the offers of a row."""
        was = () if before is None else before.allocatable
        offers = () if now is None else now.allocatable
        if was == offers:
            return
        for resource, _ in was:
            rows = self._offers.get(resource)
            if rows is not None and rows.pop(row, None) is not None and not rows:
                del self._offers[resource]
        for resource, amount in offers:
            if resource not in ALWAYS:
                self._offers.setdefault(resource, {})[row] = amount

    def _take_row(self) -> int:
        if self._spare:
            return heapq.heappop(self._spare)
        if self.size == self.capacity:
            self._grow()
        row = self.size
        self.size += 1
        self.nodes.append(None)
        self.services.append([])
        self.ports.append({})
        return row

    def _grow(self) -> None:
        self.capacity *= 2
        self._cells = None
        for name in (
            "type_counts", "type_bytes", "promised_limits", "promised_numbers", "rates_ahead", "unrequested",
        ):  # fmt: skip
            old: NDArray[Any] = getattr(self, name)
            setattr(self, name, _wider(old, self.capacity))
        self._tables = [_wider(table, self.capacity) for table in self._tables]
        self._show_columns()
        held = np.zeros((3, 2, self.capacity), np.int64)
        held[:, :, : self.held.shape[2]] = self.held
        self.held = held
        ahead = np.zeros((*self.promised_ahead.shape[:2], self.capacity))
        ahead[:, :, : self.promised_ahead.shape[2]] = self.promised_ahead
        self.promised_ahead = ahead
        for name in (
            "alive", "batch_millicores", "growth_millicores", "online_counts", "service_counts", "exclusive_counts",
            "service_rates", "versions", "relief_versions", "spec_versions",
        ):  # fmt: skip
            column: NDArray[Any] = getattr(self, name)
            longer = np.zeros(self.capacity, column.dtype)
            longer[: len(column)] = column
            setattr(self, name, longer)


def _table(capacity: int) -> Integers:
    return np.zeros((FIRST_COLUMNS, capacity), np.int64)


def _doubled(table: Integers) -> Integers:
    return np.concatenate([table, np.zeros_like(table)])


def _wider(table: NDArray[Any], capacity: int) -> NDArray[Any]:
    wider = np.zeros((table.shape[0], capacity), table.dtype)
    wider[:, : table.shape[1]] = table
    return wider


def _with_one_more(table: Integers) -> Integers:
    return np.concatenate([table, np.zeros((1, table.shape[1]), np.int64)])


def _spec(node: Node) -> tuple[object, ...]:
    return node.labels, node.taints, node.unschedulable, node.ready, node.pressures, node.attach_limits
