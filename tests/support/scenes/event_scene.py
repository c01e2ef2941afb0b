"""An object cache with its event source and a clock that the test turns: objects in, events out.

Used by tests of the translation. Invariant: nothing happens but what a test says.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cotide_kube.objects import NodeObject, PodObject
from cotide_kube.timestamps import format_timestamp
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.translation.event_source import EventSource


class ManualClock(ScaledClock):
    """A clock that the test turns; wall second 1000 is second 1000, then it runs at ``speed``."""

    def __init__(self, speed: float = 1.0) -> None:
        super().__init__(1000.0, speed)
        self.wall = 1000.0

    def now(self) -> float:
        return self.from_wall(self.wall)


class Scene:
    def __init__(self, speed: float = 1.0) -> None:
        self.clock = ManualClock(speed)
        self.cache = ObjectCache()
        self.event_source = EventSource(self.cache, self.clock, ("cotide",))

    def pod(self, change: str = "ADDED", uid: str = "u1", *, created: float = 1000.0, **parts: Any) -> None:
        status = {"phase": parts.pop("phase", "Pending"), **parts.pop("status", {})}
        metadata = {
            "name": parts.pop("name", "p"),
            "namespace": "ns",
            "uid": uid,
            "creationTimestamp": format_timestamp(created),
        }
        metadata |= {
            key: parts.pop(key)
            for key in ("labels", "annotations", "ownerReferences", "resourceVersion")
            if key in parts
        }
        body = {"metadata": metadata, "spec": {"schedulerName": "cotide", **parts}, "status": status}
        self.cache.apply("pods", change, msgspec.convert(body, PodObject))

    def node(self, change: str = "ADDED", cpu: str = "4", heartbeat: str = "1", name: str = "n") -> None:
        conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}]
        body = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu}, "conditions": conditions}}
        self.cache.apply("nodes", change, msgspec.convert(body, NodeObject))

    def job(self, job_class: str, **status: Any) -> None:
        body = {"metadata": {"name": "j", "namespace": "ns"}, "spec": {"class": job_class}, "status": status}
        self.cache.apply("jobs", "MODIFIED", msgspec.convert(body, CustomObject))
