"""Overloads and cordons as people see them: each counted once, each told once."""

from __future__ import annotations

from typing import Any

from cotide_core.config import HierarchicalConfig
from cotide_core.overload import Alarms
from cotide_operator.alarm_watch import AlarmWatch
from cotide_operator.telemetry import Telemetry


class Scene:
    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []
        self.telemetry = Telemetry()
        stand_in: Any = self  # for the recorder: the watch calls `node` only
        self.watch = AlarmWatch(stand_in, self.telemetry, HierarchicalConfig(), 300.0, lambda name: f"u-{name}")

    def node(self, *event: str) -> None:
        self.events.append(event)

    def value(self, name: str) -> float | None:
        return self.telemetry.registry.get_sample_value(f"cotide_{name}")


def test_a_node_counts_once_a_slot_however_often_it_is_looked_at() -> None:
    scene = Scene()
    for now, over in ((0.0, ("a",)), (10.0, ("a", "b")), (290.0, ("a",)), (300.0, ("a",)), (700.0, ())):
        scene.watch.look(Alarms(over=over), now)
    assert scene.value("overload_slots_total") == 3, "a and b in the first slot, a in the second"
    assert scene.value("overloaded_nodes") == 0


def test_a_cordon_is_told_when_it_begins_and_when_it_ends() -> None:
    scene = Scene()
    for now, cordoned in ((0.0, ()), (10.0, (("a", 610.0),)), (20.0, (("a", 610.0),)), (610.0, ())):
        scene.watch.look(Alarms(cordoned=cordoned), now)
        assert scene.value("cordoned_nodes") == len(cordoned)
    words = "Overloaded 3 times within 30m: no batch and no gratis pod is placed here for 10m"
    assert scene.events == [
        ("a", "u-a", "Warning", "OverloadCordon", words),
        ("a", "u-a", "Normal", "OverloadCordonEnded", "Node a is open for batch and gratis pods again"),
    ]


def test_a_cordon_that_is_prolonged_is_told_again() -> None:
    scene = Scene()
    scene.watch.look(Alarms(cordoned=(("a", 610.0),)), 10.0)
    scene.watch.look(Alarms(cordoned=(("a", 1210.0),)), 610.0)
    assert [event[3] for event in scene.events] == ["OverloadCordon", "OverloadCordon"]
