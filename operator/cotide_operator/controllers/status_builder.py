"""Statuses of Jobs and Workloads as values: pure functions of the observed state, and the difference of two statuses.

`controllers` calls it after a plan was made; it writes nothing. Invariants: counters (attempts, demotions, evictions,
failures, violations) never go back. A condition keeps its transition time while its status stays. A predicted time that
moved by little stays as it was, because each status write costs every watcher a message.
"""

from __future__ import annotations

import math
from collections.abc import Container, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotide_core.errors import InputError
from cotide_core.instructions import WaitReason
from cotide_core.units import counted
from cotide_kube.timestamps import format_timestamp, parse_timestamp
from cotide_operator.apis.types import JobSpec
from cotide_operator.cache.decision_store import Decision
from cotide_operator.clock import Clock
from cotide_operator.controllers.child_pods import ChildPod
from cotide_operator.controllers.job_reconciler import Outcome, Progress, write_indexes, write_retries
from cotide_operator.controllers.starts.start_conditions import started_condition
from cotide_operator.usage.service_readings import REASONS as QUERY_REASONS
from cotide_operator.usage.service_readings import QueryFault, ServiceReading

Status = dict[str, Any]

NODES_SHOWN: Final = 64
"""Maximum number of node names in a status; chosen."""
GATED: Final = "SchedulingGated"
"""kube-scheduler's reason for a pod that has gates."""
RELEASED: Final = "PodsReleased"
"""Condition of a Job: False while the API server refuses to delete or release some of its pods."""
SETTLED_SECONDS: Final = 2.0
"""A predicted time stays when it moved by at most this, or by at most a tenth of the remaining time; chosen."""
REFRESHED: Final = frozenset(
    {"queuePosition", "predictedStart", "predictedFinish", "predictedSeconds", "attempts", "rps", "violations"}
    | {"latencyP95Milliseconds"}
)
"""Fields that may lag behind; all others, and a condition's status or reason, are written at once."""


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """The moment of the reconciliation, with the clock that converts times."""

    clock: Clock
    wall_seconds: float
    generation: int


@dataclass(frozen=True, slots=True)
class Starting:
    """Pods for the status that hold a node and do not run.

    Attributes
    ----------
    slow : uids of pods that create their containers for long.
    held_back : pods that are made only once one runs.
    kept : whether pods that can't be started are kept, as a Workload's are.
    """

    slow: Container[str] = ()
    held_back: int = 0
    kept: bool = False


STARTING: Final = Starting()


@dataclass(frozen=True, slots=True)
class Difference:
    """The change that turns one status into another."""

    patch: Status
    """Changed top-level fields; None for those to remove."""
    urgent: bool


def job_status_steps(
    spec: JobSpec,
    progress: Progress,
    pods: Sequence[ChildPod],
    decisions: Mapping[str, Decision],
    before: Mapping[str, Any],
    context: ReconcileContext,
    trouble: str | None = None,
    starts: Starting = STARTING,
) -> Generator[None, None, Status]:
    """Return the status of a Job, in steps: ten thousand pods take a while.

    Parameters
    ----------
    spec, progress, pods : see `job_reconciler`.
    decisions : latest decision by pod name.
    before : the present status.
    context : time and generation.
    trouble : the error that prevents the creation of pods, in one sentence.
    starts : pods that hold a node and do not run.
    """
    placed: list[ChildPod] = []
    waiting: list[ChildPod] = []
    live: list[Decision] = []
    for pod in pods:
        if pod.alive:
            decision = decisions.get(pod.name)
            (placed if _is_placed(pod, decision) else waiting).append(pod)
            if decision is not None:
                live.append(decision)
    yield
    foremost = _foremost(waiting, decisions)
    yield
    phase = progress.outcome or ("Running" if placed else "Queued")
    slowest = max(live, key=lambda decision: decision.forecast.seconds_p50 or 0.0, default=None)
    status: Status = {
        "phase": str(phase),
        "queuePosition": foremost.queue_position if foremost else None,
        # Ended pods count, too: one may have ended before the first reconciliation of its Job.
        "attempts": max([_count(before, "attempts"), *(decision.attempts for decision in decisions.values())]),
        "demotions": max([_count(before, "demotions"), *(decision.demotions for decision in decisions.values())]),
        "evictions": max(progress.evictions, _count(before, "evictions")),
        "failures": max(progress.failures, _count(before, "failures")),
        "active": len(placed),
        "succeeded": len(progress.completed),
        "completedIndexes": write_indexes(progress.completed),
        "retriedIndexes": write_retries(progress.retries),
        "predictedSeconds": _predicted_seconds(slowest) or before.get("predictedSeconds"),
        "predictedStart": None,
        "predictedFinish": None,
        "nodes": node_names(pods) or list(before.get("nodes") or ()),
        "startTime": before.get("startTime") or _time(min(_known(pod.started_seconds for pod in pods), default=None)),
        "completionTime": before.get("completionTime"),
        "observedGeneration": context.generation,
    }
    yield
    if progress.outcome is None:
        status["predictedStart"] = _settled(before.get("predictedStart"), _start(waiting, decisions, context), context)
        finish = _finish(spec, progress, placed, waiting, decisions, _p50(status["predictedSeconds"]), context)
        status["predictedFinish"] = _settled(before.get("predictedFinish"), finish, context)
    elif status["completionTime"] is None:
        ends = [*_known(pod.finished_seconds for pod in pods)]
        status["completionTime"] = _time(max(ends, default=context.wall_seconds))
    yield
    conditions = list(before.get("conditions") or ())
    for condition in _job_conditions(progress, spec, placed, waiting, foremost, trouble, conditions):
        conditions = with_condition(conditions, condition, context)
    return {**status, "conditions": with_started(conditions, pods, starts, context)}


