"""A sweep runs each cell once, on any number of workers, with one result; a broken cell costs only itself."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import pytest

from cotide_core.errors import InputError
from cotide_lab.sweeps.cells import Cell
from cotide_lab.sweeps.execution import Workers
from cotide_lab.sweeps.plan import synthetic_source, tasks_of
from cotide_lab.sweeps.stopping import Stopped, StopSignals
from cotide_lab.sweeps.sweep import journal_path, run_sweep

SOURCE = synthetic_source("synth1", 60, 0.9)


def tasks(policies=("fcfs", "easy"), seeds=(1, 2, 3)):
    return tasks_of([SOURCE], policies, ["request", "clairvoyant"], seeds)


@dataclass(frozen=True)
class Deadly:
    """A source that kills the process which receives it, as the system does when memory runs out."""

    trace: str = "deadly"

    def __reduce__(self):
        return (os._exit, (1,))


def test_results_do_not_depend_on_workers_or_order(tmp_path):
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    assert run_sweep(tasks(), one, Workers(1)).ran == 12
    assert run_sweep(tasks()[::-1], two, Workers(2)).ran == 12
    assert one.read_bytes() == two.read_bytes()
    assert len(one.read_text().splitlines()) == 13
    assert sorted(tmp_path.iterdir()) == sorted([one, two, journal_path(one), journal_path(two)])


def test_a_finished_cell_is_never_run_again_and_more_cells_join_the_table(tmp_path):
    output, whole = tmp_path / "r.csv", tmp_path / "whole.csv"
    first = run_sweep(tasks(policies=["easy"]), output, Workers(1))
    second = run_sweep(tasks(), output, Workers(1))
    third = run_sweep(tasks(policies=["easy"]), output, Workers(1))
    assert [(report.kept, report.ran) for report in (first, second, third)] == [(0, 6), (6, 6), (6, 0)]
    run_sweep(tasks(), whole, Workers(1))
    assert output.read_bytes() == whole.read_bytes()


def test_a_cell_that_fails_keeps_its_reason_and_runs_again_only_when_asked(tmp_path):
    output = tmp_path / "r.csv"
    broken = Cell(SOURCE.trace, SOURCE.trace_sha256, SOURCE.settings, "request", "no-such", 1)
    chosen = [(broken, SOURCE), *tasks()]
    report = run_sweep(chosen, output, Workers(1))
    assert (report.ran, [outcome.cell for outcome in report.failures]) == (13, [broken])
    assert "there is no 'no-such'" in (report.failures[0].error or "")
    assert sum("there is no 'no-such'" in line for line in output.read_text().splitlines()) == 1
    again = run_sweep(chosen, output, Workers(1))
    assert (again.kept, again.ran, len(again.failures)) == (13, 0, 1)
    assert run_sweep(chosen, output, Workers(1), retry_failed=True).ran == 1


def test_a_worker_that_dies_costs_its_own_cell_only(tmp_path):
    output, clean = tmp_path / "r.csv", tmp_path / "clean.csv"
    fatal = Cell("deadly", "d", "s", "request", "easy", 1)
    chosen = tasks()
    report = run_sweep([*chosen[:5], (fatal, Deadly()), *chosen[5:]], output, Workers(2))
    assert [outcome.cell for outcome in report.failures] == [fatal]
    assert "its worker process died" in (report.failures[0].error or "")
    run_sweep(chosen, clean, Workers(1))
    assert [line for line in output.read_text().splitlines() if "deadly" not in line] == clean.read_text().splitlines()


def test_a_results_file_without_its_journal_is_not_overwritten(tmp_path):
    output = tmp_path / "r.csv"
    output.write_text("mine\n")
    with pytest.raises(InputError, match=r"exists, but not its journal r\.csv\.journal"):
        run_sweep(tasks(), output, Workers(1))
    assert output.read_text() == "mine\n"


def test_a_signal_waits_for_what_is_held_and_is_told_once():
    before = signal.getsignal(signal.SIGTERM)
    done = []
    with pytest.raises(Stopped) as caught, StopSignals() as signals:  # noqa: PT012  the order of steps is the matter
        with signals.held():
            signal.raise_signal(signal.SIGTERM)
            done.append("held part")
        done.append("not reached")
    assert (done, caught.value.number) == (["held part"], signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
