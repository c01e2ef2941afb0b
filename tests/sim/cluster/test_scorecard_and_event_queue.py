"""The arithmetic of the comparison, by hand, and the order of virtual time."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.classes import WorkloadClass
from cotide_sim.cluster.event_queue import Timeline
from cotide_sim.cluster.scorecard import HOLD_SECONDS, NodeLoad, Scorecard, overloaded

BATCH, GRATIS, ONLINE = WorkloadClass.BATCH, WorkloadClass.GRATIS, WorkloadClass.ONLINE


def test_waiting_counts_started_pods_to_their_start_and_others_to_the_end():
    card = Scorecard()
    card.observe_arrival("a", BATCH, 10.0)
    card.observe_arrival("b", GRATIS, 20.0)
    card.observe_arrival("web", ONLINE, 0.0)
    card.observe_bound("a", 15.0)
    card.observe_started("a", 16.0)
    card.observe_started("a", 50.0)
    summary = card.summary(100.0)
    # a waited 16 - 10 = 6, b 100 - 20 = 80; online pods don't count.
    assert (summary["waiting_seconds_total"], summary["waiting_seconds_mean"]) == (86.0, 43.0)
    assert summary["pods_bound"] == 1


def test_a_deleted_pod_waits_no_longer_and_one_that_starts_after_the_end_waits_to_the_end():
    card = Scorecard()
    card.observe_arrival("gone", BATCH, 10.0)
    card.observe_gone("gone", 30.0)
    card.observe_arrival("late", BATCH, 90.0)
    card.observe_started("late", 130.0)
    assert card.summary(100.0)["waiting_seconds_total"] == 20.0 + 10.0


def test_violations_are_shares_of_measured_time():
    card = Scorecard()
    for at, over in ((0.0, True), (5.0, False), (20.0, True)):
        card.observe_service("web-0", "web", over_limit=over, now_seconds=at)
    card.observe_service("api-0", "api", over_limit=False, now_seconds=10.0)
    # web-0: over 0-5 and 20-30 of 30 s; api-0: never in 20 s. 15 of 50.
    assert card.summary(30.0)["qos_violation_ratio"] == pytest.approx(15 / 50)
    assert card.violation_ratio_by_service() == {"api": 0.0, "web": pytest.approx(0.5)}


def test_a_service_without_a_ready_pod_is_over_its_limit_once_for_each_replica():
    card = Scorecard(start_seconds=10.0)
    card.observe_service_arrival("web", 2, 0.0)
    card.observe_service_arrival("db", 1, 40.0)
    card.observe_arrival("web-0", ONLINE, 0.0)
    card.observe_arrival("db-0", ONLINE, 40.0)
    card.observe_bound("web-0", 25.0)
    card.observe_ready("web-0", "web", 30.0)
    card.observe_service("web-0", "web", over_limit=False, now_seconds=30.0)
    card.observe_unready("web-0", "web", 55.0)
    card.observe_gone("web-0", 55.0)
    summary = card.summary(60.0)
    # web: twice 10-30 and 55-60, beside 25 s within its limit; db: 40-60. 50 + 20 of 95 s.
    assert summary["qos_violation_ratio"] == pytest.approx(70 / 95)
    assert card.violation_ratio_by_service() == {"db": 1.0, "web": pytest.approx(50 / 75)}
    assert summary["services_never_ran"] == ["db"]
    assert summary["online_pods_waiting"] == 1


def test_a_sample_says_nothing_after_its_hold():
    card = Scorecard()
    card.observe_service("web-0", "web", over_limit=True, now_seconds=0.0)
    card.observe_service("web-0", "web", over_limit=False, now_seconds=1000.0)
    card.observe_gone("web-0", 1000.0 + HOLD_SECONDS)
    assert card.summary(5000.0)["qos_violation_ratio"] == pytest.approx(0.5)


def test_what_is_before_the_start_does_not_count():
    card = Scorecard(start_seconds=100.0)
    card.observe_service("web-0", "web", over_limit=True, now_seconds=60.0)
    card.observe_cpu(1.0, 60.0)
    card.observe_service("web-0", "web", over_limit=False, now_seconds=100.0)
    card.observe_cpu(0.5, 100.0)
    summary = card.summary(110.0)
    assert (summary["qos_violation_ratio"], summary["cpu_utilisation"]) == (0.0, 0.5)


def test_cpu_is_the_mean_over_time():
    card = Scorecard()
    card.observe_cpu(0.2, 0.0)
    card.observe_cpu(0.8, 30.0)
    # 30 s at 0.2 and 10 s at 0.8: 14 of 40.
    assert card.summary(40.0)["cpu_utilisation"] == pytest.approx(14 / 40)


def test_a_job_is_finished_with_its_last_pod_and_evictions_count_once():
    card = Scorecard()
    card.observe_job("sort", 2)
    card.observe_succeeded("sort-0", "sort")
    card.observe_succeeded("sort-0", "sort")
    assert card.summary(1.0)["jobs_finished"] == 0
    card.observe_succeeded("sort-1", "sort")
    card.observe_evicted("x", 1.0)
    card.observe_evicted("x", 2.0)
    summary = card.summary(3.0)
    assert (summary["jobs_finished"], summary["evictions"]) == (1, 1)


def test_an_empty_run_has_figures_too():
    assert not any(Scorecard().summary(10.0).values())


def test_due_values_come_in_order_of_time_then_of_insertion():
    line: Timeline[str] = Timeline()
    for at, name in ((3.0, "c"), (1.0, "a"), (3.0, "d"), (2.0, "b")):
        line.add(at, name)
    assert line.next_due() == 1.0
    assert line.move_to(3.0) == ["a", "b", "c", "d"]
    line.add(0.0, "late")
    assert (line.next_due(), line.move_to(3.0), len(line)) == (3.0, ["late"], 0)


def test_time_does_not_go_back():
    line: Timeline[str] = Timeline(now=5.0)
    with pytest.raises(ValueError, match="go back"):
        line.move_to(4.0)


def test_many_nodes_at_once_are_overloaded_where_each_would_be_by_itself():
    borne = np.array([[8000.0, 8000.000001, 8000.1, 0.0], [32.0, 0.0, 0.0, 33.0]])
    there = np.array([[8000.0], [32.0]])
    by_itself = [NodeLoad("n", cpu, memory, 0.0, 0.0, 8000.0, 32.0).overloaded for cpu, memory in borne.T]
    assert overloaded(borne, there).tolist() == by_itself == [False, False, True, True]


def load(node="n", online=0.0, allocated=0.0, memory=0.0) -> NodeLoad:
    return NodeLoad(node, online, memory, allocated, 0.0, 8000.0, 32.0)


def test_a_slot_in_which_a_node_bore_too_much_counts_once():
    card = Scorecard(start_seconds=100.0, slot_seconds=50.0)
    over, fits = load(online=3000.0, allocated=5001.0), load(online=3000.0, allocated=5000.0)
    # Before the start: nothing. Slots from 100 on: 0 is over twice, 1 never, 2 once, and once on another node.
    for at, what in ((99.0, over), (100.0, over), (149.0, over), (151.0, fits), (200.0, over)):
        card.observe_node(what, at)
    card.observe_node(load("m", online=9000.0), 210.0)
    assert card.summary(300.0)["overload_slots"] == 3


def test_memory_overloads_a_node_as_cpu_does_and_rounding_does_not():
    card = Scorecard(slot_seconds=50.0)
    card.observe_node(load("by memory", memory=33.0), 10.0)
    card.observe_node(load("by a rounding", online=8000.000001), 10.0)
    assert card.overload_slots() == 1


def test_evicted_online_pods_are_told_apart():
    card = Scorecard()
    for pod, cls in (("a", BATCH), ("web", ONLINE)):
        card.observe_arrival(pod, cls, 0.0)
        card.observe_evicted(pod, 5.0)
        card.observe_evicted(pod, 6.0)
    summary = card.summary(10.0)
    assert (summary["evictions"], summary["online_evictions"]) == (2, 1)
