"""A node whose write is refused: told, tried again, and no other node waits for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hand_clock import HandClock
from manifests import node_manifest

from cotide_core.consolidation.removal.watching import Mark
from cotide_core.errors import ClusterError
from cotide_core.state.cluster_state import ClusterState
from cotide_kube.objects import NodeObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.consolidation_settings import ConsolidationSettings
from cotide_operator.consolidation import controller
from cotide_operator.consolidation.carrier import MARK
from cotide_operator.consolidation.controller import ConsolidationDependencies, Consolidator
from cotide_operator.consolidation.node_record import RECORD
from cotide_operator.observability.metrics import Metrics


class Scene:
    """Nodes that an operator before us holds; a server that refuses some of them."""

    def __init__(self, *, enabled: bool) -> None:
        self.cache, self.refused, self.written = ObjectCache(), set[str](), []
        scene: Any = self
        none: Any = None
        around = ConsolidationDependencies(
            client=scene, cache=self.cache, decisions=none, clock=HandClock(1_000_000_000.0), recorder=scene,
            metrics=Metrics(), engine=lambda: SimpleNamespace(state=ClusterState()),  # type: ignore[arg-type,return-value]  # all that is read
            pods={}, forecaster=lambda: none, note=lambda _: None, scheduler_names=("cotide",), risk_threshold=0.1,
            slot_seconds=300.0,
        )  # fmt: skip
        self.consolidator = Consolidator(around, ConsolidationSettings(enabled=enabled))
        self.consolidator._next_plan = float("inf")

    def holds(self, mark: Mark, *names: str, cordoned: bool = True) -> None:
        for name in names:
            made = node_manifest(name, "4", memory="8Gi")
            made["metadata"] |= {"annotations": {MARK: mark.value, RECORD: "{}"}, "uid": name}
            made["spec"] = {"unschedulable": cordoned}
            self.cache.apply("nodes", "MODIFIED", msgspec.convert(made, NodeObject))

    async def patch(self, path: str, body: Any) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        if name in self.refused:
            self.refused.discard(name)
            raise ClusterError(f"{name} is refused")
        self.written.append(name)
        node = self.cache.nodes[name]
        bare = msgspec.structs.replace(node.metadata, annotations={RECORD: body["metadata"]["annotations"][RECORD]})
        self.cache.apply("nodes", "MODIFIED", msgspec.structs.replace(node, metadata=bare))
        return {"metadata": {"name": name}}

    def node(self, *said: Any) -> None: ...


async def test_one_refused_node_keeps_no_other_cordoned() -> None:
    scene = Scene(enabled=True)
    scene.holds(Mark.DRAINING, "a", "b")  # of an operator that was killed
    scene.holds(Mark.FREED, "c", "d", cordoned=False)  # that somebody has opened
    scene.refused = {"a", "c"}
    await scene.consolidator.look()
    assert {"b", "d"} <= set(scene.written)
    await scene.consolidator.look()
    assert set(scene.written) == {"a", "b", "c", "d"}


async def test_where_consolidation_is_turned_off_a_refused_node_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "POLL_SECONDS", 0.0)
    scene = Scene(enabled=False)
    scene.holds(Mark.FREED, "a", "b")
    scene.refused = {"a"}
    await asyncio.wait_for(scene.consolidator.run(), 10.0)
    assert scene.written == ["b", "a"]


async def test_where_consolidation_is_turned_off_a_node_that_somebody_opened_is_no_longer_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "POLL_SECONDS", 0.0)
    scene = Scene(enabled=False)
    scene.holds(Mark.STOPPING, "gone")
    work = asyncio.create_task(scene.consolidator.run())
    for _ in range(5):
        await asyncio.sleep(0)
    assert scene.written == [], "its machine may be off at any moment"
    scene.holds(Mark.STOPPING, "gone", cordoned=False)
    await asyncio.wait_for(work, 10.0)
    assert scene.written == ["gone"]
