"""The virtual cluster around the real engine: deterministic, nothing lost, and figures by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_work import planned_job

from cotide_core.config import SchedulerConfig
from cotide_core.events import PodPhase, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Wait
from cotide_sim.cluster.world import World
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.workloads.generated import generate
from cotide_sim.workloads.plan import Plan, PlannedService

MODEL = GeneratedInterference()


def play(plan: Plan, policy: str = "fifo", nodes: int = 1, **more):
    return World(plan, MODEL, SchedulerConfig(policy=policy), HeuristicCatalogue(), nodes=nodes, **more).run()


def test_waiting_and_finishing_by_hand():
    # One node of 8 cores, jobs of 8 cores: a runs 11-31, b (arrived at 16) 31-51, c (at 61) is still running at 70.
    plan = Plan((), (planned_job("a", 11, 20), planned_job("b", 16, 20), planned_job("c", 61, 50)), 70.0)
    summary = play(plan).summary
    assert summary["waiting_seconds_total"] == pytest.approx(15.0)
    assert summary["waiting_seconds_mean"] == pytest.approx(5.0)
    assert (summary["pods_bound"], summary["jobs_finished"], summary["evictions"]) == (3, 2, 0)
    # All cores are seen in use at 15, 20, ..., 50 and at 65, each sample standing for 5 s: 45 of 70 s.
    assert summary["cpu_utilisation"] == pytest.approx(45 / 70)


def test_a_pod_that_never_starts_waits_to_the_end():
    plan = Plan((), (planned_job("a", 0, 1000), planned_job("b", 10, 5)), 60.0)
    assert play(plan).summary["waiting_seconds_total"] == pytest.approx(50.0)


def test_violations_are_measured_against_each_service_s_limit():
    web = PlannedService("web", 1, 1000, 1 << 30, 1000.0, (100e3,), 60.0)
    tight = replace(web, name="tight", limit_milliseconds=0.01)
    run = play(Plan((web, tight), (), 100.0))
    assert run.violations == {"demo/tight": 1.0, "demo/web": 0.0}
    assert run.summary["qos_violation_ratio"] == pytest.approx(0.5)


def test_the_same_arguments_give_the_same_run():
    plan = generate(1, 6, 200.0)
    for policy in ("qpsm", "random-guarded"):
        assert play(plan, policy, 6) == play(plan, policy, 6)


@pytest.mark.parametrize(
    "policy",
    ["fifo", "random", "fifo-guarded", "random-guarded", "qpsm", "easy", "easy-sjbf", "conservative", "svf"],
)
def test_every_pod_is_bound_at_most_once_and_succeeds_once(policy):
    plan = generate(2, 6, 200.0)
    bound: list[str] = []
    succeeded: list[str] = []

    def listen(now, events, instructions):
        bound.extend(i.key for i in instructions if isinstance(i, Bind))
        succeeded.extend(e.pod.key for e in events if isinstance(e, PodUpserted) and e.pod.phase is PodPhase.SUCCEEDED)

    run = play(plan, policy, 6, listener=listen)
    assert len(bound) == len(set(bound)) == run.summary["pods_bound"]
    assert len(succeeded) == len(set(succeeded))
    assert set(succeeded) <= set(bound)


def test_the_guard_makes_pods_wait_for_a_reason_and_spares_the_services():
    plan = generate(4, 10, 300.0)
    reasons = set()
    plain = play(plan, "fifo", 10).summary
    guarded = play(
        plan, "qpsm", 10, listener=lambda now, events, out: reasons.update(i.reason for i in out if isinstance(i, Wait))
    ).summary
    assert guarded["qos_violation_ratio"] < 0.25 * plain["qos_violation_ratio"]
    assert "QosAtRisk" in reasons


def test_a_binding_beyond_capacity_is_a_fault_not_a_result(monkeypatch):
    from cotide_core.cycle import Scheduler

    def bind_everything(self, events, now):
        return [Bind(e.pod.key, e.pod.uid, "node-000", "because") for e in events
                if isinstance(e, PodUpserted) and e.pod.phase is PodPhase.PENDING]  # fmt: skip

    monkeypatch.setattr(Scheduler, "handle", bind_everything)
    with pytest.raises(RuntimeError, match="node-000 would hold 16000 of 8000 cpu"):
        play(Plan((), (planned_job("a", 0, 10, completions=2),), 60.0))
