"""The search for a reading under which HYBRID is below SVF-EF, at a small size."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cotide_cli.experiment_command import command
from cotide_core.approximation.schedule import Schedule
from cotide_core.errors import CotideError
from cotide_sim.experiments import s7_readings
from cotide_sim.experiments.s7_hybrids import HOLES, READINGS, WAYS, apart
from cotide_sim.experiments.s7_readings import Report, Settings, run
from cotide_sim.workloads.synthetic import synthetic_jobs

SMALL = Settings(points=((500, 12), (500, 3)), log_machines=(2,))
LOG = (np.arange(1, 201) * 37 % 5000 + 1, np.arange(1, 201) * 13 % 220 + 1)


@pytest.fixture(scope="module")
def report() -> Report:
    return run(SMALL, LOG)


def test_every_reading_is_tried_under_every_way_of_placing_lists(report: Report) -> None:
    # Two generated workloads on two points and the log: five instances; a spare machine there is on three machines
    # (one of M1 and one of M2 make two) and on twelve (3 + 8 make eleven) but not on two.
    tried = {(row.way, row.reading): row.instances for row in report.readings}
    for reading in READINGS:
        for way in WAYS:
            expected = 4 if reading.name.startswith("a spare") else 5
            assert tried[way, reading.name] == expected
    assert {row.instances for row in report.others} == {5}


def test_no_reading_shows_the_order_of_the_paper_and_the_printed_split_is_ruled_out(report: Report) -> None:
    assert report.reproduced == []
    assert report.ruled_out
    printed = next(row for row in report.readings if row.way == HOLES)
    assert printed.reading.startswith("as printed")
    assert printed.below == 0


def test_what_is_measured_keeps_to_the_floors(report: Report) -> None:
    least = {row.reading: row.svf[0] for row in report.readings if row.way == HOLES}
    generated = [row for row in report.floors if row.generated]
    assert least["as printed, a spare machine to low demand"] >= min(row.printed for row in report.floors)
    assert least["the best of all splits"] >= min(row.best for row in report.floors)
    for row in report.floors:
        assert row.any_schedule <= 1
        assert row.any_schedule <= row.best <= row.printed
        assert 1 <= row.best_high_machines < row.machines
    # A quarter of the jobs is high demand and brings more than half of the machine time: about two fifths of machines.
    assert {row.best_high_machines for row in generated if row.machines == 12} == {5}


def test_relisting_is_at_or_below_svf_ef(report: Report) -> None:
    row = next(row for row in report.others if row.way == HOLES and row.reading == "HYBRID relisted")
    assert row.svf[1] <= 1


def test_all_jobs_get_a_start_when_one_set_is_empty() -> None:
    jobs = synthetic_jobs("synth1", 60, 0)
    low = jobs.taken(np.flatnonzero(jobs.demands <= 100))
    for place in WAYS.values():
        assert (apart(low, 4, place, 1).starts >= 0).all()


def test_the_same_settings_give_the_same_report(report: Report) -> None:
    assert run(SMALL, LOG) == report


def test_a_schedule_that_cannot_run_stops_the_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_at_once(jobs, *_):
        return Schedule(np.zeros(len(jobs), np.int64), np.zeros(len(jobs), np.int64))

    monkeypatch.setitem(s7_readings.WAYS, HOLES, all_at_once)
    with pytest.raises(CotideError, match="SVF-EF gave a schedule that can't run"):
        run(SMALL)


def test_the_command_says_what_was_found_and_ends_with_code_3(tmp_path: Path) -> None:
    def called(*arguments: str):
        return CliRunner().invoke(command, ["s7-readings", "--quick", *arguments], standalone_mode=False)

    done = called()
    assert done.return_value == 3
    assert "below SVF-EF on all instances: no reading of HYBRID" in done.stdout
    document = json.loads(called("-o", "json").stdout)
    assert document["ruled_out"] is True
    assert document["floors"][0]["machines"] == 10
