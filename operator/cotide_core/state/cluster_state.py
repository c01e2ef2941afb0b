"""The state of the cluster as the engine knows it: nodes, pods, promises, and binds in flight.

Owned by `cycle.Scheduler`. Events change the state only through `apply`; decisions change it only through `assume` and
`forget`. A pod's life here::

    pending --assume--> assumed --PodUpserted with its node--> bound --terminal phase or PodDeleted--> gone
       ^                   |
       +---- forget -------+   BindRefused, or neither confirmed nor refused within the timeout

A pod holds its requests from the assumption until it ends; a terminating pod still holds them. Pods of other schedulers
hold like ours. A pod on an unknown node waits as an orphan and counts when the node comes. Invariant: the columns equal
a recount over all holding pods (tests/core/state/test_cluster_state.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from cotide_core.classes import WorkloadClass
from cotide_core.events import (
    BindRefused,
    BudgetDeleted,
    BudgetUpserted,
    Event,
    NamespaceDeleted,
    NamespaceUpserted,
    Node,
    NodeBackoffRestored,
    NodeContended,
    NodeDeleted,
    NodeForecasted,
    NodeUpserted,
    NodeUsageSampled,
    Pod,
    PodAssumed,
    PodDeleted,
    PodPhase,
    PodRefused,
    PodUpserted,
    RatesForecasted,
    SelectorDeleted,
    SelectorUpserted,
    ServiceSampled,
    Workload,
    WorkloadDeleted,
    WorkloadUpserted,
)
from cotide_core.limits import MAX_EXACT_INT
from cotide_core.state.contention import Contention
from cotide_core.state.host_load import HostLoad
from cotide_core.state.namespace_use import Demand, NamespaceUse, has_limits, namespace_of
from cotide_core.state.node_columns import ALWAYS, RESOURCES_KEPT, NodeColumns, ServicePod
from cotide_core.state.node_images import NodeImages
from cotide_core.state.node_refusals import Amounts, Asked, NodeRefusals, asked_by
from cotide_core.state.pod_matches import PodMatches
from cotide_core.state.rate_forecasts import RateEstimates, RateForecasts
from cotide_core.state.remembered import Remembered
from cotide_core.state.selection.budgets import Budgets
from cotide_core.units import CPU, MEMORY, PODS, RECLAIMED_CPU, RECLAIMED_MEMORY

_TERMINAL = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})


DEMANDS_KEPT: Final = 1024
"""Distinct requests of a generation (chosen: half a MB)."""


@dataclass(slots=True)
class PodRecord:
    """The state of one pod; other modules only read it."""

    pod: Pod
    node: str | None
    """The node where it holds or is assumed to hold; None while it waits."""
    row: int = -1
    """The row that it is counted on; -1 if it holds nothing or its node is unknown."""
    assumed_seconds: float | None = None
    """Time of the bind decision, until the bind is confirmed or refused."""
    requests_per_second: float | None = None
    """Latest sample of an online pod; None without a measurement, which differs from a rate of 0."""
    placed: bool = False
    """Whether this engine chose its node."""
    type_column: int = -1
    """Column that counts its type; -1 while it is not counted."""
    has_counted: bool = False
    """Whether it held something before: its namespace's share includes its use until then."""


