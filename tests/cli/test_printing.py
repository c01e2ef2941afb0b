"""Tables on narrow screens: columns without room go below, and no figure is cut or folded."""

from __future__ import annotations

import pytest
from rich.table import Table

from cotide_cli import printing
from cotide_cli.printing import print_figures, print_table

LINES = [["policy", *(f"figure {at}" for at in range(8))], ["fifo", *(f"{at:,}" for at in range(10**6, 10**6 + 8))]]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(printing, "screen_columns", lambda: 80)
    return monkeypatch


def test_columns_without_room_go_below_with_the_names_anew(
    screen: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_figures(LINES, left=(0,))
    printed = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in printed)
    assert [line.split()[0] for line in printed] == ["policy", "fifo", "policy", "fifo"]
    assert printed[0].split("  ")[-1] == " figure 5"
    assert all(figure in "\n".join(printed) for row in LINES for figure in row)


def test_a_column_that_is_wider_than_the_screen_is_whole(
    screen: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_figures([["a", "1" * 100, "2"]])
    assert capsys.readouterr().out.splitlines() == [f"  a  {'1' * 100}", "  a  2"]


def test_a_pipe_has_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_figures(LINES, indent="")
    header, row = capsys.readouterr().out.splitlines()
    assert (header.split()[0], header.split()[-1], row.split()) == ("policy", "7", LINES[1])


def table(*names: str) -> Table:
    found = Table(title="what it is", box=None)
    for column in ("algorithm", *LINES[0][1:]):
        found.add_column(column, justify="right")
    for name in names:
        found.add_row(name, *LINES[1][1:])
    return found


def test_a_table_of_figures_without_room_is_laid_out_anew(
    screen: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(table("svf-ef", "sjf-lw"))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "what it is"
    assert all(len(line) <= 80 for line in printed)
    assert [line.split()[0] for line in printed[1:]] == ["algorithm", "svf-ef", "sjf-lw"] * 2
    assert "1,000,007" in printed[-1].split()


def test_a_row_keeps_all_its_names(screen: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = Table(title="what it is", box=None)
    for column in ("workload", "algorithm"):
        found.add_column(column)
    for column in LINES[0][1:]:
        found.add_column(column, justify="right")
    found.add_row("synth1", "svf-ef", *LINES[1][1:])
    print_table(found)
    printed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert printed == [["workload", "algorithm"], ["synth1", "svf-ef"]] * 2


def test_a_table_that_fits_is_as_it_was(screen: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    screen.setattr(printing, "screen_columns", lambda: 120)
    print_table(table("svf-ef"))
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_sentences_are_folded_and_stand_once(screen: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(table("words " * 20))
    printed = capsys.readouterr().out
    assert printed.count("algorithm") <= 1


def test_progress_that_goes_to_a_file_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(printing.time, "monotonic", lambda: now[0])
    with printing.progress_bar() as emit:
        for at, share in ((101.0, 0.1), (131.0, 0.25), (140.0, 0.3), (162.0, 0.5)):
            now[0] = at
            emit(f"cell {share}", share)
    assert capsys.readouterr().err.splitlines() == ["25%: cell 0.25", "50%: cell 0.5"]
