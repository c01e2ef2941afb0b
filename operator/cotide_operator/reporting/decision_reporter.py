"""Everything that follows from decisions: the decision store, events, notes on pods, metrics. It makes no decisions.

The loop calls it after each cycle, before the binder starts, and the binder calls it for each report. Invariant: the
decision store has ``Scheduled`` only for a pod with a binding that the API server accepted. A deleted pod leaves the
decision store, the notes and the forecast scores.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs
from prometheus_client import Counter, Histogram

from cotide_core.cycle import Scheduler
from cotide_core.events import Event, Pod, PodDeleted, PodUpserted, WorkloadDeleted
from cotide_core.instructions import Bind, Evict, EvictCause, Forecast, Instruction, Wait, WaitReason
from cotide_core.qos.applicability import condition_of
from cotide_core.reclaiming.overload_monitor import Alarms
from cotide_kube.turns import Turn, in_steps
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import Clock
from cotide_operator.config.object_names import DEFAULT_SCHEDULER_NAME
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics, attempts_label
from cotide_operator.reporting.event_recorder import EventRecorder
from cotide_operator.reporting.gang_metrics import GangMetrics
from cotide_operator.reporting.overload_reporter import OverloadReporter
from cotide_operator.reporting.plan_messages import PlanMessages
from cotide_operator.reporting.pod_annotator import PodAnnotator
from cotide_operator.reporting.tenant_view import TenantView
from cotide_operator.scheduling.binder import BindNote, BindReport, Report
from cotide_operator.scheduling.evictor import EvictReport
from cotide_operator.scheduling.nominator import Nominator
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, encode

_LOG = logging.getLogger(__name__)

SCHEDULED: Final = "Scheduled"
REFUSAL_LOG_SECONDS: Final = 10.0
"""Wall seconds; an outage must not fill the log."""


@dataclass(frozen=True, slots=True)
class Sinks:
    """Receivers of decisions; see their modules."""

    decisions: DecisionStore
    annotator: PodAnnotator
    recorder: EventRecorder
    forecast_scores: ForecastScores
    metrics: Metrics
    nominator: Nominator
    alarms: OverloadReporter


class DecisionReporter:
    """Publishes decisions as events, annotations, statuses and metrics.

    Parameters
    ----------
    sinks : Sinks
    cache : ObjectCache
        Quarantines pods when the report of their decision fails.
    pod_of : callable
        A pod in the engine's state, by key.
    clock : Clock
    policy : str
        Name of the policy, for the metrics.
    profile_of : callable
        A pod's key to the scheduler's name under which it is placed, for the metrics.
    """

    def __init__(
        self,
        sinks: Sinks,
        cache: ObjectCache,
        pod_of: Callable[[str], Pod | None],
        clock: Clock,
        policy: str,
        profile_of: Callable[[str], str] = lambda _: DEFAULT_SCHEDULER_NAME,
    ) -> None:
        self._decisions = sinks.decisions
        self._annotator = sinks.annotator
        self._recorder = sinks.recorder
        self._forecast_scores = sinks.forecast_scores
        self._metrics = sinks.metrics
        self._nominator = sinks.nominator
        self._alarms = sinks.alarms
        self._cache = cache
        self._pod_of = pod_of
        self._clock = clock
        self._policy = policy
        self._plan_words = PlanMessages(clock.to_wall)
        self._view = TenantView(cache)
        self._gangs = GangMetrics(sinks.metrics)
        self._logged: dict[int, tuple[float, int]] = {}
        self._counters: dict[tuple[str, str], tuple[Counter, Histogram]] = {}
        """Attempts and their durations by result and class, kept because looking a metric up by its labels takes
        longest."""
        self._sli_duration = functools.cache(sinks.metrics.sli_duration.labels)
        self._attempts_by_profile = functools.cache(sinks.metrics.attempts_by_profile.labels)
        self._profile_of = profile_of

    def annotate(self, key: str) -> None:
        """Write the decision about another scheduler's pod onto it at a later time."""
        self._annotator.annotate(key)

    def events(self, events: Sequence[Event], arrivals: Sequence[Pod]) -> None:
        """Process changed and deleted pods."""
        if arrivals:
            self._metrics.incoming.labels("active", "PodAdd").inc(len(arrivals))
        for event in events:
            try:
                self._follow(event)
            except Exception as error:  # noqa: BLE001 - one faulty object must not stop all others
                self._failed(event.pod.key if isinstance(event, PodUpserted) else "", error)

    def _follow(self, event: Event) -> None:
        if isinstance(event, PodUpserted):
            pod = event.pod
            self._forecast_scores.pod_changed(pod)
            if pod.node is not None and pod.ours:
                self._confirmed(pod)
        elif isinstance(event, PodDeleted):
            self._decisions.forget(event.key)
            self._annotator.forget(event.key)
            self._nominator.forget(event.key)
            self._plan_words.forget(event.key)
            self._forecast_scores.pod_gone(event.key)
        elif isinstance(event, WorkloadDeleted):
            self._forecast_scores.workload_gone(event.key)

    def _failed(self, key: str, error: Exception) -> None:
        """Quarantine a pod after a failed report; reports about others go on."""
        self._cache.quarantine_object("pods", key, "reporting", error)

    def resumed(self, decisions: Iterable[Decision]) -> None:
        """Take over the notes of an earlier run on pods, unless this run decided already: forecasts outlive a restart.

        An earlier run may have bound a pod without writing its class, which the node's agent reads.
        """
        for decision in decisions:
            pod, known = self._pod_of(decision.key), self._decisions.get(decision.key)
            if known is not None and known.uid == decision.uid:
                continue
            if pod is not None and pod.ours and pod.uid == decision.uid and pod.node == decision.node:
                self._decisions.publish(decision)
                if decision.node is not None:
                    self._annotator.label(decision.key)

    def _confirmed(self, pod: Pod) -> None:
        """Record that a pod of ours is on a node; another replica, or an earlier run, may have bound it."""
        known = self._decisions.get(pod.key)
        if known is None or known.node is not None:
            return
        self._decisions.publish(
            structs.replace(
                known,
                node=pod.node,
                reason=SCHEDULED,
                message=f"is on {pod.node}",
                queue_position=None,
                retry_at_seconds=None,
                predicted_start_seconds=None,
                predicted_finish_seconds=None,
                nominated_node="",
                victims=(),
                cap="",
            )
        )
        self._annotator.confirmed(pod.key)

    def decided(self, instructions: Sequence[Instruction], now: float, cycle_seconds: float) -> Mapping[str, BindNote]:
        """Take the instructions of one cycle; return the notes for its bindings, by the uid of the pod."""
        notes: dict[str, BindNote] = {}
        if not instructions:
            return notes
        share = cycle_seconds / len(instructions)
        asking = {evict.nominee for evict in instructions if isinstance(evict, Evict)}
        self._metrics.algorithm_duration.observe_equal(share, len(instructions))
        for instruction in instructions:
            if not isinstance(instruction, Evict) and instruction.forecast.qos_violation_probability is not None:
                self._metrics.qos_answers.labels(_basis(instruction.forecast)).inc()
            try:
                if isinstance(instruction, Bind):
                    notes[instruction.uid] = self._note(instruction, now, share)
                elif isinstance(instruction, Wait):
                    self._waits(instruction, now, share)
                    if instruction.nominated_node and instruction.key not in asking:
                        self._nominator.write_soon(instruction.key, instruction.uid, instruction.nominated_node)
            except Exception as error:  # noqa: BLE001 - one faulty object must not stop all others
                self._failed(instruction.key, error)
        return notes

    def _note(self, bind: Bind, now: float, share: float) -> BindNote:
        decision = _of_bind(bind, now)
        annotations = {DECISION_ANNOTATION: encode(self._view.decision(decision))}
        return BindNote(decision, annotations, self._annotator.labels_for(bind.key), share)

    def _waits(self, wait: Wait, now: float, share: float) -> None:
        pod = self._pod_of(wait.key)
        before = self._decisions.get(wait.key)
        if before is not None and before.uid != wait.uid:
            before = None
        self._decisions.publish(
            Decision(
                key=wait.key,
                uid=wait.uid,
                decided_seconds=now,
                node=None,
                reason=wait.reason.value,
                message=wait.message,
                refused=wait.refused,
                forecast=wait.forecast,
                attempts=wait.attempts,
                demotions=wait.demotions,
                queue_position=before.queue_position if before is not None else None,
                retry_at_seconds=wait.retry_at_seconds,
                nominated_node=wait.nominated_node,
                victims=wait.victims,
                predicted_start_seconds=before.predicted_start_seconds if before is not None else None,
                predicted_finish_seconds=before.predicted_finish_seconds if before is not None else None,
                cap=wait.cap,
            )
        )
        self._annotator.note(wait.key)
        if not wait.nominated_node:
            self._nominator.withdraw(wait.key)
        if wait.cap or wait.reason is not WaitReason.WAITING_FOR_TURN:
            message = self._view.sentence(wait.message, wait.refused, wait.key.partition("/")[0])
            self._recorder.failed(wait.key, wait.uid, message)
        if wait.attempts == 0:  # without an attempt it waits for its turn, its gates or a correction
            return
        queue = "unschedulable" if wait.retry_at_seconds is None else "backoff"
        self._metrics.incoming.labels(queue, "ScheduleAttemptFailure").inc()
        self._attempted("unschedulable", wait.key, _class(pod), share)

    def reported(self, report: Report) -> None:
        """Take the outcome of a binding or an eviction."""
        if isinstance(report, EvictReport):
            self._evicted(report)
            return
        bind, note, now = report.bind, report.note, self._clock.now()
        share = note.cycle_seconds if note is not None else 0.0
        pod = self._pod_of(bind.key)
        if report.wall_seconds:
            self._metrics.binding_duration.observe(report.wall_seconds)
        self._attempted("scheduled" if report.bound else "error", bind.key, _class(pod), share + report.wall_seconds)
        if not report.bound:
            self._metrics.bindings_refused.labels(str(report.answer.code)).inc()
            self._log_refusal(report)
            return
        if pod is None or pod.uid != bind.uid:  # gone already: no later event would remove it
            return
        waited = max(0.0, now - pod.created_seconds)
        self._sli_duration(attempts_label(bind.attempts)).observe(waited)
        self._decisions.publish(note.decision if note is not None else _of_bind(bind, now))
        self._forecast_scores.bound(bind)
        self._recorder.scheduled(bind.key, bind.uid, bind.node)
        if bind.at_risk:
            self._recorder.at_risk(bind.key, bind.uid, f"on {bind.node}: {bind.reason.partition(': ')[2]}")
        self._annotator.bound(bind.key, note.labels if note is not None else None)

    def _attempted(self, result: str, key: str, workload_class: str, wall_seconds: float) -> None:
        counters = self._counters.get((result, workload_class))
        if counters is None:
            counters = self._counters[result, workload_class] = (
                self._metrics.attempts.labels(result, workload_class, self._policy),
                self._metrics.attempt_duration.labels(result, self._policy),
            )
        counters[0].inc()
        self._attempts_by_profile(result, self._profile_of(key)).inc()
        counters[1].observe(wall_seconds)

    def _log_refusal(self, report: BindReport) -> None:
        """Log a refused binding; of many with the same answer, one line in `REFUSAL_LOG_SECONDS`."""
        answer, bind = report.answer, report.bind
        now = time.monotonic()
        last, unlogged = self._logged.get(answer.code, (float("-inf"), 0))
        if now - last < REFUSAL_LOG_SECONDS:
            self._logged[answer.code] = (last, unlogged + 1)
            return
        self._logged[answer.code] = (now, 0)
        _LOG.log(
            logging.WARNING if report.retry else logging.INFO,
            "binding %s to %s failed (%d %s), %s%s",
            bind.key,
            bind.node,
            answer.code,
            answer.reason,
            "it will be retried" if report.retry else "the watch will show the pod's state",
            f"; {unlogged} more like it before" if unlogged else "",
        )

    def alarmed(self, alarms: Alarms, now: float) -> None:
        """Take one cycle's alarms of the overload monitor."""
        self._alarms.look(alarms, now)

    def _evicted(self, report: EvictReport) -> None:
        evict, answer = report.evict, report.answer
        if not answer.ok:
            self._metrics.evictions_refused.labels(answer.reason).inc()
            _LOG.log(
                logging.WARNING if answer.code not in (404, 409, 424) else logging.INFO,
                "%s was not evicted from %s (%d %s): %s",
                evict.key,
                evict.node,
                answer.code,
                answer.reason,
                answer.message,
            )
            return
        pod = self._pod_of(evict.key)
        self._metrics.evictions.labels(_class(pod), evict.cause.value).inc()
        event, message = self._view.eviction(evict)
        if report.despite_budget:
            message += "; an administrator's setting overrides its disruption budget"
            _LOG.warning("%s was deleted from %s in spite of its disruption budget", evict.key, evict.node)
        if evict.cause is EvictCause.PREEMPTED:
            self._recorder.preempted(evict.key, evict.uid, message)
        else:
            self._recorder.evicted(evict.key, evict.uid, message)
        key = pod.job if pod is not None else None
        job = self._cache.jobs.get(key) if key is not None else None
        if key is not None and job is not None:
            self._recorder.job(key, job.metadata.uid, event, evict.key.partition("/")[2], message)

    async def publish_queue(self, scheduler: Scheduler, now: float) -> None:
        """Publish queue sizes, positions and predicted starts; called about once a second.

        It gives way in turns: the engine is not called before this returns, but bindings may be reported meanwhile.
        """
        turn = Turn()
        for queue, size in scheduler.pending().items():
            self._metrics.pending.labels(queue).set(size)
        self._gangs.show(scheduler.gangs, now)
        positions, starts = await in_steps(scheduler.outlook_steps(now))
        await turn.give_way()
        planned = scheduler.planned()
        for key, position in positions.items():
            await turn.give_way()
            decision = self._decisions.get(key)
            if decision is None or decision.node is not None:
                continue
            plan = planned.get(key)
            start, finish = starts.get(key), plan.finish_seconds if plan is not None else None
            message = self._plan_words.of(decision, plan, now)
            if (decision.queue_position, decision.message) == (position, message) and _close(
                decision.predicted_start_seconds, start
            ):
                continue
            self._decisions.publish(
                structs.replace(
                    decision,
                    message=message,
                    queue_position=position,
                    predicted_start_seconds=start,
                    predicted_finish_seconds=finish,
                )
            )
            if message != decision.message:
                self._annotator.note(key)
        await in_steps(self._annotator.sweep_steps())


def _close(known: float | None, new: float | None) -> bool:
    """Whether a predicted start moved by less than a second, which no reader would notice."""
    if known is None or new is None:
        return known is new
    return abs(known - new) < 1.0


def _basis(forecast: Forecast) -> str:
    unknown = condition_of(forecast.qos_outside)
    if forecast.qos_evidence is None:
        return unknown or "Heuristic"
    return unknown or "Inside"


def _class(pod: Pod | None) -> str:
    return pod.workload_class.value if pod is not None else "unknown"


def _of_bind(bind: Bind, now: float) -> Decision:
    return Decision(
        key=bind.key,
        uid=bind.uid,
        decided_seconds=now,
        node=bind.node,
        reason=SCHEDULED,
        message=bind.reason,
        refused=bind.refused,
        forecast=bind.forecast,
        attempts=bind.attempts,
    )