def misconfigured(
    before: Mapping[str, Any], sentence: str, context: ReconcileContext, *, phase: str | None = None
) -> Status:
    """Return the status of a resource with an invalid spec: the former status, with the sentence."""
    condition = {"type": "Scheduled", "status": "False", "reason": WaitReason.MISCONFIGURED.value, "message": sentence}
    conditions = with_condition(list(before.get("conditions") or ()), condition, context)
    status = {**before, "conditions": conditions, "observedGeneration": context.generation}
    if phase is not None and not before.get("phase"):
        status["phase"] = phase
    return status


def workload_status(
    wanted: int,
    pods: Sequence[ChildPod],
    decisions: Mapping[str, Decision],
    reading: ServiceReading | None,
    before: Mapping[str, Any],
    context: ReconcileContext,
    *,
    violations: int = 0,
    trouble: str | None = None,
) -> Status:
    """Return the status of a Workload.

    Parameters
    ----------
    wanted : pods that should be ready.
    pods : its children or the pods it adopted.
    reading : its measurements, None when unknown.
    violations : pod slots over the limit in its whole life.
    """
    alive = [pod for pod in pods if pod.alive]
    ready = [pod for pod in alive if pod.ready and not pod.deleting]
    waiting = [pod for pod in alive if not _is_placed(pod, decisions.get(pod.name))]
    rate = reading.requests_per_second if reading else None
    latency = reading.latency_p95_milliseconds if reading else None
    status: Status = {
        "ready": f"{len(ready)}/{wanted}",
        "readyReplicas": len(ready),
        "replicas": len(alive),
        "nodes": node_names(alive),
        "rps": round(rate, 1) if rate is not None and math.isfinite(rate) else None,
        "latencyP95Milliseconds": round(latency, 2) if latency is not None and math.isfinite(latency) else None,
        "violations": max(violations, _count(before, "violations")),
        "observedGeneration": context.generation,
    }
    conditions = list(before.get("conditions") or ())
    is_ready = len(ready) >= wanted and not trouble and (wanted > 0 or not alive)
    sentence = f"{len(ready)} of {counted(wanted, 'pod')} ready"
    reason = "AllPodsReady" if is_ready else ("NoPods" if not alive else "PodsNotReady")
    conditions = with_condition(conditions, _condition("Ready", is_ready, reason, sentence), context)
    foremost = _foremost(waiting, decisions)
    placement = _placement(len(alive) - len(waiting), waiting, foremost, trouble)
    return {**status, "conditions": with_condition(conditions, placement, context)}


def with_query_fault(
    conditions: Sequence[Mapping[str, Any]], fault: QueryFault | None, context: ReconcileContext
) -> list[Status]:
    """Return the conditions of a Workload with the fault of its queries.

    A condition ``Misconfigured`` for another reason stays while the queries have no fault.
    """
    kind = WaitReason.MISCONFIGURED.value
    if fault is not None:
        return with_condition(conditions, _condition(kind, True, fault.reason, fault.message), context)
    before = next((condition for condition in conditions if condition.get("type") == kind), None)
    if before is None or before.get("reason") not in QUERY_REASONS:
        return [dict(condition) for condition in conditions]
    return with_condition(conditions, _condition(kind, False, "QueriesAsked", "its queries are answered"), context)


