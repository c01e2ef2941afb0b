"""Readers of load series: values, gaps and named faults."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from cotide_core.errors import InputError
from cotide_sim.traces.load import alibaba2018, google_load, vm_load
from cotide_sim.traces.load.any_load import read_load_series
from cotide_sim.traces.load.load_series import read_own_series


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def test_google_2011_days_follow_each_other_and_a_lacking_day_has_no_records(tmp_path: Path) -> None:
    rows = "a,3,0,10,1\na,3,287,20,1\na,5,1,30,1\nb,4,0,40,1\n"
    written(tmp_path, google_load.FILE_2011, "series,day,slot,cpu_percent,mem_percent\n" + rows)
    series = google_load.read_google2011_load(tmp_path)
    # The first day that occurs is the first of the matrix: day 5, slot 1 is place 2 * 288 + 1.
    assert series.load.shape == (2, 2 * 288 + 2)
    assert series.load[0, [0, 287, 577]] == pytest.approx([0.1, 0.2, 0.3])
    assert np.isnan(series.load[0, 288:576]).all()
    assert series.load[1, 288] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("row", "field"), [("a,1,288,10,1", "slot"), ("a,1,0,lots,1", "cpu_percent"), ("a,0,0,1,1", "day")]
)
def test_a_broken_google_row_is_named_by_line_and_column(tmp_path: Path, row: str, field: str) -> None:
    written(tmp_path, google_load.FILE_2011, f"series,day,slot,cpu_percent,mem_percent\na,1,1,10,1\n{row}\n")
    with pytest.raises(InputError) as caught:
        google_load.read_google2011_load(tmp_path)
    assert caught.value.line == 3
    assert caught.value.field == field


def test_google_2019_is_one_series(tmp_path: Path) -> None:
    written(tmp_path, google_load.FILE_2019, "avg_cpu,avg_mem\n0.4,0.1\n0.5,0.1\n")
    assert google_load.read_google2019_load(tmp_path).load.tolist() == [[0.4, 0.5]]


def test_alibaba_samples_fold_to_maxima_and_broken_values_to_gaps(tmp_path: Path) -> None:
    rows = "m_1,0,10\nm_1,120,30\nm_1,310,\nm_1,620,101\nm_2,900,50\n"
    written(tmp_path, alibaba2018.FILE, "machine,time_s,cpu_percent\n" + rows)
    series = alibaba2018.read_alibaba2018_usage(tmp_path)
    assert series.hosts == ("m_1", "m_2")
    expected = [[0.3, np.nan, np.nan, np.nan], [np.nan, np.nan, np.nan, 0.5]]
    assert np.array_equal(series.load, expected, equal_nan=True)


def test_a_moment_beyond_a_million_slots_is_named_and_takes_no_memory(tmp_path: Path) -> None:
    """Found by fuzzing: a time of 6e15 s asked for 2e13 slots. A million slots of 300 s end at 3e8 s."""
    written(tmp_path, alibaba2018.FILE, f"machine,time_s,cpu_percent\na,0,5\na,{6e15:.0f},10\n")
    with pytest.raises(InputError, match="beyond 1000000 slots") as caught:
        alibaba2018.read_alibaba2018_usage(tmp_path)
    assert (caught.value.line, caught.value.field) == (3, "time_s")
    written(tmp_path, google_load.FILE_2011, "series,day,slot,cpu_percent\na,1,0,5\na,1e15,0,5\n")
    with pytest.raises(InputError, match="is above 3472") as caught:
        google_load.read_google2011_load(tmp_path)
    assert (caught.value.line, caught.value.field) == (3, "day")


@pytest.mark.parametrize("name", [alibaba2018.FILE, "mine.csv"])
def test_many_long_series_are_refused_before_they_are_laid_out(tmp_path: Path, name: str) -> None:
    """101 series of a million slots are 101 million cells, one million more than may be."""
    if name == "mine.csv":
        rows = "series,slot,load\n" + "".join(f"s{at},999999,0.5\n" for at in range(101))
    else:
        rows = "machine,time_s,cpu_percent\n" + "".join(f"s{at},299999999,5\n" for at in range(101))
    path = written(tmp_path, name, rows)
    with pytest.raises(InputError, match="101 series of 1000000 slots, more than 100000000 in all"):
        read_own_series(path) if name == "mine.csv" else alibaba2018.read_alibaba2018_usage(tmp_path)


def test_azure_machines_are_columns(tmp_path: Path) -> None:
    written(tmp_path, vm_load.AZURE_FILE.format(kind="max"), "t,7,9\n1,50,1\n2,60,\n")
    series = vm_load.read_azure_cpu(tmp_path, "max")
    assert series.hosts == ("7", "9")
    assert np.array_equal(series.load, [[0.5, 0.6], [0.01, np.nan]], equal_nan=True)


@pytest.mark.parametrize(
    ("cells", "words"),
    [("1," * 286 + "1", "287 values where 288"), ("1," * 287 + "x", "no number"), ("1," * 287 + "-4", "no percentage")],
)
def test_a_broken_planetlab_row_is_named_by_line(tmp_path: Path, cells: str, words: str) -> None:
    written(tmp_path, vm_load.PLANETLAB_FILE, "one," + "1," * 287 + "2\n" + f"two,{cells}\n")
    with pytest.raises(InputError, match=words) as caught:
        vm_load.read_planetlab_cpu(tmp_path)
    assert caught.value.line == 2


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    for read in (google_load.read_google2011_load, alibaba2018.read_alibaba2018_usage, vm_load.read_planetlab_cpu):
        with pytest.raises(InputError):
            read(tmp_path)


def test_a_users_own_series_are_read_by_slot_and_gaps_stay_gaps(tmp_path: Path) -> None:
    path = written(tmp_path, "mine.csv", "series,slot,load\nweb,0,0.5\nweb,2,0.7\ndb,1,\n")
    series = read_own_series(path)
    assert series.name == "mine"
    assert np.array_equal(series.load, [[0.5, np.nan, 0.7], [np.nan] * 3], equal_nan=True)


@pytest.mark.parametrize(
    ("row", "field"),
    [("web,1.5,0.2", "slot"), ("web,1,55", "load"), ("web,1700000000,0.1", "slot"), ("web,1,nan", "load")],
)
def test_a_users_broken_row_is_named(tmp_path: Path, row: str, field: str) -> None:
    path = written(tmp_path, "mine.csv", f"series,slot,load\n{row}\n")
    with pytest.raises(InputError) as caught:
        read_own_series(path)
    assert (caught.value.line, caught.value.field) == (2, field)


@pytest.mark.parametrize(
    "text",
    [
        "series,day,slot,cpu_percent,mem_percent\na,6,0,50,1\n",
        "avg_cpu,avg_mem\n0.5,0.1\n",
        "machine,time_s,cpu_percent\nm_1,0,50\n",
        "t,7\n1,50\n",
        "one," + "50," * 287 + "50\n",
        "series,slot,load\nweb,0,0.5\n",
    ],
)
def test_a_named_file_is_read_in_the_format_its_first_line_shows(tmp_path: Path, text: str) -> None:
    series = read_load_series(written(tmp_path, "another part.csv.gz", text))
    assert series.name == "another part"
    assert series.load[0, 0] == 0.5


def test_a_file_of_no_known_format_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="fits no format"):
        read_load_series(written(tmp_path, "odd.csv", "a,b\n1,2\n"))


def test_another_part_of_a_trace_is_found_by_its_kind_of_name(tmp_path: Path) -> None:
    written(tmp_path, "google/google2011_job_load_days6-9.csv.gz", "series,day,slot,cpu_percent\na,6,0,50\n")
    assert google_load.read_google2011_load(tmp_path).load.tolist() == [[0.5]]
