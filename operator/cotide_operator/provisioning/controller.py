"""`Provisioner`: plans capacity while the cluster runs, on the leading replica.

Started by `assembly`. It plans at each interval, and every second it checks the outcome of its requests::

    cache, engine, history --copies--> live_plan (a thread) --nodes wanted by type--> Ordering --> actuator --> nodes
                                                                  |                                             |
                                                                  `--> freed nodes back, or handed over <-- drains

Nodes are started through the book of orders. Nodes stop only after consolidation has freed them, by all of its rules.
This module sets how many of each type may go. It marks a free node ``stopping`` before it is switched off, and a node
with this mark is never given back. Free nodes are given back before a machine is started. In advice mode, the default,
nothing is written: metrics and the log show what would be wanted. Invariants: without a plan nothing is ordered and no
node may go. When a plan fails, the last good one stays. Before each stop the API server is asked for pods on the node.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiohttp
import numpy as np

from cotide_core.consolidation.removal.watching import Allowance, Mark, Standing
from cotide_core.cycle import Scheduler
from cotide_core.errors import ClusterError, CotideError, InputError
from cotide_core.events import Pod
from cotide_core.provisioning.node_orders import Answer, NodeOrder
from cotide_core.provisioning.overprovisioning import LearnedFactor
from cotide_core.provisioning.stabilization import Stabilization
from cotide_core.state.node_columns import CPU_COLUMN
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import NodeObject, PodObject
from cotide_kube.plain_objects import OddObjectError, checked, named, typed
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.config.metric_settings import PrometheusSourceSettings
from cotide_operator.config.provisioning_settings import ActuatorSettings, ProvisioningSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.provisioning.accounts import Accounts
from cotide_operator.provisioning.actuators import (
    CommandActuator,
    NodeActuator,
    ScaleSubresource,
    WebhookActuator,
)
from cotide_operator.provisioning.advice import Underway, machine_types
from cotide_operator.provisioning.carrying import CONFIG_MAP, BookStore
from cotide_operator.provisioning.cluster_api import MachineRemoval, machine_of
from cotide_operator.provisioning.cluster_view import ORDER_LABEL
from cotide_operator.provisioning.energy_prices import EnergyPrices
from cotide_operator.provisioning.live_plan import Planned, Seen, planned, slack_of
from cotide_operator.provisioning.live_view import comes_with_node, nodes_of
from cotide_operator.provisioning.ordering import AT_ONCE, Ordering
from cotide_operator.provisioning.sorted_nodes import SortedNodes, sorted_nodes
from cotide_operator.provisioning.task_history import TaskHistory
from cotide_operator.reporting.event_recorder import EventRecorder

_LOG = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
"""Wall seconds between two looks; chosen: a boot takes a minute."""
SETTLED_SECONDS: Final = 10.0
"""Wall seconds that a node must have been free before it is handed over. Chosen: a binding that was on its way at the
time of the cordon has shown by then."""
REMOVAL_SECONDS: Final = 10.0
"""Wall seconds between two looks at Machines that should go; chosen: a controller has seen a mark by then."""
COMPLAIN_SECONDS: Final = 60.0


class Drains(Protocol):
    """The component that frees nodes: `consolidation.controller.Consolidator`."""

    def standings(self) -> dict[str, Standing]:
        """Return the nodes with a record of Cotide."""
        ...

    async def hand_over(self, node: str) -> bool:
        """Mark a freed node for switching off; False when it is no longer free."""
        ...

    async def give_back(self, node: str, why: str) -> None:
        """Uncordon a node that is being freed, or that is free."""
        ...


@dataclass(frozen=True, slots=True)
class ProvisioningDependencies:
    """Parts of the operator that provisioning needs.

    Attributes
    ----------
    engine : the current scheduler. pods : as the scheduler received them; is_current : whether it has the latest change
        of a pod.
    note : writes a line about an action or a scored forecast (`provisioning.jsonl`).
    namespace : of the book of orders. drains : None where consolidation is off.
    official : connects the official client, for scale subresources.
    prometheus : the source of prices, where a query is configured.
    """

    client: KubeClient
    cache: ObjectCache
    clock: Clock
    recorder: EventRecorder
    metrics: Metrics
    engine: Callable[[], Scheduler]
    pods: Mapping[str, Pod]
    note: Callable[[Mapping[str, Any]], object]
    namespace: str
    drains: Callable[[], Drains | None]
    official: Callable[[], Any]
    prometheus: PrometheusSourceSettings | None = None
    is_current: Callable[[str], bool] = lambda _: True


class Provisioner:
    """One term of leadership; see the module."""

    def __init__(self, dependencies: ProvisioningDependencies, settings: ProvisioningSettings) -> None:
        self._dependencies, self._settings = dependencies, settings
        self._acts = settings.mode == "act"
        self._machines = machine_types(settings)
        self._warned: dict[str, float] = {}
        self._history = TaskHistory(dependencies.cache, dependencies.pods, dependencies.is_current)
        self._accounts = Accounts(settings, self._machines, dependencies.metrics)
        self._prices = EnergyPrices(
            settings, dependencies.prometheus, dependencies.clock.now, dependencies.metrics, self._warn_throttled
        )  # fmt: skip
        self._factor = LearnedFactor.start(1)
        self._stabilization: Stabilization | None = None
        """None before the first look."""
        self._planned: Planned | None = None
        self._planning: asyncio.Task[None] | None = None
        self._next_plan = float("-inf")
        self._ordering: Ordering | None = None
        self._scales: ScaleSubresource | None = None
        self._removal: MachineRemoval | None = None
        self._next_removal = float("-inf")
        self._stops_asked: dict[str, float] = {}
        """By node that should stop: the last check that it is free, in monotonic seconds."""
        self._leaving: frozenset[str] = frozenset()
        """Nodes with Machines that no longer count among the replicas."""
        self._seen_leaving: set[str] = set()
        """Types with a current list of Machines that no longer count among the replicas."""
        self._unmarked: set[str] = set()
        """Types without our mark on any Machine, as far as known."""
        self._summary: tuple[Any, ...] = ()

    async def run(self) -> None:
        """Work until cancelled."""
        async with aiohttp.ClientSession() as session:
            if self._settings.actuator is not None and self._settings.mode != "advice":
                await self._use(self._settings.actuator, session)
            reading = asyncio.create_task(self._prices.run(), name="prices of energy")
            try:
                while True:
                    await self._look_safely()
                    await asyncio.sleep(POLL_SECONDS)
            finally:
                reading.cancel()
                if self._planning is not None:
                    self._planning.cancel()

    async def _use(self, chosen: ActuatorSettings, session: aiohttp.ClientSession) -> None:
        if chosen.scales:
            api = await asyncio.to_thread(self._dependencies.official)  # it takes a third of a second to load
            self._scales = ScaleSubresource(api, chosen.scales, chosen.timeout_seconds, self._permit)
            if chosen.scales_down:
                store = BookStore(self._dependencies.client, self._dependencies.namespace)
                self._removal = MachineRemoval(self._scales, store)
            return
        actuator: NodeActuator
        if chosen.command:
            actuator = CommandActuator(chosen.command, chosen.timeout_seconds)
        else:
            actuator = WebhookActuator(session, chosen.url, chosen.timeout_seconds)
        self.order_by(actuator)

    def order_by(self, actuator: NodeActuator) -> None:
        """Order nodes through this actuator; for embedders with an actuator of their own."""
        store = BookStore(self._dependencies.client, self._dependencies.namespace)
        self._ordering = Ordering(store, actuator, self._settings, self._ordered, permit=self._permit)

    def _permit(self) -> None:
        """Raise `ClusterError` where the operator's own client would: other clients, too, may write only while this
        replica leads."""
        fence = self._dependencies.client.fence
        if fence is not None:
            fence()

    async def _look_safely(self) -> None:
        try:
            await self.look()
        except (ClusterError, InputError) as error:
            self._warn_throttled("provisioning continues later", error)
        except Exception:  # noqa: BLE001 - one object that trips us must not stop scheduling
            _LOG.exception("provisioning failed at a look")

    async def look(self) -> None:
        """Look once: take in changes, plan when the interval has passed, act where that is allowed."""
        now = self._dependencies.clock.now()
        self._history.follow(now)
        if self._ordering is not None:
            await self._ordering.read()
        nodes = self.nodes()
        if self._planning is None and now >= self._next_plan:
            self._next_plan = now + self._settings.interval_seconds
            self._planning = asyncio.create_task(self._plan(nodes, now), name="plan of capacity")
        price, carbon = (float(series[0]) for series in self._prices.at(np.array([now])))
        self._accounts.spend(self._loads(nodes), now, price, carbon)
        self._show(nodes)
        if self._planned is not None and self._settings.mode != "advice":
            await self._act(nodes, self._wanted(self._planned, nodes), now)

    def nodes(self) -> SortedNodes:
        """Return the nodes of known types as they are now."""
        drains = self._dependencies.drains()
        standings = {} if drains is None else drains.standings()
        there = self._dependencies.cache.nodes
        known, unknown = nodes_of(there, self._settings, self._dependencies.clock)
        stopped = self._leaving if self._ordering is None else self._ordering.stopped(there.keys())
        return sorted_nodes(known, unknown, standings, stopped)

    def allowed(self) -> Allowance:
        """Return how many nodes of each type may go; none before the first plan."""
        nodes = self.nodes()
        wanted = {} if self._planned is None else self._wanted(self._planned, nodes)
        open_now = nodes.open
        left = {
            kind.name: max(len(open_now.get(kind.name, ())) - wanted[kind.name], 0) if wanted else 0
            for kind in self._machines
        }
        return Allowance(self._settings.node_type_label, left)

    def _wanted(self, plan: Planned, nodes: SortedNodes) -> dict[str, int]:
        """Return the plan's nodes by type; nodes that only the window keeps count as far as they exist or are
        coming."""
        there = Counter(node.view.kind for node in nodes.counted)
        there += self._coming(nodes, self._dependencies.clock.now())
        least = zip(plan.advice.kinds, plan.least, strict=True)
        return {kind: max(int(count), min(plan.nodes[kind], there[kind])) for kind, count in least}

    async def _plan(self, nodes: SortedNodes, now: float) -> None:
        metrics, started = self._dependencies.metrics, time.perf_counter()
        try:
            made = await asyncio.to_thread(planned, self._settings, self._seen(nodes, now))
            self._take(made, now)
        except InputError as error:
            metrics.provisioning_plans.labels("refused").inc()
            first = self._planned is None
            self._warn_throttled(
                "there is no plan of capacity yet" if first else "the last plan of capacity stays", error
            )
        except Exception:  # noqa: BLE001 - a plan that fails must not stop scheduling; the last one stays
            metrics.provisioning_plans.labels("failed").inc()
            _LOG.exception("capacity could not be planned: the last plan stays")
        finally:
            metrics.provisioning_plan_seconds.observe(time.perf_counter() - started)
            self._planning = None

    def _seen(self, nodes: SortedNodes, now: float) -> Seen:
        dependencies = self._dependencies
        return Seen(
            dependencies.cache.copied(),
            dict(dependencies.pods),
            [node.view for node in nodes.counted],
            nodes.unknown,
            slack_of(dependencies.engine().state, nodes.open_names()),
            self._history.copied(),
            self._underway(nodes, now),
            self._factor,
            self._quiet(nodes, now),
            self._prices.of_steps(now),
            now,
            self._window(nodes, now),
            {node.view.name for node in nodes.counted if now - node.since <= self._settings.boot_deadline_seconds},
        )

    def _window(self, nodes: SortedNodes, now: float) -> Stabilization:
        """Return the recently wanted nodes; for the term before, these are its open nodes and its orders."""
        if self._stabilization is None:
            coming = self._coming(nodes, now)
            there = [float(len(nodes.open.get(kind.name, ())) + coming[kind.name]) for kind in self._machines]
            seconds = self._settings.scale_down_stabilization_seconds
            self._stabilization = Stabilization.beginning(seconds, now, np.array(there))
        return self._stabilization

    def _coming(self, nodes: SortedNodes, now: float) -> Counter[str]:
        """Return how many machines of each type are on their way."""
        if self._ordering is None:
            return Counter()
        coming = self._ordering.coming([node.view for node in nodes.counted], now, nodes.lost)
        return Counter({kind: len(seconds) for kind, seconds in coming.items()})

    def _quiet(self, nodes: SortedNodes, now: float) -> float:
        """Return the seconds since the last machine came; 0 while one is on its way."""
        if self._ordering is not None and self._ordering.orders:
            return 0.0
        return min((now - node.since for node in nodes.counted), default=0.0)

    def _take(self, made: Planned, now: float) -> None:
        metrics = self._dependencies.metrics
        self._planned, self._factor, self._stabilization = made, made.factor, made.stabilization
        metrics.provisioning_plans.labels("planned").inc()
        metrics.provisioning_plan_time.set(time.time())
        metrics.provisioning_plan_cost.set(made.advice.plan.cost)
        metrics.provisioning_hopeless.set(len(made.seen.hopeless))
        metrics.provisioning_factor.set(float(made.factor.factor[0]))
        for kind, parts in zip(made.advice.kinds, made.advice.reasons, strict=True):
            for why, count in zip(("pods", "forecast", "kept", "resting"), parts, strict=True):
                metrics.provisioning_wanted.labels(kind, why).set(count)
        for foreseen, came in self._accounts.score(made.advice, now):
            self._dependencies.note({"now": now, "foreseen": foreseen._asdict(), "came": came})
        wanted = made.nodes
        resting = {kind: int(parts[3]) for kind, parts in zip(made.advice.kinds, made.advice.reasons, strict=True)}
        summary = tuple((kind, count, resting[kind]) for kind, count in wanted.items())
        if summary != self._summary:
            self._summary = summary
            words = (
                f"{count} {kind}" + (f" (and {more} once that type is ordered again)" if more else "")
                for kind, count, more in summary
            )
            _LOG.info("nodes wanted: %s", ", ".join(words))
            self._dependencies.note({"now": now, "wanted": wanted, "reasons": made.advice.reasons.tolist()})

    def _underway(self, nodes: SortedNodes, now: float) -> Underway:
        held: dict[str, list[float]] = {}
        stays = {kind.name: kind.minimum_up_seconds for kind in self._settings.machine_types}
        for node in nodes.counted:
            held.setdefault(node.view.kind, []).append(stays[node.view.kind] - (now - node.since))
        ordering = self._ordering
        if ordering is None:
            return Underway({}, held, frozenset(), nodes.away)
        views = [node.view for node in nodes.counted]
        return Underway(ordering.coming(views, now, nodes.lost), held, ordering.barred(now), nodes.away)

    async def _act(self, nodes: SortedNodes, wanted: Mapping[str, int], now: float) -> None:
        if not self._acts:
            self._log_dry_run(wanted, nodes, now)
            return
        drains = self._dependencies.drains()
        if drains is not None:
            await self._free_or_keep(drains, nodes, wanted, now)
        if self._scales is not None:
            if self._removal is not None:
                # First: here a new leader learns the Machines that no longer count among the replicas.
                await self._take_away(self._removal, self._scales.paths, nodes)
            replicas = self._replicas(nodes, wanted)
            await asyncio.gather(*(self._raise(self._scales, kind, count) for kind, count in replicas.items()))
        if self._ordering is not None:
            await self._open_left(self._ordering)
            await self._ordering.turn(wanted, [node.view for node in nodes.counted], now, nodes.lost, nodes.closed)
            await self._stop(nodes)

    async def _free_or_keep(self, drains: Drains, nodes: SortedNodes, wanted: Mapping[str, int], now: float) -> None:
        """Give back wanted nodes, and hand over the others."""
        standings = drains.standings()
        settled = now - SETTLED_SECONDS * self._dependencies.clock.speed
        for kind, count in wanted.items():
            free = nodes.freed.get(kind, ())
            short = count - len(nodes.open.get(kind, ()))
            for name in (*free, *nodes.freeing.get(kind, ()))[: max(short, 0)]:
                try:
                    await drains.give_back(name, f"{count} nodes of type {kind} are wanted")
                except ClusterError as error:  # A failed write must not hold up other nodes.
                    self._warn_throttled("a node is given back later", error)
            if self._ordering is None and self._removal is None:  # No actuator can choose the node that goes.
                continue
            ripe = [name for name in free[max(short, 0) :] if name in standings and standings[name].since <= settled]
            for name in ripe:
                try:
                    handed = await drains.hand_over(name)
                except ClusterError as error:
                    self._warn_throttled("a node is handed over later", error)
                    continue
                if handed:
                    self._dependencies.metrics.provisioning_stopped.labels(kind).inc()
                    self._emit(name, "Normal", "Stopping", f"free, and {count} nodes of type {kind} are wanted")

    async def _open_left(self, ordering: Ordering) -> None:
        """Uncordon the nodes that `cotide capacity --apply` was emptying: here only consolidation frees nodes."""
        await ordering.read()
        drains = self._dependencies.drains()
        marked = {} if drains is None else drains.standings()
        done: set[str] = set()
        for name in sorted(ordering.cordoned):
            node = self._dependencies.cache.nodes.get(name)
            if node is not None and node.spec.unschedulable and marked.get(name, Standing()).mark is Mark.NONE:
                try:
                    await self._dependencies.client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}})
                except ClusterError as error:
                    self._warn_throttled("a node is given back later", error)
                    continue
                self._emit(name, "Normal", "GivenBack", "uncordoned: cotide capacity --apply was emptying it")
            done.add(name)
        if done:
            await ordering.opened(done)

    async def _stop(self, nodes: SortedNodes) -> None:
        """Switch off the machines that were handed over, unless a pod is on them nevertheless."""
        assert self._ordering is not None  # noqa: S101 - for mypy: called where nodes are ordered
        asked = {node.name: self._stops_asked.get(node.name, float("-inf")) for node in nodes.stopping}
        due = [node for node in nodes.stopping if self._ordering.due_to_stop(node)]
        # The least recently checked nodes come first: a node that a pod holds up is due at each look.
        due = sorted(due, key=lambda node: asked[node.name])[:AT_ONCE]
        self._stops_asked = asked | dict.fromkeys((node.name for node in due), time.monotonic())
        empty = []
        for node in due:
            try:
                empty += [node] if await self._is_free(node.name) is not None else []
            except ClusterError as error:  # Of one node: The others still go.
                self._warn_throttled("a node that should stop stays", error)
        for name, answer in (await self._ordering.stop(empty)).items():
            if answer is Answer.FAILED:
                text = "the actuator can't switch it off: it stays cordoned until a person uncordons it"
                self._emit(name, "Warning", "StopFailed", text)

    def _hold_up(self, node: str, pod: str) -> None:
        """Report the pod that keeps a machine on, once a minute: the check runs every second."""
        if self._is_new(f"stop {node}"):
            self._emit(node, "Warning", "StopHeldUp", f"pod {pod} is on it although it is cordoned")

    async def _take_away(self, removal: MachineRemoval, paths: Mapping[str, str], nodes: SortedNodes) -> None:
        """Delete the Machines of nodes that were handed over, unless a pod is on them nevertheless."""
        if time.monotonic() < self._next_removal:
            return
        self._next_removal = time.monotonic() + REMOVAL_SECONDS
        for kind, path in paths.items():
            machines = await self._free_machines(
                [node_view.name for node_view in nodes.stopping if node_view.kind == kind], path
            )
            if machines:
                self._unmarked.discard(kind)  # Whatever the outcome.
            elif kind in self._unmarked:
                continue
            try:
                done = await removal.remove(path, machines)
            except (ClusterError, InputError) as error:
                self._seen_leaving.discard(kind)
                self._warn_throttled(f"machines of type {kind} are removed later", error)
                continue
            self._seen_leaving.add(kind)
            if done.refused:
                self._warn_throttled(f"machines of type {kind} are removed later", f"{path}: {done.refused}")
            if not machines and done.is_clean and done.lowered is None:
                self._unmarked.add(kind)
            there = self._dependencies.cache.nodes.keys() - machines.keys()
            self._leaving = self._leaving & there | done.leaving
            for machine in done.strange:
                self._warn_throttled(f"Machine {machine} stays", f"it is not of {path}")
            for name in done.marked:
                self._emit(name, "Normal", "MachineMarked", f"Machine {machines[name]} is the next to go")
            if done.lowered is not None:
                self._report_order(kind, "Normal", "ReplicasLowered", f"replicas of type {kind} are {done.lowered} now")
                await removal.announced(path)

    async def _free_machines(self, stopping: Iterable[str], path: str) -> dict[str, str]:
        """Return the Machines of the nodes that are free at this moment."""
        machines: dict[str, str] = {}
        for name in stopping:
            try:
                found = await self._is_free(name)
                if found is not None:
                    machines[name] = machine_of(found, path)
            except (ClusterError, InputError) as error:  # Of one node: The others still go.
                self._warn_throttled("a node that should stop stays", error)
        return machines

    async def _is_free(self, name: str) -> Mapping[str, Any] | None:
        """Return a node that is cordoned and without pods, as the API server has it; None for one that is not.

        A node that was uncordoned, or recreated under the same name, must not be stopped.
        """
        found = await self._dependencies.client.list("/api/v1/nodes", {"fieldSelector": f"metadata.name={name}"})
        found = [checked(item, NodeObject, "node") for item in found]
        if not any((item.get("spec") or {}).get("unschedulable") for item in found):
            return None
        pods = await self._pods_on(name)
        if pods:
            self._hold_up(name, pods[0])
            return None
        return found[0]

    async def _pods_on(self, node: str) -> list[str]:
        """Return the pods that would be lost with a node, as the API server has them."""
        found = await self._dependencies.client.list("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})
        return [name for item in found if (name := _held_by(item))]

    def _replicas(self, nodes: SortedNodes, wanted: Mapping[str, int]) -> dict[str, int]:
        """Return the replicas of each type that lacks machines, where replicas make machines."""
        there = Counter(node.view.kind for node in nodes.counted)
        kinds = () if self._scales is None else self._scales.paths
        # Replicas count all machines, unavailable ones too, except the Machines that no longer count among the
        # replicas. When these are unknown, as after a write without an answer, the result is too low rather than too
        # high.
        removes = self._removal is not None and self._acts
        unseen = {kind for kind in kinds if removes and kind not in self._seen_leaving}
        going = Counter(node.kind for node in nodes.stopping if node.name in self._leaving or node.kind in unseen)
        return {
            kind: wanted[kind] + nodes.away.get(kind, 0) - going[kind] for kind in kinds if wanted[kind] > there[kind]
        }

    async def _raise(self, scales: ScaleSubresource, kind: str, replicas: int) -> None:
        """Raise the replicas of one type; a failure is logged and holds up no other type."""
        try:
            raised = await scales.raise_to(kind, replicas)
        except ClusterError as error:
            self._warn_throttled(f"replicas of type {kind} are raised later", error)
            return
        if raised:
            self._report_order(kind, "Normal", "ReplicasRaised", f"replicas of type {kind} are {replicas} now")
            self._dependencies.metrics.provisioning_orders.labels(kind, "NodeOrdered").inc()

    def _log_dry_run(self, wanted: Mapping[str, int], nodes: SortedNodes, now: float) -> None:
        """Log what acting would send."""
        todo = [f"raise {kind} to {replicas}" for kind, replicas in self._replicas(nodes, wanted).items()]
        if self._ordering is not None:
            views = [node.view for node in nodes.counted]
            sent = self._ordering.would(wanted, views, now, nodes.lost, nodes.closed)
            todo += [f"{node_instruction.action.value} {node_instruction.subject}" for node_instruction in sent]
        if todo:
            self._warn_throttled("dry run", f"would send: {', '.join(todo)}")

    def _ordered(self, reason: str, order: NodeOrder, message: str) -> None:
        """Report the outcome of an order."""
        metrics, now = self._dependencies.metrics, self._dependencies.clock.now()
        metrics.provisioning_orders.labels(order.kind, reason).inc()
        if reason == "NodeCame":
            metrics.provisioning_boot_seconds.observe(now - order.since)
            self._accounts.switched(order.kind)
        if reason == "NodeLate":
            message = self._mistyped(order) or message
        bad = reason in ("NodeFailed", "NodeLate")
        self._report_order(order.id, "Warning" if bad else "Normal", reason, message)

    def _mistyped(self, order: NodeOrder) -> str:
        """Return a message if a late order's node came without a known type; otherwise an empty string."""
        label, kinds = self._settings.node_type_label, {kind.name for kind in self._machines}
        for name, node in self._dependencies.cache.nodes.items():
            labels = node.metadata.labels
            if labels.get(ORDER_LABEL) == order.id and labels.get(label) not in kinds:
                has = f"{label} is {labels[label]!r}" if label in labels else f"{label} is not set"
                return f"{name} came, but its label {has}, which is no machine type: the order is cancelled"
        return ""

    def _report_order(self, subject: str, kind: str, reason: str, message: str) -> None:
        key = f"{self._dependencies.namespace}/{CONFIG_MAP}"
        self._dependencies.recorder.node_order(key, subject, kind, reason, message)
        self._dependencies.note(
            {"now": self._dependencies.clock.now(), "order": subject, "did": reason, "why": message}
        )

    def _emit(self, node: str, kind: str, reason: str, message: str) -> None:
        found = self._dependencies.cache.nodes.get(node)
        if found is not None:
            self._dependencies.recorder.node(node, found.metadata.uid, kind, reason, message)
        self._dependencies.note({"now": self._dependencies.clock.now(), "node": node, "did": reason, "why": message})

    def _loads(self, nodes: SortedNodes) -> dict[str, list[float]]:
        """Return by type the share of cpu that pods request on each machine that is on."""
        columns = self._dependencies.engine().state.columns
        loads: dict[str, list[float]] = {kind.name: [] for kind in self._machines}
        for view in (*(node.view for node in nodes.counted), *nodes.stopping):
            row = columns.row_of.get(view.name)
            has = 0 if row is None else int(columns.allocatable[CPU_COLUMN, row])
            free = 0 if row is None else int(columns.free[CPU_COLUMN, row])
            loads[view.kind].append(1.0 - free / has if has else 0.0)
        return loads

    def _show(self, nodes: SortedNodes) -> None:
        orders = () if self._ordering is None else self._ordering.orders
        for kind in self._machines:
            name = kind.name
            for what, count in (
                ("open", len(nodes.open.get(name, ()))),
                ("freeing", len(nodes.freeing.get(name, ()))),
                ("freed", len(nodes.freed.get(name, ()))),
                ("stopping", sum(node_view.kind == name for node_view in nodes.stopping)),
                ("coming", sum(order.kind == name for order in orders)),
                ("away", nodes.away.get(name, 0)),
                ("off", nodes.off.get(name, 0)),
            ):
                self._dependencies.metrics.provisioning_nodes.labels(name, what).set(count)

    def _warn_throttled(self, what: str, error: CotideError | str) -> None:
        """Log an error, each kind at most once a minute: an outage must not fill the log."""
        if self._is_new(what):
            hint = ""
            if isinstance(error, ApiError) and error.status == 403:
                hint = " (deploy/provisioning grants the rights)"
            _LOG.warning("%s: %s%s", what, error, hint)

    def _is_new(self, what: str) -> bool:
        """Whether this was not reported within the last minute; older reports are forgotten."""
        now = time.monotonic()
        self._warned = {key: at for key, at in self._warned.items() if now - at < COMPLAIN_SECONDS}
        return self._warned.setdefault(what, now) == now


def _held_by(found: Any) -> str:
    """Return the name of a pod that would be lost with its node, otherwise an empty string.

    An unreadable pod might be lost: it holds its node, and no other.
    """
    try:
        pod = typed(found, PodObject, "pod")
    except OddObjectError:
        return f"{named(found, 'pod').removeprefix('pod ')}, which can't be read,"
    if pod.status.phase in ("Succeeded", "Failed") or comes_with_node(pod):
        return ""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
