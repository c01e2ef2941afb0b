"""The publisher of reclaimed capacity before a server that the test plays, in a time that it turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cotide_core.errors import ClusterError
from cotide_core.state.reclaimed import Holdings
from cotide_kube.objects import NodeObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.host_load_settings import ReclaimedSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reclaimed import node_patch_queue as node_turns
from cotide_operator.reclaimed import publisher as reclaimed_publisher
from cotide_operator.reclaimed.node_outlook import NodeOutlook, Outlooks
from cotide_operator.reclaimed.publisher import Publication, ReclaimedPublisher

MI = 2**20
CPU, MEMORY = "cotide.dev/reclaimed-cpu", "cotide.dev/reclaimed-memory"
EMPTY = Holdings((8000, 8192 * MI), (0, 0), (0, 0), (0, 0))
WALL = 1_790_000_000.0


def outlook(millicores: float = 4000, memory: float = 4096 * MI, **more: Any) -> NodeOutlook:
    given = NodeOutlook(
        node="n1",
        until_seconds=300.0,
        online_millicores=3600.0,
        online_memory_bytes=float(1024 * MI),
        offered_millicores=millicores,  # type: ignore[arg-type]  # some tests give what can't be
        offered_memory_bytes=memory,  # type: ignore[arg-type]
        trusted=True,
        reason="Calibrated",
        message="covers 98.9 % of 200 slots",
        coverage_p99=0.989,
        absolute_error_share=0.021,
    )
    return replace(given, **more)


class Scene:
    """A publisher, its clock, and an API server in a few lines: what it takes, it shows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.monotonic = 1000.0
        for module in (reclaimed_publisher.time, node_turns.time):
            monkeypatch.setattr(module, "monotonic", lambda: self.monotonic)
            monkeypatch.setattr(module, "time", lambda: WALL + self.monotonic)
        self.nodes: dict[str, dict[str, Any]] = {}
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.events: list[tuple[str, str, bool, str]] = []
        self.refusal: ClusterError | None = None
        self.tries = 0
        self.clock_seconds = 0.0
        self.speed = 1.0
        self.watching = True
        self.held: dict[str, Holdings | None] = {"n1": EMPTY}
        self.settings = ReclaimedSettings(patches_per_second=1e9, **settings)
        self.start()
        self.register("n1")

    def start(self, *, publish: bool = True) -> None:
        """Start a publisher that remembers nothing, beside a cache that lists everything."""
        self.cache, self.outlooks, self.metrics = ObjectCache(), Outlooks(), Metrics()
        stand_in: Any = self  # for client, clock and recorder
        self.publisher = ReclaimedPublisher(
            stand_in,
            self.cache,
            self.outlooks,
            stand_in,
            holdings_of=self.held.get,
            how=Publication(self.settings, publish, slot_seconds=300.0, seed=1),
            recorder=stand_in,
            metrics=self.metrics,
        )
        for name in self.nodes:
            self.show(name)

    def now(self) -> float:
        return self.clock_seconds

    def forecast_trust(self, node: str, uid: str, *, trusted: bool, message: str) -> None:
        self.events.append((node, uid, trusted, message))

    async def patch(self, path: str, patch: dict[str, Any], kind: str) -> None:
        assert kind == "strategic"
        self.tries += 1
        if self.refusal is not None:
            raise self.refusal
        name = path.split("/")[4]
        assert path == f"/api/v1/nodes/{name}/status"
        node = self.nodes[name]
        assert patch["metadata"]["uid"] == node["metadata"]["uid"]
        self.patches.append((name, patch))
        merge(node["metadata"].setdefault("annotations", {}), patch["metadata"]["annotations"])
        for part in ("capacity", "allocatable"):
            merge(node["status"][part], patch["status"][part])
        (condition,) = patch["status"]["conditions"]
        others = [one for one in node["status"]["conditions"] if one["type"] != condition["type"]]
        node["status"]["conditions"] = others + ([condition] if "$patch" not in condition else [])
        if self.watching:
            self.show(name)

    def register(self, name: str, uid: str = "u1", **status: Any) -> None:
        amounts = {"cpu": "8", "memory": "8Gi"}
        given = {"capacity": {**amounts}, "allocatable": {**amounts}, "conditions": [], **status}
        self.nodes[name] = {"metadata": {"name": name, "uid": uid}, "status": given}
        self.show(name)

    def show(self, name: str) -> None:
        self.cache.apply("nodes", "MODIFIED", msgspec.convert(self.nodes[name], NodeObject))

    def unregister(self, name: str) -> None:
        self.cache.apply("nodes", "DELETED", msgspec.convert(self.nodes.pop(name), NodeObject))

    def emit(self, *outlooks: NodeOutlook) -> None:
        self.outlooks.put(outlooks)

    async def after(self, seconds: float = 0.0) -> list[tuple[int, int]]:
        """Let time pass, look as the publisher does, and return what was published meanwhile."""
        before = len(self.patches)
        self.monotonic += seconds
        self.clock_seconds += seconds
        self.publisher.look()
        turns = self.publisher._turns
        while len(turns):
            name = await turns.take()
            await self.publisher._patch(name)
            turns.done(name)
        self.publisher.look()
        made = [patch["status"]["allocatable"] for _, patch in self.patches[before:]]
        assert all(patch["status"]["capacity"] == patch["status"]["allocatable"] for _, patch in self.patches)
        return [(int(one[CPU] or 0), int(one[MEMORY] or 0)) for one in made]

    def counted(self, result: str) -> float | None:
        return self.metrics.registry.get_sample_value("cotide_reclaimed_patches_total", {"result": result})


def merge(into: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if value is None:
            into.pop(key, None)
        else:
            into[key] = value
