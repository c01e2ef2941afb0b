"""The side-by-side table: its objectives in words, its command end to end on a tiny cluster."""

from __future__ import annotations

from click.testing import CliRunner

from cotide_sim.cluster import profiling
from cotide_sim.cluster.comparison import BY_SLACK, POLICIES, command, missed


def figures(violations: dict[str, float], waiting: dict[str, float]):
    return {
        name: {"qos_violation_ratio": violations.get(name, 0.4), "waiting_seconds_total": waiting.get(name, 100.0)}
        for name in POLICIES
    }


def test_an_objective_is_missed_by_name():
    met = figures({"qpsm": 0.1}, {"qpsm": 99.0})
    assert missed(met) == []
    assert missed(figures({"qpsm": 0.1, "random": 0.39}, {"qpsm": 99.0})) == ["violations above a quarter of random"]
    assert missed(figures({"qpsm": 0.1}, {"qpsm": 99.0, "fifo-guarded": 99.0})) == ["waiting not below fifo-guarded"]


def test_the_command_prints_every_policy_and_says_what_was_missed_by_its_exit_code(monkeypatch):
    campaign = profiling.profile
    monkeypatch.setattr(profiling, "profile", lambda i, seed: campaign(i, seed, qos_trials=200, completion_trials=80))
    result = CliRunner().invoke(command, ["--seeds", "1", "--seconds", "60", "--nodes", "3"])
    rows = [line for line in result.stdout.splitlines() if line.startswith("| 1 |")]
    assert [row.split("|")[2].strip() for row in rows] == list(POLICIES)
    assert result.exit_code == (0 if "every objective met" in result.stderr else 3)


def test_hierarchical_must_overload_fewer_slots_than_fifo_and_evict_no_online_pod():
    def slots(hierarchical: int, fifo: int, online: int = 0):
        return {
            name: {"overload_slots": count, "online_evictions": online}
            for name, count in (("hierarchical", hierarchical), ("fifo", fifo))
        }

    assert missed(slots(3, 4)) == []
    assert missed(slots(0, 0)) == []
    assert missed(slots(4, 4)) == ["overload slots not below fifo"]
    assert missed(slots(1, 4, online=1)) == ["an online pod was evicted by hierarchical"]


def test_the_slack_scenario_compares_the_policies_that_it_is_for(monkeypatch):
    campaign = profiling.profile
    monkeypatch.setattr(profiling, "profile", lambda i, seed: campaign(i, seed, qos_trials=200, completion_trials=80))
    result = CliRunner().invoke(command, ["--scenario", "slack", "--seeds", "1", "--seconds", "60", "--nodes", "3"])
    rows = [line for line in result.stdout.splitlines() if line.startswith("| 1 |")]
    assert [row.split("|")[2].strip() for row in rows] == list(BY_SLACK)
    assert all(row.rstrip().endswith("(0) |") for row in rows)
