"""One pod of phases beside its resizer: what was patched, and the time, which is the machine's as well."""

from __future__ import annotations

from typing import Any

import msgspec
from hand_clock import HandClock

from cotide_core.phases.growth import Amounts
from cotide_core.phases.progress import Usage
from cotide_kube.objects import PodObject
from cotide_kube.timestamps import format_micro_timestamp
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.observability.metrics import Metrics
from cotide_operator.scheduling.phase_resizer import PhaseResizer

SMALL = {"name": "read", "resources": {"cpu": "500m"}}
LARGE = {"name": "count", "resources": {"cpu": "3"}}
START = 1_000_000.0
GRANTED, NOTE = "cotide.dev/granted-phase", "cotide.dev/phase-note"
SINCE, ENDS = "cotide.dev/phase-since", "cotide.dev/phase-ends"
RUNS = {"running": {"startedAt": "1970-01-12T13:46:00Z"}}
Patch = tuple[str, Any]


class Scene:
    """One phased pod, what was patched, and the time, which is the machine's as well."""

    def __init__(self, room: int = 4000, *phases: dict[str, Any]) -> None:
        self.cache, self.patches, self.clock, self.room = ObjectCache(), [], HandClock(START), room
        self.fault: Exception | None = None
        self.refused: dict[str, Exception] = {}
        """Answers to patches of a pod, by the last part of their paths."""
        self.tried: list[str] = []
        """These parts, whatever the answer."""
        self.usage: Usage | None = None
        self.trips: set[str] = set()
        """Pods at which the resizer fails."""
        self.expected: list[Amounts | None] = []
        self.metrics = Metrics()
        self._phases = list(phases) or [SMALL, LARGE]
        self.see_job("d")
        self.restart()

    def see_job(self, namespace: str) -> None:
        metadata = {"namespace": namespace, "name": "j", "uid": "u"}
        job = {"metadata": metadata, "spec": {"phases": self._phases}}
        self.cache.apply("jobs", "ADDED", msgspec.convert(job, CustomObject))

    def restart(self) -> None:
        """Begin with a new operator."""
        self.resizer = PhaseResizer(
            self,  # type: ignore[arg-type]  # it patches, and nothing else
            self.cache,
            lambda _: Amounts(self.room, 1 << 30),
            lambda _, __, size: self.expected.append(size),
            clock=self.clock,
            metrics=self.metrics,
            usage_of=self.usage_of,
            wall=self.clock.now,
        )

    def usage_of(self, key: str) -> Usage | None:
        if key in self.trips:
            raise ValueError("what nobody thought of")
        return self.usage

    async def patch(self, path: str, body: Any, kind: str = "merge") -> None:
        del kind
        part = path.rpartition("/")[2]
        self.tried.append(part)
        fault = self.fault or self.refused.get(part)
        if fault is not None:
            raise fault
        self.patches.append((part, body))

    def see(
        self,
        asks: str,
        set_: str | None = None,
        *,
        phase: str = "",
        pending: str = "",
        notes: dict[str, str] | None = None,
        memory: str = "",
        restarts: int = 0,
        has_statuses: bool = True,
        ready: tuple[bool, float] | None = None,
        probe: bool = True,
        state: dict[str, Any] = RUNS,
        name: str = "p",
        namespace: str = "d",
        generation: int = 0,
        observed: int | None = None,
    ) -> None:
        """See a pod; ``ready`` is whether it is so and since when: it then says its phase by that."""
        notes = {"cotide.dev/phase": phase, **(notes or {})}
        more = {"memory": memory} if memory else {}
        owner = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        metadata = {"namespace": namespace, "name": name, "uid": f"u{name}", "generation": generation}
        metadata |= {"annotations": notes, "ownerReferences": [owner]}
        conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
        if ready is not None:
            notes["cotide.dev/phase-signal"] = "readiness"
            at = format_micro_timestamp(ready[1])
            conditions.append({"type": "Ready", "status": str(ready[0]), "reason": "", "lastTransitionTime": at})
        held = {"requests": {"cpu": set_ or asks, **more}}
        statuses = [{"name": "c", "resources": held, "restartCount": restarts, "state": state}]
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": asks, **more}}}
        if ready is not None and probe:
            container["readinessProbe"] = {"exec": {"command": ["cmp"]}}
        pod = {
            "metadata": metadata,
            "spec": {"nodeName": "n", "containers": [container]},
            "status": {
                "phase": "Running",
                "conditions": conditions,
                "containerStatuses": statuses if has_statuses else [],
                "observedGeneration": observed,
            },
        }
        self.cache.apply("pods", "MODIFIED", msgspec.convert(pod, PodObject))

    async def after(self, seconds: float) -> list[Patch]:
        self.clock.wall += seconds
        self.patches.clear()
        self.resizer.look_at_all()
        self.resizer.take_room()
        await self.resizer.written()
        return self.patches

    async def granted(self, asks: str, memory: str = "") -> dict[str, str]:
        """Let a pod have the size that it asks for, and return what it was told of it."""
        self.see(asks, memory=memory)
        (one,) = await self.after(1)
        notes = {name: value for name, value in annotations_of(one).items() if value is not None}
        self.see(asks, notes=notes, memory=memory)
        return notes

    def counted(self, outcome: str) -> float:
        return self.metrics.registry.get_sample_value("cotide_phase_resizes_total", {"outcome": outcome}) or 0.0


def size(patch: Patch) -> str:
    assert patch[0] == "resize"
    cpu: str = patch[1]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return cpu


def annotations_of(patch: Patch) -> dict[str, str | None]:
    annotations: dict[str, str | None] = patch[1]["metadata"]["annotations"]
    return annotations
