"""Resizes running pods of Jobs with phases: each pod requests from its node what its phase needs, and no more.

`assembly` starts it on the leading replica. Once a second it examines the running pods of Jobs with phases, and those
with learned phases (`usage.phase_learning`). In each cycle of the scheduling loop it examines the pods that changed and
those that wait. This happens after the engine receives its events and before it decides, so that a waiting phase gets
freed room on its node before a new pod does.

A pod states its phase by the annotation ``cotide.dev/phase``, or requests the next one through its readiness. For a pod
that does neither, `cotide_core.phases.progress` derives the phase from measured usage or the stated lengths.
`cotide_core.phases.growth` computes the size to request. When the kubelet has set that size, or the pod holds as much
anyway, the resizer writes the annotation ``cotide.dev/granted-phase``. The work reads it, for example through a file of
the downward API, and continues.

Position in the flow: a new size is a change of the pod's spec. It comes back through the watch and counts like any
other change (`translation.pod_requests`). The engine receives the size before the request, so that no other pod is
bound into that room (`EventSource.expect_size`). The writes of each pod are a task of their own, and namespaces take
turns: a server that hangs on one pod holds up no other, and one tenant's many pods do not delay another's.

Requests that the API server refuses (a quota is used up, or the QoS class would change) are repeated after
`REFUSED_SECONDS`, and after twice as long each time. Meanwhile the pod keeps its size, its phases are granted at once,
and ``cotide.dev/phase-note`` states the reason. Refused annotations (a pod may be full of them) are repeated after the
same pauses, and delay no size.
If the kubelet calls a size infeasible, the resizer takes it back and grants the phase. If the kubelet defers a size for
more than `GRANTED_ANYWAY_SECONDS`, the phase continues at its present size: no phase waits for ever. A new leader reads
the phase and its start from annotations; only the ages of waits start again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from cotide_core.errors import ClusterError
from cotide_core.phases.growth import Amounts, Growth, size_to_ask
from cotide_core.phases.progress import Progress, Usage, advanced, memory_from, shown
from cotide_core.units import CPU, MEMORY, format_amount
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_kube.timestamps import format_micro_timestamp
from cotide_operator.apis.names import (
    GRANTED_PHASE_ANNOTATION,
    LEARNED_PHASES_ANNOTATION,
    PHASE_ANNOTATION,
    PHASE_ENDS_ANNOTATION,
    PHASE_NOTE_ANNOTATION,
    PHASE_SINCE_ANNOTATION,
)
from cotide_operator.cache.fair_queue import FairQueue, FairSemaphore
from cotide_operator.cache.object_cache import Kind, ObjectCache, namespace_of_key, owned_key
from cotide_operator.clock import Clock
from cotide_operator.observability.metrics import Metrics
from cotide_operator.translation.pod_phases import (
    NO_PHASES,
    Phases,
    asked_by,
    has_phases,
    index_of,
    learned_for,
    left_at,
    phases_of,
    readiness_of,
    resize_pending,
    run_of,
    set_for,
    shows_by_readiness,
    signal_mistake,
)

_LOG = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 1.0
"""Seconds of the operator's clock; the wall allows `POLLS_PER_SECOND`. Chosen: phases last for many seconds."""
POLLS_PER_SECOND: Final = 10.0
ECHO_SECONDS: Final = 5.0
"""Wall seconds that a new size may take to come back through the watch before the next request. Chosen."""
REFUSED_SECONDS: Final = 30.0
"""Wall seconds of the pause after the first refusal; chosen."""
REFUSED_MOST_SECONDS: Final = 3600.0
"""Chosen: a pod that can never be resized costs one request an hour."""
MAX_DOUBLED: Final = 10
"""Most doublings of a pause: they reach the longest pause, and an unbounded power would overflow."""
WRITES_AT_ONCE: Final = 16
"""Pods with a write in flight, half of them of one namespace; chosen: the pods of a node or two, and a small part of
a client's connections."""
EXAMINED_AT_ONCE: Final = 500
"""Pods that one cycle examines; chosen: 15 to 25 ms of the deciding loop if all of them need a write."""
EXAMINED_A_PERIOD: Final = 2000
"""Unchanged pods that are examined in `PERIOD_SECONDS`; chosen: 6 % of a core, for any number of pods."""
GRANTED_ANYWAY_SECONDS: Final = 600.0
"""Chosen: reserved room becomes free when a batch pod of the node ends; on a node with services only it may not."""
_HELD: Final = "its node has had no room for this phase for ten minutes: it continues at its present size"
_INFEASIBLE: Final = "its kubelet calls the size of this phase infeasible"


