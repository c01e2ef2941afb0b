"""Gangs as metrics: who waits for what and for how long, and each time-out once."""

from __future__ import annotations

from live_cluster import engine, node, pod

from cotide_core.events import Gang, PodDeleted, PodPhase, PodUpserted
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting.gang_metrics import GangMetrics

TIMEOUT = 60.0


def half_bound() -> list[PodUpserted]:
    """Three pods of a gang of three on nodes of four cores: two run, and for the third there is no room."""
    rule = Gang("d/x", 3, TIMEOUT)
    taken = pod("taken", 2000, 1e6).pod._replace(ours=False, node="a", phase=PodPhase.RUNNING)
    first, second = (
        PodUpserted(pod(f"x-{at}", 1000, 10.0, gang=rule).pod._replace(node="a", phase=PodPhase.RUNNING))
        for at in range(2)
    )
    return [PodUpserted(taken), first, second, pod("x-2", 1000, 10.0, gang=rule)]


def value(metrics: Metrics, name: str, need: str = "") -> float | None:
    return metrics.registry.get_sample_value(f"cotide_{name}", {"need": need} if need else {})


def test_waiting_and_partial_gangs_are_shown_with_the_oldest_wait_until_they_are_gone() -> None:
    metrics = Metrics()
    gang_metrics = GangMetrics(metrics)
    few = Gang("d/y", 2, TIMEOUT)
    scheduler, _ = engine("fifo", node("a"), *half_bound(), pod("y-0", 1000, 10.0, gang=few))
    gang_metrics.show(scheduler.gangs, 7.0)
    assert (value(metrics, "gangs_waiting", "room"), value(metrics, "gangs_oldest_wait_seconds", "room")) == (1, 7)
    assert value(metrics, "gangs_waiting", "members") == 1
    assert value(metrics, "gangs_partial") == 1
    scheduler.handle([PodDeleted(f"d/{name}", f"u-{name}") for name in ("x-0", "x-1", "x-2", "y-0")], 9.0)
    gang_metrics.show(scheduler.gangs, 9.0)
    for need in ("members", "room", "bindings"):
        assert value(metrics, "gangs_waiting", need) == value(metrics, "gangs_oldest_wait_seconds", need) == 0
    assert value(metrics, "gangs_partial") == 0


def test_each_time_out_counts_once_also_of_an_engine_that_begins_anew() -> None:
    metrics = Metrics()
    gang_metrics = GangMetrics(metrics)
    assert value(metrics, "gang_timeouts_total", "room") == 0
    for expected in (1, 2):
        scheduler, _ = engine("fifo", node("a"), *half_bound())
        gang_metrics.show(scheduler.gangs, 0.0)
        scheduler.handle([], TIMEOUT)
        for now in (TIMEOUT, TIMEOUT + 1):
            gang_metrics.show(scheduler.gangs, now)
            assert value(metrics, "gang_timeouts_total", "room") == expected
    assert value(metrics, "gang_timeouts_total", "members") == 0
