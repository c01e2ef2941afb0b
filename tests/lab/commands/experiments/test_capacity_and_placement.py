"""`cotide experiment capacity` and `placement` from a user's chair, on generated data."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from click.testing import CliRunner

from cotide_core.errors import InputError
from cotide_lab.commands.experiment_command import command
from cotide_lab.experiments.capacity.contenders import GOALS


def run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


@pytest.fixture(scope="module")
def capacity(tmp_path_factory):
    plot = tmp_path_factory.mktemp("plots") / "capacity.svg"
    asked = ("--seeds", 1, "--tuning-seeds", 1, "--hours", 1, "--workers", 1)
    return run("capacity", *asked, "-o", "json", "--plot", plot), plot


def rows_of(done, goal=0):
    return {row["policy"]: row for row in json.loads(done.stdout)["traces"][0]["goals"][goal]["rows"]}


def test_capacity_judges_its_bars_and_draws_the_figures(capacity):
    done, plot = capacity
    document = json.loads(done.stdout)
    assert bool(document["missed"]) == (done.return_value == 3)
    baselines = {"harmony", "oblivious", "greedy", "last value", "yesterday", "reactive", "packing", "oracle"}
    assert {"cbp", "cbp at the default", "always on", "always off"} | baselines == set(rows_of(done))
    assert plot.read_text().startswith("<?xml")


def test_every_contender_with_a_knob_has_ten_settings_and_three_halvings_for_each_goal(capacity):
    rows = json.loads(capacity[0].stdout)["traces"][0]["tuning"]
    counts = Counter(row["policy"] for row in rows)
    single = {"cbp at the default", "always on", "always off"}
    assert {name for name, count in counts.items() if count == 1} == single
    assert all(10 <= count <= 10 + 3 * len(GOALS) for name, count in counts.items() if name not in single)
    assert max(counts.values()) > 10


def test_each_setting_is_the_cheapest_that_keeps_the_goal_on_the_tuning_seeds(capacity):
    trace = json.loads(capacity[0].stdout)["traces"][0]
    for goal in trace["goals"]:
        for row in goal["rows"]:
            tried = [one for one in trace["tuning"] if one["policy"] == row["policy"]]
            able = [
                one for one in tried if all(one[f"delay_{of}"] <= goal["goal"][of] for of in ("mean", "p95", "p99"))
            ]
            assert row["tuned"] == bool(able)
            if able:
                assert row["setting"] == min(able, key=lambda one: one["money_per_core_hour"])["setting"]


def test_no_contender_uses_more_energy_than_all_machines_do_and_no_machine_serves_nobody(capacity):
    rows = rows_of(capacity[0])
    most = rows["always on"]["energy_kwh"]["mean"]
    assert all(row["energy_kwh"]["mean"] <= most * 1.001 for row in rows.values())
    off = rows["always off"]
    assert (off["energy_kwh"]["mean"], off["tuned"], off["kept"]) == (0.0, False, 0)


def test_a_rule_under_which_no_task_waits_needs_the_least_energy_that_is_possible(capacity):
    goals = json.loads(capacity[0].stdout)["traces"][0]["goals"]
    rows = rows_of(capacity[0])
    floor = goals[0]["floor_over_baseline"]["mean"] * rows["oblivious"]["energy_kwh"]["mean"]
    assert 0 < floor <= rows["always on"]["energy_kwh"]["mean"]


def test_rounding_up_is_never_better_than_the_integral_optimum(capacity):
    gap = json.loads(capacity[0].stdout)["integral"]
    assert gap["instances"] > 0
    assert gap["rounded_low"] >= 1.0 - 1e-3
    assert gap["fractions_mean"] <= 1.0 + 1e-6


def test_placement_prints_a_week_and_its_rivals(tmp_path):
    arguments = (
        "--week",
        "flat",
        "--seeds",
        1,
        "--days",
        1,
        "--tuning-seeds",
        1,
        "--reconfiguration",
        1,
        "--workers",
        1,
    )
    done = run("placement", *arguments, "--plot", tmp_path / "placement.png")
    assert done.return_value in (0, 3)
    assert (done.return_value == 3) == ("missed:" in done.stdout)
    assert all(
        name in done.stdout for name in ("mpc", "greedy", "last value", "nearest", "unmoved", "no servers", "oracle")
    )
    assert "of greedy's cost:" in done.stdout
    assert (tmp_path / "placement.png").stat().st_size > 1000


@pytest.mark.parametrize("name", ["capacity", "placement"])
def test_mistakes_are_told_in_one_line(name, tmp_path):
    assert "no such directory" in str(run(name, "--data", tmp_path / "nowhere").exception)
    assert "ends in neither" in str(run(name, "--plot", tmp_path / "plot.pdf").exception)
    empty = run(name, "--data", tmp_path, "--seeds", 1, "--workers", 1)
    assert isinstance(empty.exception, InputError)


@pytest.mark.parametrize("name", ["capacity", "placement"])
def test_a_seed_on_which_settings_are_chosen_is_not_reported(name):
    found = run(name, "--seed", 100, "--seeds", 3)
    assert isinstance(found.exception, InputError)
    assert "chosen on seed 101" in str(found.exception)
