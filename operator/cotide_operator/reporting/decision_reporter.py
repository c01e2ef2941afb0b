"""What follows from decisions: the board, events, notes on pods, metrics. Decides nothing itself.

Called by the loop after each cycle and for each report of the binder. Invariant: the board says ``Scheduled`` only of
a pod that the API server took; a pod that is gone leaves board, notes and calibration.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from prometheus_client import Counter, Histogram

from cotide_core.cycle import Scheduler
from cotide_core.events import Event, Pod, PodDeleted, PodUpserted, WorkloadDeleted
from cotide_core.instructions import Bind, Evict, EvictCause, Forecast, Instruction, Wait, WaitReason
from cotide_core.qos.applicability import condition_of
from cotide_core.reclaiming.overload_monitor import Alarms
from cotide_operator.cache.decision_store import Decision, DecisionStore
from cotide_operator.models.forecast_scores import ForecastScores
from cotide_operator.observability.metrics import Metrics, attempts_label
from cotide_operator.reporting.event_recorder import EventRecorder
from cotide_operator.reporting.overload_reporter import OverloadReporter
from cotide_operator.reporting.plan_messages import PlanMessages
from cotide_operator.reporting.pod_annotator import PodAnnotator
from cotide_operator.reporting.tenant_view import TenantView
from cotide_operator.scheduling.binder import BindReport, Report
from cotide_operator.scheduling.evictor import EvictReport
from cotide_operator.scheduling.nominator import Nominator
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, encode

_LOG = logging.getLogger(__name__)

SCHEDULED: Final = "Scheduled"
REFUSAL_LOG_SECONDS: Final = 10.0
"""Wall seconds; an outage must not fill the log."""


class DecisionReporter:
    """Spreads the word about decisions.

    Parameters
    ----------
    board, annotator, recorder, calibration, telemetry, nominator, alarms :
        Who is told; see their modules.
    pod_of : callable
        A pod as the engine was told, by key.
    job_uid_of : callable
        The uid of a Job of ours by its key, None when there is no such Job.
    policy : str
        Name of the policy, for the metrics.
    plan_words : PlanWords
        Tells what a policy that plans has in mind for a pod.
    view : TenantView
        Takes the names of other namespaces out of what is written in one.
    set_aside : callable, optional
        Takes the key of a pod of which it can't be told, and why; without it that is raised.
    """

    def __init__(
        self,
        *,
        board: DecisionStore,
        annotator: PodAnnotator,
        recorder: EventRecorder,
        calibration: ForecastScores,
        telemetry: Metrics,
        nominator: Nominator,
        alarms: OverloadReporter,
        pod_of: Callable[[str], Pod | None],
        job_uid_of: Callable[[str], str | None],
        policy: str,
        plan_words: PlanMessages,
        view: TenantView,
        set_aside: Callable[[str, Exception], None] | None = None,
    ) -> None:
        self._board = board
        self._annotator = annotator
        self._recorder = recorder
        self._calibration = calibration
        self._telemetry = telemetry
        self._nominator = nominator
        self._alarms = alarms
        self._pod_of = pod_of
        self._job_uid_of = job_uid_of
        self._policy = policy
        self._plan_words = plan_words
        self._view = view
        self._set_aside = set_aside
        self._now = 0.0
        self._said: dict[int, tuple[float, int]] = {}
        self._shares: dict[str, float] = {}
        """Wall seconds of its decision cycle that fell to each binding under way."""
        self._sent: dict[str, Decision] = {}
        """What each binding under way writes on its pod."""
        self._counters: dict[tuple[str, str], tuple[Counter, Histogram]] = {}
        """Attempts and their durations by result and class: looking a metric up by its labels takes longest."""

    def annotate(self, key: str) -> None:
        """Write the decision about a pod of another scheduler onto it, some time."""
        self._annotator.annotate(key)

    def annotations(self, bind: Bind) -> dict[str, str]:
        """Return what a Binding should write on the pod."""
        decision = self._sent[bind.key] = _of_bind(bind, self._now)
        return {DECISION_ANNOTATION: encode(self._view.decision(decision))}

    def events(self, events: Sequence[Event], arrivals: Sequence[Pod], now: float) -> None:
        """Follow pods that changed or went."""
        self._now = now
        if arrivals:
            self._telemetry.incoming.labels("active", "PodAdd").inc(len(arrivals))
        for event in events:
            try:
                self._follow(event)
            except Exception as error:  # noqa: BLE001 - one object that trips us must not stop all others
                self._failed(event.pod.key if isinstance(event, PodUpserted) else "", error)

    def _follow(self, event: Event) -> None:
        if isinstance(event, PodUpserted):
            pod = event.pod
            self._calibration.pod_changed(pod)
            if pod.node is not None and pod.ours:
                self._confirmed(pod)
        elif isinstance(event, PodDeleted):
            self._board.forget(event.key)
            self._annotator.forget(event.key)
            self._nominator.forget(event.key)
            self._plan_words.forget(event.key)
            self._calibration.pod_gone(event.key)
        elif isinstance(event, WorkloadDeleted):
            self._calibration.workload_gone(event.key)

    def _failed(self, key: str, error: Exception) -> None:
        """Set a pod aside of which we could not tell; everything that is told of others goes on."""
        if self._set_aside is None:
            raise error
        self._set_aside(key, error)

    def resumed(self, decisions: Iterable[Decision]) -> None:
        """Take over what an earlier run noted on pods, unless this one decided already: forecasts outlive a restart."""
        for decision in decisions:
            pod, known = self._pod_of(decision.key), self._board.get(decision.key)
            if known is not None and known.uid == decision.uid:
                continue
            if pod is not None and pod.ours and pod.uid == decision.uid and pod.node == decision.node:
                self._board.publish(decision)

    def _confirmed(self, pod: Pod) -> None:
        """A pod of ours is on a node: also told when another replica, or an earlier run, bound it."""
        known = self._board.get(pod.key)
        if known is None or known.node is not None:
            return
        self._board.publish(
            replace(
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

    def decided(self, instructions: Sequence[Instruction], now: float, cycle_seconds: float) -> None:
        """Take the instructions of one cycle."""
        if not instructions:
            return
        share = cycle_seconds / len(instructions)
        for instruction in instructions:
            self._telemetry.algorithm_duration.observe(share)
            if not isinstance(instruction, Evict) and instruction.forecast.qos_violation_probability is not None:
                self._telemetry.qos_answers.labels(_basis(instruction.forecast)).inc()
            if isinstance(instruction, Bind):
                self._shares[instruction.key] = share
            elif isinstance(instruction, Wait):
                try:
                    self._waits(instruction, now, share)
                except Exception as error:  # noqa: BLE001 - one object that trips us must not stop all others
                    self._failed(instruction.key, error)

    def _waits(self, wait: Wait, now: float, share: float) -> None:
        pod = self._pod_of(wait.key)
        before = self._board.get(wait.key)
        if before is not None and before.uid != wait.uid:
            before = None
        self._board.publish(
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
            message = self._view.sentence(wait.message, wait.key.partition("/")[0])
            self._recorder.failed(wait.key, wait.uid, message)
        if wait.attempts == 0:  # no attempt was made: it waits for its turn, its gates or a correction
            return
        queue = "unschedulable" if wait.retry_at_seconds is None else "backoff"
        self._telemetry.incoming.labels(queue, "ScheduleAttemptFailure").inc()
        self._attempted("unschedulable", _class(pod), share)

    def reported(self, report: Report, now: float) -> None:
        """Take the outcome of a binding or an eviction."""
        if isinstance(report, EvictReport):
            self._evicted(report)
            return
        bind = report.bind
        share = self._shares.pop(bind.key, 0.0)
        pod = self._pod_of(bind.key)
        if report.wall_seconds:
            self._telemetry.binding_duration.observe(report.wall_seconds)
        self._attempted("scheduled" if report.bound else "error", _class(pod), share + report.wall_seconds)
        sent = self._sent.pop(bind.key, None)
        if not report.bound:
            self._telemetry.bindings_refused.labels(str(report.answer.code)).inc()
            self._log_refusal(report)
            return
        if pod is not None:
            waited = max(0.0, now - pod.created_seconds)
            self._telemetry.sli_duration.labels(attempts_label(bind.attempts)).observe(waited)
        self._board.publish(sent if sent is not None else _of_bind(bind, now))
        self._calibration.bound(bind)
        self._recorder.scheduled(bind.key, bind.uid, bind.node)
        self._annotator.bound(bind.key)

    def _attempted(self, result: str, workload_class: str, wall_seconds: float) -> None:
        counters = self._counters.get((result, workload_class))
        if counters is None:
            counters = self._counters[result, workload_class] = (
                self._telemetry.attempts.labels(result, workload_class, self._policy),
                self._telemetry.attempt_duration.labels(result, self._policy),
            )
        counters[0].inc()
        counters[1].observe(wall_seconds)

    def _log_refusal(self, report: BindReport) -> None:
        """Say why a binding was not taken; of many with the same answer one line in `REFUSAL_LOG_SECONDS`."""
        answer, bind = report.answer, report.bind
        now = time.monotonic()
        last, unsaid = self._said.get(answer.code, (float("-inf"), 0))
        if now - last < REFUSAL_LOG_SECONDS:
            self._said[answer.code] = (last, unsaid + 1)
            return
        self._said[answer.code] = (now, 0)
        _LOG.log(
            logging.WARNING if report.retry else logging.INFO,
            "binding %s to %s was not taken (%d %s), %s%s",
            bind.key,
            bind.node,
            answer.code,
            answer.reason,
            "it will be tried again" if report.retry else "the watch will tell what became of the pod",
            f"; {unsaid} more like it before" if unsaid else "",
        )

    def alarmed(self, alarms: Alarms, now: float) -> None:
        """Take what the overload monitor saw in one cycle."""
        self._alarms.look(alarms, now)

    def _evicted(self, report: EvictReport) -> None:
        evict, answer = report.evict, report.answer
        if not answer.ok:
            self._telemetry.evictions_refused.labels(answer.reason).inc()
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
        self._telemetry.evictions.labels(_class(pod), evict.cause.value).inc()
        event, message = self._view.eviction(evict)
        if report.despite_budget:
            message += "; an administrator's setting overrides its disruption budget"
            _LOG.warning("%s was deleted from %s in spite of its disruption budget", evict.key, evict.node)
        if evict.cause is EvictCause.PREEMPTED:
            self._recorder.preempted(evict.key, evict.uid, message)
        else:
            self._recorder.evicted(evict.key, evict.uid, message)
        job = pod.job if pod is not None else None
        job_uid = self._job_uid_of(job) if job is not None else None
        if job is not None and job_uid is not None:
            self._recorder.job(job, job_uid, event, evict.key.partition("/")[2], message)

    def publish_queue(self, scheduler: Scheduler, now: float) -> None:
        """Publish queue sizes, positions and predicted starts; called about once a second."""
        for queue, size in scheduler.pending().items():
            self._telemetry.pending.labels(queue).set(size)
        positions = scheduler.queue_positions()
        starts = scheduler.predicted_starts(now) if positions else {}
        planned = scheduler.planned()
        for key, position in positions.items():
            decision = self._board.get(key)
            if decision is None or decision.node is not None:
                continue
            plan = planned.get(key)
            start, finish = starts.get(key), plan.finish_seconds if plan is not None else None
            message = self._plan_words.of(decision, plan, now)
            if (decision.queue_position, decision.message) == (position, message) and _close(
                decision.predicted_start_seconds, start
            ):
                continue
            self._board.publish(
                replace(
                    decision,
                    message=message,
                    queue_position=position,
                    predicted_start_seconds=start,
                    predicted_finish_seconds=finish,
                )
            )
            if message != decision.message:
                self._annotator.note(key)
        self._annotator.sweep()


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
