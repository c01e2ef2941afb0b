"""The stated phases of a Job, the sizes that its pod requests and holds, and the phase that an earlier operator left.

`scheduling.phase_resizer` calls it. Invariant: an unreadable value counts as not stated; nothing here raises.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from cotide_core.errors import InputError
from cotide_core.events import Pod
from cotide_core.limits import MAX_EXACT_INT, MAX_SECONDS
from cotide_core.phases.growth import Amounts
from cotide_core.phases.profile import MAX_PHASES
from cotide_core.phases.progress import Progress, Readiness, StatedPhase
from cotide_core.units import CPU, MEMORY, bounded_amount, format_amount
from cotide_kube.objects import PodObject, Quantity
from cotide_kube.timestamps import parse_timestamp
from cotide_operator.apis.names import (
    GRANTED_PHASE_ANNOTATION,
    LEARNED_PHASES_ANNOTATION,
    PHASE_ANNOTATION,
    PHASE_SIGNAL_ANNOTATION,
    PHASE_SINCE_ANNOTATION,
    READINESS_SIGNAL,
)
from cotide_operator.cache.object_cache import CustomObject
from cotide_operator.translation.pod_requests import effective_requests

Phases = tuple[StatedPhase, ...]
NO_PHASES: Final[Phases] = ()
LEARNED_CHARACTERS: Final = 8192
"""Length of learned phases on a pod; chosen: sixteen have some 1,500."""
MAX_GROWTH: Final = 1_000_000
"""Largest growth of a pod in millicores. Chosen: no node is as large, and the sum over a node's pods stays exact."""


def phases_of(job: CustomObject) -> Phases:
    """Return the phases of a Job, in their order; empty without readable ones.

    Shares are parts of the predicted run time of a pod, or of ``requestedSeconds`` without a prediction.
    """
    given = job.spec.get("phases")
    if not isinstance(given, list) or not 0 < len(given) <= MAX_PHASES:
        return NO_PHASES
    try:
        lengths = _lengths(given, job)
        found = tuple(
            StatedPhase(
                str(entry["name"]),
                bounded_amount(CPU, entry["resources"]["cpu"]),
                bounded_amount(MEMORY, entry["resources"].get("memory", 0)),
                seconds,
            )
            for entry, seconds in zip(given, lengths, strict=True)
        )
    except (InputError, KeyError, TypeError, AttributeError):  # an older definition: its Job is misconfigured
        return NO_PHASES
    return found if len({phase.name for phase in found}) == len(found) else NO_PHASES


def _lengths(given: list[Any], job: CustomObject) -> list[float | None]:
    shares = [_positive(entry.get("share")) for entry in given]
    whole = _run_seconds(job)
    known = [share for share in shares if share is not None]
    if whole is not None and len(known) == len(shares):
        return [whole * share / sum(known) for share in known]
    return [_positive(entry.get("seconds")) for entry in given]


def _run_seconds(job: CustomObject) -> float | None:
    predicted = job.status.get("predictedSeconds")
    p50 = predicted.get("p50") if isinstance(predicted, Mapping) else None
    return _positive(p50) or _positive(job.spec.get("requestedSeconds"))


