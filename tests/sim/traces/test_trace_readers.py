"""Trace readers: values as in the file, and a broken row is named by file, line and column."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from cotide_core.errors import InputError
from cotide_files.columns import read_table
from cotide_files.rows import stream_rows
from cotide_sim.traces.economy import hourly
from cotide_sim.traces.jobs import alibaba2017, google2011
from cotide_sim.traces.load import any_load, nasa_http, vm_load, worldcup98

ALIBABA_HEADER = (
    "task_create_time, task_end_time, job_id, task_id, number_of_instances, status, "
    "number_of_cpus_requested_per_instance_in_the_task,normalized_memory_requested_per_instance_in_the_task"
)
GOOGLE_HEADER = (
    "job_ID,priority,requestCPU,requestRAM,requestDisk,user_name,scheduling_class,logical_job_name,"
    "task_duration,task_number"
)


def write(directory: Path, name: str, *lines: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    return directory


def test_web_minutes_that_are_missing_are_filled_from_their_neighbours(tmp_path):
    write(
        tmp_path, worldcup98.FILE, "period,count",
        "1998-05-08 03:20:00,100", "1998-05-08 03:21:00,200", "1998-05-08 03:23:00,400",
    )  # fmt: skip
    trace = worldcup98.read_worldcup98(tmp_path)
    assert trace.requests.tolist() == [100.0, 200.0, 300.0, 400.0]
    assert trace.window(3, 3).tolist() == [400.0, 100.0, 200.0]


def test_alibaba_tasks_are_read_with_cores_and_empty_cells(tmp_path):
    write(
        tmp_path, alibaba2017.FILE, ALIBABA_HEADER,
        "-5,6524,3,4,15740,Terminated,50,0.0079", "6036,6046,4,7,393,Waiting,,",
    )  # fmt: skip
    first, second = alibaba2017.read_batch_tasks(tmp_path)
    assert (first.created_seconds, first.seconds, first.instances, first.cores) == (-5.0, 6529.0, 15740, 0.5)
    assert (second.status, second.cores, second.memory_share) == ("Waiting", None, None)


def test_google_durations_are_read_as_five_minute_slots(tmp_path):
    write(tmp_path, google2011.FILE, GOOGLE_HEADER, "6251668761.0,2,0.6,0.0015,1e-6,u,1,n,0.08666666666666667,1")
    (job,) = google2011.read_google_jobs(tmp_path)
    # 0.08666... x 300 s = 26 s.
    assert (job.priority, job.tasks) == (2, 1)
    assert job.seconds == pytest.approx(26.0)


@pytest.mark.parametrize(
    ("file", "lines", "says"),
    [
        (worldcup98.FILE, ("period,count", "1998-05-08 03:20:00,1", "yesterday,2"), ":3: period: 'yesterday' is not"),
        (worldcup98.FILE, ("period,count", "1998-05-08 03:20:00,-1"), ":2: count: '-1' is not a finite number >= 0"),
        (
            worldcup98.FILE,
            ("period,count", "1998-05-08 03:20:00,1", "1998-05-08 03:20:00,1"),
            ":3: period: is not later",
        ),
        (worldcup98.FILE, ("period,count",), "has no rows"),
        (worldcup98.FILE, ("time,count", "a,b"), ":1: the header lacks column 'period'"),
        (
            alibaba2017.FILE,
            (ALIBABA_HEADER, "1,2,3,4,many,Terminated,50,0.1"),
            ":2: number_of_instances: 'many' is not",
        ),
        (alibaba2017.FILE, (ALIBABA_HEADER, "1,2,3,4,5,,50,0.1"), ":2: status: is empty"),
        (alibaba2017.FILE, (ALIBABA_HEADER, "1,2,3"), ":2: 3 cells where the header has 8"),
        (google2011.FILE, (GOOGLE_HEADER, "1,12,0,0,0,u,1,n,1,1"), ":2: priority: '12' is not a whole number"),
        (google2011.FILE, (GOOGLE_HEADER, "1,2,0,0,0,u,1,n,nan,1"), ":2: task_duration: 'nan' is not a finite"),
    ],
)
def test_a_broken_row_is_named(tmp_path, file, lines, says):
    write(tmp_path, file, *lines)
    readers = {
        worldcup98.FILE: worldcup98.read_worldcup98,
        alibaba2017.FILE: lambda d: list(alibaba2017.read_batch_tasks(d)),
        google2011.FILE: lambda d: list(google2011.read_google_jobs(d)),
    }
    with pytest.raises(InputError) as caught:
        readers[file](tmp_path)
    assert str(caught.value).startswith(str(tmp_path / file))
    assert says in str(caught.value)


def test_a_missing_file_says_what_was_expected_there(tmp_path):
    with pytest.raises(
        InputError, match=r"worldcup98.*no such file, where the file of WorldCup98 requests per minute was expected"
    ):
        worldcup98.read_worldcup98(tmp_path)


def test_a_file_that_is_cut_off_or_no_gzip_gets_one_line(tmp_path):
    path = write(tmp_path, google2011.FILE, GOOGLE_HEADER, *["1,2,0,0,0,u,1,n,1,1"] * 500) / google2011.FILE
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="is no CSV text"):
        list(google2011.read_google_jobs(tmp_path))
    path.write_bytes(b"plain text")
    with pytest.raises(InputError, match="can't be read"):
        list(google2011.read_google_jobs(tmp_path))


def damaged(path: Path) -> Path:
    """A compressed file of many rows, with bytes in the middle that are none of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{number},{number * number},{number % 7}\n" for number in range(20_000))
    packed = bytearray(gzip.compress(("series,slot,load\n" + rows).encode(), mtime=0))
    packed[60:80] = bytes(20)
    path.write_bytes(packed)
    return path


def test_a_compressed_file_that_is_damaged_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = damaged(tmp_path / "own.csv.gz")
    (tmp_path / nasa_http.FILE).parent.mkdir(parents=True)
    damaged(tmp_path / nasa_http.FILE)
    readers: list[Callable[[], object]] = [
        lambda: read_table(path, texts=("series",), numbers=("slot",)),
        lambda: list(stream_rows(path, ("series", "slot"), what="own")),
        lambda: any_load.read_load_series(path),
        lambda: vm_load.read_planetlab_cpu(path),
        lambda: nasa_http.read_nasa_http(tmp_path),
    ]
    for read in readers:
        with pytest.raises(InputError):
            read()


def test_a_moment_beyond_all_others_is_refused_and_asks_for_no_memory(tmp_path: Path) -> None:
    write(tmp_path, worldcup98.FILE, "period,count", "1998-05-08 03:20:00,1", "9998-05-08 03:20:00,2")
    with pytest.raises(InputError, match=r":3: .*more than 5000000 minutes"):
        worldcup98.read_worldcup98(tmp_path)
    carbon = hourly.CARBON.format(country="DE")
    write(tmp_path, carbon, "timestamp,carbon_intensity", "0001-01-02 00:00,1", "9998-05-08 03:20:00,2")
    with pytest.raises(InputError, match="more than 1000000 hours"):
        hourly.read_carbon(tmp_path, "DE")