def with_condition(
    conditions: Sequence[Mapping[str, Any]], condition: Mapping[str, Any], context: ReconcileContext
) -> list[Status]:
    """Return the conditions with one of them set; its transition time is kept while its status stays."""
    before = next((existing for existing in conditions if existing.get("type") == condition["type"]), None)
    changed = context.wall_seconds
    kept = before.get("lastTransitionTime") if before and before.get("status") == condition["status"] else None
    after = {
        **condition,
        "observedGeneration": context.generation,
        "lastTransitionTime": kept or format_timestamp(changed),
    }
    others = [dict(existing) for existing in conditions if existing.get("type") != condition["type"]]
    return sorted([*others, after], key=lambda other: str(other["type"]))


def with_released(conditions: Sequence[Status], refused: str | None, context: ReconcileContext) -> list[Status]:
    """Return the conditions with the API server's error about deleting or releasing pods, or with its end."""
    if refused is None and not any(condition.get("type") == RELEASED for condition in conditions):
        return list(conditions)
    released = _condition(RELEASED, refused is None, "Refused" if refused else "Released", refused or "")
    return with_condition(conditions, released, context)


def with_started(
    conditions: Sequence[Status], pods: Sequence[ChildPod], starts: Starting, context: ReconcileContext
) -> list[Status]:
    """Return the conditions with the reason why kubelets do not start pods, or with its end."""
    started = started_condition(pods, starts.slow, conditions, held_back=starts.held_back, kept=starts.kept)
    return list(conditions) if started is None else with_condition(conditions, started, context)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference | None:
    """Return the fields to write, or None when nothing changed."""
    keys = [*after, *(key for key in before if key not in after)]
    patch = {key: after.get(key) for key in keys if _differs(before.get(key), after.get(key))}
    if not patch:
        return None
    return Difference(patch, any(_is_urgent(key, before.get(key), after.get(key)) for key in patch))


def node_names(pods: Iterable[ChildPod]) -> list[str]:
    """Return the nodes of pods, sorted, at most `NODES_SHOWN`."""
    return sorted({pod.node for pod in pods if pod.node})[:NODES_SHOWN]


def _differs(before: Any, after: Any) -> bool:
    # An empty list or text and an absent field mean the same; zero is written, because columns show it.
    return (before if before not in ("", []) else None) != (after if after not in ("", []) else None)


def _is_urgent(key: str, before: Any, after: Any) -> bool:
    if key != "conditions":
        return key not in REFRESHED
    old = [(condition.get("type"), condition.get("status"), condition.get("reason")) for condition in before or ()]
    new = [(condition.get("type"), condition.get("status"), condition.get("reason")) for condition in after or ()]
    return old != new


def _job_conditions(
    progress: Progress,
    spec: JobSpec,
    placed: Sequence[ChildPod],
    waiting: Sequence[ChildPod],
    foremost: Decision | None,
    trouble: str | None,
    before: Sequence[Mapping[str, Any]],
) -> list[Status]:
    if progress.outcome is Outcome.SUCCEEDED:
        sentence = f"{len(progress.completed)} of {counted(spec.completions, 'pod')} succeeded"
        return [
            _condition("Complete", True, "CompletionsReached", sentence),
            _condition("Scheduled", True, "Scheduled", sentence),
        ]
    if progress.outcome is Outcome.FAILED:
        sentence = f"{counted(progress.failures, 'pod')} failed, spec.backoffLimit allows {spec.backoff_limit}"
        scheduled = [dict(existing) for existing in before if existing.get("type") == "Scheduled"]
        return [*scheduled, _condition("Failed", True, "BackoffLimitExceeded", sentence)]
    if spec.suspend and not placed and not trouble:
        return [_condition("Scheduled", False, "Suspended", "spec.suspend is true: no pod is made")]
    if not placed and not waiting and not trouble:
        sentence = "the next pod is about to be made"
        if progress.failures:
            sentence = f"the next pod is made when the back-off after {counted(progress.failures, 'failure')} is over"
        return [_condition("Scheduled", False, WaitReason.WAITING_FOR_TURN.value, sentence)]
    return [_placement(len(placed), waiting, foremost, trouble)]


def _placement(placed: int, waiting: Sequence[ChildPod], foremost: Decision | None, trouble: str | None) -> Status:
    """Return the condition ``Scheduled``, with the reason of the pod that is tried next."""
    if trouble:
        return _condition("Scheduled", False, WaitReason.MISCONFIGURED.value, trouble)
    if not waiting:
        return _condition("Scheduled", True, "Scheduled", f"{counted(placed, 'pod is', 'pods are')} on a node")
    gated = [pod for pod in waiting if pod.gates]
    if foremost is None and gated:
        sentence = f"{counted(len(gated), 'pod is', 'pods are')} held back by {gated_by(gated[0].gates)}"
        return _condition("Scheduled", False, GATED, sentence)
    if foremost is None:
        sentence = f"{counted(len(waiting), 'pod waits', 'pods wait')} for a first turn"
        return _condition("Scheduled", False, WaitReason.WAITING_FOR_TURN.value, sentence)
    return _condition("Scheduled", False, foremost.reason, foremost.message)


