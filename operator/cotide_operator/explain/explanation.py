"""Why a pod or a Job is where it is, or why it waits: a pure function of API objects.

``cotide explain`` calls it with objects from the API server (see `reader`); it needs neither the operator nor its
memory. Invariant: every fact comes from an object, an event or the decision note on a pod; unknown facts are left out,
not guessed. An unreadable field affects only its own line, which reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from cotide_core.errors import InputError
from cotide_core.forecasts import HABITS
from cotide_core.instructions import Forecast, WaitReason
from cotide_core.qos.applicability import CONDITION_OUTSIDE, CONDITION_RATE_UNKNOWN, condition_of
from cotide_core.units import format_amount, format_seconds, parse_quantity
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.cache.decision_store import Decision
from cotide_operator.explain.class_rule import ClassContext, class_and_reason
from cotide_operator.explain.phases import phase_facts
from cotide_operator.explain.reclaimed import reclaimed_facts
from cotide_operator.explain.volume_wait import volume_wait_facts
from cotide_operator.translation.decision_annotation import DECISION_ANNOTATION, Note, decode
from cotide_operator.translation.gangs import DEFAULT_TIMEOUT_SECONDS

Object = Mapping[str, Any]
Facts = list[tuple[str, str]]
_Fact = TypeVar("_Fact")

EVENTS_SHOWN: Final = 8
"""Latest events on the screen; chosen."""
PODS_SHOWN: Final = 12
"""Pods of a Job on the screen; chosen."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason against a group of nodes."""

    nodes: int
    reason: str
    message: str
    example: str
    probability: float | None