class ClusterState:
    """Columnar cluster state.

    Attributes
    ----------
    columns : the arrays; read them through `snapshot.Snapshot`.
    host_load : measured and predicted load of each row.
    contention : how pods compete for the cpu of each row.
    rate_forecasts : predicted request rates of online pods.
    estimates : request rates of online pods that are not measured yet.
    namespaces : limits of namespaces, and what their batch and gratis pods hold of them.
    refusals : nodes that recently refused a pod.
    matches : numbers of matching pods by node and selector, and the terms of placed pods that refuse others.
    images : the images on each node.
    budgets : disruption budgets.
    relieved : rows that may take more than before since the reader last emptied the set.
    eased : rows with a falling rate of an online service since then.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything: a new engine follows, and readers of this state continue to read it."""
        self.columns = NodeColumns()
        self.host_load = HostLoad(self.columns)
        self.contention = Contention(self.columns)
        self.rate_forecasts = RateForecasts()
        self.estimates = RateEstimates()
        self._unmeasured: dict[str, PodRecord] = {}
        """Promised online pods on rows with an estimated rate."""
        self._measured_millicores = 0
        """The requests of those with a measured rate."""
        self._has_new_rates = False
        self.namespaces = NamespaceUse()
        self.refusals = NodeRefusals()
        self.matches = PodMatches(self._held)
        self.images = NodeImages()
        self.budgets = Budgets()
        self.relieved: set[int] = set()
        self.eased: set[int] = set()
        self._pods: dict[str, PodRecord] = {}
        self._on_row: dict[int, dict[str, PodRecord]] = {}
        self._orphans: dict[str, dict[str, PodRecord]] = {}
        self._assumed: dict[str, PodRecord] = {}
        self._workloads: dict[str, Workload] = {}
        self._of_workload: dict[str, dict[str, PodRecord]] = {}
        self._demands: Remembered[tuple[tuple[str, int], ...], Demand] = Remembered(DEMANDS_KEPT)
        self._askers: dict[str, dict[str, PodRecord]] = {}
        """By resource the pods that request it, by key; except resources that always have a column."""

    def pod(self, key: str) -> Pod | None:
        """Return a pod as last reported, by ``namespace/name``."""
        record = self._pods.get(key)
        return None if record is None else record.pod

    def record(self, key: str) -> PodRecord | None:
        """Return the state of a pod, its assumed node included."""
        return self._pods.get(key)

    def records(self) -> list[PodRecord]:
        """Return all pods, in order of first appearance."""
        return list(self._pods.values())

    def pod_count(self) -> int:
        """Return how many pods there are."""
        return len(self._pods)

    def records_on(self, row: int) -> list[PodRecord]:
        """Return the pods counted on a row."""
        return list(self._on_row.get(row, {}).values())

    def assumed(self) -> list[PodRecord]:
        """Return the binds in flight, oldest first."""
        return list(self._assumed.values())

    def oldest_assumption(self) -> float | None:
        """Return when the oldest bind in flight was decided; None for no bind in flight."""
        return next((record.assumed_seconds for record in self._assumed.values()), None)

    def node(self, name: str) -> Node | None:
        """Return a node as last reported."""
        row = self.columns.row_of.get(name)
        return None if row is None else self.columns.nodes[row]

    def workload(self, key: str | None) -> Workload | None:
        """Return the promise of an online service."""
        return None if key is None else self._workloads.get(key)

    def workloads(self) -> list[Workload]:
        """Return all known promises."""
        return list(self._workloads.values())

    def _held(self) -> list[tuple[Pod, int]]:
        return [(record.pod, record.row) for record in self._pods.values() if record.row >= 0]

    def workload_rows(self, key: str) -> dict[int, int]:
        """Return the rows that run online pods of a Workload, with their numbers."""
        rows: dict[int, int] = {}
        for record in self._of_workload.get(key, {}).values():
            if record.row >= 0 and record.pod.workload_class is WorkloadClass.ONLINE:
                rows[record.row] = rows.get(record.row, 0) + 1
        return rows

    def expected_rate(self, workload: str | None) -> float | None:
        """Return the requests per second to expect of one more pod of a Workload.

        It is the highest latest sample among its pods: a new replica takes its share, at most the load of the busiest.
        None without measurements.
        """
        if workload is None:
            return None
        rates = [record.requests_per_second for record in self._of_workload.get(workload, {}).values()]
        return max((rate for rate in rates if rate is not None), default=None)

    def demand(self, requests: tuple[tuple[str, int], ...]) -> Demand:
        """Return the amounts that requests take from the columns, with the pod itself counted as one of ``pods``."""
        found = self._demands.get(requests)
        if found is None:
            wanted = [(resource, amount) for resource, amount in requests if amount > 0 and resource != PODS]
            columns = self.columns.resources
            known = [(name, amount) for name, amount in [*wanted, (PODS, 1)] if name in columns]
            missing, before = "", len(known)
            if len(known) <= len(wanted):
                # A resource that no node offers has no column, since any pod may name one.
                index, missing = next((i, name) for i, (name, _) in enumerate(wanted) if name not in columns)
                before = index
            millicores = sum(amount for resource, amount in wanted if resource in (CPU, RECLAIMED_CPU))
            memory = sum(amount for resource, amount in wanted if resource in (MEMORY, RECLAIMED_MEMORY))
            found = Demand(
                tuple((columns[name], amount) for name, amount in known),
                tuple(name for name, _ in known),
                min(millicores, MAX_EXACT_INT),
                min(memory, MAX_EXACT_INT),
                missing,
                before,
            )
            self._demands.make_room()
            self._demands.keep(requests, found)
        return found

    def apply(self, event: Event) -> None:
        """Change the state by events; events about the past of a pod (another uid) change nothing."""
        match event:
            case PodUpserted(pod):
                self._upsert_pod(pod)
            case ServiceSampled(key, rate, _):
                self._sample(key, rate)
            case NodeUsageSampled() | NodeForecasted():
                self.host_load.apply(event)
            case PodDeleted(key, uid):
                self._delete_pod(key, uid)
            case PodRefused():
                self._refuse(event)
            case NodeUpserted(node):
                self._upsert_node(node)
            case NodeDeleted(name):
                self._delete_node(name)
            case WorkloadUpserted(workload):
                self._set_workload(workload.key, workload)
            case WorkloadDeleted(key):
                self._set_workload(key, None)
            case BindRefused(key, uid, node):
                record = self._pods.get(key)
                if record is not None and record.pod.uid == uid and record.node == node:
                    self.forget(key)
            case _:
                self._apply_rest(event)

    def assume(self, key: str, node: str, now: float) -> None:
        """Count a pending pod on a node from now on, because its bind was just decided."""
        record = self._pods[key]
        record.node = node
        record.assumed_seconds = now
        record.placed = True
        self._assumed[key] = record
        if self.refusals.by_node:
            self.refusals.place(node, key, self._asked(record.pod), now)
        self._hold(record)

    def reopen(self, now: float) -> bool:
        """Let pods try the nodes with an expired back-off again; returns whether there are any."""
        opened = self.refusals.advance(now) if self.refusals.by_node else []
        for node in opened:
            self._reopen(node)
        return bool(opened)

    def forget(self, key: str) -> bool:
        """Remove an assumed pod from its node; False if it was not assumed."""
        record = self._assumed.pop(key, None)
        if record is None:
            return False
        self._reopen(self.refusals.left(key))
        self._release(record)
        record.node = None
        record.assumed_seconds = None
        record.placed = False
        return True

    def retract(self, key: str) -> None:
        """Remove an assumed pod from its node in the cycle that assumed it: the state is as before, and no pod wakes.

        Readers of the row must read it again, so the row counts as one with more room.
        """
        record = self._assumed.pop(key)
        relieved, eased, row = set(self.relieved), set(self.namespaces.eased), record.row
        node = self.refusals.left(key)
        self._release(record)
        for touched in {row, self.columns.row_of.get(node or "", row)} - {-1}:
            self.columns.touch(touched, relief=True)
        record.node, record.assumed_seconds, record.placed = None, None, False
        self.relieved.intersection_update(relieved)
        self.namespaces.eased.intersection_update(eased)

    def _assume(self, event: PodAssumed) -> None:
        """Count a waiting pod on the node where another scheduler is about to bind it; a later event replaces an
        earlier one.
        """
        record = self._pods.get(event.key)
        if record is None or record.pod.uid != event.uid or record.pod.phase in _TERMINAL:
            return
        if record.pod.node is not None:
            return
        self.forget(event.key)
        self.assume(event.key, event.node, event.at_seconds)

    def _refuse(self, refused: PodRefused) -> None:
        """Close a node to pods like the one that its kubelet refused."""
        record, node = self._pods.get(refused.key), refused.node
        row = self.columns.row_of.get(node)
        if row is None or record is None or record.pod.uid != refused.uid or record.node != node:
            return
        if not record.placed and not self.refusals.tries(refused.key, node):
            return
        if self.refusals.refuse(node, refused.key, self._asked(record.pod), refused.reason, refused.at_seconds):
            self.columns.touch(row, relief=False)

    def backoffs(self, now: float) -> list[NodeBackoffRestored]:
        """Return the known back-offs of nodes that refused pods, for an engine that follows this one."""
        return self.refusals.backoffs(list(self.columns.resources), now) if self.refusals.by_node else []

    def _restore(self, event: NodeBackoffRestored) -> None:
        """Restore a back-off; one is over if its trial pod runs meanwhile."""
        row = self.columns.row_of.get(event.node)
        if row is None:
            return
        tried = self._pods.get(event.trying)
        trying = tried is not None and tried.node == event.node
        if trying and tried is not None and tried.pod.phase is not PodPhase.PENDING:
            return
        amounts = self.demand(event.requests).amounts
        # The event does not show whether that pod had a node selector: this only matters to other pods.
        asked = Asked(self._names(amounts), amounts, selects=False)
        if self.refusals.restore(event, asked, event.trying if trying else None):
            self.columns.touch(row, relief=False)

    def _asked(self, pod: Pod) -> Asked:
        amounts = self.demand(pod.requests).amounts
        return asked_by(pod, amounts, self._names(amounts))

    def _names(self, amounts: Amounts) -> tuple[str, ...]:
        names = list(self.columns.resources)
        return tuple(names[column] for column, _ in amounts)

    def _reopen(self, node: str | None) -> None:
        row = None if node is None else self.columns.row_of.get(node)
        if row is not None:
            self.columns.touch(row, relief=True)
            self.relieved.add(row)

    def _upsert_pod(self, pod: Pod) -> None:
        record = self._pods.get(pod.key)
        if record is not None and record.pod.uid != pod.uid:
            self._reopen(self.refusals.left(pod.key))
            self._drop(record)
            record = None
            del self._pods[pod.key]
        if record is None:
            self._add_pod(pod)
            return
        before = record.pod
        ended = pod.phase in _TERMINAL
        if self.refusals.by_node and pod.phase is not PodPhase.PENDING:
            away = pod.phase is PodPhase.FAILED
            self._reopen(self.refusals.left(pod.key) if away else self.refusals.passed(pod.key))
        node = record.node if pod.node is None and record.assumed_seconds is not None else pod.node
        if (pod.node is not None or ended) and record.assumed_seconds is not None:
            record.assumed_seconds = None
            del self._assumed[pod.key]
        if node == record.node and not ended and _footprint(before) == _footprint(pod):
            # No counted value changed: the common case, a confirmation or a status.
            record.pod = pod
            if (self.matches.active or _concerns_others(pod)) and record.row >= 0:
                self._match_anew(before, pod, record.row)
            if record.row >= 0 and _displaceable(before) != _displaceable(pod):
                self.columns.touch(record.row, relief=False)  # pods that look for victims count the row again
            return
        self._release(record)
        if before.workload != pod.workload:
            self._leave_workload(record)
            if pod.workload is not None:
                self._of_workload.setdefault(pod.workload, {})[pod.key] = record
        self._exchange(record, pod)
        record.node = node
        if node is not None and not ended:
            self._hold(record)

    def _add_pod(self, pod: Pod) -> None:
        record = self._pods[pod.key] = PodRecord(pod, pod.node)
        self._ask(record)
        if pod.workload is not None:
            self._of_workload.setdefault(pod.workload, {})[pod.key] = record
        if pod.node is not None and pod.phase not in _TERMINAL:
            self._hold(record)

    def _match_anew(self, before: Pod, pod: Pod, row: int) -> None:
        """Count a placed pod again after its labels changed or its deletion began."""
        same = before.labels == pod.labels and before.terminating is pod.terminating
        volumes = before.sole_claims == pod.sole_claims and before.attachments == pod.attachments
        if not same or not volumes or _terms(before) != _terms(pod):
            self.matches.hold(before, row, -1)
            self.matches.hold(pod, row, 1)
            self.columns.touch(row, relief=False)

    def _delete_pod(self, key: str, uid: str) -> None:
        record = self._pods.get(key)
        if record is not None and record.pod.uid == uid:
            self._reopen(self.refusals.left(key))
            self._drop(record)
            self.rate_forecasts.drop(key)
            del self._pods[key]

    def _upsert_node(self, node: Node) -> None:
        before = self.node(node.name)
        if before == node:
            return
        if before is not None and before.images != node.images and replace(before, images=node.images) == node:
            # An image more or less admits no pod that was refused.
            row = self.columns.row_of[node.name]
            self.images.change(row, before.images, node.images)
            self.columns.nodes[row] = node
            return
        if before is not None:
            self.refusals.relieve(node.name, set(before.pressures) - set(node.pressures))
        row = self.columns.upsert(node)
        self.images.change(row, () if before is None else before.images, node.images)
        self.matches.hang(() if before is None else before.attached, node.attached, row)
        resources = self.columns.resources
        for name, _ in node.allocatable:
            if name not in resources and (len(resources) < RESOURCES_KEPT or name in self._askers):
                self._make_column(name)
        self.relieved.add(row)
        for record in self._orphans.pop(node.name, {}).values():
            self._hold(record)

    def make_columns(self, requests: tuple[tuple[str, int], ...]) -> None:
        """Give a column to each resource of a pod that is in no event yet, if a node offers it."""
        for name, amount in requests:
            if amount > 0 and name not in self.columns.resources and self.columns.is_offered(name):
                self._make_column(name)

    def _ask(self, record: PodRecord) -> None:
        """Record the resources that a pod requests, and give columns to those that nodes offer."""
        for name, amount in record.pod.requests:
            if amount > 0 and name not in ALWAYS:
                self._askers.setdefault(name, {})[record.pod.key] = record
        self.make_columns(record.pod.requests)

    def _exchange(self, record: PodRecord, pod: Pod) -> None:
        """Replace the state of a pod, which may request other resources."""
        asks_for_others = record.pod.requests != pod.requests
        if asks_for_others:
            self._ask_no_more(record)
        record.pod = pod
        if asks_for_others:
            self._ask(record)

    def _ask_no_more(self, record: PodRecord) -> None:
        for name, amount in record.pod.requests:
            if amount > 0 and name not in ALWAYS:
                askers = self._askers[name]
                askers.pop(record.pod.key, None)
                if not askers:
                    del self._askers[name]

    def _make_column(self, name: str) -> None:
        """Give a resource a column, less the amounts that placed pods hold already."""
        columns = self.columns
        if not columns.make_column(name, self._askers.__contains__):
            return
        self._demands.clear()
        free = columns.free[columns.resources[name]]
        for record in self._askers.get(name, {}).values():
            if record.row >= 0:
                free[record.row] -= dict(record.pod.requests)[name]
                columns.touch(record.row, relief=False)

    def _delete_node(self, name: str) -> None:
        row = self.columns.row_of.get(name)
        if row is None:
            return
        for record in list(self._on_row.get(row, {}).values()):
            self._release(record)
            self._orphans.setdefault(name, {})[record.pod.key] = record
        gone = self.columns.nodes[row]
        if gone is not None:
            self.images.change(row, gone.images, ())
            self.matches.hang(gone.attached, (), row)
        self.columns.remove(name)
        self.host_load.forget(row)
        self.contention.forget(row)
        self.refusals.forget(name)
        self.relieved.discard(row)
        self.eased.discard(row)

    def _set_workload(self, key: str, workload: Workload | None) -> None:
        if self._workloads.get(key) == workload:
            return
        counted = [record for record in self._of_workload.get(key, {}).values() if record.row >= 0]
        for record in counted:
            self._count_service(record, -1)
        if workload is None:
            self._workloads.pop(key, None)
            self.columns.forget_workload(key)
        else:
            self._workloads[key] = workload
        for record in counted:
            self._count_service(record, 1)
            self.columns.touch(record.row, relief=True)
            self.relieved.add(record.row)

    def _sample(self, key: str, rate: float) -> None:
        record = self._pods.get(key)
        if record is None or record.requests_per_second == rate:
            return
        # A first measurement may also lower the risk: models do not cover unmeasured values.
        fell = record.requests_per_second is None or rate < record.requests_per_second
        record.requests_per_second = rate
        if record.row < 0:
            return
        self._has_new_rates = True
        if self._unmeasured.pop(key, None) is not None:
            self._measured_millicores += self.demand(record.pod.requests).millicores
        for index, service in enumerate(self.columns.services[record.row]):
            if service.key == key:
                service.requests_per_second = rate
                self.columns.list_rates(index, service, record.row)
                self.columns.sum_rates(record.row)
                self.columns.touch(record.row, relief=fell)
                if fell:
                    self.eased.add(record.row)

    def estimate_rates(self) -> None:
        """Estimate the rates of unmeasured pods from the measured ones, if these changed enough."""
        if not self._has_new_rates:
            return
        self._has_new_rates = False
        measured = float(self.columns.service_rates[: self.columns.size].sum())
        if not self.estimates.follow(measured, self._measured_millicores):
            return
        for key, record in self._unmeasured.items():
            estimated = self.estimates.of(self.demand(record.pod.requests).millicores)
            for index, service in enumerate(self.columns.services[record.row]):
                if service.key == key and service.estimated != estimated:
                    fell = estimated < service.estimated
                    service.estimated = estimated
                    self.columns.list_rates(index, service, record.row)
                    self.columns.sum_rates(record.row)
                    self.columns.touch(record.row, relief=fell)
                    if fell:
                        self.eased.add(record.row)

    def expire_rates(self, now: float) -> None:
        """Forget the rates that were forecast up to an earlier moment."""
        self._follow_rates(self.rate_forecasts.expire(now))

    def _follow_rates(self, keys: Iterable[str]) -> None:
        """Record the current forecasts of these pods."""
        for key in keys:
            record = self._pods.get(key)
            if record is None or record.row < 0:
                continue
            ahead = self.rate_forecasts.of(key)
            for index, service in enumerate(self.columns.services[record.row]):
                if service.key == key and service.ahead != ahead:
                    before = self.columns.promised_ahead[:, index, record.row].copy()
                    service.ahead = ahead
                    self.columns.list_rates(index, service, record.row)
                    self.columns.sum_rates(record.row)
                    fell = bool((self.columns.promised_ahead[:, index, record.row] < before).any())
                    self.columns.touch(record.row, relief=fell)
                    if fell:
                        self.eased.add(record.row)

    def _apply_rest(self, event: Event) -> None:
        if isinstance(event, PodAssumed):
            self._assume(event)
        elif isinstance(event, RatesForecasted):
            self.columns.keep_horizons()
            self._follow_rates(self.rate_forecasts.take(event))
        elif isinstance(event, NodeContended):
            self.contention.apply(event)
        elif isinstance(event, NodeBackoffRestored):
            self._restore(event)
        elif isinstance(event, SelectorUpserted):
            self.matches.defaults.put(event.selector)
        elif isinstance(event, SelectorDeleted):
            self.matches.defaults.remove(event.owner, event.key)
        elif isinstance(event, BudgetUpserted):
            self.budgets.put(event.budget)
        elif isinstance(event, BudgetDeleted):
            self.budgets.remove(event.key)
        elif isinstance(event, NamespaceUpserted):
            self.matches.change_namespace(event.namespace.name, event.namespace.labels)
            self._weigh(event.namespace.name, event.namespace.weight)
            if has_limits(event.namespace):
                self.namespaces.put(event.namespace, self._held_in(event.namespace.name))
            else:
                self.namespaces.remove(event.namespace.name)
        elif isinstance(event, NamespaceDeleted):
            self.matches.change_namespace(event.name, ())
            self._weigh(event.name, 1.0)
            self.namespaces.remove(event.name)

    def _weigh(self, namespace: str, weight: float) -> None:
        if self.namespaces.usage is not None:
            self.namespaces.usage.weights.pop(namespace, None)
            if weight != 1.0:
                self.namespaces.usage.weights[namespace] = weight

    def _held_in(self, namespace: str) -> list[Demand]:
        """Return the amounts that the batch and gratis pods of a namespace hold."""
        return [
            self.demand(record.pod.requests)
            for record in self._pods.values()
            if record.row >= 0
            and record.pod.workload_class is not WorkloadClass.ONLINE
            and namespace_of(record.pod) == namespace
        ]

    def _drop(self, record: PodRecord) -> None:
        self._release(record)
        self._ask_no_more(record)
        self._assumed.pop(record.pod.key, None)
        self._leave_workload(record)

    def _leave_workload(self, record: PodRecord) -> None:
        if record.pod.workload is not None:
            members = self._of_workload[record.pod.workload]
            del members[record.pod.key]
            if not members:
                del self._of_workload[record.pod.workload]

    def _hold(self, record: PodRecord) -> None:
        name = record.node
        if name is None:
            return
        row = self.columns.row_of.get(name)
        if row is None:
            self._orphans.setdefault(name, {})[record.pod.key] = record
            return
        record.row = row
        self._on_row.setdefault(row, {})[record.pod.key] = record
        self._count(record, 1)
        if self.matches.active or record.pod.rules is not None or record.pod.sole_claims or record.pod.attachments:
            self.matches.hold(record.pod, row, 1)
        self.columns.touch(row, relief=False)

    def _release(self, record: PodRecord) -> None:
        row = record.row
        if row < 0:
            orphans = self._orphans.get(record.node or "")
            if orphans is not None:
                orphans.pop(record.pod.key, None)
                if not orphans:
                    del self._orphans[record.node or ""]
            return
        self._count(record, -1)
        if self.matches.active or _concerns_others(record.pod):
            self.matches.hold(record.pod, row, -1)
        del self._on_row[row][record.pod.key]
        record.row = -1
        self.columns.touch(row, relief=True)
        self.relieved.add(row)

    def _count(self, record: PodRecord, sign: int) -> None:
        pod, row = record.pod, record.row
        demand = self.demand(pod.requests)
        columns = self.columns
        # Before the cells are read, since a new type moves the arrays. The removal uses the recorded column: in the
        # meantime another column may have become the type's.
        batch = pod.workload_class is not WorkloadClass.ONLINE
        if batch and sign > 0:
            record.type_column = columns.type_column(pod.type)
        cells = columns.cells()
        free = cells.free
        for resource, amount in demand.amounts:
            free[resource][row] -= sign * amount
        cpu, memory = cells.held[pod.workload_class.rank]
        if pod.growth_millicores:
            cells.growth_millicores[row] += sign * pod.growth_millicores
        if pod.unrequested_millicores or pod.unrequested_memory_bytes:
            scored_cpu, scored_memory = cells.unrequested
            scored_cpu[row] += sign * pod.unrequested_millicores
            scored_memory[row] += sign * pod.unrequested_memory_bytes
        cpu[row] += sign * demand.millicores
        memory[row] += sign * demand.memory_bytes
        for port in pod.host_ports:
            taken = columns.ports[row]
            taken[port] = taken.get(port, 0) + sign
            if not taken[port]:
                del taken[port]
        if batch:
            column = record.type_column
            cells.type_counts[column][row] += sign
            cells.type_bytes[column][row] += sign * pod.input_bytes
            cells.batch_millicores[row] += sign * demand.millicores
            self.namespaces.count(pod, demand, sign, None if record.has_counted else pod.started_seconds)
            record.has_counted = True
        else:
            columns.online_counts[row] += sign
            self._count_service(record, sign)

    def _count_service(self, record: PodRecord, sign: int) -> None:
        pod, row, columns = record.pod, record.row, self.columns
        workload = self.workload(pod.workload)
        if workload is None or pod.workload_class is not WorkloadClass.ONLINE:
            return
        services = columns.services[row]
        if sign > 0:
            limit, rate = workload.latency_p95_milliseconds, record.requests_per_second
            estimated = self.estimates.of(self.demand(pod.requests).millicores) if rate is None else 0.0
            services.append(ServicePod(pod.key, workload.key, limit, rate, self.rate_forecasts.of(pod.key), estimated))
            services.sort(key=lambda service: service.key)
        else:
            services[:] = [service for service in services if service.key != pod.key]
        if record.requests_per_second is not None:
            self._measured_millicores += sign * self.demand(pod.requests).millicores
        elif sign > 0:
            self._unmeasured[pod.key] = record
        else:
            self._unmeasured.pop(pod.key, None)
        columns.service_counts[row] += sign
        columns.exclusive_counts[row] += sign * workload.exclusive
        columns.list_services(row)
        columns.sum_rates(row)


def _terms(pod: Pod) -> tuple[object, ...]:
    """The terms of a placed pod about pods that come."""
    rules = pod.rules
    return () if rules is None else (rules.anti_affinity, rules.affinity, rules.pod_preferences)


def _concerns_others(pod: Pod) -> bool:
    return pod.rules is not None or bool(pod.sole_claims or pod.attachments)


def _displaceable(pod: Pod) -> tuple[int, bool, float | None, float | None]:
    """Return the fields that decide when which pods may displace a placed one; its start counts only where a protection
    ends.
    """
    began = None if pod.protected_seconds is None else pod.started_seconds
    return pod.priority, pod.do_not_disrupt, pod.protected_seconds, began


def _footprint(pod: Pod) -> tuple[object, ...]:
    return (
        pod.requests,
        pod.growth_millicores,
        pod.unrequested_millicores,
        pod.unrequested_memory_bytes,
        pod.workload_class,
        pod.type,
        pod.input_bytes,
        pod.workload,
        pod.host_ports,
        pod.phase in _TERMINAL,
    )