@dataclass(slots=True)
class _Known:
    """State of a running pod.

    Attributes
    ----------
    asked, asked_at : the last requested size, and the wall's monotonic second.
    refused, refusals, again_at : reason of the refusal, refusals in a row, and time of the next try.
    wished : position of the phase that the last size was for; -1 for none.
    infeasible : position of the phase with a size that the kubelet called infeasible; -1 for none.
    granted, granted_at : phase and note that were written last, and the wall's monotonic second.
    unwritten, refused_grants, grant_at : refused phase and note, refusals in a row, and time of the next try.
    on_its_way, on_its_way_at : a smaller size that the kubelet may still set although the spec requests more again,
        and since when; None for none.
    """

    run: str
    progress: Progress
    asked: Amounts | None = None
    asked_at: float = 0.0
    refused: str = ""
    refusals: int = 0
    again_at: float = 0.0
    wished: int = -1
    infeasible: int = -1
    granted: tuple[str, str] = ("", "")
    granted_at: float = 0.0
    unwritten: tuple[str, str] = ("", "")
    refused_grants: int = 0
    grant_at: float = 0.0
    on_its_way: Amounts | None = None
    on_its_way_at: float = 0.0


class _Patch(NamedTuple):
    """One write to a pod: a size with its reason, or what is granted (phase, note)."""

    body: dict[str, Any]
    why: str = ""
    grants: tuple[str, str] = ("", "")


class _Phased(NamedTuple):
    """A running pod and its phases."""

    key: str
    pod: PodObject
    phases: Phases
    known: _Known


