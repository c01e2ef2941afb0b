"""The engine: events in, instructions out.

`Scheduler.handle(events, now)` is called by the live loop and by the simulator alike, one cycle at a time::

    events -> state and queue -> wake-ups -> snapshot -> (pop -> place -> assume)* -> forecasts of the binds ->
    instructions

Every bind is assumed at once, so that the next decision sees it; a later event confirms or refuses it. The engine never
reads a clock and draws only from the generator that its seed made. The same calls therefore give the same instructions,
byte for byte.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Sequence

from cotide_core.config import SchedulerConfig
from cotide_core.events import (
    BindRefused,
    Event,
    EvictRefused,
    ModelsChanged,
    MoreToCome,
    NamespaceDeleted,
    NamespaceUpserted,
    NodeUpserted,
    Pod,
    PodDeleted,
    PodUpserted,
    RunTimesForecasted,
    ServiceSampled,
    WorkloadDeleted,
    WorkloadUpserted,
)
from cotide_core.forecasting.own_models import completion_by_namespace, qos_by_namespace
from cotide_core.forecasting.run_time_cache import PodRunTimeForecasts, RunTimes
from cotide_core.forecasting.shared_decision import SharedDecision
from cotide_core.forecasting.start_estimates import start_steps
from cotide_core.forecasts import CompletionForecaster, ModelCatalogue, QosForecaster
from cotide_core.instructions import Evict, EvictCause, Instruction, Wait, WaitReason
from cotide_core.placement.assumptions import Assumptions
from cotide_core.placement.bind_instructions import DecidedBind, bind_instructions, is_at_risk
from cotide_core.placement.capacity import Capacity
from cotide_core.placement.exploration import Exploration
from cotide_core.placement.placer import LOOKAHEAD, Placement, Placer
from cotide_core.placement.queueing_hints import QueueingHints
from cotide_core.placement.refusal_messages import sentence
from cotide_core.placement.wait_instructions import Room, refusal, wait
from cotide_core.planning.gang_reservation import GangReservation
from cotide_core.planning.gang_start import GangStarts
from cotide_core.planning.planner import PlannedStart, PlannerContext, planner_of
from cotide_core.policies import build_policy
from cotide_core.queueing.arrivals import is_irrelevant_update, is_schedulable
from cotide_core.queueing.deferred_pods import DeferredPods
from cotide_core.queueing.gangs import Gangs
from cotide_core.queueing.ordering import FairOrder
from cotide_core.queueing.queued_pod import QueuedPod, QueueState
from cotide_core.queueing.scheduling_queue import SchedulingQueue
from cotide_core.queueing.stepwise import finished
from cotide_core.reclaiming.overload_monitor import Alarms
from cotide_core.reclaiming.registry import capacity_of
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.fair_usage import FairUsage
from cotide_core.state.namespace_use import namespace_of
from cotide_core.state.pod_matches import COUNTERS_KEPT
from cotide_core.state.shapes import Shape, ShapeTable
from cotide_core.state.snapshot import Snapshot
from cotide_core.units import noun_of

__all__ = ["Scheduler", "SchedulerConfig"]

SHAPES_KEPT = 1024
"""Number of remembered shapes before those without a waiting pod are dropped (chosen: 6 MB with all caches). If more
are in use, the next limit is twice their number, so that the cost of a search through the queue per new shape stays
constant.
"""


class Scheduler:
    """Decides where pods run.

    Parameters
    ----------
    config : the knobs; fixed for the life of the engine.
    catalogue : where the forecasters of a `ModelsChanged` event are found; its models for the empty id apply until
        then.
    state : empty; passed if others read it already. Its own by default.

    Attributes
    ----------
    state : the cluster as the engine knows it; read only.
    gangs : the gangs of its pods; read only.
    """

    def __init__(self, config: SchedulerConfig, catalogue: ModelCatalogue, state: ClusterState | None = None) -> None:
        self.config = config
        self.state = ClusterState() if state is None else state
        self._catalogue = catalogue
        self.state.matches.defaults.constraints = config.default_spreads
        self._placer = Placer(build_policy(config), Exploration(config.exploration), config.seed)
        policy = self._placer.policy
        fair = policy.order if isinstance(policy.order, FairOrder) else None
        if fair is not None:
            self.state.namespaces.usage = FairUsage(fair.half_life_seconds)
        self._queue = SchedulingQueue(policy.order, config, self.state.namespaces)
        self._shapes = ShapeTable(
            by_class=policy.capacity is Capacity.SLACK,
            by_job=policy.tells_jobs_apart,
            by_namespace=fair is not None,
            by_priority=config.preempts_by_priority,
        )
        self._shapes_kept = SHAPES_KEPT
        self._follows_run_time = policy.follows_run_time
        self._qos = catalogue.qos("")
        self._pod_forecasts = PodRunTimeForecasts()
        self._run_times = RunTimes(catalogue.completion(""), self._pod_forecasts, self.state.pod_count)
        # Estimates for statuses have their own cache: reading them must not change the inputs of decisions.
        self._estimates = RunTimes(self._run_times.forecaster, self._pod_forecasts, self.state.pod_count)
        self._stretched: dict[str, float] = {}
        self.gangs = Gangs(self.state, self._queue)
        self._capacity = capacity_of(config, self.state, self._placer, self._stretched, self.gangs.mates)
        self._watches_latencies = self._capacity.watches_latencies
        self._assumptions = Assumptions(self.state, self._queue)
        context = PlannerContext(
            self.state, self._placer, self._queue, self._capacity, self._assumptions, self.gangs, self._shape_now
        )
        self._gang_starts = GangStarts(context, self._capacity)
        self._planner = planner_of(policy.plan, context, self._run_times, config)
        self._reservation = GangReservation(context, self._run_times, config)
        self._capacity.kept_off = self._reservation.kept_off
        self._failures: dict[Shape, Placement] = {}
        self._wakes = QueueingHints(self.state, self._placer, self._queue, self._failures)
        self._snapshot = Snapshot.of(self.state)
        self._arrivals: dict[str, QueuedPod] = {}
        self._nominated: list[QueuedPod] = []
        """Arrivals that made room in an earlier run."""
        self._deferred = DeferredPods()
        self._is_part = False
        """Whether more events must come before any decision."""
        self._resources_seen = self.state.columns.resource_generation
        self._matches_kept = COUNTERS_KEPT
        self._handling: Event | Pod | None = None
        self._sequence = 0
        self._now = 0.0
        self._out: list[Instruction] = []

    @property
    def handling(self) -> str:
        """Key of the object in process; the caller excludes it when `handle` raises. Empty for none."""
        return "" if self._handling is None else _key_of(self._handling)

    def handle(self, events: Sequence[Event], now: float) -> list[Instruction]:
        """Process the events and make all possible decisions.

        Parameters
        ----------
        events : in chronological order; may be empty if only time passed.
        now : seconds of the driver's clock; never falls from call to call.

        Returns
        -------
        list of Instruction
            Evicts, Waits and Binds (already assumed), each pod at most once. After `MoreToCome` Waits of pods that
            can't be tried.
        """
        self._out = []
        self._is_part = False
        self._now = now
        self._handling = None
        self._placer.renew()
        self.state.matches.begin()
        self._take_deferred()
        self.state.expire_rates(now)
        usage = self.state.namespaces.usage
        if usage is not None:
            usage.advance(now, self.state.columns.offered())
        self._expire(now)
        reopened = self.state.reopen(now)
        for event in events:
            self._handling = event
            self._apply(event, now)
        self._handling = None
        self.state.estimate_rates()
        if usage is not None:  # nodes may have come
            usage.advance(now, self.state.columns.offered())
        if self.state.columns.resource_generation != self._resources_seen:
            self._reshape()
        if self.state.matches.has_changed or self.state.matches.defaults.changed:
            self._regroup()
        if self.state.images.changed:
            self._follow_images()
        self._planner.take(events)
        if reopened:
            self._planner.reopen()
        self._enqueue(now)
        if not self._is_part:
            self._decide_all(now)
        return self._out

    def _decide_all(self, now: float) -> None:
        """Make all possible decisions, after all events are processed."""
        self._queue.advance(now)
        self._emit_displaced()
        self._out.extend(self._capacity.begin(now, self._qos))
        if self.gangs.members:
            self.gangs.settle(now)
            self._release_gangs(now)
        for key in self._capacity.take_awaited():
            self._queue.wake_pod(key, now)
        snapshot = self._view()
        for shape in self._capacity.outranking(self._queue.parked_shapes(), snapshot):
            self._queue.wake(shape, now, urgent=True)
        self._renew_reservation(snapshot, now)
        self._wakes.wake(snapshot, now, self._qos)
        binds = self._decide(snapshot, now)
        policy = self._placer.policy
        threshold = self.config.qos_risk_threshold
        at_risk = {bind.node: bind.entry.pod.key for bind in binds if is_at_risk(bind, threshold)}
        self._out.extend(self._capacity.arrived(at_risk, self._qos, now))
        made = bind_instructions(binds, self._run_times.forecaster, self._qos.model_id, policy.name, threshold)
        for bind in made:
            if bind.forecast.seconds_p50 is not None:
                self._stretched[bind.key] = bind.forecast.seconds_p50
        if self.gangs.members:
            self._evict_whole_gangs(now)
        self._out.extend(made)

    def _renew_reservation(self, snapshot: Snapshot, now: float) -> None:
        """Keep room for the next gang, and try the pods again that are no longer kept off."""
        again = self._reservation.renew(snapshot, now)
        if again:
            self._gang_starts.forget()
        for shape in again:
            shape.failed_at = -1
            self._queue.wake(shape, now, urgent=True)

    @property
    def qos_forecaster(self) -> QosForecaster:
        """Return the forecaster of latency limits in use."""
        return self._qos

    @property
    def follows_run_time(self) -> bool:
        """Whether jobs are placed by forecasts up to their own end, so that longer horizons than a slot are used."""
        return self._follows_run_time

    @property
    def completion_forecaster(self) -> CompletionForecaster:
        """Return the forecaster of run times in use, for jobs without a reported run time."""
        return self._run_times.forecaster

    def next_wakeup(self, now: float) -> float | None:
        """Return when `handle` should be called again even without an event: now if work remains, None for never."""
        queue = self._queue.next_wakeup(now)
        if queue is not None and queue <= now:
            return queue
        if self._deferred or self._wakes.has_put_off:
            return now
        due = math.inf if queue is None else queue
        assumed = self.state.oldest_assumption()
        if assumed is not None:
            due = min(due, max(now, assumed + self.config.assume_timeout_seconds))
        if self.state.refusals.by_node and self._queue:
            due = min(due, max(now, self.state.refusals.next_change()))
        due = min(due, self._capacity.next_change(now), self._planner.next_change(now), self._wakes.next_change(now))
        if self.gangs.members:
            due = min(due, self.gangs.next_change(now), self._reservation.next_change(now))
        return due if due < math.inf else None

    @property
    def alarms(self) -> Alarms:
        """Nodes that are overloaded or cordoned, as of the last `handle`."""
        return self._capacity.alarms

    def pending(self) -> dict[str, int]:
        """Return how many pods wait, by queue: active, backoff, unschedulable, gated."""
        sizes = self._queue.sizes()
        sizes["active"] += len(self._deferred)
        return sizes

    def queue_positions(self) -> dict[str, int]:
        """Return the rank of each waiting pod in the policy's order, 1 for the next; gated pods have none."""
        return finished(self.outlook_steps(self._now))[0]

    def predicted_starts(self, now: float) -> dict[str, float]:
        """Return when waiting pods may start, coarsely (see `starts`); pods without an estimate are absent. A planning
        policy returns its plan for batch and gratis pods.
        """
        return finished(self.outlook_steps(now))[1]

    def outlook_steps(self, now: float) -> Generator[None, None, tuple[dict[str, int], dict[str, float]]]:
        """Return positions and predicted starts, in steps; `handle` must not be called between them."""
        order = yield from self._queue.order_steps(now)
        yield
        positions = {entry.pod.key: index for index, entry in enumerate(order, start=1)}
        yield
        starts = (yield from self._start_steps(order, now)) if order else {}
        return positions, starts

    def _start_steps(self, order: Sequence[QueuedPod], now: float) -> Generator[None, None, dict[str, float]]:
        waiting = [entry for entry in order if not self._planner.plans(entry.shape)]
        waiting = [entry for entry in waiting if entry.queue_state is not QueueState.CAPPED]
        starts = yield from start_steps(waiting, self.state, self._estimates, self._stretched, now)
        starts |= self._reservation.starts()
        return starts | {key: planned_start.start_seconds for key, planned_start in self.planned().items()}

    def planned(self) -> dict[str, PlannedStart]:
        """Return the plans of waiting pods, by key; nothing under a policy without plans."""
        return self._planner.planned(self._view())

    def _view(self) -> Snapshot:
        if not self._snapshot.shows_all:
            self._snapshot = Snapshot.of(self.state)
        return self._snapshot

    def _expire(self, now: float) -> None:
        """Forget the binds without an answer; only time does this, never a lost watch."""
        # The same sum as in `next_wakeup`: with a difference, rounding could leave a bind due that never expires.
        timeout = self.config.assume_timeout_seconds
        oldest = self.state.oldest_assumption()
        if oldest is None or oldest + timeout > now:
            return
        for record in self.state.assumed():
            if record.assumed_seconds is not None and record.assumed_seconds + timeout <= now:
                self.state.forget(record.pod.key)
                self._requeue(record.pod.key, now, "the binding was neither confirmed nor refused in time")

    def _apply(self, event: Event, now: float) -> None:
        match event:
            case ServiceSampled():  # most events are these
                self.state.apply(event)
                if self._watches_latencies:
                    self._capacity.sampled(event, now)
            case PodUpserted(pod):
                self.state.apply(event)
                self._note_pod(pod, now)
            case PodDeleted(key, uid):
                known = self.state.pod(key)
                self.state.apply(event)
                if known is not None and known.uid == uid:
                    self._remove(key, now)
            case BindRefused(key, uid, node, code, reason, retry):
                record = self.state.record(key)
                ours = record is not None and record.pod.uid == uid and record.node == node
                was_assumed = ours and record is not None and record.assumed_seconds is not None
                self.state.apply(event)
                if was_assumed and retry:
                    self._requeue(key, now, f"the binding to {node} was refused ({code}): {reason}")
                elif was_assumed:
                    self._assumptions.let_go(key)
            case NodeUpserted() | EvictRefused():
                self.state.apply(event)
                self._capacity.take(event, now)
                self.gangs.stays("" if isinstance(event, NodeUpserted) else event.key)
            case ModelsChanged() | RunTimesForecasted():
                self._take_forecasts(event, now)
            case WorkloadUpserted() | WorkloadDeleted() | NamespaceUpserted() | NamespaceDeleted():
                self.state.apply(event)
                self._admit_concerned(event)
            case _:
                self.state.apply(event)
                self._is_part = self._is_part or isinstance(event, MoreToCome)

    def _admit_concerned(
        self, event: WorkloadUpserted | WorkloadDeleted | NamespaceUpserted | NamespaceDeleted
    ) -> None:
        """Queue waiting pods again: a Workload's promise gives them their shape, a namespace's limits their turn."""
        if isinstance(event, WorkloadUpserted | WorkloadDeleted):
            key = event.workload.key if isinstance(event, WorkloadUpserted) else event.key
            concerned = [entry for entry in [*self._arrivals.values(), *self._queue] if entry.pod.workload == key]
        else:
            name = event.namespace.name if isinstance(event, NamespaceUpserted) else event.name
            concerned = [entry for entry in self._queue if namespace_of(entry.pod) == name]
        for entry in concerned:
            self._admit(entry.pod, entry)

    def _take_forecasts(self, event: ModelsChanged | RunTimesForecasted, now: float) -> None:
        """Apply other models, or run times of existing pods.

        A pod that waits already is queued again, since its rank in the order may change.
        """
        if isinstance(event, ModelsChanged):
            self._change_models(event, now)
            return
        for forecast in event.forecasts:
            record = self.state.record(forecast.key)
            if record is None or record.pod.uid != forecast.uid or not self._pod_forecasts.take(forecast):
                continue
            entry = self._queue.get(forecast.key)
            if entry is not None and forecast.key not in self._arrivals:
                self._admit(entry.pod, entry)

    def _note_pod(self, pod: Pod, now: float) -> None:
        if pod.gang is not None or self.gangs.members:
            self.gangs.note(pod)
        record = self.state.record(pod.key)
        if record is None or not is_schedulable(record):
            self._queue.remove(pod.key, now)
            self._arrivals.pop(pod.key, None)
            self._deferred.drop(pod.key)
            if pod.node is not None:
                self._assumptions.let_go(pod.key)
            if record is not None and record.row < 0:
                self._stretched.pop(pod.key, None)
                self._pod_forecasts.drop(pod.key)
                self._capacity.gone(pod.key)
            return
        deferred = self._deferred.get(pod.key)
        if deferred is not None:
            self._deferred.put(pod, deferred[1] if deferred[0].uid == pod.uid else None)
            return
        entry = self._arrivals.get(pod.key) or self._queue.get(pod.key)
        if entry is None or entry.pod.uid != pod.uid:
            self._admit(pod, None)
        elif is_irrelevant_update(entry.pod, pod) and not self._regrouped(entry, pod):
            entry.pod = pod
        else:
            self._admit(pod, entry)

    def _remove(self, key: str, now: float) -> None:
        self.gangs.gone(key)
        self._queue.remove(key, now)
        self._arrivals.pop(key, None)
        self._deferred.drop(key)
        self._assumptions.let_go(key)
        self._stretched.pop(key, None)
        self._pod_forecasts.drop(key)
        self._capacity.gone(key)

    def _admit(self, pod: Pod, known: QueuedPod | None) -> None:
        """Record a pod to queue once the forecasts of this cycle's arrivals are known. A pod of a namespace that used
        up its comparisons follows in a later cycle.
        """
        name = namespace_of(pod)
        if self._deferred.has(name) or self.state.matches.budget.is_spent(name):
            self._defer(pod, known)
        else:
            self._note_arrival(pod, known)

    def _defer(self, pod: Pod, known: QueuedPod | None) -> None:
        self._queue.remove(pod.key, self._now)
        self._arrivals.pop(pod.key, None)
        self._deferred.put(pod, known)

    def _take_deferred(self) -> None:
        """Record pods of earlier cycles before the new ones."""
        for pod, known in self._deferred.take(self.state.matches.budget.is_spent) if self._deferred else ():
            self._handling = pod
            self._note_arrival(pod, known)
        self._handling = None

    def _note_arrival(self, pod: Pod, known: QueuedPod | None) -> None:
        shape = self._shape_of(pod, known)
        entry = known
        if entry is None:
            self._sequence += 1
            entry = QueuedPod(pod, shape, self._sequence, pod.attempts, pod.demotions)
            entry.demoted_seconds = self._now if pod.demotions else None
            if pod.nominated_node is not None:
                self._nominated.append(entry)
        if known is not None and known.shape is not shape:
            # It leaves the group of its old shape before it gets another.
            self._queue.remove(pod.key, self._now)
            entry.shape = shape
        entry.pod = pod
        self._arrivals[pod.key] = entry

    def _enqueue(self, now: float) -> None:
        arrivals, self._arrivals = self._arrivals, {}
        nominated, self._nominated = self._nominated, []
        if self._is_part:  # pods that are leaving their nodes may be reported in the same batch
            self._nominated, nominated = nominated, []
            keys = [entry.pod.key for entry in self._nominated]
            self._arrivals = {key: arrivals.pop(key) for key in keys if key in arrivals}
        matches = self.state.matches
        full = len(self._shapes) > self._shapes_kept or len(matches) > self._matches_kept
        if full or self.state.columns.types_refused:
            self._prune(arrivals)
        self._forecast(arrivals.values())
        for entry in arrivals.values() if self._follows_run_time else ():
            if (shape := self._shape_of(entry.pod, entry)) is not entry.shape:
                self._queue.remove(entry.pod.key, now)
                entry.shape = shape
        if self.gangs.members:
            self.gangs.places(arrivals.values())
        for entry in nominated:
            if arrivals.get(entry.pod.key) is entry:
                self._capacity.restore(entry, now)
        for entry in arrivals.values():
            self._handling = entry.pod
            queue_state = self._queue.add(entry, now)
            if queue_state is QueueState.HELD and not entry.pod.unsupported:
                self._emit(wait(entry, WaitReason.NO_MATCHING_NODE, entry.pod.blocked))
            elif queue_state is QueueState.HELD:
                fields = ", ".join(entry.pod.unsupported)
                message = f"{fields} is not supported and is never ignored: remove it"
                self._emit(wait(entry, WaitReason.MISCONFIGURED, message))
            elif queue_state is QueueState.CAPPED and (capped := self._queue.over_queued(entry)) is not None:
                self._emit(wait(entry, WaitReason.WAITING_FOR_TURN, capped.message, cap=capped.limit))
            elif queue_state is QueueState.ASIDE:
                limit = self.config.max_queue
                message = f"the queue is full ({limit} {noun_of(limit, 'pod')}); it is kept and admitted in turn"
                self._emit(wait(entry, WaitReason.WAITING_FOR_TURN, message))

    def _forecast(self, entries: Collection[QueuedPod]) -> None:
        """Store pods' isolated run times."""
        if not entries:
            return
        by_pod = self._pod_forecasts if len(self._pod_forecasts) else None
        for entry, lone in zip(entries, self._run_times.each([entry.pod for entry in entries]), strict=True):
            own = None if by_pod is None or entry.shape.online else by_pod.of(entry.pod)
            entry.from_habits = own is not None
            entry.seconds_p50, entry.seconds_p90 = lone if own is None else own

    def _shape_of(self, pod: Pod, known: QueuedPod | None) -> Shape:
        """Return a pod's shape, with its run time if that affects its placement and is known already."""
        seconds = 0.0 if known is None or not self._follows_run_time else known.seconds_p90
        return self._shapes.of(pod, self.state, seconds)

    def _emit_displaced(self) -> None:
        """Emit to pods that left the queue for a higher class the reason."""
        displaced, self._queue.displaced = self._queue.displaced, []
        limit = self.config.max_queue
        for entry in displaced:
            if entry.queue_state is not QueueState.ASIDE:
                continue
            message = f"the queue is full ({limit} {noun_of(limit, 'pod')}) and pods of a higher class are in it"
            self._emit(wait(entry, WaitReason.WAITING_FOR_TURN, f"{message}; it is kept and admitted in turn"))

    def _reshape(self) -> None:
        """Give waiting pods another shape after their resources came or went with nodes."""
        self._resources_seen = self.state.columns.resource_generation
        stale = self._shapes.drop_stale(self.state)
        if not stale:
            return
        for entry in list(self._arrivals.values()):
            if entry.shape.fit in stale:
                self._admit(entry.pod, entry)
        for entry in [entry for entry in self._queue if entry.shape.fit in stale]:
            self._admit(entry.pod, entry)
        for shape in [shape for shape in self._failures if shape.fit in stale]:
            del self._failures[shape]

    def _regrouped(self, entry: QueuedPod, pod: Pod) -> bool:
        """Whether a waiting pod's labels changed so that its rules with other pods change."""
        matches = self.state.matches
        if entry.pod.labels == pod.labels or not (matches.active or len(matches.defaults)):
            return False
        return self._shape_of(pod, entry) is not entry.shape

    def _regroup(self) -> None:
        """Give waiting pods another shape after new rules of placed pods, or other selectors of their spread."""
        matches = self.state.matches
        namespaces, matches.defaults.changed = matches.defaults.changed, set()
        is_concerned = matches.take_changed()
        for entry in [*self._arrivals.values(), *self._queue]:
            name = namespace_of(entry.pod)
            if name not in namespaces and not is_concerned(entry.pod):
                continue
            if matches.budget.is_spent(name):
                self._defer(entry.pod, entry)
            elif matches.peers_of(entry.pod) is not entry.shape.fit.peers:
                self._admit(entry.pod, entry)

    def _follow_images(self) -> None:
        """Give waiting pods another shape after their images came to a first node, or left the last."""
        images = self.state.images
        changed, images.changed = images.changed, set()
        for entry in [*self._arrivals.values(), *self._queue]:
            pod = entry.pod
            if not changed.isdisjoint(pod.images) and images.wished(pod.images) != entry.shape.fit.images:
                self._admit(pod, entry)

    def _prune(self, arrivals: dict[str, QueuedPod]) -> None:
        used = {entry.shape for group in (self._queue, arrivals.values(), self._assumptions) for entry in group}
        self._shapes.prune(used)
        self._shapes_kept = max(SHAPES_KEPT, 2 * len(self._shapes))
        self._placer.forget(used)
        self.state.matches.prune({shape.fit.peers for shape in used if shape.fit.peers is not None})
        self._matches_kept = max(COUNTERS_KEPT, 2 * len(self.state.matches))
        if self.state.columns.release_types({shape.type_column for shape in used}):
            self._placer.forget_answers()
        for shape in [shape for shape in self._failures if shape not in used]:
            del self._failures[shape]

    def _decide(self, snapshot: Snapshot, now: float) -> list[DecidedBind]:
        binds: list[DecidedBind] = []
        put_off: list[QueuedPod] = []
        left, effort = self.config.max_decisions_per_cycle, self._placer.effort
        weighs = self.config.effort_per_decision is not None
        while left > (self._attempts_worth(effort) if weighs else 0) and (entry := self._queue.pop()) is not None:
            shape = entry.shape
            self._handling = entry.pod
            if entry.queue_state is QueueState.PARKED and self._wakeup_is_stale(entry, snapshot, now):
                left -= 1
                continue
            if not self._is_ready(entry, now):
                put_off.append(entry)
                continue
            shape = entry.shape
            if (capped := self._queue.over_held(entry)) is not None:
                self._queue.cap(entry, now)
                self._emit(wait(entry, WaitReason.WAITING_FOR_TURN, capped.message, cap=capped.limit))
                continue
            if shape.gang and (tried := self._try_gang(entry, snapshot, now, binds)):
                left -= tried
                continue
            if self._planner.plans(shape):
                self._planner.join(entry, now)
                continue
            left -= 1
            nominated = self._capacity.holds_claim(entry.pod.key)  # the failure of its shape ignores its own node
            if not nominated and entry.last_reason is not None and self._wakes.is_stale(snapshot, shape, self._qos):
                self._queue.failed(entry, now)
                continue
            if shape in self._failures and not nominated and self._fails_alike(shape):
                placement = self._failures[shape]
            else:
                placement = self._capacity.place(snapshot, entry, self._qos, self._upcoming)
            if placement.row < 0:
                self._refuse(entry, placement, snapshot, now)
            else:
                binds.append(self._assumptions.assume(entry, placement, snapshot, now))
        self._handling = None
        for entry in put_off:
            self._queue.put_back(entry, now)
        self._queue.end_hopes(now)
        binds += self._planner.plan(snapshot, now, left - self._attempts_worth(effort), self._qos)
        self._out.extend(self._planner.waits(snapshot))
        return binds

    def _is_ready(self, entry: QueuedPod, now: float) -> bool:
        """Whether all rules of a popped pod are counted; otherwise it has its turn in the next cycle.

        A pod that this cycle placed may refuse it by its own rules: then it gets another shape.
        """
        matches = self.state.matches
        if entry.shape.fit.peers is None and not matches.has_changed:
            return True
        name = namespace_of(entry.pod)
        if matches.has_changed and matches.concerns(entry.pod) and matches.budget.is_spent(name):
            return False
        shape = self._shape_now(entry)
        if shape is not entry.shape:
            self._queue.reshape(entry, shape, now)
        peers = entry.shape.fit.peers
        return peers is None or matches.ready(peers, name)

    def _shape_now(self, entry: QueuedPod) -> Shape:
        """Return a waiting pod's shape by the rules of all placed pods, including those that this cycle placed."""
        matches = self.state.matches
        is_concerned = matches.has_changed and matches.concerns(entry.pod)
        return self._shape_of(entry.pod, entry) if is_concerned else entry.shape

    def _fails_alike(self, shape: Shape) -> bool:
        """Whether no room appeared since the failure of a shape: no pod left, and no bind matches its rules."""
        alike = shape.failed_at == self.state.columns.relief_clock
        return alike and shape.failed_peers == self._peers_version(shape)

    def _peers_version(self, shape: Shape) -> int:
        peers, matches = shape.fit.peers, self.state.matches
        if peers is None or not peers.refuses:
            return 0
        return max(matches.refusing_version(peers), matches.attached.version(peers.attachments))

    def _refuse(self, entry: QueuedPod, placement: Placement, snapshot: Snapshot, now: float) -> None:
        """Leave a pod without a node waiting, for the room that others make, if any."""
        shape, nominated = entry.shape, self._capacity.holds_claim(entry.pod.key)
        room, placement = self._capacity.make_room(snapshot, entry, placement, self._qos)
        if room is not None:
            self._wait_for_room(entry, placement, room, snapshot, now)
            return
        if not nominated:
            shape.failed_at = -1 if self._reservation.keeps_back(shape) else self.state.columns.relief_clock
            shape.failed_peers = self._peers_version(shape)
            self._failures[shape] = placement
        self._queue.failed(entry, now)
        self._emit(refusal(entry, placement, snapshot.node_count, self._qos.model_id))

    def _wakeup_is_stale(self, entry: QueuedPod, snapshot: Snapshot, now: float) -> bool:
        """Whether other pods took the rows that gave a parked pod its turn; otherwise it is taken up."""
        shape = entry.shape
        alone = entry.last_reason is not None and not (shape.fit.depends or shape.gang)
        may_start = alone and not self._planner.plans(shape) and self._queue.over_held(entry) is None
        if may_start and self._wakes.is_stale(snapshot, shape, self._qos):
            self._queue.failed(entry, now)
            return True
        self._queue.take_up(entry)
        return False

    def _attempts_worth(self, before: int) -> int:
        """Return the effort of placing since then, in attempts."""
        each = self.config.effort_per_decision
        return 0 if each is None else (self._placer.effort - before) // each

    def _try_gang(self, entry: QueuedPod, snapshot: Snapshot, now: float, binds: list[DecidedBind]) -> int:
        """Try the gang of a popped pod; returns its cost in attempts, 0 if the pod may go alone."""
        planner = self._planner
        attempt = self._gang_starts.attempt(entry, snapshot, now, self._qos, planner.plans, planner.join)
        if attempt is None:
            return 0
        binds += attempt.binds
        self._out += [*attempt.evictions, *attempt.waits]
        return max(1, attempt.tried)

    def _release_gangs(self, now: float) -> None:
        """Evict the members of gangs that held too few nodes for too long."""
        for key in self.gangs.due(now):
            standing = self.gangs.standing(key)
            held, least = standing.holding + standing.succeeded, standing.gang.minimum
            seconds = standing.gang.timeout_seconds
            words = f"gang {key}: {held} of {least} held a node for {seconds:.0f} s and the others found none"
            asked = [holder for holder in self.gangs.holders(key) if self._capacity.ask(holder, now)]
            if asked:
                self.gangs.release(key)
            for record in asked:
                self.gangs.ask(record, now)
                pod = record.pod
                self._out.append(Evict(pod.key, pod.uid, record.node or "", words, EvictCause.GANG))

    def _evict_whole_gangs(self, now: float) -> None:
        """Evict the others of a gang, too, if too few stay after a member leaves."""
        emptied: set[str] = set()  # each gang is processed once, even if several members leave by themselves
        for evict in [instruction for instruction in self._out if isinstance(instruction, Evict)]:
            record = self.state.record(evict.key)
            gang = None if record is None else record.pod.gang
            if record is None or gang is None:
                continue
            self.gangs.ask(record, now)
            if gang.key in emptied or not self.gangs.is_broken_up(gang.key):
                continue
            emptied.add(gang.key)
            for mate in self.gangs.mates(record.pod):
                if self._capacity.ask(mate, now) and self.gangs.ask(mate, now):
                    pod, words = mate.pod, f"leaves with {evict.key}, as gang {gang.key} runs whole or not"
                    self._out.append(Evict(pod.key, pod.uid, mate.node or "", words, EvictCause.GANG))

    def _wait_for_room(
        self, entry: QueuedPod, placement: Placement, room: Room, snapshot: Snapshot, now: float
    ) -> None:
        """Evict for a pod that found no node; it then waits for the space."""
        self._queue.failed(entry, now)
        self._out.extend(room.evictions)
        message = f"{sentence(placement.refused, snapshot.node_count)}. preemption: {room.message}"
        self._emit(wait(entry, WaitReason.INSUFFICIENT_SLACK, message, placement=placement, room=room))

    def _upcoming(self) -> list[Shape]:
        return [entry.shape for entry in self._queue.ahead(LOOKAHEAD)]

    def _requeue(self, key: str, now: float, why: str) -> None:
        """Requeue a pod after a failed bind."""
        entry = self._assumptions.let_go(key)
        record = self.state.record(key)
        self._stretched.pop(key, None)
        if self.gangs.members:
            self.gangs.touch(key)
        if entry is None or record is None or not is_schedulable(record):
            return
        entry.pod = record.pod
        entry.shape = self._shape_of(entry.pod, entry)
        if entry.pod.blocked or entry.pod.unsupported:  # changed since its placement, for example a deleted claim
            self._admit(entry.pod, entry)
            return
        retry_at = self._queue.back_off(entry, now)
        self._emit(wait(entry, WaitReason.WAITING_FOR_TURN, why, retry_at=retry_at))

    def _change_models(self, event: ModelsChanged, now: float) -> None:
        found = self._catalogue
        own_qos = {own_models.namespace: found.qos(own_models.qos) for own_models in event.own if own_models.qos}
        own_completion = {
            own_models.namespace: found.completion(own_models.completion)
            for own_models in event.own
            if own_models.completion
        }
        self._qos = qos_by_namespace(found.qos(event.qos), own_qos)
        if event.decides_for is not None:
            self._qos = SharedDecision(self._qos, event.decides_for)
        completion = completion_by_namespace(found.completion(event.completion), own_completion)
        pods = self.state.pod_count
        self._run_times, self._estimates = (RunTimes(completion, self._pod_forecasts, pods) for _ in range(2))
        self._placer.forget_answers()
        self._forecast(list(self._queue))
        for entry in list(self._queue) if self._follows_run_time else ():
            self._admit(entry.pod, entry)
        self._queue.resort(now)
        self._planner.change_forecasts(self._run_times, now)
        self._reservation.change_forecasts(self._run_times)
        self._failures.clear()
        self._gang_starts.forget()
        for shape in self._queue.parked_shapes():
            self._queue.wake(shape, now, urgent=True)

    def _emit(self, instruction: Wait | None) -> None:
        if instruction is not None:
            self._out.append(instruction)


def _key_of(about: Event | Pod) -> str:
    """Return the key of the pod, or the name of the node or Workload, in process."""
    match about:
        case Pod():
            return about.key
        case PodUpserted(pod):
            return pod.key
        case NodeUpserted(node):
            return node.name
        case WorkloadUpserted(workload):
            return workload.key
        case _:
            return ""
