"""Resizes running pods of Jobs with phases: each asks its node for what its phase needs, and no more.

Started by `assembly` on the replica that leads. Once a second it looks at the running pods of Jobs with phases.
A pod says its phase by the annotation ``cotide.dev/phase`` (the first one by default); how much cpu it should ask for
says `cotide_core.phases.growth`. When its kubelet has set that, the annotation ``cotide.dev/granted-phase`` tells the
work that it may go on, through a file of the downward API, say. Place in the flow: a new size is a change of the pod's
spec, which comes back through the watch and is counted like any other (`translation.pod_requests`).

What the API server refuses for good (a pod whose QoS class would change, say) is not asked for again: such a pod keeps
its largest need, every phase is granted to it at once, and ``cotide.dev/phase-note`` says why. The same where its
kubelet calls a wish infeasible; and where it puts it off for longer than `GRANTED_ANYWAY_SECONDS` the phase goes on as
it is held: no phase waits for ever. A new leader misses nothing but the ages of waits, which begin anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cotide_core.errors import ClusterError, InputError
from cotide_core.phases.growth import Growth, cpu_to_ask
from cotide_core.units import CPU, bounded_amount, format_amount
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_operator.apis.names import GRANTED_PHASE_ANNOTATION, PHASE_ANNOTATION, PHASE_NOTE_ANNOTATION
from cotide_operator.cache.object_cache import CustomObject, Kind, ObjectCache

_LOG = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 1.0
"""Chosen: phases last for many seconds."""
ECHO_SECONDS: Final = 5.0
"""How long a new size may take to come back through the watch before it is asked for again. Chosen."""
GRANTED_ANYWAY_SECONDS: Final = 600.0
"""Chosen: room that is kept for a wish comes when a batch pod of the node ends; beside services alone it never may."""
Now = Callable[[], float]


@dataclass(slots=True)
class _Known:
    """What is remembered of a pod while it runs; monotonic seconds."""

    uid: str
    phase: str
    since: float
    asked: int = -1
    asked_at: float = -ECHO_SECONDS
    refused: str = ""


class PhaseResizer:
    """Keeps the sizes of phased pods.

    Parameters
    ----------
    room_of : node to the millicores that the scheduler counts as free there.
    now : monotonic seconds.
    """

    def __init__(
        self, client: KubeClient, mirror: ObjectCache, room_of: Callable[[str], int], now: Now = time.monotonic
    ) -> None:
        self._client, self._mirror, self._room_of, self._now = client, mirror, room_of, now
        self._known: dict[str, _Known] = {}
        self._phased: dict[str, None] = {key: None for key, job in mirror.jobs.items() if phases_of(job)}
        mirror.subscribe(self._changed)

    def _changed(self, kind: Kind, key: str) -> None:
        if kind == "jobs" and key:
            job = self._mirror.jobs.get(key)
            if job is not None and phases_of(job):
                self._phased[key] = None
            else:
                self._phased.pop(key, None)

    async def run(self) -> None:
        """Look at all phased pods every `PERIOD_SECONDS`, until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Ask for new sizes, the longest wait of a node first, and grant phases."""
        pods = {}
        for job_key in self._phased:
            phases = phases_of(self._mirror.jobs[job_key])
            for pod in self._mirror.pods_of_job(job_key):
                if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None and pod.spec.containers:
                    pods[f"{pod.metadata.namespace}/{pod.metadata.name}"] = (pod, phases)
        for key in [key for key in self._known if key not in pods]:
            del self._known[key]
        for key, (pod, phases) in pods.items():
            self._note_phase(key, pod, phases)
        rooms: dict[str, int] = {}
        for key in sorted(pods, key=lambda key: self._known[key].since):
            pod, phases = pods[key]
            try:
                await self._size(key, pod, phases, rooms)
            except ApiError as error:
                self._refused(key, error)
            except ClusterError as error:
                _LOG.warning("pods %s is resized later: %s", key, error)

    def _note_phase(self, key: str, pod: PodObject, phases: dict[str, int]) -> None:
        phase = pod.metadata.annotations.get(PHASE_ANNOTATION, "")
        if phase not in phases:
            phase = next(iter(phases))
        known = self._known.get(key)
        if known is None or known.uid != pod.metadata.uid:
            self._known[key] = _Known(pod.metadata.uid, phase, self._now())
        elif known.phase != phase:
            known.phase, known.since = phase, self._now()

    async def _size(self, key: str, pod: PodObject, phases: dict[str, int], rooms: dict[str, int]) -> None:
        known, now, node = self._known[key], self._now(), pod.spec.node_name
        if known.refused:
            await self._grant(key, pod, known, known.refused)
            return
        asks = _millicores(pod.spec.containers[0].resources.requests.get(CPU, 0))
        waits_for_echo = known.asked >= 0 and known.asked != asks and now - known.asked_at < ECHO_SECONDS
        room = rooms.setdefault(node, self._room_of(node))
        if waits_for_echo:
            rooms[node] = room - max(0, known.asked - asks)
            return
        infeasible = _pending(pod) == "Infeasible"
        if infeasible:
            known.refused = "its kubelet calls the size of this phase infeasible"
            held = _set_millicores(pod)
            if held is not None and held != asks:
                await self._ask(key, pod, held)
            return
        size = cpu_to_ask(Growth(phases[known.phase], asks, now - known.since), room)
        if size != asks:
            rooms[node] = room - (size - asks)
            known.asked, known.asked_at = size, now
            await self._ask(key, pod, size)
            return
        granted = asks == phases[known.phase] and _set_millicores(pod) is None and not _pending(pod)
        if granted:
            await self._grant(key, pod, known, "")
        elif now - known.since > GRANTED_ANYWAY_SECONDS:
            await self._grant(
                key, pod, known, "its node has had no room for this phase for ten minutes: it goes on, held small"
            )

    async def _ask(self, key: str, pod: PodObject, millicores: int) -> None:
        container = {
            "name": pod.spec.containers[0].name,
            "resources": {"requests": {CPU: format_amount(CPU, millicores)}},
        }
        body = {"metadata": {"uid": pod.metadata.uid}, "spec": {"containers": [container]}}
        await self._client.patch(f"{_path(key)}/resize", body, "strategic")

    async def _grant(self, key: str, pod: PodObject, known: _Known, note: str) -> None:
        """Tell the work that it may go on, once for each phase."""
        annotations = pod.metadata.annotations
        if (
            annotations.get(GRANTED_PHASE_ANNOTATION) == known.phase
            and annotations.get(PHASE_NOTE_ANNOTATION, "") == note
        ):
            return
        told: dict[str, Any] = {GRANTED_PHASE_ANNOTATION: known.phase, PHASE_NOTE_ANNOTATION: note or None}
        await self._client.patch(_path(key), {"metadata": {"uid": pod.metadata.uid, "annotations": told}})

    def _refused(self, key: str, error: ApiError) -> None:
        known = self._known.get(key)
        if known is None or error.status in (404, 409, 429) or error.status >= 500:
            return  # gone, another one, or for now
        _LOG.warning("pods %s keeps its largest need: %s", key, error)
        known.refused = f"it can't be resized and keeps its largest need: {error}"[:500]


def phases_of(job: CustomObject) -> dict[str, int]:
    """Return the millicores of each phase of a Job by name, in their order; none where it has none that can be read."""
    given = job.spec.get("phases")
    if not isinstance(given, list):
        return {}
    try:
        return {str(one["name"]): bounded_amount(CPU, one["resources"]["cpu"]) for one in given}
    except (InputError, KeyError, TypeError):  # of an older definition; its Job says that it is misconfigured
        return {}


def _millicores(quantity: str | int | float) -> int:
    try:
        return bounded_amount(CPU, quantity)
    except InputError:
        return 0


def _set_millicores(pod: PodObject) -> int | None:
    """Return what the kubelet has set where that is not what the spec asks for; None where it is the same."""
    name = pod.spec.containers[0].name
    for status in pod.status.container_statuses:
        if status.name == name and status.resources is not None:
            held = _millicores(status.resources.requests.get(CPU, 0))
            return None if held == _millicores(pod.spec.containers[0].resources.requests.get(CPU, 0)) else held
    return None


def _pending(pod: PodObject) -> str:
    return next(
        (one.reason for one in pod.status.conditions if one.type == "PodResizePending" and one.status == "True"), ""
    )


def _path(key: str) -> str:
    namespace, _, name = key.partition("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
