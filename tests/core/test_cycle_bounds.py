"""How much one cycle decides: attempts, and what they ask; the rest goes on in the next."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from engine_objects import node_upserted, pod_upserted, running_pod

from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import Event, PodUpserted, ServiceSampled, Workload, WorkloadUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind


def engine(*events: Event, **knobs: object) -> Scheduler:
    config = replace(SchedulerConfig(policy="fifo", assume_timeout_seconds=30), **knobs)  # type: ignore[arg-type]  # as named
    scheduler = Scheduler(config, HeuristicCatalogue())
    scheduler.handle(events, 0.0)
    return scheduler


def test_a_cycle_stops_at_its_bound_and_goes_on_in_the_next() -> None:
    scheduler = engine(node_upserted(cpu=9000), max_decisions_per_cycle=2)
    pods = [pod_upserted(f"p{number}", created_seconds=float(number)) for number in range(5)]
    assert [one.key for one in scheduler.handle(pods, 9.0)] == ["d/p0", "d/p1"]
    assert scheduler.next_wakeup(9.0) == 9.0
    assert [one.key for one in scheduler.handle([], 9.0)] == ["d/p2", "d/p3"]
    assert [one.key for one in scheduler.handle([], 9.0)] == ["d/p4"]
    assert scheduler.next_wakeup(9.0) == 9.0 + 30, "only the assumptions are left to watch"


def test_a_cycle_that_asks_the_forecaster_much_decides_on_less_and_no_otherwise() -> None:
    """A call counts as 80 pairs beside its own: at 40 pairs an attempt, the first of four attempts takes three."""
    cluster: list[Event] = [WorkloadUpserted(Workload("d/web"))]
    for number in range(4):
        web = running_pod(f"web-{number}", f"n{number}", 500, WorkloadClass.ONLINE, workload="d/web")
        cluster += [node_upserted(f"n{number}", cpu=4000), PodUpserted(web), ServiceSampled(web.key, 10.0)]
    pods = [pod_upserted(f"p{number}", 100 + number, created_seconds=float(number)) for number in range(5)]
    binds: dict[int | None, list[list[str]]] = {}
    for effort in (None, 40):
        scheduler = engine(*cluster, policy="fifo-guarded", max_decisions_per_cycle=4, effort_per_decision=effort)
        cycles = [scheduler.handle(pods if not cycle else [], 9.0) for cycle in range(5)]
        binds[effort] = [[one.key for one in cycle if isinstance(one, Bind)] for cycle in cycles]
    assert binds[None] == [["d/p0", "d/p1", "d/p2", "d/p3"], ["d/p4"], [], [], []]
    assert 0 < len(binds[40][0]) < 4
    assert list(chain(*binds[40])) == list(chain(*binds[None]))