@dataclass(frozen=True, slots=True)
class Happening:
    """An event, or several equal ones."""

    last_seen: str
    type: str
    reason: str
    message: str
    count: int
    object: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """One screen: facts in reading order."""

    title: str
    facts: tuple[tuple[str, str], ...]
    """(what, in words)."""
    refusals: tuple[Refusal, ...] = ()
    unlisted_nodes: int = 0
    """Refused nodes with reasons that did not fit into the note."""
    pods: tuple[tuple[str, ...], ...] = ()
    """For a Job: name, phase, node, position, note in words."""
    happenings: tuple[Happening, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    """The same facts for programs."""


_NO_CLASS: Final[tuple[str, str]] = ("unknown", "its rule is not known")
_NO_HAPPENINGS: Final[tuple[Happening, ...]] = ()
_NO_FACTS: Final[Facts] = []
_NOTHING: Final[tuple[Facts, dict[str, Any]]] = ([], {})


def explain_pod(pod: Object, context: ClassContext, now_seconds: float) -> Explanation:
    """Explain a pod; ``now_seconds`` is an epoch second of the wall."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    note = _note(pod)
    unread: Facts = []
    workload_class, why = _read(unread, "Class", lambda: class_and_reason(pod, context), _NO_CLASS)
    facts = [("Class", f"{workload_class}, {why}")]
    scheduler = spec.get("schedulerName") or "default-scheduler"
    ours = note is not None or scheduler == "cotide"
    facts.append(("State", _read(unread, "State", lambda: _state(pod, now_seconds), "not known")))
    facts += _read(unread, "Workload", lambda: _of_the_service(context.owner), _NO_FACTS)
    data: dict[str, Any] = {
        "kind": "Pod",
        "namespace": metadata.get("namespace"),
        "name": metadata["name"],
        "class": str(workload_class),
        "classReason": why,
        "phase": status.get("phase"),
        "node": spec.get("nodeName"),
        "schedulerName": scheduler,
    }
    waits, waits_data = _read(
        unread,
        "Volumes",
        lambda: volume_wait_facts(context.claims, context.storage_classes, now_seconds),
        _NOTHING,
    )
    if not ours:
        facts.append(("Scheduler", f"{scheduler}: Cotide does not place this pod, unless its schedulerNames name this"))
    elif waits:
        facts += waits
        data |= waits_data
        if note is not None:
            data["decision"] = _decision(note, placed=False)[1]
    elif note is None and (gates := _gates(spec)):
        facts.append(("Why it waits", f"SchedulingGated: held back until {gates} is removed"))
    elif note is None:
        facts.append(("Decision", "none written yet; is the operator running?"))
    else:
        note_facts, note_data = _decision(note, placed=bool(spec.get("nodeName")))
        facts += note_facts
        data["decision"] = note_data
    reclaimed, reclaimed_data = _read(
        unread, "Reclaimed capacity", lambda: reclaimed_facts(pod, context.node, context.neighbours), _NOTHING
    )
    facts += reclaimed
    if reclaimed_data:
        data["reclaimed"] = reclaimed_data
    phase, phase_data = _read(unread, "Phase of work", lambda: phase_facts(pod, now_seconds), _NOTHING)
    facts += phase
    if phase_data:
        data["phaseOfWork"] = phase_data
    if ours:
        placed = bool(spec.get("nodeName"))
        facts += _read(
            unread,
            "Job",
            lambda: _of_the_job(context.owner, facts, placed=placed, now_seconds=now_seconds),
            _NO_FACTS,
        )
    happenings = _read(unread, "Events", lambda: _happenings(context.events), _NO_HAPPENINGS)
    facts += unread
    data["events"] = [_as_data(happening) for happening in happenings]
    return Explanation(
        title=f"pod {metadata.get('namespace', '')}/{metadata['name']}",
        facts=tuple(facts),
        refusals=_refusals(note),
        unlisted_nodes=note.more_nodes if note else 0,
        happenings=happenings,
        data=data,
    )


def explain_job(job: Object, pods: Sequence[Object], events: Sequence[Object], now_seconds: float) -> Explanation:
    """Explain a Job of ours with its pods; ``now_seconds`` is an epoch second of the wall."""
    metadata, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    notes = {pod["metadata"]["name"]: note for pod in pods if (note := _note(pod)) is not None}
    unread: Facts = []
    facts = [
        ("Class", f"{spec.get('class', 'batch')}, by spec.class"),
        ("Work", _read(unread, "Work", lambda: _work(spec), "not known")),
        *_read(unread, "Gang", lambda: _gang(spec), _NO_FACTS),
        ("Phase", f"{status.get('phase') or 'not processed yet; is the operator running?'}"),
        *_read(unread, "Status", lambda: _status_facts(status, now_seconds), _NO_FACTS),
    ]
    foremost = _foremost(pods, notes)
    if foremost is not None:
        decision_facts, _ = _decision(foremost, placed=False)
        facts += [(what, words) for what, words in decision_facts if what in ("Retry", "Models", "QoS risk")]
    happenings = _read(unread, "Events", lambda: _happenings(events), _NO_HAPPENINGS)
    facts += unread
    rows = tuple(_pod_row(pod, notes.get(pod["metadata"]["name"])) for pod in pods[:PODS_SHOWN])
    if len(pods) > PODS_SHOWN:
        rows += ((f"... and {len(pods) - PODS_SHOWN} more", "", "", "", ""),)
    data = {
        "kind": "Job",
        "namespace": metadata.get("namespace"),
        "name": metadata["name"],
        "class": spec.get("class", "batch"),
        "status": dict(status),
        "pods": [
            {
                "name": pod["metadata"]["name"],
                "phase": (pod.get("status") or {}).get("phase"),
                "node": (pod.get("spec") or {}).get("nodeName"),
                "decision": _decision(note, placed=bool((pod.get("spec") or {}).get("nodeName")))[1]
                if (note := notes.get(pod["metadata"]["name"]))
                else None,
            }
            for pod in pods
        ],
        "events": [_as_data(happening) for happening in happenings],
    }
    return Explanation(
        title=f"job {metadata.get('namespace', '')}/{metadata['name']}",
        facts=tuple(facts),
        refusals=_refusals(foremost),
        unlisted_nodes=foremost.more_nodes if foremost else 0,
        pods=rows,
        happenings=happenings,
        data=data,
    )


def _read(unread: Facts, what: str, read: Callable[[], _Fact], otherwise: _Fact) -> _Fact:
    """Return the result of ``read``; if it raises, record that and return ``otherwise``."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - one faulty foreign field must not hide all the others
        unread.append(("Not read", f"{what}: a field has an invalid value ({type(error).__name__}: {error!s:.200})"))
        return otherwise


def relevant_node(pod: Object) -> str | None:
    """Return the node that explains most about a pod: its own, the one reserved for it, or one that lacked slack."""
    placed = (pod.get("spec") or {}).get("nodeName")
    note = _note(pod)
    if placed or note is None:
        return placed or None
    short = [
        node_verdict.example
        for node_verdict in note.decision.refused
        if node_verdict.reason is WaitReason.INSUFFICIENT_SLACK
    ]
    return note.decision.nominated_node or next(iter(short), None)


def _note(pod: Object) -> Note | None:
    metadata = pod["metadata"]
    text = (metadata.get("annotations") or {}).get(DECISION_ANNOTATION)
    if text is None:
        return None
    try:
        note = decode(text, f"{metadata.get('namespace', '')}/{metadata['name']}")
    except InputError:  # a foreign note, or one of another version, is not shown
        return None
    return note if note.decision.uid == metadata.get("uid") else None


def _state(pod: Object, now_seconds: float) -> str:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    phase, node = status.get("phase", "Pending"), spec.get("nodeName")
    since = _since(status.get("startTime"), now_seconds)
    if pod["metadata"].get("deletionTimestamp"):
        return f"{phase}, being deleted" + (f", on {node}" if node else "")
    if node:
        reason = f" ({status['reason']}: {status.get('message', '')})" if status.get("reason") else ""
        return f"{phase} on {node}{since}{reason}"
    waited = _since(pod["metadata"].get("creationTimestamp"), now_seconds)
    return f"{phase}, waits for a node{waited}"


def _gates(spec: Object) -> str:
    return ", ".join(str(gate.get("name", "")) for gate in spec.get("schedulingGates") or ())


def _since(text: str | None, now_seconds: float) -> str:
    if not text:
        return ""
    return f" since {text} ({format_seconds(now_seconds - parse_timestamp(text))})"


def _decision(note: Note, *, placed: bool) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Return the content of a note, in words and for programs.

    Times count from the decision, because the operator's clock may run faster than the reader's.
    """
    decision, forecast = note.decision, note.decision.forecast
    facts = [("Why here" if placed else "Why it waits", f"{decision.reason}: {decision.message}")]
    facts.append(("So far", f"{_counted(decision.attempts, 'attempt')}, {_counted(decision.demotions, 'demotion')}"))
    if decision.nominated_node and not placed:
        facts.append(("Nominated", _nomination(decision)))
    if decision.queue_position is not None and not placed:
        facts.append(("Queue position", str(decision.queue_position)))
    retry = _after(decision.retry_at_seconds, decision.decided_seconds)
    if retry is not None and not placed:
        facts.append(("Retry", f"{format_seconds(retry)} after that decision"))
    start = _after(decision.predicted_start_seconds, decision.decided_seconds)
    if start is not None and not placed:
        facts.append(("Predicted start", f"{format_seconds(start)} after that decision"))
    finish = _after(decision.predicted_finish_seconds, decision.decided_seconds)
    if finish is not None and not placed:
        facts.append(("Planned finish", f"{format_seconds(finish)} after that decision"))
    if forecast.seconds_p50 is not None:
        p90 = f", nine times in ten below {format_seconds(forecast.seconds_p90)}" if forecast.seconds_p90 else ""
        source = ", by the run times of similar pods" if forecast.completion_model == HABITS else ""
        facts.append(("Predicted run time", f"{format_seconds(forecast.seconds_p50)}{p90}{source}"))
    if forecast.qos_violation_probability is not None:
        words = "probability that a service on the node breaks its latency limit"
        facts.append(("QoS risk", f"{forecast.qos_violation_probability:.2f} ({words})"))
    if (rests := _basis(forecast)) is not None:
        facts.append(rests)
    models = [
        f"{what} {model if len(model) < 16 else model[:12]}"
        for what, model in (("QoS", forecast.qos_model), ("completion", forecast.completion_model))
        if model
    ]
    if models:
        facts.append(("Models", ", ".join(models)))
    data = {
        "node": decision.node,
        "reason": decision.reason,
        "message": decision.message,
        "attempts": decision.attempts,
        "demotions": decision.demotions,
        "nominatedNode": decision.nominated_node or None,
        "victims": list(decision.victims),
        "queuePosition": decision.queue_position,
        "retryInSeconds": retry,
        "predictedStartInSeconds": start,
        "plannedFinishInSeconds": finish,
        "predictedSeconds": {"p50": forecast.seconds_p50, "p90": forecast.seconds_p90},
        "qosViolationProbability": forecast.qos_violation_probability,
        "qosOutside": list(forecast.qos_outside),
        "qosSamples": forecast.qos_evidence,
        "models": {"qos": forecast.qos_model, "completion": forecast.completion_model},
        "refused": [_as_data(refusal) for refusal in _refusals(note)],
        "refusedUnlistedNodes": note.more_nodes,
    }
    return facts, data


def _basis(forecast: Forecast) -> tuple[str, str] | None:
    """Return the condition and the basis of the latency risk; None without a model."""
    seen = f"{_counted(forecast.qos_evidence, 'sample')} of the service" if forecast.qos_evidence is not None else ""
    condition = condition_of(forecast.qos_outside)
    if not condition:
        return ("QoS evidence", f"inside the learned range, from {seen}") if seen else None
    words = f"outside the range learned by {', '.join(forecast.qos_outside)}"
    estimated = "; rates are estimated from requests" if condition == CONDITION_RATE_UNKNOWN else ""
    if not seen:
        return condition, f"{', '.join(forecast.qos_outside)}; the heuristic knows requests only{estimated}"
    return condition, f"{words} (from {seen}): the larger of model and heuristic counts{estimated}"


def _nomination(decision: Decision) -> str:
    if not decision.victims:
        return f"{decision.nominated_node} is reserved for it"
    verb = "leaves" if len(decision.victims) == 1 else "leave"
    return f"{decision.nominated_node}: {', '.join(decision.victims)} {verb} to make room"


def _after(moment: float | None, decided: float) -> float | None:
    return max(0.0, round(moment - decided, 3)) if moment is not None else None


def _status_facts(status: Object, now_seconds: float) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    for condition in status.get("conditions") or ():
        since = _since(condition.get("lastTransitionTime"), now_seconds)
        words = f"{condition.get('reason', '')}: {condition.get('message', '')}{since}"
        kind = str(condition["type"])
        facts.append((f"Not {kind.lower()}" if condition.get("status") == "False" else kind, words))
    if status.get("queuePosition") is not None:
        facts.append(("Queue position", str(status["queuePosition"])))
    if status:
        names = ("attempts", "demotions", "evictions", "failures")
        facts.append(("So far", ", ".join(_counted(status.get(name) or 0, name[:-1]) for name in names)))
    if status.get("startTime"):
        facts.append(("Started", f"{status['startTime']}{_ago(status['startTime'], now_seconds)}"))
    for name, what in (("predictedStart", "Predicted start"), ("predictedFinish", "Predicted finish")):
        if status.get(name):
            facts.append((what, f"{status[name]}{_ago(status[name], now_seconds)}"))
    seconds = status.get("predictedSeconds") or {}
    if seconds.get("p50") is not None:
        p90 = f", nine times in ten below {format_seconds(seconds['p90'])}" if seconds.get("p90") else ""
        facts.append(("Predicted run time", f"{format_seconds(seconds['p50'])} a pod{p90}"))
    if status.get("completionTime"):
        facts.append(("Finished", f"{status['completionTime']}{_ago(status['completionTime'], now_seconds)}"))
    if status.get("nodes"):
        facts.append(("Nodes", ", ".join(status["nodes"])))
    return facts


def _ago(text: str, now_seconds: float) -> str:
    distance = parse_timestamp(text) - now_seconds
    return f" (in {format_seconds(distance)})" if distance > 0 else f" ({format_seconds(-distance)} ago)"


def _work(spec: Object) -> str:
    size = spec.get("inputSize") or 0
    try:
        written = format_amount("memory", int(parse_quantity(size)))
    except InputError:
        written = str(size)
    pods = f"{_counted(spec.get('completions', 1), 'pod')}, {spec.get('parallelism', 1)} at a time"
    kind = spec.get("type") or "no type declared"
    return f"{kind}, input {written}, {pods}, priority {spec.get('priority', 100)}"


def _gang(spec: Object) -> Facts:
    """Return the gang of a Job as facts, empty without one."""
    gang = spec.get("gang")
    if gang is None:
        return []
    least = gang.get("minMember") or min(int(spec.get("parallelism", 1)), int(spec.get("completions", 1)))
    seconds = format_seconds(float(gang.get("timeoutSeconds", DEFAULT_TIMEOUT_SECONDS)))
    return [("Gang", f"{_counted(least, 'pod')} at once or none; where fewer start within {seconds}, they leave")]


def _foremost(pods: Sequence[Object], notes: Mapping[str, Note]) -> Note | None:
    """Return the note of the waiting pod with the next attempt."""
    waiting = [
        notes[pod["metadata"]["name"]]
        for pod in pods
        if not (pod.get("spec") or {}).get("nodeName") and pod["metadata"]["name"] in notes
    ]
    return min(waiting, key=lambda note: note.decision.queue_position or 1_000_000, default=None)


def _pod_row(pod: Object, note: Note | None) -> tuple[str, ...]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    decision = note.decision if note else None
    position = decision.queue_position if decision and not spec.get("nodeName") else None
    why = status.get("reason") or (decision.reason if decision else "")
    return (
        pod["metadata"]["name"],
        status.get("phase", "Pending"),
        spec.get("nodeName") or "-",
        str(position) if position is not None else "-",
        why,
    )


def _refusals(note: Note | None) -> tuple[Refusal, ...]:
    verdicts = note.decision.refused if note else ()
    return tuple(
        Refusal(verdict.nodes, verdict.reason.value, verdict.message, verdict.example, verdict.probability)
        for verdict in verdicts
    )


def _happenings(events: Sequence[Object]) -> tuple[Happening, ...]:
    """Return the latest events; equal events of several objects become one."""
    groups: dict[tuple[str, str, str], list[Object]] = {}
    for event in events:
        words = (event.get("type", ""), event.get("reason", ""), event.get("message", ""))
        groups.setdefault(words, []).append(event)
    found = []
    for (kind, reason, message), same in groups.items():
        names = sorted({str((event.get("involvedObject") or {}).get("name", "")) for event in same})
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        count = sum(int(event.get("count") or 1) for event in same)
        found.append(Happening(max(map(_last_seen, same)), kind, reason, message, count, names[0] + others))
    return tuple(sorted(found, key=lambda happening: happening.last_seen)[-EVENTS_SHOWN:])


def _last_seen(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _as_data(value: Refusal | Happening) -> dict[str, Any]:
    names = {"last_seen": "lastSeen"}
    return {names.get(name, name): getattr(value, name) for name in type(value).__dataclass_fields__}


def _of_the_job(
    owner: Object | None, facts: Sequence[tuple[str, str]], *, placed: bool, now_seconds: float
) -> list[tuple[str, str]]:
    """Return facts of a pod's Job that are newer or better than the note from the pod's decision."""
    if not _is_job(owner) or owner is None:
        return []
    wanted = {"Predicted finish"} if placed else {"Queue position", "Predicted start", "Predicted finish"}
    wanted -= {what for what, _ in facts}
    found = _status_facts(owner.get("status") or {}, now_seconds)
    return [(what, f"{words}, its Job") for what, words in found if what in wanted]


def _of_the_service(owner: Object | None) -> list[tuple[str, str]]:
    """Return the conditions that limit the latency forecasts of a pod's Workload."""
    if owner is None or owner.get("kind") != "Workload":
        return []
    conditions = (owner.get("status") or {}).get("conditions") or ()
    wanted = (CONDITION_RATE_UNKNOWN, CONDITION_OUTSIDE)
    return [
        (str(condition["type"]), f"{condition.get('message', '')}, its Workload")
        for condition in conditions
        if condition.get("type") in wanted and condition.get("status") == "True"
    ]


def _is_job(owner: Object | None) -> bool:
    return owner is not None and owner.get("kind") == "Job"