def _positive(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if 0 < value <= MAX_SECONDS else None


def written(phases: Phases) -> str:
    """Return learned phases in the form of a pod's annotation."""
    return json.dumps(
        [
            {
                "name": phase.name,
                "millicores": phase.millicores,
                "memoryBytes": phase.memory_bytes,
                "seconds": None if phase.seconds is None else round(phase.seconds, 1),
            }
            for phase in phases
        ]
    )


def learned_for(pod: PodObject) -> Phases:
    """Return the learned phases that a pod was created with; empty without any, or if they are unreadable."""
    text = pod.metadata.annotations.get(LEARNED_PHASES_ANNOTATION, "")
    if not 0 < len(text) <= LEARNED_CHARACTERS:
        return NO_PHASES
    try:
        given = json.loads(text)
        found = tuple(
            StatedPhase(
                str(entry["name"]),
                _whole(entry["millicores"]),
                _whole(entry["memoryBytes"]),
                _positive(entry["seconds"]),
            )
            for entry in given
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return NO_PHASES
    named = len({phase.name for phase in found}) == len(found)
    return found if named and len(found) <= MAX_PHASES else NO_PHASES


def phases_for(pod: PodObject, job: CustomObject | None) -> Phases:
    """Return the phases of a pod: those of its Job, or learned ones; empty without either, or after its end."""
    if job is None or not pod.spec.containers or pod.status.phase in ("Succeeded", "Failed"):
        return NO_PHASES
    return phases_of(job) or learned_for(pod)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_EXACT_INT:
        raise ValueError("it is no amount")
    return value


def index_of(name: str, phases: Phases) -> int | None:
    """Return the position of a phase by its name; None for an unknown name."""
    return next((index for index, phase in enumerate(phases) if phase.name == name), None)


def shows_by_readiness(pod: PodObject) -> bool:
    """Whether a pod requests its next phase by its readiness."""
    return PHASE_SIGNAL_ANNOTATION in pod.metadata.annotations and not signal_mistake(pod)


def signal_mistake(pod: PodObject) -> str:
    """Return why a pod's `PHASE_SIGNAL_ANNOTATION` is ignored; empty if it is followed or absent."""
    asked = pod.metadata.annotations.get(PHASE_SIGNAL_ANNOTATION)
    if asked is None:
        return ""
    if asked != READINESS_SIGNAL:
        return f"{PHASE_SIGNAL_ANNOTATION} is {asked[:40]!r} and can only be {READINESS_SIGNAL!r}: it is ignored"
    if pod.spec.containers[0].readiness_probe is None:
        return f"{PHASE_SIGNAL_ANNOTATION} is ignored: the first container has no readinessProbe"
    return ""


def readiness_of(pod: PodObject, from_wall: Callable[[float], float]) -> Readiness | None:
    """Return whether a pod is ready; None while its first container does not run, since that shows no phase.

    Parameters
    ----------
    from_wall : epoch seconds of the machine to seconds of the operator's clock.
    """
    condition = next((entry for entry in pod.status.conditions if entry.type == "Ready"), None)
    started_at = _started_at(pod)
    if condition is None or started_at is None:
        return None
    since, started = (
        -math.inf if moment is None else from_wall(moment)
        for moment in (_moment(condition.last_transition_time), _moment(started_at))
    )
    return Readiness(condition.status == "True", since, started)


def left_at(pod: PodObject, phases: Phases, from_wall: Callable[[float], float], now_seconds: float) -> Progress:
    """Return the progress that an earlier operator left for a pod without its own signal; by default the first phase.

    Parameters
    ----------
    from_wall : epoch seconds of the machine to seconds of the operator's clock.
    """
    notes = pod.metadata.annotations
    position = index_of(notes.get(GRANTED_PHASE_ANNOTATION, ""), phases)
    since = _moment(notes.get(PHASE_SINCE_ANNOTATION))
    began = _moment(_started_at(pod))
    if position is None or since is None or (began is not None and since < began):
        return Progress(0, now_seconds)
    granted = min(from_wall(since), now_seconds)
    return Progress(position, granted, granted)


def growth_of(pod: PodObject, phases: Phases) -> int:
    """Return the expected growth of a pod's requests in millicores, in the mean of its remaining phases.

    At most `MAX_GROWTH`. The mean is weighted by the stated lengths if all phases have one, as nodes count in the
    simulator (`Nodes.expected`).
    """
    notes = pod.metadata.annotations
    stated = index_of(notes.get(PHASE_ANNOTATION, ""), phases)
    position = stated if stated is not None else index_of(notes.get(GRANTED_PHASE_ANNOTATION, ""), phases)
    left = phases[position or 0 :]
    lengths = [phase.seconds for phase in left]
    weights = [length or 0.0 for length in lengths]
    if None in lengths or not sum(weights):
        weights = [1.0] * len(left)
    mean = sum(phase.millicores * weight for phase, weight in zip(left, weights, strict=True)) / sum(weights)
    return min(round(mean) - max(asked_by(pod).millicores, (set_for(pod) or asked_by(pod)).millicores), MAX_GROWTH)


def run_of(pod: PodObject) -> str:
    """Return an identifier of one run of a pod's first container; each run starts with the first phase."""
    restarts = next((status.restart_count for status in pod.status.container_statuses if status.name == _name(pod)), 0)
    return f"{pod.metadata.uid}/{restarts}"


def asked_by(pod: PodObject) -> Amounts:
    """Return the requests of the first container's spec."""
    return _amounts(pod.spec.containers[0].resources.requests)


def set_for(pod: PodObject) -> Amounts | None:
    """Return the amounts that the kubelet has set if they differ from the spec; None if they are equal."""
    for status in pod.status.container_statuses:
        if status.name == _name(pod) and status.resources is not None:
            held = _amounts(status.resources.requests)
            return None if held == asked_by(pod) else held
    return None


def started_seconds(pod: PodObject, from_wall: Callable[[float], float]) -> float | None:
    """Return the start of a pod's first container, in seconds of the operator's clock; None if it is unknown."""
    moment = _moment(_started_at(pod))
    return None if moment is None else from_wall(moment)


def has_phases(pod: PodObject) -> bool:
    """Whether the kubelet reports the first container: before that, its set amounts are unknown."""
    return any(status.name == _name(pod) for status in pod.status.container_statuses)


def with_size(translated: Pod, pod: PodObject, size: Amounts, *, is_phased: bool) -> Pod:
    """Return a pod as if its first container already requested a size; its counted amounts never fall by that.

    The growth of a phased pod shrinks by the same amount.
    """
    first, *others = pod.spec.containers
    requests = {**first.resources.requests, CPU: format_amount(CPU, size.millicores)}
    if size.memory_bytes:
        requests[MEMORY] = format_amount(MEMORY, size.memory_bytes)
    wished = replace(first, resources=replace(first.resources, requests=requests))
    counted = dict(translated.requests)
    asked = effective_requests(replace(pod.spec, containers=(wished, *others)))
    for name, amount in asked.amounts:
        counted[name] = max(counted.get(name, 0), amount)
    more = counted.get(CPU, 0) - dict(translated.requests).get(CPU, 0) if is_phased else 0
    growth = translated.growth_millicores - more
    return translated._replace(
        requests=tuple(sorted(counted.items())),
        growth_millicores=growth,
        unrequested_millicores=asked.unrequested[0],
        unrequested_memory_bytes=asked.unrequested[1],
    )


def resize_pending(pod: PodObject) -> str:
    """Return why a resize is pending, ``Deferred`` or ``Infeasible``; empty without one."""
    return next(
        (
            condition.reason
            for condition in pod.status.conditions
            if condition.type == "PodResizePending" and condition.status == "True"
        ),
        "",
    )


def _name(pod: PodObject) -> str:
    return pod.spec.containers[0].name


def _amounts(requests: Mapping[str, Quantity]) -> Amounts:
    return Amounts(_amount(CPU, requests.get(CPU, 0)), _amount(MEMORY, requests.get(MEMORY, 0)))


def _amount(resource: str, quantity: Quantity) -> int:
    try:
        return bounded_amount(resource, quantity)
    except InputError:
        return 0


def _started_at(pod: PodObject) -> str | None:
    for status in pod.status.container_statuses:
        if status.name == _name(pod) and status.state.running is not None:
            return status.state.running.started_at
    return None


def _moment(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return parse_timestamp(text)
    except InputError:
        return None
