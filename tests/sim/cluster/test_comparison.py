"""The side-by-side table: its objectives in words, its command end to end on a tiny cluster."""

from __future__ import annotations

from click.testing import CliRunner

from cotide_sim.cluster import profiling
from cotide_sim.cluster.comparison import POLICIES, command, missed

TINY = ["--seeds", "1", "--seconds", "60", "--nodes", "3"]


def figures(violations: dict[str, float], waiting: dict[str, float], slots: dict[str, int] | None = None):
    return {
        name: {
            "qos_violation_ratio": violations.get(name, 0.1 if name in ("qpsm", "predictive") else 0.4),
            "waiting_seconds_total": waiting.get(name, 100.0),
            "overload_slots": (slots or {}).get(name, 0),
            "online_evictions": 0,
            "services_never_ran": [],
        }
        for name in POLICIES
    }


def test_an_objective_is_missed_by_name():
    """A quarter of .4 is .1; a quarter of .39 is less."""
    met = figures({}, {"qpsm": 99.0})
    assert missed(met, "latency") == []
    assert missed(figures({"random": 0.39}, {"qpsm": 99.0}), "latency") == [
        "violations of predictive above a quarter of random",
        "violations of qpsm above a quarter of random",
    ]
    late = figures({}, {"qpsm": 99.0, "fifo-guarded": 99.0})
    assert missed(late, "latency") == ["waiting of qpsm not below fifo-guarded"]
    assert missed(late, "slack") == []
    assert missed(figures({}, {"qpsm": 99.0}, {"predictive": 4, "fifo": 4}), "slack") == [
        "overload slots of predictive not below fifo"
    ]


def test_the_command_prints_every_policy_and_says_what_was_missed_by_its_exit_code(monkeypatch):
    campaign = profiling.profile
    monkeypatch.setattr(profiling, "profile", lambda i, seed: campaign(i, seed, qos_trials=200, completion_trials=80))
    result = CliRunner().invoke(command, TINY)
    rows = [line for line in result.stdout.splitlines() if line.startswith("| 1 |")]
    assert [row.split("|")[2].strip() for row in rows] == list(POLICIES)
    assert result.exit_code == (0 if "every objective met" in result.stderr else 3)


def test_hierarchical_must_overload_fewer_slots_than_fifo_and_evict_no_online_pod():
    def slots(hierarchical: int, fifo: int, online: int = 0):
        return {
            name: {"overload_slots": count, "online_evictions": online, "services_never_ran": []}
            for name, count in (("hierarchical", hierarchical), ("fifo", fifo))
        }

    assert missed(slots(3, 4), "slack") == []
    assert missed(slots(0, 0), "slack") == []
    assert missed(slots(4, 4), "slack") == ["overload slots of hierarchical not below fifo"]
    assert missed(slots(1, 4, online=1), "slack") == ["an online pod was evicted by hierarchical"]


def test_policies_can_be_named_in_either_scenario(monkeypatch):
    campaign = profiling.profile
    monkeypatch.setattr(profiling, "profile", lambda i, seed: campaign(i, seed, qos_trials=200, completion_trials=80))
    result = CliRunner().invoke(command, ["--scenario", "slack", "--policies", "fifo,hierarchical", *TINY])
    rows = [line for line in result.stdout.splitlines() if line.startswith("| 1 |")]
    assert [row.split("|")[2].strip() for row in rows] == ["fifo", "hierarchical"]
    assert all(row.rstrip().endswith("(0) | 0 |") for row in rows)


def test_a_service_that_never_ran_is_a_missed_objective():
    absent = figures({}, {"qpsm": 99.0})
    absent["predictive"]["services_never_ran"] = ["demo/web", "demo/db"]
    assert missed(absent, "slack") == ["2 services never ran under predictive"]
