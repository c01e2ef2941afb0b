"""Statuses of Jobs and Workloads as values: pure functions of what is seen, and how two of them differ.

Called by `controllers` after a plan was made; writes nothing. Invariants: counters (attempts, demotions, evictions,
failures, violations) never go back; a condition keeps its transition time while its status stays; a time that moved by
little stays as it was told, because a status that changes with every breath costs every watcher a message.
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
"""Names of nodes in a status, at most; chosen."""
GATED: Final = "SchedulingGated"
"""kube-scheduler's reason for a pod that has gates."""
RELEASED: Final = "PodsReleased"
"""Condition of a Job: False while the API server refuses to delete or release some of its pods."""
SETTLED_SECONDS: Final = 2.0
"""A predicted time that moved by no more than this, or by a tenth of what is left, stays; chosen."""
REFRESHED: Final = frozenset(
    {"queuePosition", "predictedStart", "predictedFinish", "predictedSeconds", "attempts", "rps", "violations"}
    | {"latencyP95Milliseconds"}
)
"""Fields that may lag behind; all others, and a condition's status or reason, are written at once."""


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """The moment of looking: where times are converted."""

    clock: Clock
    wall_seconds: float
    generation: int


@dataclass(frozen=True, slots=True)
class Starting:
    """What a status says of pods that hold a node and do not run.

    Attributes
    ----------
    slow : uids of pods whose containers are being created for long.
    held_back : pods that are made only once one runs.
    kept : whether pods that can't be started are kept, as a Workload's are.
    """

    slow: Container[str] = ()
    held_back: int = 0
    kept: bool = False


STARTING: Final = Starting()


@dataclass(frozen=True, slots=True)
class Difference:
    """What must be written to turn one status into another."""

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
    spec, progress, pods : see `jobs`.
    decisions : latest decision by pod name.
    before : the status as it is now.
    context : when and for which generation.
    trouble : what keeps pods from being made at all, in one sentence.
    starts : what is known of pods that hold a node and do not run.
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
        # Of pods that ended, too: one may have done so before anybody looked at its Job.
        "attempts": max([_count(before, "attempts"), *(one.attempts for one in decisions.values())]),
        "demotions": max([_count(before, "demotions"), *(one.demotions for one in decisions.values())]),
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
    """Return the status of a resource whose spec can't be followed: what it had, and the sentence."""
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
    reading : what is measured of it, None when unknown.
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
    """Return the conditions of a Workload with what is wrong with its queries.

    A condition ``Misconfigured`` for another reason is left alone while the queries are in order.
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
    before = next((mapping for mapping in conditions if mapping.get("type") == condition["type"]), None)
    changed = context.wall_seconds
    kept = before.get("lastTransitionTime") if before and before.get("status") == condition["status"] else None
    after = {
        **condition,
        "observedGeneration": context.generation,
        "lastTransitionTime": kept or format_timestamp(changed),
    }
    others = [dict(mapping) for mapping in conditions if mapping.get("type") != condition["type"]]
    return sorted([*others, after], key=lambda other: str(other["type"]))


def with_released(conditions: Sequence[Status], refused: str | None, context: ReconcileContext) -> list[Status]:
    """Return the conditions with what the API server has against deleting or releasing pods, or had."""
    if refused is None and not any(condition.get("type") == RELEASED for condition in conditions):
        return list(conditions)
    released = _condition(RELEASED, refused is None, "Refused" if refused else "Released", refused or "")
    return with_condition(conditions, released, context)


def with_started(
    conditions: Sequence[Status], pods: Sequence[ChildPod], starts: Starting, context: ReconcileContext
) -> list[Status]:
    """Return the conditions with what keeps kubelets from starting pods, or kept them."""
    started = started_condition(pods, starts.slow, conditions, held_back=starts.held_back, kept=starts.kept)
    return list(conditions) if started is None else with_condition(conditions, started, context)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference | None:
    """Return what to write, or None when nothing changed."""
    keys = [*after, *(key for key in before if key not in after)]
    patch = {key: after.get(key) for key in keys if _differs(before.get(key), after.get(key))}
    if not patch:
        return None
    return Difference(patch, any(_is_urgent(key, before.get(key), after.get(key)) for key in patch))


def node_names(pods: Iterable[ChildPod]) -> list[str]:
    """Return the nodes of pods, sorted, at most `NODES_SHOWN`."""
    return sorted({pod.node for pod in pods if pod.node})[:NODES_SHOWN]


def _differs(before: Any, after: Any) -> bool:
    # An empty list or text and an absent field say the same; zero is written, columns show it.
    return (before if before not in ("", []) else None) != (after if after not in ("", []) else None)


def _is_urgent(key: str, before: Any, after: Any) -> bool:
    if key != "conditions":
        return key not in REFRESHED
    old = [(one.get("type"), one.get("status"), one.get("reason")) for one in before or ()]
    new = [(one.get("type"), one.get("status"), one.get("reason")) for one in after or ()]
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
        scheduled = [dict(mapping) for mapping in before if mapping.get("type") == "Scheduled"]
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
    """Return the condition ``Scheduled``, in the reason's words of the pod that is tried next."""
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
    """Return who holds a pod back, by its first gate: with many there is no need to read them all."""
    more = f" and {len(gates) - 1} more" if len(gates) > 1 else ""
    return f"scheduling gate {gates[0]}{more}"


def _condition(kind: str, holds: bool, reason: str, message: str) -> Status:
    return {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}


def _is_placed(pod: ChildPod, decision: Decision | None) -> bool:
    """Whether a pod has a node, or is about to: its binding was decided and has not come back yet."""
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
    """Predict when the last pod is done, on the wall: running pods to their p50, waiting ones after their start.

    A pod without a forecast of its own takes that of its Job (same type, same size). Indexes that have no pod yet
    follow in waves of ``parallelism``, each as long as the slowest pod's p50. None as soon as a start or a run time
    is unknown: half a prediction would be a wrong one. Where a policy plans, a waiting pod is done at its planned
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
        if finish < now:  # it takes longer than expected: then nine times in ten it is done by
            finish = start + (decision.forecast.seconds_p90 or p50)
        end = max(end, finish)
    if not longest:
        return None
    unmade = spec.completions - len(progress.completed) - len(placed) - len(waiting)
    waves = math.ceil(max(0, unmade) / spec.parallelism)
    return context.clock.to_wall(end + waves * longest)


def _settled(before: str | None, after: float | None, context: ReconcileContext) -> str | None:
    """Return the new time, or the old one where the two hardly differ."""
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
