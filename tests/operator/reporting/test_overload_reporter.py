"""Overloads and cordons as people see them: each counted once, each told once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any

import msgspec

from cotide_core.config import HierarchicalConfig
from cotide_core.reclaiming.overload_monitor import Alarms
from cotide_kube.answers import ApiError
from cotide_kube.objects import NodeObject
from cotide_operator.clock import ScaledClock
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.overload_reporter import OverloadReporter
from cotide_operator.translation.pods_and_nodes import CORDON_ANNOTATION


class Scene:
    """Stands for the client, the dispatcher and the recorder of the watch."""

    def __init__(self, **annotations: str) -> None:
        self.events: list[tuple[str, ...]] = []
        self.patches: list[tuple[str, Any]] = []
        self.work: list[Callable[[], Awaitable[None]]] = []
        self.fault: ApiError | None = None
        self.metrics = Metrics()
        self.nodes: dict[str, NodeObject] = {}
        for name in ("a", "b"):
            metadata = {"name": name, "uid": f"u-{name}", "annotations": annotations if name == "a" else {}}
            self.nodes[name] = msgspec.convert({"metadata": metadata}, NodeObject)
        it: Any = self
        self.watch = OverloadReporter(it, it, ScaledClock(), it, self.metrics, HierarchicalConfig(), 300.0, self.nodes)

    def node(self, *event: str) -> None:
        self.events.append(event)

    def submit(self, key: Hashable, work: Callable[..., Awaitable[None]], namespace: str, *arguments: object) -> bool:
        self.work.append(partial(work, *arguments))
        return True

    async def patch(self, path: str, body: Any) -> None:
        if self.fault is not None:
            raise self.fault
        self.patches.append((path, body["metadata"]["annotations"][CORDON_ANNOTATION]))

    async def flush(self) -> None:
        work, self.work = self.work, []
        for one in work:
            await one()

    def value(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"cotide_{name}")


def test_a_node_counts_once_a_slot_however_often_it_is_looked_at() -> None:
    scene = Scene()
    for now, over in ((0.0, ("a",)), (10.0, ("a", "b")), (290.0, ("a",)), (300.0, ("a",)), (700.0, ())):
        scene.watch.look(Alarms(over=over), now)
    assert scene.value("overload_slots_total") == 3, "a and b in the first slot, a in the second"
    assert scene.value("overloaded_nodes") == 0


async def test_a_cordon_is_told_and_noted_when_it_begins_and_when_it_ends() -> None:
    scene = Scene()
    for now, cordoned in ((0.0, ()), (10.0, (("a", 610.0),)), (20.0, (("a", 610.0),)), (610.0, ())):
        scene.watch.look(Alarms(cordoned=cordoned), now)
        assert scene.value("cordoned_nodes") == len(cordoned)
    words = "Overloaded 3 times within 30m: no batch and no gratis pod is placed here for 10m"
    assert scene.events == [
        ("a", "u-a", "Warning", "OverloadCordon", words),
        ("a", "u-a", "Normal", "OverloadCordonEnded", "Node a is open for batch and gratis pods again"),
    ]
    await scene.flush()
    path = "/api/v1/nodes/a/status"
    assert scene.patches == [(path, "1970-01-01T00:10:10Z"), (path, None)]


def test_a_cordon_that_is_prolonged_is_told_again() -> None:
    scene = Scene()
    scene.watch.look(Alarms(cordoned=(("a", 610.0),)), 10.0)
    scene.watch.look(Alarms(cordoned=(("a", 1210.0),)), 610.0)
    assert [event[3] for event in scene.events] == ["OverloadCordon", "OverloadCordon"]


def test_a_cordon_of_an_earlier_run_is_not_told_again_but_its_end_is() -> None:
    scene = Scene(**{CORDON_ANNOTATION: "1970-01-01T00:10:10Z"})
    scene.watch.look(Alarms(cordoned=(("a", 610.0),)), 10.0)
    assert (scene.events, scene.work) == ([], [])
    scene.watch.look(Alarms(), 610.0)
    assert [event[3] for event in scene.events] == ["OverloadCordonEnded"]


async def test_a_note_that_is_refused_is_counted_and_stops_nothing() -> None:
    scene = Scene()
    scene.fault = ApiError(403, "Forbidden", "no right to nodes/status")
    scene.watch.look(Alarms(cordoned=(("a", 610.0),)), 10.0)
    await scene.flush()
    assert scene.value("notes_failed_total") == 1
    del scene.nodes["a"]
    scene.watch.look(Alarms(), 20.0)
    assert len(scene.events) == 1, "of a node that is gone nothing more is said"
