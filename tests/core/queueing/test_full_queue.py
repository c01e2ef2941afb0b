"""A full queue never turns the order of the classes round."""

from __future__ import annotations

import pytest
from engine_objects import pod_upserted

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import BindRefused, Gang, Namespace, NamespaceUpserted, Node, NodeUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Wait
from cotide_core.queueing.scheduling_queue import MOST_CHECKED

NODE = NodeUpserted(Node("n", (("cpu", 1000), ("pods", 110))))
ROOM = NodeUpserted(Node("n", (("cpu", 9000), ("pods", 110))))


def full_of_gratis(most: int = 3) -> Scheduler:
    engine = Scheduler(SchedulerConfig(policy="fifo", max_queue=most), HeuristicCatalogue())
    engine.handle([NODE, *(pod_upserted(f"g{n}", 2000, WorkloadClass.GRATIS) for n in range(most))], 0.0)
    return engine


def test_an_online_pod_is_placed_at_once_though_the_queue_is_full_of_gratis_pods() -> None:
    out = full_of_gratis().handle([pod_upserted("web", 500, WorkloadClass.ONLINE)], 1.0)
    assert [one.key for one in out if isinstance(one, Bind)] == ["d/web"]


def test_who_stands_aside_for_it_is_the_latest_is_told_and_comes_back() -> None:
    engine = full_of_gratis()
    out = engine.handle([pod_upserted("web", 2000, WorkloadClass.ONLINE)], 1.0)
    assert next((one.key, "higher class" in one.message) for one in out if isinstance(one, Wait)) == ("d/g2", True)
    assert sum(engine.pending().values()) == 4
    # Room for all four: 4 x 2,000 <= 9,000.
    bound: set[str] = set()
    for second in range(2, 12):
        out = engine.handle([ROOM] if second == 2 else [], float(second))
        bound |= {one.key for one in out if isinstance(one, Bind)}
    assert bound == {"d/web", "d/g0", "d/g1", "d/g2"}


def test_a_gratis_pod_whose_binding_was_refused_stands_aside_as_others_do() -> None:
    engine = Scheduler(SchedulerConfig(policy="fifo", max_queue=1), HeuristicCatalogue())
    engine.handle([NODE, pod_upserted("g", 500, WorkloadClass.GRATIS)], 0.0)
    engine.handle([BindRefused("d/g", "u-g", "n", 500, "boom", retry=True)], 1.0)
    out = engine.handle([pod_upserted("web", 500, WorkloadClass.ONLINE)], 1.5)
    assert [one.key for one in out if isinstance(one, Bind)] == ["d/web"]


@pytest.mark.parametrize("waits_for", ["its namespace", "its gang"])
def test_an_online_pod_is_placed_whoever_came_last_that_waits_for_something_else(waits_for: str) -> None:
    engine = Scheduler(SchedulerConfig(policy="fifo", max_queue=2), HeuristicCatalogue())
    limits = NamespaceUpserted(Namespace("a", batch_millicores=100))
    gang = Gang("a/g", 1000, 300.0) if waits_for == "its gang" else None
    engine.handle([NODE, limits, pod_upserted("first", 2000)], 0.0)
    for number in range(MOST_CHECKED):
        engine.handle([pod_upserted(f"a/{number}", gang=gang)], 1.0)
    # The queue is full of `first` and `nowhere`, and only `first` may stand aside.
    engine.handle([pod_upserted("nowhere", 500, WorkloadClass.ONLINE, node_selector=(("disk", "ssd"),))], 2.0)
    out = engine.handle([pod_upserted("web", 500, WorkloadClass.ONLINE)], 3.0)
    assert [one.key for one in out if isinstance(one, Bind)] == ["d/web"]


def test_pods_of_one_class_wait_in_the_order_of_arrival() -> None:
    engine = full_of_gratis()
    out = engine.handle([pod_upserted("late", 2000, WorkloadClass.GRATIS)], 1.0)
    assert [one.message for one in out if isinstance(one, Wait)] == [
        "the queue is full (3 pods); it is kept and admitted in turn"
    ]


def test_batch_stands_aside_for_online_only_when_no_gratis_is_left() -> None:
    engine = Scheduler(SchedulerConfig(policy="fifo", max_queue=2), HeuristicCatalogue())
    engine.handle(
        [NODE, pod_upserted("b", 2000, WorkloadClass.BATCH), pod_upserted("g", 2000, WorkloadClass.GRATIS)], 0.0
    )
    first = engine.handle([pod_upserted("w1", 2000, WorkloadClass.ONLINE)], 1.0)
    second = engine.handle([pod_upserted("w2", 2000, WorkloadClass.ONLINE)], 2.0)
    aside = [[one.key for one in out if isinstance(one, Wait) and "higher" in one.message] for out in (first, second)]
    assert aside == [["d/g"], ["d/b"]]
