"""What a Job states of its phases, what its pod asks for and holds, and where an earlier operator left it.

Called by `scheduling.phase_resizer`. Invariant: what can't be read counts as not stated; nothing here raises.
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
"""Of learned phases on a pod; chosen: sixteen have some 1,500."""
MAX_GROWTH: Final = 1_000_000
"""Millicores by which a pod can grow. Chosen: no node is as large, and what all of a node's pods state can be added."""


def phases_of(job: CustomObject) -> Phases:
    """Return the phases of a Job, in their order; none where it has none that can be read.

    Shares are parts of the predicted run time of a pod, or of ``requestedSeconds`` while nothing is predicted.
    """
    given = job.spec.get("phases")
    if not isinstance(given, list) or not 0 < len(given) <= MAX_PHASES:
        return NO_PHASES
    try:
        lengths = _lengths(given, job)
        found = tuple(
            StatedPhase(
                str(one["name"]),
                bounded_amount(CPU, one["resources"]["cpu"]),
                bounded_amount(MEMORY, one["resources"].get("memory", 0)),
                seconds,
            )
            for one, seconds in zip(given, lengths, strict=True)
        )
    except (InputError, KeyError, TypeError, AttributeError):  # of an older definition: its Job is misconfigured
        return NO_PHASES
    return found if len({phase.name for phase in found}) == len(found) else NO_PHASES


def _lengths(given: list[Any], job: CustomObject) -> list[float | None]:
    shares = [_positive(one.get("share")) for one in given]
    whole = _run_seconds(job)
    known = [share for share in shares if share is not None]
    if whole is not None and len(known) == len(shares):
        return [whole * share / sum(known) for share in known]
    return [_positive(one.get("seconds")) for one in given]


def _run_seconds(job: CustomObject) -> float | None:
    predicted = job.status.get("predictedSeconds")
    p50 = predicted.get("p50") if isinstance(predicted, Mapping) else None
    return _positive(p50) or _positive(job.spec.get("requestedSeconds"))


