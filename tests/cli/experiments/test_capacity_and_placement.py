"""`cotide experiment capacity` and `placement` from a user's chair, on generated data."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cotide_cli.commands.experiment_command import command
from cotide_core.errors import InputError


def run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


@pytest.fixture(scope="module")
def capacity(tmp_path_factory):
    plot = tmp_path_factory.mktemp("plots") / "capacity.svg"
    done = run("capacity", "--seeds", 1, "--hours", 1, "--workers", 1, "-o", "json", "--plot", plot)
    return done, plot


def test_capacity_judges_its_bars_and_draws_the_figures(capacity):
    done, plot = capacity
    document = json.loads(done.stdout)
    assert bool(document["missed"]) == (done.return_value == 3)
    policies = {row["policy"] for row in document["traces"][0]["rows"]}
    assert {"cbp", "oblivious", "greedy", "last value", "yesterday", "reactive", "packing", "oracle"} <= policies
    assert plot.read_text().startswith("<?xml")


def test_no_policy_of_capacity_uses_more_energy_than_all_machines_do(capacity):
    rows = json.loads(capacity[0].stdout)["traces"][0]["rows"]
    energy = {(row["policy"], row["reserve"]): row["energy_kwh"]["mean"] for row in rows}
    assert all(value <= energy[("always on", 1.0)] * 1.001 for value in energy.values())


def test_a_higher_service_level_keeps_more_of_our_machines_on_and_changes_no_rival(capacity):
    """As the page of capacity compares: ours at 0.25, the default, and at 0.75; rivals keep their own level."""
    low = json.loads(capacity[0].stdout)
    asked = ("capacity", "--seeds", 1, "--hours", 1, "--workers", 1, "-o", "json")
    high = json.loads(run(*asked, "--service-level", 0.75).stdout)
    assert (low["service_level"], high["service_level"]) == (0.25, 0.75)
    machines = [{row["policy"]: row["machines"]["mean"] for row in one["traces"][0]["rows"]} for one in (low, high)]
    assert machines[0].pop("cbp") < machines[1].pop("cbp")
    assert machines[0].pop("cbp, factor 1.2") <= machines[1].pop("cbp, factor 1.2")
    assert machines[0] == machines[1]


def test_machines_that_stay_after_they_were_wanted_are_ours_alone(capacity):
    gone = json.loads(capacity[0].stdout)
    asked = ("capacity", "--seeds", 1, "--hours", 1, "--workers", 1, "-o", "json")
    kept = json.loads(run(*asked, "--stabilization-seconds", 1800).stdout)
    assert (gone["stabilization_seconds"], kept["stabilization_seconds"]) == (0.0, 1800.0)
    machines = [{row["policy"]: row["machines"]["mean"] for row in one["traces"][0]["rows"]} for one in (gone, kept)]
    assert machines[0].pop("cbp") < machines[1].pop("cbp")
    assert machines[0].pop("cbp, factor 1.2") <= machines[1].pop("cbp, factor 1.2")
    assert machines[0] == machines[1]


def test_the_least_energy_that_is_possible_is_no_more_than_the_oracle_needs(capacity):
    trace = json.loads(capacity[0].stdout)["traces"][0]
    assert 0 < trace["floor_over_baseline"]["high"] <= trace["oracle_over_baseline"]["low"]


def test_rounding_up_is_never_better_than_the_integral_optimum(capacity):
    gap = json.loads(capacity[0].stdout)["integral"]
    assert gap["instances"] > 0
    assert gap["rounded_low"] >= 1.0 - 1e-3
    assert gap["fractions_mean"] <= 1.0 + 1e-6


def test_placement_prints_a_week_and_its_rivals(tmp_path):
    arguments = ("--week", "flat", "--seeds", 1, "--days", 1, "--reconfiguration", 1, "--workers", 1)
    done = run("placement", *arguments, "--plot", tmp_path / "placement.png")
    assert done.return_value in (0, 3)
    assert (done.return_value == 3) == ("missed:" in done.stdout)
    assert all(name in done.stdout for name in ("mpc", "greedy", "last value", "yesterday", "nearest", "oracle"))
    assert "of greedy's cost:" in done.stdout
    assert (tmp_path / "placement.png").stat().st_size > 1000


@pytest.mark.parametrize("name", ["capacity", "placement"])
def test_mistakes_are_told_in_one_line(name, tmp_path):
    assert "no such directory" in str(run(name, "--data", tmp_path / "nowhere").exception)
    assert "ends in neither" in str(run(name, "--plot", tmp_path / "plot.pdf").exception)
    empty = run(name, "--data", tmp_path, "--seeds", 1, "--workers", 1)
    assert isinstance(empty.exception, InputError)
