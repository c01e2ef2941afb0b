"""`cotide experiment consolidation` and `consolidation-traces` from a user's chair: tables, plots, refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from matplotlib.figure import Figure

from cotide_lab.commands.experiment_command import command
from cotide_lab.experiments.consolidation import hierarchy, recorded_loads, tables
from cotide_lab.experiments.consolidation.highs_once import Highs
from cotide_lab.experiments.consolidation.plot import draw_panels


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


@cache
def found() -> tuple[list[tables.Cell], list[tables.CurvePoint], list[hierarchy.HierarchyRow]]:
    cells = tables.run_tables([0], Highs(), sizes=[32, 64], instances=2)
    curves = tables.run_curves(0, sizes=[32, 64], instances=2)
    return cells, curves, hierarchy.run_hierarchy([0], nodes=64, ports=[8, 16])


def test_each_figure_of_the_paper_has_a_panel_with_what_was_measured() -> None:
    cells, curves, rows = found()
    figure = Figure()
    draw_panels(cells, curves, rows, figure)
    panels = {axes.get_title().split(":")[0]: axes for axes in figure.axes}
    assert {f"Fig. {number}" for number in (5, 6, 7, 9, 10)} | {"Fig. 8, Tables I and II"} <= set(panels)
    drawn = {line.get_label(): line for line in panels["Fig. 5"].lines}
    shown = [point for point in curves if point.nodes_given == 32]
    assert list(drawn["RoDT"].get_ydata()) == [point.rodt for point in shown]
    # Two nodes under one switch of four ports are a level apart, the first and the last of 32 three.
    weights = panels["Fig. 6"].images[0].get_array()
    assert (weights[0, 0], weights[0, 1], weights[0, 31]) == (0, 1, 3)
    uniform = sorted(cell.transfer / cell.nodes_given for cell in cells if cell.kind == "uniform")
    assert sorted(bar.get_height() for bar in panels["Fig. 8, Tables I and II"].patches) == uniform
    stability = {line.get_label(): line for line in panels["Fig. 10"].lines}
    least = [row.roldt for row in rows if (row.kind, row.method) == ("normal", "DMNS")]
    assert list(stability["DMNS, normal input"].get_ydata()) == least


def test_the_command_prints_the_curves_and_writes_the_same_plot_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, curves, rows = found()
    monkeypatch.setattr(tables, "run_tables", lambda *_, **__: cells)
    monkeypatch.setattr(tables, "run_curves", lambda *_, **__: curves)
    monkeypatch.setattr(hierarchy, "run_hierarchy", lambda *_, **__: rows)
    done = run("consolidation", "--quick", "--plot", tmp_path / "a.svg")
    assert done.exception is None, done.exception
    lines = [line.split() for line in done.stdout.splitlines()]
    last = [point for point in curves if point.nodes_given == 64][-1]
    assert ["64", "64", *(f"{one:.3f}" for one in (last.ronu, last.rodt, last.rodte, last.fewest))] in lines
    assert run("consolidation", "--quick", "--plot", tmp_path / "b.svg").exception is None
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    monkeypatch.setattr(
        tables, "run_curves", lambda *_, **__: [replace(curve, rodt=curve.rodt / 2) for curve in curves]
    )
    assert run("consolidation", "--quick", "--plot", tmp_path / "c.svg").exception is None
    assert (tmp_path / "a.svg").read_bytes() != (tmp_path / "c.svg").read_bytes()


@pytest.mark.parametrize("arguments", [("consolidation",), ("consolidation-traces", "--data", ".")])
def test_a_plot_of_another_form_is_refused_before_the_run(arguments: tuple[str, ...]) -> None:
    assert "ends in neither of .png, .svg" in str(run(*arguments, "--plot", "plot.pdf").exception)


def test_recorded_loads_that_are_not_there_are_refused(tmp_path: Path) -> None:
    assert "no such directory" in str(run("consolidation-traces", "--data", tmp_path / "none").exception)


def test_rules_on_recorded_loads_are_drawn_by_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, hosts = np.tile(np.array([40, 1]), (8, 1)), np.tile(np.array([100, 100]), (9, 1))
    steady = recorded_loads.RecordedLoad("steady", "made up", asked, np.full((8, 36), 10.0), hosts)
    monkeypatch.setattr(recorded_loads, "read_recorded", lambda *_: steady)
    plot = tmp_path / "traces.svg"
    done = run("consolidation-traces", "--data", tmp_path, "--set", "azure", "--seeds", "1", "--plot", plot)
    assert done.exception is None, done.exception
    cells = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()]
    hours = {row[2]: row[-9] for row in cells if row[:2] == ["steady", "0.5%"]}
    hours["optimum"] = next(row for row in cells if "optimum" in row)[-9]
    # Eight machines that ask for 40 of 100, two a host: four hosts for three hours; by their use of 10 one would do.
    assert (hours["DMNS on requests"], hours["optimum"]) == ("12", "3")
    assert all(rule in plot.read_text() for rule in hours)