def _positive(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if 0 < value <= MAX_SECONDS else None


def written(phases: Phases) -> str:
    """Return learned phases as a pod's annotation has them."""
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
    """Return the learned phases that a pod was made with; none where it was not, or they can't be read."""
    text = pod.metadata.annotations.get(LEARNED_PHASES_ANNOTATION, "")
    if not 0 < len(text) <= LEARNED_CHARACTERS:
        return NO_PHASES
    try:
        given = json.loads(text)
        found = tuple(
            StatedPhase(
                str(one["name"]), _whole(one["millicores"]), _whole(one["memoryBytes"]), _positive(one["seconds"])
            )
            for one in given
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return NO_PHASES
    named = len({phase.name for phase in found}) == len(found)
    return found if named and len(found) <= MAX_PHASES else NO_PHASES


def phases_for(pod: PodObject, job: CustomObject | None) -> Phases:
    """Return the phases of a pod: those of its Job, or learned ones; none where it has neither or has ended."""
    if job is None or not pod.spec.containers or pod.status.phase in ("Succeeded", "Failed"):
        return NO_PHASES
    return phases_of(job) or learned_for(pod)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_EXACT_INT:
        raise ValueError("it is no amount")
    return value


def index_of(name: str, phases: Phases) -> int | None:
    """Return the position of a phase by its name; None where there is none of that name."""
    return next((index for index, phase in enumerate(phases) if phase.name == name), None)


def shows_by_readiness(pod: PodObject) -> bool:
    """Whether a pod shows by its readiness that it wants its next phase."""
    return PHASE_SIGNAL_ANNOTATION in pod.metadata.annotations and not signal_mistake(pod)


def signal_mistake(pod: PodObject) -> str:
    """Return why a pod's `PHASE_SIGNAL_ANNOTATION` is passed over; empty where it is heard, or there is none."""
    asked = pod.metadata.annotations.get(PHASE_SIGNAL_ANNOTATION)
    if asked is None:
        return ""
    if asked != READINESS_SIGNAL:
        return f"{PHASE_SIGNAL_ANNOTATION} is {asked[:40]!r} and can only be {READINESS_SIGNAL!r}: it is passed over"
    if pod.spec.containers[0].readiness_probe is None:
        return f"{PHASE_SIGNAL_ANNOTATION} is passed over: the first container has no readinessProbe"
    return ""


def readiness_of(pod: PodObject, from_wall: Callable[[float], float]) -> Readiness | None:
    """Return whether a pod is ready; None where its first container does not run, which says nothing of phases.

    Parameters
    ----------
    from_wall : epoch seconds of the machine to seconds of the operator's clock.
    """
    condition = next((one for one in pod.status.conditions if one.type == "Ready"), None)
    started_at = _started_at(pod)
    if condition is None or started_at is None:
        return None
    since, started = (
        -math.inf if moment is None else from_wall(moment)
        for moment in (_moment(condition.last_transition_time), _moment(started_at))
    )
    return Readiness(condition.status == "True", since, started)


def left_at(pod: PodObject, phases: Phases, from_wall: Callable[[float], float], now_seconds: float) -> Progress:
    """Return where an earlier operator left a pod whose work says nothing; the first phase where it left no word.

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
    """Return the millicores that a pod will ask for beyond what it counts with, in the mean of the phases it has left.

    At most `MAX_GROWTH`. By their stated lengths where all have one, as nodes
    count in the simulator (`Nodes.expected`).
    """
    notes = pod.metadata.annotations
    said = index_of(notes.get(PHASE_ANNOTATION, ""), phases)
    position = said if said is not None else index_of(notes.get(GRANTED_PHASE_ANNOTATION, ""), phases)
    left = phases[position or 0 :]
    lengths = [phase.seconds for phase in left]
    weights = [length or 0.0 for length in lengths]
    if None in lengths or not sum(weights):
        weights = [1.0] * len(left)
    mean = sum(phase.millicores * weight for phase, weight in zip(left, weights, strict=True)) / sum(weights)
    return min(round(mean) - max(asked_by(pod).millicores, (set_for(pod) or asked_by(pod)).millicores), MAX_GROWTH)


def run_of(pod: PodObject) -> str:
    """Return what tells one run of a pod's first container from another: it begins with the first phase."""
    restarts = next((status.restart_count for status in pod.status.container_statuses if status.name == _name(pod)), 0)
    return f"{pod.metadata.uid}/{restarts}"


def asked_by(pod: PodObject) -> Amounts:
    """Return what the first container's spec asks for."""
    return _amounts(pod.spec.containers[0].resources.requests)


def set_for(pod: PodObject) -> Amounts | None:
    """Return what the kubelet has set where that is not what the spec asks for; None where it is the same."""
    for status in pod.status.container_statuses:
        if status.name == _name(pod) and status.resources is not None:
            held = _amounts(status.resources.requests)
            return None if held == asked_by(pod) else held
    return None


def started_seconds(pod: PodObject, from_wall: Callable[[float], float]) -> float | None:
    """Return since when a pod's first container runs, in seconds of the operator's clock; None where nobody says."""
    moment = _moment(_started_at(pod))
    return None if moment is None else from_wall(moment)


def has_phases(pod: PodObject) -> bool:
    """Whether the kubelet has told of the first container at all: until then nobody knows what is set for it."""
    return any(status.name == _name(pod) for status in pod.status.container_statuses)


def with_size(translated: Pod, pod: PodObject, size: Amounts, *, is_phased: bool) -> Pod:
    """Return a pod as if its first container asked for a size already; what it counts with never falls by that.

    What a phased pod asks for it does not grow by any more.
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
    """Return why a resize is pending, ``Deferred`` or ``Infeasible``; empty where none is."""
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