def gated_by(gates: Sequence[str]) -> str:
    """Return the gate that holds a pod back; of many gates the first is enough."""
    more = f" and {len(gates) - 1} more" if len(gates) > 1 else ""
    return f"scheduling gate {gates[0]}{more}"


def _condition(kind: str, holds: bool, reason: str, message: str) -> Status:
    return {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}


def _is_placed(pod: ChildPod, decision: Decision | None) -> bool:
    """Whether a pod has a node, or soon has one: its binding is decided and not yet confirmed."""
    return pod.node is not None or (decision is not None and decision.node is not None)


def _foremost(waiting: Sequence[ChildPod], decisions: Mapping[str, Decision]) -> Decision | None:
    """Return the decision about the waiting pod that is tried next."""
    known = [decisions[pod.name] for pod in waiting if pod.name in decisions]
    return min(known, key=lambda decision: (decision.queue_position or math.inf, decision.key), default=None)


def _predicted_seconds(decision: Decision | None) -> Status | None:
    if decision is None or decision.forecast.seconds_p50 is None:
        return None
    p90 = decision.forecast.seconds_p90
    return {"p50": round(decision.forecast.seconds_p50, 1), "p90": round(p90, 1) if p90 is not None else None}


def _p50(predicted: Mapping[str, Any] | None) -> float | None:
    value = (predicted or {}).get("p50")
    return float(value) if isinstance(value, int | float) else None


def _start(waiting: Sequence[ChildPod], decisions: Mapping[str, Decision], context: ReconcileContext) -> float | None:
    starts = _known(decisions[pod.name].predicted_start_seconds for pod in waiting if pod.name in decisions)
    return context.clock.to_wall(min(starts)) if starts else None


def _finish(
    spec: JobSpec,
    progress: Progress,
    placed: Sequence[ChildPod],
    waiting: Sequence[ChildPod],
    decisions: Mapping[str, Decision],
    of_the_job: float | None,
    context: ReconcileContext,
) -> float | None:
    """Predict the wall second at which the last pod is done: p50 for running pods, and start plus p50 for waiting ones.

    A pod without a forecast of its own takes that of its Job (same type, same size). Indexes without a pod follow in
    waves of ``parallelism``, each as long as the slowest pod's p50. The result is None as soon as a start or a run time
    is unknown, because half a prediction would be wrong. Where a policy plans, a waiting pod is done at its planned
    finish.
    """
    now, longest, end = context.clock.now(), 0.0, 0.0
    for number, pod in enumerate((*placed, *waiting)):
        has_node = number < len(placed)
        decision = decisions.get(pod.name)
        if decision is None:
            return None
        p50, planned = decision.forecast.seconds_p50 or of_the_job, decision.predicted_finish_seconds
        if planned is not None and decision.predicted_start_seconds is not None and not has_node:
            longest, end = max(longest, p50 or planned - decision.predicted_start_seconds), max(end, planned)
            continue
        if p50 is None:
            return None
        longest = max(longest, p50)
        start = decision.predicted_start_seconds
        if has_node:
            start = context.clock.from_wall(pod.started_seconds) if pod.started_seconds else decision.decided_seconds
        if start is None:
            return None
        finish = start + p50
        if finish < now:  # slower than expected: nine in ten such pods are done by their p90
            finish = start + (decision.forecast.seconds_p90 or p50)
        end = max(end, finish)
    if not longest:
        return None
    unmade = spec.completions - len(progress.completed) - len(placed) - len(waiting)
    waves = math.ceil(max(0, unmade) / spec.parallelism)
    return context.clock.to_wall(end + waves * longest)


def _settled(before: str | None, after: float | None, context: ReconcileContext) -> str | None:
    """Return the new time, or the old one when the difference is small."""
    if after is None or not math.isfinite(after):
        return None
    if before is not None:
        try:
            moved = abs(parse_timestamp(before) - after)
        except InputError:
            return _time(after)
        if moved <= max(SETTLED_SECONDS, 0.1 * (after - context.wall_seconds)):
            return before
    return _time(after)


def _time(seconds: float | None) -> str | None:
    return format_timestamp(seconds) if seconds is not None else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _count(status: Mapping[str, Any], field: str) -> int:
    value = status.get(field)
    return value if isinstance(value, int) and value > 0 else 0
