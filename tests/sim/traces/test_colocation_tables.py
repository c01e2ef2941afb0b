"""The reader of the measured co-location tables, on small files and on the real ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cotide_core.errors import InputError
from cotide_files.columns import read_table
from cotide_sim.traces.colocation import tables

ANTAGONIST_HEADER = "source,part,interference,config,rep,avg_us,p95_us,QPS,target"


def write(directory: Path, name: str, *lines: str) -> Path:
    path = directory / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def antagonists(directory: Path, *rows: str) -> Path:
    return write(directory, tables.ANTAGONISTS, ANTAGONIST_HEADER, *rows)


def test_row_without_a_job_becomes_an_empty_mix(tmp_path: Path) -> None:
    antagonists(tmp_path, "s,part1,none,t1c1,0,300,500,4990,5000", "s,part1,llc,t1c1,0,900,1500,4900,5000")
    samples = tables.qos_samples(tmp_path, "antagonists")
    assert samples.mixes.types == ("llc",)
    assert samples.mixes.counts.tolist() == [[0.0], [1.0]]
    assert samples.mixes.cpu_pressure.tolist() == [0.0, 1.0]
    # The offered rate, not the achieved one; microseconds become milliseconds.
    assert samples.mixes.requests_per_second.tolist() == [5000.0, 5000.0]
    assert samples.latency_milliseconds.tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("s,part1,llc,t1c1,0,900,fast,4900,5000", r":3: p95_us: 'fast' is not a number"),
        ("s,part1,llc,t1c1,0,900,-1,4900,5000", r":3: p95_us: '-1' is not a finite number >= 0"),
        ("s,part1,llc,t1c1,0,900,nan,4900,5000", r":3: p95_us: 'nan' is not a finite number >= 0"),
        ("s,part1,llc,t1c1,0,900,,4900,5000", r":3: p95_us: '' is not a number"),
        ("s,part1,llc,t1c1,0,900", r":3: 6 cells where the header has 9"),
    ],
)
def test_broken_row_is_named_by_file_line_and_column(tmp_path: Path, row: str, complaint: str) -> None:
    path = antagonists(tmp_path, "s,part1,none,t1c1,0,300,500,4990,5000", row)
    with pytest.raises(InputError, match=complaint) as caught:
        tables.qos_samples(tmp_path, "antagonists")
    assert str(caught.value).startswith(str(path))


def test_missing_file_column_and_rows_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read: No such file"):
        tables.qos_samples(tmp_path, "antagonists")
    path = write(tmp_path, "a.csv", "x,y", "1,2")
    with pytest.raises(InputError, match=r":1: z: the header lacks this column"):
        read_table(path, numbers=("x", "z"))
    write(tmp_path, "a.csv", "x,y")
    with pytest.raises(InputError, match="has a header and no rows"):
        read_table(path, numbers=("x",))
    path.write_bytes(b"")
    with pytest.raises(InputError, match="the file is empty"):
        read_table(path, numbers=("x",))
    path.write_bytes(b"x\n\xff\n")
    with pytest.raises(InputError, match="is no CSV text"):
        read_table(path, numbers=("x",))


def test_job_counts_with_the_share_of_the_interval_in_which_it_ran(tmp_path: Path) -> None:
    """Two intervals of 10 s from 1970-01-01; ``vips`` runs 0-5 s, pauses, runs again 8-14 s on two of four cores."""
    write(
        tmp_path, tables.DYNAMIC, "experiment,run,interval,run_start_ms,run_end_ms,n_intervals,p95_us,QPS,target",
        "e,1,0,0,20000,2,600,100,101", "e,1,1,0,20000,2,700,100,102",
    )  # fmt: skip
    write(
        tmp_path, tables.EVENTS, "experiment,run,iso_time,event,job,args",
        'e,1,1970-01-01T00:00:00,start,memcached,"[0,1] 2"', 'e,1,1970-01-01T00:00:00,start,vips,"[2,3] 2"',
        "e,1,1970-01-01T00:00:05,pause,vips,", "e,1,1970-01-01T00:00:08,unpause,vips,",
        "e,1,1970-01-01T00:00:14,end,vips,", 'e,2,1970-01-01T00:00:00,start,vips,"[2,3] 2"',
    )  # fmt: skip
    write(
        tmp_path, tables.STATIC, "run,kind,start_ms,end_ms,p95_us,QPS,target",
        "1,job:parsec-radix,0,5000,,,", "1,job:memcached,0,10000,,,", "1,memcached_interval,0,10000,650,30000,30000",
        "2,memcached_interval,0,10000,550,30000,30000",
    )  # fmt: skip
    samples = tables.qos_samples(tmp_path, "parsec")
    assert samples.mixes.types == ("radix", "vips")
    assert samples.mixes.counts.tolist() == [[0, 0.7], [0, 0.4], [0.5, 0], [0, 0]]
    assert samples.mixes.cpu_pressure == pytest.approx([0.7 * 2 / 4, 0.4 * 2 / 4, 0.5 / 4, 0])
    assert samples.latency_milliseconds.tolist() == [0.6, 0.7, 0.65, 0.55]


def test_time_that_is_none_is_named(tmp_path: Path) -> None:
    header = "experiment,run,interval,run_start_ms,run_end_ms,n_intervals,p95_us,QPS,target"
    write(tmp_path, tables.DYNAMIC, header, "e,1,0,0,20000,2,600,100,101")
    write(tmp_path, tables.EVENTS, "experiment,run,iso_time,event,job,args", "e,1,soon,start,vips,[1] 1")
    with pytest.raises(InputError, match=r":2: iso_time: 'soon' is no ISO time"):
        tables.qos_samples(tmp_path, "parsec")


GRID_HEADER = (
    "workload_type,input_size_bytes,rps_target,rps_achieved,p95_us,p95_once10_derived_us,repetition,censored,"
    "completion_seconds,completion_est_seconds,completion_alone_seconds,alone_cpu_seconds,job_cpu_share,memcached_cpu_share"
)


def test_censored_run_counts_with_its_estimate_and_lone_runs_are_added_once(tmp_path: Path) -> None:
    write(
        tmp_path, tables.GRID, GRID_HEADER,
        "none,0,1000,1000,50,,1,0,,,,,,", "sort,20000000,1000,1000,900,60,1,0,2.5,2.6,2.0,2.0,0.8,0.1",
        "sort,20000000,140000,139000,90000,4000,1,1,12.0,15.5,2.0,2.0,0.2,0.8",
    )  # fmt: skip
    with_lone = tables.completion_samples(tmp_path, "grid")
    assert with_lone.seconds.tolist() == [2.5, 15.5, 2.0]
    assert with_lone.requests_per_second.tolist() == [1000.0, 140000.0, 0.0]
    assert len(tables.completion_samples(tmp_path, "grid", lone_runs=False).types) == 2
    once = tables.qos_samples(tmp_path, "grid-once")
    assert once.latency_milliseconds.tolist() == [0.05, 0.06, 4.0]  # without a job the measured one stands
    assert once.mixes.input_bytes.tolist() == [[0.0], [2e7], [2e7]]
    write(tmp_path, tables.GRID, GRID_HEADER, "sort,20000000,1000,1000,900,60,1,0,,2.6,2.0,2.0,0.8,0.1")
    with pytest.raises(InputError, match=r":2: completion_seconds: a batch row lacks it"):
        tables.completion_samples(tmp_path, "grid")


@pytest.mark.data
def test_real_tables_have_the_documented_rows(colocation: Path) -> None:
    grid = tables.qos_samples(colocation, "grid")
    assert len(grid.mixes) == 546
    assert int((grid.mixes.counts.sum(axis=1) == 0).sum()) == 42
    antagonist = tables.qos_samples(colocation, "antagonists")
    assert antagonist.mixes.types == ("cpu", "l1d", "l1i", "l2", "llc", "membw")
    assert len(antagonist.mixes) == 231
    runs = tables.completion_samples(colocation, "grid", lone_runs=False)
    assert len(runs.types) == 504
    assert len(tables.completion_samples(colocation, "grid").types) == 504 + 64


@pytest.mark.data
def test_several_parsec_jobs_are_seen_together(colocation: Path) -> None:
    samples = tables.qos_samples(colocation, "parsec")
    assert samples.mixes.types == ("blackscholes", "canneal", "dedup", "ferret", "freqmine", "radix", "vips")
    assert samples.mixes.counts.sum(axis=1).max() > 2
    assert np.isfinite(samples.latency_milliseconds).all()
    everything = tables.qos_samples(colocation, "all")
    assert len(everything.mixes) == 546 + 231 + len(samples.mixes)
    assert everything.mixes.counts.sum() == pytest.approx(504 + 198 + samples.mixes.counts.sum())