class PhaseResizer:
    """Keeps the sizes of phased pods.

    Parameters
    ----------
    room_of : node to the room that the scheduler counts as free there.
    room_of : node to the room that the scheduler counts as free there.
    expect : receives the size before a pod (its key and uid) requests it; None once that is settled.
    nudge : makes the scheduling loop call `take_room` soon.
    usage_of : pod to its last fresh reading, or None; `Usage.at_seconds` is of the operator's clock.
    """

    def __init__(
        self,
        client: KubeClient,
        cache: ObjectCache,
        room_of: Callable[[str], Amounts],
        expect: Callable[[str, str, Amounts | None], None],
        *,
        clock: Clock,
        metrics: Metrics,
        usage_of: Callable[[str], Usage | None],
        nudge: Callable[[], None] = lambda: None,
        wall: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._cache, self._room_of, self._clock = client, cache, room_of, clock
        self._expect, self._nudge = expect, nudge
        self._metrics, self._usage_of, self._wall = metrics, usage_of, wall
        self._known: dict[str, _Known] = {}
        self._writes: dict[str, asyncio.Task[None]] = {}
        """Pods with a write in flight."""
        self._slots = FairSemaphore(WRITES_AT_ONCE)
        self._touched: FairQueue[str] = FairQueue()
        """Phased pods to examine, since they changed or some time has passed."""
        self._unchanged: list[str] = []
        """Pods that are due for examination, changed or not."""
        self._waiting: dict[str, dict[str, None]] = {}
        """Pods without a granted phase, by their nodes."""
        self._relieved: set[str] = set()
        """Nodes of these with any change: they may have room."""
        self._phased: dict[str, None] = {key: None for key, job in cache.jobs.items() if phases_of(job)}
        self._learned: dict[str, None] = {}
        """Pods that were created with learned phases."""
        for key in cache.pods:
            self._changed("pods", key)
        self.look_at_all()
        cache.subscribe(self._changed)

    def _changed(self, kind: Kind, key: str) -> None:
        if kind == "pods" and key:
            self._pod_changed(key)
        elif kind == "nodes" and key in self._waiting:
            self._relieved.add(key)
        elif kind == "jobs" and key:
            job = self._cache.jobs.get(key)
            if job is not None and phases_of(job):
                self._phased[key] = None
            else:
                self._phased.pop(key, None)

    def _pod_changed(self, key: str) -> None:
        pod = self._cache.pods.get(key)
        if pod is not None and LEARNED_PHASES_ANNOTATION in pod.metadata.annotations:
            self._learned[key] = None
        else:
            self._learned.pop(key, None)
        if pod is None:  # its node is unknown now: all waiting pods have their turn each second
            self._touched.drop(key)
            return
        if key in self._learned or (self._phased and owned_key(pod.metadata, "Job") in self._phased):
            self._touched.add(key, pod.metadata.namespace)
        if pod.spec.node_name in self._waiting:
            self._relieved.add(pod.spec.node_name)

    async def run(self) -> None:
        """Examine phased pods every `PERIOD_SECONDS`, all of them or `EXAMINED_A_PERIOD`, until cancelled."""
        try:
            while True:
                await asyncio.sleep(max(PERIOD_SECONDS / self._clock.speed, 1.0 / POLLS_PER_SECOND))
                for key in [key for key, write in self._writes.items() if write.done()]:
                    self._writes.pop(key).result()
                self.look_at_some()
        finally:
            for write in self._writes.values():
                write.cancel()
            await self.written()

    def look_at_all(self) -> None:
        """Mark all phased pods for examination in the next cycles."""
        self._unchanged.clear()
        self._touch(self._phased_pods())

    def look_at_some(self) -> None:
        """Mark the next `EXAMINED_A_PERIOD` phased pods for examination, or all if they are fewer."""
        if not self._unchanged:
            self._unchanged = self._phased_pods()
        due, self._unchanged = self._unchanged[:EXAMINED_A_PERIOD], self._unchanged[EXAMINED_A_PERIOD:]
        self._touch(due)

    def _touch(self, keys: Iterable[str]) -> None:
        """Mark pods for examination in the next cycles; a marked pod keeps its place."""
        for key in keys:
            self._touched.add(key, namespace_of_key(key))
        self._nudge()

    async def written(self) -> None:
        """Wait until all writes have an answer."""
        await asyncio.gather(*self._writes.values(), return_exceptions=True)

    def wants(self) -> bool:
        """Whether any pod waits for examination."""
        return bool(self._touched or self._relieved)

    def take_room(self) -> None:
        """Request new sizes, the longest wait of a node first, and grant phases; for at most `EXAMINED_AT_ONCE` pods.

        If more are due, namespaces take turns. Otherwise one namespace with waiting pods on busy nodes would take every
        cycle.

        The free room of the scheduler must include all sizes that it received through ``expect``.
        """
        for node in self._relieved:
            for key in self._waiting.pop(node, {}):
                self._touched.add(key, namespace_of_key(key))
        self._relieved.clear()
        due: list[str] = []
        while len(due) < EXAMINED_AT_ONCE and (touched := self._touched.pop()) is not None:
            due.append(touched)
        pods = self._running(due, self._clock.now())
        rooms: dict[str, Amounts] = {}
        for phased_pod in sorted(pods, key=lambda pod: pod.known.progress.since_seconds):
            try:
                patches = self._size(phased_pod, rooms)
            except Exception as error:  # noqa: BLE001 - one faulty pod must not stop all others
                self._cache.quarantine_object("pods", phased_pod.key, "phases", error)
                continue
            if patches:
                self._writes[phased_pod.key] = asyncio.create_task(
                    self._write(phased_pod, patches), name=f"phase of {phased_pod.key}"
                )
            if phased_pod.known.progress.granted_seconds is None:
                self._waiting.setdefault(phased_pod.pod.spec.node_name, {})[phased_pod.key] = None

    async def _write(self, phased_pod: _Phased, patches: Iterable[_Patch]) -> None:
        try:
            async with self._slots.slot(phased_pod.pod.metadata.namespace):
                for patch in patches:
                    await (self._resize if patch.why else self._emit)(phased_pod, patch)
        except ApiError:
            self._metrics.phase_resizes.labels("unanswered").inc()  # deleted, replaced, or a passing fault
        except ClusterError as error:
            self._metrics.phase_resizes.labels("unanswered").inc()
            _LOG.warning("pod %s: its new size is delayed: %s", phased_pod.key, error)

    async def _resize(self, phased_pod: _Phased, patch: _Patch) -> None:
        try:
            await self._client.patch(f"{_path(phased_pod.key)}/resize", patch.body, "strategic")
        except ApiError as error:
            if not _is_refusal(error):
                raise
            self._refused(phased_pod, error)
            return
        phased_pod.known.refused, phased_pod.known.refusals = "", 0
        self._metrics.phase_resizes.labels(patch.why).inc()

    async def _emit(self, phased_pod: _Phased, patch: _Patch) -> None:
        known = phased_pod.known
        try:
            await self._client.patch(_path(phased_pod.key), patch.body)
        except ApiError as error:
            if not _is_refusal(error):
                raise
            known.unwritten, known.grant_at = patch.grants, self._wall() + _pause(known.refused_grants)
            known.refused_grants += 1
            _LOG.warning("pod %s: its granted phase can't be written now: %s", phased_pod.key, error)
            return
        known.granted, known.granted_at = patch.grants, self._wall()
        known.unwritten, known.refused_grants = ("", ""), 0

    def _phased_pods(self) -> list[str]:
        """Return the keys of all pods with phases, and forget the state of all others."""
        pods = [pod for job in self._phased for pod in self._cache.pods_of_job(job)]
        keys = dict.fromkeys(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods) | self._learned
        self._known = {key: known for key, known in self._known.items() if key in keys}
        waiting = {node: {key: None for key in on if key in self._known} for node, on in self._waiting.items()}
        self._waiting = {node: on for node, on in waiting.items() if on}
        return list(keys)

    def _running(self, keys: Iterable[str], now: float) -> list[_Phased]:
        """Return the state of those pods that run and have phases, and forget the others."""
        pods = []
        for key in keys:
            pod = self._cache.pods.get(key)
            phases = self._phases_of(key, pod) if pod is not None else NO_PHASES
            runs = pod is not None and pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
            if pod is None or not phases or not runs or not pod.spec.containers:
                self._known.pop(key, None)
            elif self._cache.quarantine.get("pods", key) is None:
                try:
                    pods.append(_Phased(key, pod, phases, self._follow(key, pod, phases, now)))
                except Exception as error:  # noqa: BLE001 - as in `take_room`
                    self._cache.quarantine_object("pods", key, "phases", error)
        return pods

    def _phases_of(self, key: str, pod: PodObject) -> Phases:
        owner = owned_key(pod.metadata, "Job")
        if owner is not None and owner in self._phased:
            return phases_of(self._cache.jobs[owner])
        # A pod with an unusual request can't be resized.
        able = key in self._learned and owner in self._cache.jobs and pod.spec.containers
        phases = learned_for(pod) if able else NO_PHASES
        return phases if phases and asked_by(pod).millicores else NO_PHASES

    def _follow(self, key: str, pod: PodObject, phases: Phases, now: float) -> _Known:
        """Update which phase a pod is in."""
        known, run = self._known.get(key), run_of(pod)
        if known is None or known.run != run:
            is_new_run = known is not None and known.run.partition("/")[0] == pod.metadata.uid
            left = Progress(0, now) if is_new_run else left_at(pod, phases, self._clock.from_wall, now)
            known = self._known[key] = _Known(run, left, on_its_way_at=self._wall())
            granted = index_of(pod.metadata.annotations.get(GRANTED_PHASE_ANNOTATION, ""), phases)
            if granted is not None and not is_new_run:  # a former operator may have requested this size, and then more
                known.on_its_way = Amounts(phases[granted].millicores, memory_from(phases, granted))
        before = known.progress
        stated = index_of(pod.metadata.annotations.get(PHASE_ANNOTATION, ""), phases)
        if stated is not None:
            if stated != before.position:
                known.progress = before.entered(stated, now)
        elif before.position >= len(phases):  # its Job has fewer phases by now
            known.progress = before.entered(len(phases) - 1, now)
        elif shows_by_readiness(pod):
            readiness = readiness_of(pod, self._clock.from_wall)
            known.progress = before if readiness is None else shown(before, phases, now, readiness)
        else:
            known.progress = advanced(before, phases, now, self._usage_of(key))
        if known.progress.position != before.position:
            self._score(before, phases, now)
        return known

    def _score(self, left: Progress, phases: Phases, now: float) -> None:
        """Observe the ratio of the actual to the stated length of a phase."""
        seconds = phases[left.position].seconds if left.position < len(phases) else None
        if seconds is not None and left.granted_seconds is not None:
            self._metrics.phase_length_ratio.observe((now - left.granted_seconds) / seconds)

    def _size(self, phased_pod: _Phased, rooms: dict[str, Amounts]) -> list[_Patch]:
        """Return the writes for a pod, and take the requested size off the room of its node."""
        _, pod, phases, known = phased_pod
        progress, now, node = known.progress, self._clock.now(), pod.spec.node_name
        asks = asked_by(pod)
        room = rooms.setdefault(node, self._room_of(node))
        is_written = phased_pod.key in self._writes and not self._writes[phased_pod.key].done()
        echoes = known.asked is not None and known.asked != asks and self._wall() - known.asked_at < ECHO_SECONDS
        if known.asked is not None and (is_written or echoes):
            most = Amounts(*(max(wish, has) for wish, has in zip(known.asked, asks, strict=True)))
            rooms[node] = _left(room, most, asks)  # its echo is on the way
        if is_written:
            return []
        if known.refused and self._wall() < known.again_at:
            return self._grant(phased_pod, known.refused)
        if echoes:
            return []
        held = set_for(pod)
        if held is not None and resize_pending(pod) == "Infeasible":
            known.infeasible = progress.position if known.wished < 0 else known.wished
            return self._ask(phased_pod, held, "infeasible")
        if known.infeasible == progress.position:
            return self._grant(phased_pod, _INFEASIBLE)
        phase = phases[progress.position]
        memory = memory_from(phases, progress.position) if asks.memory_bytes else 0
        needs = Amounts(phase.millicores, memory)
        usage, waited = self._usage_of(phased_pod.key), now - progress.since_seconds
        used = usage.memory_bytes if usage is not None else None
        size = size_to_ask(Growth(needs, asks, waited, used), room)
        has_enough = self._holds(phased_pod, needs)
        if size != asks:
            rooms[node] = _left(room, size, asks)
            known.wished = progress.position
            grant = self._grant(phased_pod, signal_mistake(pod)) if has_enough and known.asked in (None, asks) else []
            return [*grant, *self._ask(phased_pod, size, "asked")]
        self._expect(phased_pod.key, pod.metadata.uid, None)
        if has_enough:
            return self._grant(phased_pod, signal_mistake(pod))
        return self._grant(phased_pod, _HELD) if waited > GRANTED_ANYWAY_SECONDS else []

    def _holds(self, phased_pod: _Phased, needs: Amounts) -> bool:
        """Whether a container has as much as it needs, and no kubelet is about to set less.

        A kubelet that reports its observed generation makes the guess unnecessary.
        """
        _, pod, _, known = phased_pod
        observed = pod.status.observed_generation
        if observed is not None:
            known.on_its_way = None
            if observed < pod.metadata.generation:
                return False
        asks, less = asked_by(pod), known.on_its_way
        if less is not None:
            held = set_for(pod) or asks
            is_there = all(has <= least for has, least in zip(held, less, strict=True))
            if is_there or self._wall() - known.on_its_way_at >= ECHO_SECONDS:
                less = known.on_its_way = None
        surely = asks if less is None else Amounts(*(min(both) for both in zip(asks, less, strict=True)))
        return _is_set(pod) and all(has >= need for has, need in zip(surely, needs, strict=True))

    def _ask(self, phased_pod: _Phased, size: Amounts, why: str) -> list[_Patch]:
        asks, held = asked_by(phased_pod.pod), set_for(phased_pod.pod)
        if held is not None and any(wish < has for wish, has in zip(asks, held, strict=True)):
            phased_pod.known.on_its_way, phased_pod.known.on_its_way_at = asks, self._wall()
        phased_pod.known.asked, phased_pod.known.asked_at = size, self._wall()
        self._expect(phased_pod.key, phased_pod.pod.metadata.uid, size)
        requests = {CPU: format_amount(CPU, size.millicores)}
        if size.memory_bytes:
            requests[MEMORY] = format_amount(MEMORY, size.memory_bytes)
        container = {"name": phased_pod.pod.spec.containers[0].name, "resources": {"requests": requests}}
        return [_Patch({"metadata": {"uid": phased_pod.pod.metadata.uid}, "spec": {"containers": [container]}}, why)]

    def _grant(self, phased_pod: _Phased, note: str) -> list[_Patch]:
        """Grant the phase to the work, once for each phase, with the time at which the phase should end."""
        known, annotations = phased_pod.known, phased_pod.pod.metadata.annotations
        phase = phased_pod.phases[known.progress.position]
        granted = known.progress.granted_seconds
        if granted is None:
            granted = self._clock.now()
            known.progress = replace(known.progress, granted_seconds=granted)
        grants = (phase.name, note)
        written_before = (annotations.get(GRANTED_PHASE_ANNOTATION, ""), annotations.get(PHASE_NOTE_ANNOTATION, ""))
        if written_before == grants or (known.granted == grants and self._wall() - known.granted_at < ECHO_SECONDS):
            return []
        if known.unwritten == grants and self._wall() < known.grant_at:
            return []
        ends = granted + phase.seconds if phase.seconds is not None else None
        changed: dict[str, Any] = {
            GRANTED_PHASE_ANNOTATION: phase.name,
            PHASE_SINCE_ANNOTATION: format_micro_timestamp(self._clock.to_wall(granted)),
            PHASE_ENDS_ANNOTATION: None if ends is None else format_micro_timestamp(self._clock.to_wall(ends)),
            PHASE_NOTE_ANNOTATION: note or None,
        }
        return [_Patch({"metadata": {"uid": phased_pod.pod.metadata.uid, "annotations": changed}}, grants=grants)]

    def _refused(self, phased_pod: _Phased, error: ApiError) -> None:
        self._metrics.phase_resizes.labels("refused").inc()
        self._expect(phased_pod.key, phased_pod.pod.metadata.uid, None)
        known = phased_pod.known
        known.refusals, known.again_at = known.refusals + 1, self._wall() + _pause(known.refusals)
        stays = format_amount(CPU, asked_by(phased_pod.pod).millicores)
        known.refused = f"it can't be resized now and stays at {stays} of cpu: {error}"[:500]
        _LOG.warning("pod %s: %s", phased_pod.key, known.refused)
        self._touch((phased_pod.key,))  # its note gives the reason


def _is_refusal(error: ApiError) -> bool:
    """Whether the server would refuse a write again; not for a pod that is gone or replaced, nor for a passing
    fault."""
    return error.status not in (404, 409, 429) and error.status < 500


def _pause(refusals: int) -> float:
    """Return the seconds of the pause after another refusal."""
    return min(REFUSED_SECONDS * 2.0 ** min(refusals, MAX_DOUBLED), REFUSED_MOST_SECONDS)


def _left(room: Amounts, size: Amounts, asks: Amounts) -> Amounts:
    """Return the room that is left when a pod requests another size."""
    return Amounts(*(free - (want - has) for free, want, has in zip(room, size, asks, strict=True)))


def _is_set(pod: PodObject) -> bool:
    return has_phases(pod) and set_for(pod) is None and not resize_pending(pod)


def _path(key: str) -> str:
    namespace, _, name = key.partition("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
