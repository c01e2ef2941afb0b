"""`Consolidator`: continuous consolidation on the leading replica.

`assembly` starts it. Every second it checks whether pods wait, and at each interval it plans::

    cache, engine --copies--> live_plan (a thread) --plan--> Watch.decide --acts--> Carrier --> API server --> cache
                                                                  ^                                             |
                                                                  `---- marks and records of the nodes <--------'

Decisions are `removal.watching.Acts`. Drains run in the same `Carrier` as ``cotide consolidate --apply``, with a task
for each node. When pods wait that one of our nodes could take, that node is given back at once. Where that is not
enough, running drains are undone. A stop undoes drains before the lease is given up. The next operator's first pass
uncordons nodes that a killed operator left draining. Where consolidation is turned off, the operator also uncordons the
nodes of an earlier consolidating operator.

Where capacity is planned (`provisioning.controller`), that controller sets how many nodes of each kind may go, takes
over freed ones to switch them off, and asks for others back. Invariants: a node without our record, or a node that was
handed over, is never uncordoned. No drain starts while pods wait in vain. A refused write ends only its own drain.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cotide_core.consolidation.removal.drain_plan import Freed
from cotide_core.consolidation.removal.wanted import WantedNodes
from cotide_core.consolidation.removal.watching import (
    Acts,
    Allowance,
    ClusterView,
    Mark,
    Standing,
    Watch,
    moves_left,
    within,
)
from cotide_core.cycle import Scheduler
from cotide_core.errors import ClusterError, CotideError
from cotide_core.events import Pod
from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import WaitReason
from cotide_core.units import counted
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_operator.cache.decision_store import DecisionStore
from cotide_operator.cache.fair_queue import FairQueue
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.config.consolidation_settings import ConsolidationSettings
from cotide_operator.consolidation.carrier import ENDED, Carrier, is_unschedulable
from cotide_operator.consolidation.drain_client import DrainClient
from cotide_operator.consolidation.live_plan import LivePlan, engine_view_of, plan_of
from cotide_operator.consolidation.node_record import left_behind
from cotide_operator.consolidation.predictions import Predictions
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.event_recorder import EventRecorder

_LOG = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
"""Wall seconds between two checks for waiting pods; chosen: the longest time that a pod waits for a node of ours."""
MAX_WAITING: Final = 500
"""Waiting pods in one check; the next check takes the next ones. Chosen: 20 to 30 ms."""
MAX_DEMANDS: Final = 2000
"""Label and volume demands of these pods, after which the check ends. Chosen: each is asked of all nodes, which takes
10 us where there are 5,000."""
CLAIM_DEMANDS: Final = 20
"""Additional demands that a volume claim counts as; chosen by the time of its answer for all nodes."""
CAPACITY: Final = frozenset({WaitReason.QOS_AT_RISK, WaitReason.INSUFFICIENT_SLACK, WaitReason.NO_MATCHING_NODE})
"""Reasons of a waiting pod that another node could help."""
UNDO_SECONDS: Final = 5.0
"""Wall seconds for the undo at a stop; chosen below the time that the lease is held."""


@dataclass(frozen=True, slots=True)
class ConsolidationDependencies:
    """The parts of the operator that consolidation uses.

    Attributes
    ----------
    engine : the present scheduler. pods : the pods in its state. forecaster : of latency limits, as in use.
    note : keeps a line about an action or the outcome of a prediction (`consolidation.jsonl`).
    allowed : how many nodes may go; None without planned capacity, when all may.
    """

    client: KubeClient
    cache: ObjectCache
    decisions: DecisionStore
    clock: Clock
    recorder: EventRecorder
    metrics: Metrics
    engine: Callable[[], Scheduler]
    pods: Mapping[str, Pod]
    forecaster: Callable[[], QosForecaster]
    note: Callable[[Mapping[str, Any]], object]
    scheduler_names: tuple[str, ...]
    risk_threshold: float
    slot_seconds: float
    allowed: Callable[[], Allowance] | None = None


class Consolidator:
    """One term of leadership; see the module."""

    def __init__(self, dependencies: ConsolidationDependencies, settings: ConsolidationSettings) -> None:
        self._dependencies, self._settings = dependencies, settings
        self._drain_client = DrainClient(dependencies.client, dependencies.cache, dependencies.clock, self._undone)
        # The planner of capacity also decides how many nodes are spare.
        pace = settings.pace() if dependencies.allowed is None else replace(settings.pace(), spare_nodes=0)
        self._watch = Watch(pace)
        self._turn = asyncio.Lock()
        """Held by every task that decides about nodes: a node must not be handed over while it is given back."""
        self._goes: set[str] = set()
        self._carrier = Carrier(
            self._drain_client,
            timeout_seconds=settings.timeout_seconds,
            now=dependencies.clock.now,
            sleep=self._drain_client.sleep,
            goes=self._goes,
            say=_LOG.info,
        )
        self._drains: dict[str, asyncio.Task[None]] = {}
        self._further: dict[str, int] = {}
        """Further pods that may be on their way at once, beyond one, by drained node."""
        self._left: set[str] = set()
        """Nodes that were given back since consolidation is turned off; the cache shows it later."""
        self._wanted = WantedNodes()
        self._unseen: FairQueue[str] = FairQueue()
        """Pods that were without a node at the start of the round, and get their turn before any pod has a second
        one."""
        self._hope = False
        """Whether an empty node of the cluster could take any of the pods that were checked since then."""
        self._next_plan = float("-inf")
        self._forecasters: tuple[QosForecaster, QosForecaster] | None = None
        """The one in use, and its copy for plans."""
        self._warned = float("-inf")
        self.predictions = Predictions(
            self._scored, horizon_seconds=dependencies.slot_seconds, pays_after_seconds=settings.pays_after_seconds
        )

    async def run(self) -> None:
        """Work until cancelled."""
        if not self._settings.enabled:
            while left_behind(self._dependencies.cache):  # a refused write is tried again
                await self._leave()
                await asyncio.sleep(POLL_SECONDS)
            return
        await self._drain_client.index()
        while True:
            try:
                await self.look()
            except ClusterError as error:
                self._warn_throttled(error)
            except Exception:  # noqa: BLE001 - one faulty object must not stop scheduling
                _LOG.exception("a pass of consolidation failed")
            await asyncio.sleep(POLL_SECONDS)

    async def stop(self) -> None:
        """Undo running drains; no new one starts."""
        drains = list(self._drains.values())
        for drain in drains:
            drain.cancel()
        if drains:
            await asyncio.wait(drains, timeout=UNDO_SECONDS)

    def standings(self) -> dict[str, Standing]:
        """Return the nodes with a record of ours."""
        return self._drain_client.standings()

    async def hand_over(self, node: str) -> bool:
        """Mark a freed node permanently as handed over for switching off; False when it is not free any more.

        Raises
        ------
        ClusterError
            When the mark can't be written: then the node must stay on.
        """
        async with self._turn:
            standing = self._drain_client.standings().get(node)
            if not self._settings.enabled or standing is None or standing.mark is not Mark.FREED or standing.pods:
                return False
            await self._drain_client.write(node, Mark.STOPPING, cordoned=True)
            return True

    async def give_back(self, node: str, why: str) -> None:
        """Open a node again that is being freed, or was; one that was handed over stays as it is."""
        async with self._turn:
            drain = self._drains.get(node)
            if drain is not None:
                drain.cancel()
                await asyncio.wait([drain], timeout=UNDO_SECONDS)
                return
            standing = self._drain_client.standings().get(node)
            if standing is not None and standing.mark in (Mark.FREED, Mark.EMPTYING):
                self.predictions.gave_up(node, self._dependencies.clock.now(), late=False)
                await self._drain_client.write(node, Mark.NONE, cordoned=False)
                self._emit(node, "Normal", "GivenBack", f"uncordoned: {why}")

    async def look(self) -> None:
        """Run one pass: give nodes back, and plan when the interval is over."""
        async with self._turn:
            await self._look()

    async def _look(self) -> None:
        dependencies, now = self._dependencies, self._dependencies.clock.now()
        for name in self._drain_client.taken_out_of_our_hands():
            await self._write(name, Mark.NONE, cordoned=False)
        standings = self._drain_client.standings()
        idle = {name for name, standing in standings.items() if standing.mark not in (Mark.NONE, Mark.STOPPING)}
        ours = [name for name in standings if name in idle and name not in self._drains]
        waiting = self._waiting()
        wanted, hope, uncovered = self._wanted.of(dependencies.engine().state, waiting, ours)
        self._hope |= hope
        if uncovered and self._drains:
            self._drain_client.demanded = True
            await self.stop()
            self._drain_client.demanded = False
            standings = self._drain_client.standings()
        planned = None
        if now >= self._next_plan and not self._unseen and not self._hope:
            self._next_plan = now + self._settings.interval_seconds
            try:
                planned = await self._plan(now)
            except CotideError as error:  # due steps for our nodes are done all the same
                self._warn_throttled(error)
        draining = frozenset(self._drains)
        plan = None if planned is None else planned.plan
        if plan is not None and dependencies.allowed is not None:
            allowed = dependencies.allowed()
            state = dependencies.engine().state
            named = {freed.node for freed in plan.freed} | {emptying.node for emptying in plan.emptying}
            plan = within(plan, allowed, {name: allowed.kind_of(state.node(name)) for name in named})
        further = sum(self._further.values())
        acts = self._watch.decide(ClusterView(now, plan, standings, draining, further, wanted))
        await self._act(acts, planned)
        self._follow(now)
        self._show()

    def _waiting(self) -> list[Pod]:
        """Return pods that no node would take by the engine or another scheduler; of many, the next ones.

        All have their turn before one has another, and namespaces take turns. So pods that no node of ours helps do not
        delay the check of others.
        """
        pods = self._dependencies.cache.pods
        if not self._unseen:
            self._hope = False
            for waiting, pod in pods.items():
                if not pod.spec.node_name:
                    self._unseen.add(waiting, pod.metadata.namespace)
        found: list[Pod] = []
        demands = 0
        while len(found) < MAX_WAITING and demands < MAX_DEMANDS and (key := self._unseen.pop()) is not None:
            item, known = pods.get(key), self._dependencies.pods.get(key)
            if known is None or item is None or item.spec.node_name or not self._refused(key, item):
                continue
            found.append(known)
            demands += _demands(known)
        return found

    def _refused(self, key: str, pod: PodObject) -> bool:
        if pod.metadata.deletion_timestamp is not None or pod.status.phase in ENDED:
            return False
        if pod.spec.scheduler_name in self._dependencies.scheduler_names:
            decision = self._dependencies.decisions.get(key)
            return decision is not None and decision.node is None and decision.reason in CAPACITY
        return is_unschedulable(pod)

    async def _plan(self, now: float) -> LivePlan:
        dependencies = self._dependencies
        engine_view = engine_view_of(dependencies.engine().state, self._forecaster(), dependencies.risk_threshold, now)
        started = time.perf_counter()
        planned = await asyncio.to_thread(
            plan_of,
            dependencies.cache.copied(),
            dict(dependencies.pods),
            engine_view,
            self._spared(),
            now,
            tuple(self._drains),
        )
        dependencies.metrics.consolidation_plan_seconds.observe(time.perf_counter() - started)
        for view, nodes in (
            ("used", planned.plan.used_before),
            ("after", planned.plan.used_after),
            ("least", planned.plan.fewest),
        ):
            dependencies.metrics.consolidation_plan_nodes.labels(view).set(nodes)
        self._goes.clear()
        self._goes.update(planned.goes)
        for key, (uid, p50, p90) in planned.ending.items():
            self.predictions.ends(key, uid, p50, p90, now)
        for refusal in planned.refused:
            self.predictions.refused(refusal, now)
        return planned

    def _forecaster(self) -> QosForecaster:
        """Return a copy for the plan's thread: a forecaster caches its last results, which the engine uses, too."""
        used = self._dependencies.forecaster()
        if self._forecasters is None or self._forecasters[0] is not used:
            self._forecasters = used, copy.deepcopy(used)
        return self._forecasters[1]

    def _spared(self) -> ConsolidationSettings:
        """Return settings that leave out the kinds of nodes that must not go: they may take pods all the same."""
        if self._dependencies.allowed is None:
            return self._settings
        allowed = self._dependencies.allowed()
        full = tuple(kind for kind, left in allowed.left.items() if left <= 0)
        excluded = dict(self._settings.excluded_nodes)
        excluded[allowed.label] = (*excluded.get(allowed.label, ()), *full)
        return self._settings.model_copy(update={"excluded_nodes": excluded})

    async def _act(self, acts: Acts, planned: LivePlan | None) -> None:
        now = self._dependencies.clock.now()
        for back in acts.give_back:
            if not await self._write(back.node, Mark.NONE, cordoned=False, demanded=back.demanded):
                continue
            self.predictions.gave_up(back.node, now, late=back.late)
            self._emit(back.node, "Warning" if back.demanded else "Normal", "GivenBack", f"uncordoned: {back.why}")
        for name in acts.freed:
            if await self._write(name, Mark.FREED, cordoned=True):
                self.predictions.emptied(name, now)
                self._freed(name, "it emptied by itself")
        for emptying in acts.leave:
            forecast = (emptying.p50_seconds, emptying.p90_seconds)
            if not await self._write(emptying.node, Mark.EMPTYING, cordoned=True, forecast=forecast):
                continue
            self.predictions.empties(emptying.node, *forecast, now)
            self._emit(
                emptying.node,
                "Normal",
                "LeftToEmpty",
                f"cordoned: will be empty in {emptying.p50_seconds / 60:.0f} min, "
                f"p90 {emptying.p90_seconds / 60:.0f} min",
            )
        for step in acts.drain:
            if planned is not None and step.node not in self._drains:
                uids = {move.pod: planned.uids[move.pod] for move in step.moves}
                self._further[step.node] = max(0, step.at_once - 1)
                self._drains[step.node] = asyncio.create_task(self._drain(step, uids), name=f"drain {step.node}")

    async def _write(self, node: str, mark: Mark, *, cordoned: bool, **more: Any) -> bool:
        """Write to one node; a refusal is logged, and other nodes and the next pass go on."""
        try:
            await self._drain_client.write(node, mark, cordoned=cordoned, **more)
        except ClusterError as error:
            self._warn_throttled(error)
            return False
        return True

    async def _drain(self, step: Freed, uids: Mapping[str, str]) -> None:
        moves = self._dependencies.metrics.consolidation_moves
        try:
            if step.moves:
                self._emit(step.node, "Normal", "Draining", f"cordoned: {counted(len(step.moves), 'pod')} to move")
            carried = await self._carrier.carry_out((step,), uids)
            moves.labels("moved").inc(len(carried.moved))
            if carried.surprise:
                moves.labels("surprise").inc()
                self._emit(step.node, "Warning", "DrainStopped", carried.surprise)
            else:
                self._freed(step.node, f"{counted(len(step.moves), 'pod')} moved" if step.moves else "it was empty")
        except CotideError as error:
            moves.labels("surprise").inc()
            self._warn_throttled(error)
        finally:
            self._drains.pop(step.node, None)
            self._further.pop(step.node, None)

    def _freed(self, node: str, why: str) -> None:
        self._dependencies.metrics.consolidation_freed.inc()
        self._emit(node, "Normal", "Freed", f"free and cordoned: {why}")

    def _undone(self, _node: str, demanded: bool) -> None:
        """Count a node that is open again."""
        self._dependencies.metrics.consolidation_given_back.labels("demand" if demanded else "other").inc()

    def _emit(self, node: str, kind: str, reason: str, message: str) -> None:
        found = self._dependencies.cache.nodes.get(node)
        if found is not None:
            self._dependencies.recorder.node(node, found.metadata.uid, kind, reason, message)
        self._dependencies.note({"now": self._dependencies.clock.now(), "node": node, "did": reason, "why": message})

    def _follow(self, now: float) -> None:
        """Score the open predictions."""
        for name, standing in self._drain_client.standings().items():
            if standing.mark is Mark.EMPTYING:  # also from an earlier operator
                self.predictions.empties(name, standing.p50_seconds, standing.p90_seconds, standing.since)
        self.predictions.follow_pods(*self._pods_of_predictions(), now)
        state = self._dependencies.engine().state
        used, fresh = state.host_load.used(now, self._dependencies.slot_seconds)
        loads = used + state.host_load.batch_load(now)
        rows = state.columns.row_of
        known = {name: row for name in self.predictions.loads() if (row := rows.get(name)) is not None and fresh[row]}
        self.predictions.follow_loads(
            {name: (float(loads[0, row]), float(loads[1, row])) for name, row in known.items()}, now
        )  # fmt: skip

    def _pods_of_predictions(self) -> tuple[dict[str, str], dict[str, str]]:
        running: dict[str, str] = {}
        ended: dict[str, str] = {}
        for key in self.predictions.pods():
            pod = self._dependencies.cache.pods.get(key)
            if pod is not None:
                (ended if pod.status.phase in ENDED else running)[key] = pod.metadata.uid
        return running, ended

    def _scored(self, kind: str, subject: str, outcome: str, figures: Mapping[str, Any]) -> None:
        self._dependencies.metrics.consolidation_predictions.labels(kind, outcome).inc()
        self._dependencies.note(
            {"now": self._dependencies.clock.now(), "predicted": kind, "of": subject, "came": outcome, **figures}
        )  # fmt: skip

    def _show(self) -> None:
        standings = self._drain_client.standings()
        for mark in (Mark.DRAINING, Mark.EMPTYING, Mark.FREED):
            count = sum(standing.mark is mark for standing in standings.values())
            self._dependencies.metrics.consolidation_nodes.labels(mark.value).set(count)
        left = moves_left(standings, self._dependencies.clock.now(), self._settings.moves_per_hour)
        self._dependencies.metrics.consolidation_moves_left.set(left)

    async def _leave(self) -> None:
        """Give back the nodes of an earlier consolidating operator, because this one does not consolidate.

        Nodes that were handed over for switching off stay: their machine may go at any moment.
        """
        standings = self._drain_client.standings()
        opened = set(self._drain_client.taken_out_of_our_hands())
        for name in left_behind(self._dependencies.cache):
            mark = standings[name].mark if name in standings else Mark.NONE
            if (mark is Mark.STOPPING and name not in opened) or name in self._left:
                continue
            if await self._write(name, Mark.NONE, cordoned=False):
                self._left.add(name)
                self._emit(name, "Normal", "GivenBack", "uncordoned: consolidation is turned off")

    def _warn_throttled(self, error: CotideError) -> None:
        """Log an error at most once a minute: an outage must not fill the log."""
        if time.monotonic() - self._warned >= 60.0:
            self._warned = time.monotonic()
            hint = ""
            if isinstance(error, ApiError) and error.status == 403:
                hint = " (deploy/consolidation grants the right to patch nodes)"
            _LOG.warning("consolidation continues later: %s%s", error, hint)


def _demands(pod: Pod) -> int:
    """Return the number of demands that a pod asks of all nodes."""
    terms = (*pod.node_terms, *(term for volume in pod.volume_terms for term in volume))
    volumes = sum(CLAIM_DEMANDS + len(claim.volumes) for claim in pod.open_claims) + CLAIM_DEMANDS * len(
        pod.volume_terms
    )
    return len(pod.node_selector) + sum(len(term.labels) + len(term.fields) for term in terms) + volumes
