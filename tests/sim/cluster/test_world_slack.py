"""Policy hierarchical in the virtual cluster: capacity, whom it evicts, determinism; and the services that it meets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_work import planned_job

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.events import Node, NodeForecasted, NodeUpserted, NodeUsageSampled, PodDeleted, PodPhase, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Evict
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU, RECLAIMED_MEMORY
from cotide_sim.cluster.slot_forecasts import NodeLoads, PeakRule, SlotForecasts
from cotide_sim.cluster.world import NODE_MILLICORES, World
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.workloads import slack
from cotide_sim.workloads.plan import Plan, PlannedService
from cotide_sim.workloads.scenarios import SLOT_SECONDS, plan_of, usual_scenario, watchful

NODES = 12
MODEL = GeneratedInterference()
GIB = 1 << 30


def play(plan: Plan, policy: str = "hierarchical", nodes: int = 1, **more):
    config = SchedulerConfig(policy=policy, hierarchical=more.pop("knobs", None))
    return World(plan, MODEL, config, HeuristicCatalogue(), nodes=nodes, slot_seconds=SLOT_SECONDS, **more).run()


def service(used: tuple[float, ...], millicores: int = 2000, step: float = 25.0) -> PlannedService:
    return PlannedService("web", 1, millicores, GIB, 1e6, (), step, used_millicores=used)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of("slack", 1, NODES, 500.0, data=None)


def test_hierarchical_evicts_where_nodes_are_overloaded_and_evicts_no_online_pod(plan):
    ours, fifo = play(plan, nodes=NODES).summary, play(plan, "fifo", nodes=NODES).summary
    assert ours["overload_slots"] > 0
    assert ours["evictions"] > 0
    assert (ours["online_evictions"], fifo["evictions"]) == (0, 0)


def test_the_same_arguments_give_the_same_run(plan):
    assert play(plan, nodes=NODES) == play(plan, nodes=NODES)


def test_no_decision_fills_a_node_beyond_what_its_forecast_and_its_measurement_leave(plan):
    # What the engine was told stands beside what it decided: 95 % of the node less the online peak, at every bind.
    forecast: dict[str, float] = {}
    used: dict[str, float] = {}
    wanted: dict[str, int] = {}
    where: dict[str, str] = {}
    binds = 0

    def listen(now, events, instructions):
        nonlocal binds
        for event in events:
            match event:
                case NodeForecasted():
                    forecast[event.node] = event.online_millicores
                case NodeUsageSampled():
                    used[event.node] = event.online_millicores
                case PodUpserted(pod):
                    wanted[pod.key] = dict(pod.requests).get(RECLAIMED_CPU, 0)
                    if pod.phase is PodPhase.SUCCEEDED:
                        del where[pod.key]
                case PodDeleted(key, _):
                    del where[key]
        for instruction in instructions:
            if isinstance(instruction, Bind):
                where[instruction.key] = instruction.node
                if wanted[instruction.key] and forecast:
                    held = sum(wanted[key] for key, node in where.items() if node == instruction.node)
                    peak = max(forecast[instruction.node], used[instruction.node])
                    assert held <= 0.95 * NODE_MILLICORES - peak + 1e-6
                    binds += 1

    play(plan, nodes=NODES, listener=listen)
    assert binds > 30


def test_a_burst_takes_gratis_work_off_the_node_and_never_the_service():
    # 1000 of 8000 m in use let gratis pods have 5000 m; at 200 s the service needs 4000 m: 9000 of 8000.
    used = (1000.0,) * 8 + (4000.0,) * 3 + (1000.0,) * 3
    jobs = tuple(planned_job(f"gratis-{n}", 100.0, 1000.0, 2500, WorkloadClass.GRATIS) for n in range(2))
    evicted: list[str] = []
    run = play(
        Plan((service(used),), jobs, 300.0),
        listener=lambda now, events, out: evicted.extend(one.key for one in out if isinstance(one, Evict)),
    )
    assert evicted[0].startswith("demo/gratis")
    assert run.summary["overload_slots"] >= 1
    assert run.summary["online_evictions"] == 0


def test_pods_of_jobs_ask_for_reclaimed_capacity_and_are_offered_what_requests_leave_unused():
    # The service asks for 6000 of 8000 m and uses 500: a job of 5000 m fits on the node by its forecast alone.
    plan = Plan((service((500.0,), 6000),), (planned_job("big", 100.0, 50.0, 5000),), 200.0)
    assert play(plan, "fifo").summary["jobs_finished"] == 0
    assert play(plan).summary["jobs_finished"] == 1


def test_before_a_slot_has_ended_requests_are_what_counts():
    # At 1 s of the lead nothing is forecast yet: 8000 - 6000 m are offered.
    events = SlotForecasts(
        [Node("n", ((CPU, 8000),))],
        np.array([8000.0, 32.0 * GIB]),
        slot_seconds=25.0,
        rule=PeakRule("p90"),
        capacity_share=0.95,
    ).measure(loads(used=500.0, asked=6000.0), 1.0)
    published = [dict(event.node.allocatable) for event in events if isinstance(event, NodeUpserted)]
    assert published == [{CPU: 8000, RECLAIMED_CPU: 2000, RECLAIMED_MEMORY: 31 * GIB}]
    assert not any(isinstance(event, NodeForecasted) for event in events)


def test_after_a_slot_the_forecast_is_published_and_never_more_than_the_node():
    forecasts = SlotForecasts(
        [Node("n", ((CPU, 8000), (MEMORY, 32 * GIB)))],
        np.array([8000.0, 32.0 * GIB]),
        slot_seconds=25.0,
        rule=PeakRule("p99"),
        capacity_share=1.0,
    )
    for now in np.arange(0.0, 400.0, 5.0).tolist():
        events = forecasts.measure(loads(used=1000.0, asked=6000.0), now)
        for event in events:
            if isinstance(event, NodeUpserted) and now >= 25.0:
                assert 0 <= dict(event.node.allocatable)[RECLAIMED_CPU] <= 7000
    # A load that never moved is forecast to stay, give or take.
    last = [e for e in forecasts.measure(loads(used=1000.0, asked=6000.0), 400.0) if isinstance(e, NodeForecasted)]
    assert 1000.0 <= last[0].online_millicores < 2000.0
    assert last[0].until_seconds == 425.0


def loads(*, used: float, asked: float) -> NodeLoads:
    memory = float(GIB)
    return NodeLoads(np.array([[used], [memory]]), np.array([[asked], [memory]]), np.zeros((2, 1)))


def test_an_evicted_pod_runs_out_its_grace_and_starts_over():
    knobs = HierarchicalConfig(overload_observation_seconds=0.0)
    used = (500.0,) * 8 + (6000.0,) * 3 + (500.0,) * 3
    seen: list[tuple[float, str]] = []

    def listen(now, events, out):
        seen.extend((now, f"evict {one.key}") for one in out if isinstance(one, Evict))
        seen.extend((now, f"again {e.pod.key}") for e in events if isinstance(e, PodUpserted) and "again" in e.pod.key)

    play(Plan((service(used),), (planned_job("work", 100.0, 1000.0, 5000),), 300.0), knobs=knobs, listener=listen)
    at, what = seen[0]
    assert what == "evict demo/work-0"
    assert seen[1] == (at + 1.0, "again demo/work-0-again")


def test_the_scenario_follows_the_policies():
    assert usual_scenario(("qpsm", "fifo")) == "latency"
    assert usual_scenario(("hierarchical", "fifo")) == "slack"


def test_the_monitor_of_the_scenarios_is_twelve_times_as_quick_and_begins_where_planning_ends():
    knobs = watchful(HierarchicalConfig())
    assert (knobs.overload_observation_seconds, knobs.overload_pause_seconds) == (1.25, 1.25)
    assert (knobs.flap_window_seconds, knobs.cordon_seconds) == (150.0, 50.0)
    assert knobs.overload_share == knobs.capacity_share == 0.95


def test_both_scenarios_have_the_same_jobs():
    plain, measured = (plan_of(name, 5, 6, 300.0, data=None) for name in ("latency", "slack"))
    assert plain.jobs == measured.jobs
    assert plain.services != measured.services


def test_services_use_less_than_they_ask_for_on_average_and_more_for_moments():
    services = [one for seed in range(10) for one in plan_of("slack", seed, 40, 900.0, data=None).services]
    shares = [np.mean(one.used_millicores) / one.millicores for one in services]
    above = [np.mean(np.array(one.used_millicores) > one.millicores) for one in services]
    assert 0.5 < float(np.mean(shares)) < 0.9
    assert 0.005 < float(np.mean(above)) < 0.1
    assert all(max(one.used_millicores) <= slack.LIMIT_FACTOR * one.millicores for one in services)
    assert all(len(one.used_millicores) == len(one.rates) for one in services)


def test_a_series_without_busy_hosts_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(slack, "BUSY_SHARE", 2.0)
    with pytest.raises(slack.InputError, match="generated: holds no series"):
        plan_of("slack", 0, 4, 60.0, data=None)


def test_a_plan_without_courses_is_played_as_before():
    plan = plan_of("latency", 1, 6, 200.0, data=None)
    assert all(not one.used_millicores for one in plan.services)
    assert replace(plan, services=()).jobs == plan.jobs
