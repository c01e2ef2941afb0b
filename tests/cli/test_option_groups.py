"""Options in groups: headings in `-h`, one object for a command, and no command that is handed dozens of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cotide_cli.option_groups import GroupedCommand, grouped, option_group
from cotide_lab.commands import lab_command, simulate_command, sweep_command, train_command
from cotide_lab.evaluation import evaluate_command
from cotide_lab.profile import profile_command
from cotide_sim.commands import nodes_command


@dataclass(frozen=True)
class Size:
    cores: int
    memory: int


@click.command(cls=GroupedCommand)
@click.option("--quiet", is_flag=True, help="Say less.")
@option_group(
    "Size",
    "size",
    Size,
    grouped("--cores", default=2, help="Of a node."),
    grouped("--memory-gib", "memory", default=4, help="Of a node, too."),
)
def sized(size: Size, quiet: bool) -> None:
    click.echo(f"{size} {quiet}")


def test_a_command_gets_a_group_as_one_object_beside_its_other_options() -> None:
    done = CliRunner().invoke(sized, ["--memory-gib", "8", "--quiet"], catch_exceptions=False)
    assert done.output == "Size(cores=2, memory=8) True\n"


def test_help_shows_each_group_under_its_heading_in_order_and_what_has_no_group_last() -> None:
    shown = CliRunner().invoke(sized, ["--help"]).output
    order = [shown.index(part) for part in ("Size:", "--cores", "--memory-gib", "\nOptions:", "--quiet", "--help")]
    assert order == sorted(order)


def test_a_mistake_names_the_option_as_it_does_without_groups() -> None:
    done = CliRunner().invoke(sized, ["--cores", "many"])
    assert (done.exit_code, "Invalid value for '--cores'" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("command", "headings"),
    [
        (simulate_command.command, ["Jobs", "Policies", "Machines", "Rows of the trace", "Files to write"]),
        (profile_command.active, ["Service and load", "Batch jobs", "Cores of this machine", "Windows of a cell",
                                  "What ends it", "Cluster", "Campaign"]),
        (profile_command.passive, ["Prometheus", "Batch pods", "Cluster", "Campaign"]),
        (train_command.command, ["Samples"]),
        (evaluate_command.command, ["Samples", "Splits", "Scores"]),
        (sweep_command.command, ["Jobs", "Policies", "Machines", "Rows of the trace", "Execution"]),
        (nodes_command.command, ["Cluster", "Nodes", "Simulated time", "Metrics"]),
        (lab_command.run, ["Data", "Predictors", "Execution"]),
    ],
)  # fmt: skip
def test_commands_with_many_options_read_in_groups(command: Any, headings: list[str]) -> None:
    lines = CliRunner().invoke(command, ["--help"]).output.splitlines()
    ends = [line.removesuffix(":") for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert ends == [*headings, "Options"]
