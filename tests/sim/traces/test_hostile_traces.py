"""Traces that were spoilt on their way: what they hold beside jobs changes no figure and takes no memory."""

from __future__ import annotations

import codecs
import os
from dataclasses import replace

import numpy as np
import pytest

from cotide_core.errors import InputError
from cotide_lab.job_logs.generated_log import generated_log
from cotide_lab.sweeps.plan import log_source, parse_seeds
from cotide_lab.trace_replay.metrics import WEEK_SECONDS, WEEKS_MAX, figures_of, use_by_week
from cotide_sim.traces.jobs.any_log import read_any_log
from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.swf import Field, read_swf
from cotide_sim.traces.jobs.swf_cleaning import MAX_PROCESSORS, TIME_MAX, Cleaning, clean
from cotide_sim.traces.jobs.swf_write import log_of_jobs, write_swf

OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "pod-1,12000,24576,1,1000,,BE,Succeeded,50,400,60\n"
)
ALIBABA_ROW = "100,160,3,4,{},Terminated,50,0.01\n"


def row(number, submit=0, run=5, demand=2, user=1, group=1, wait=0):
    return f"{number} {submit} {wait} {run} {demand} -1 -1 {demand} 10 -1 1 {user} {group} 1 1 -1 -1 -1\n"


def write(directory, *rows, processors="10"):
    path = directory / "log.swf"
    path.write_text(f"; MaxProcs: {processors}\n" + "".join(rows))
    return path


def some(submit, run, demand, processors=4):
    columns = [np.array(values, dtype=np.int64) for values in (submit, run, demand, run)]
    count = len(submit)
    return BatchJobs("log", processors, np.arange(1, count + 1), *columns, np.zeros(count, np.int64))


@pytest.mark.parametrize("text", ["; MaxProcs: 10\n" + row(1) + row(2), OPENB])
def test_a_byte_order_mark_is_no_part_of_a_trace(tmp_path, text):
    plain, marked = tmp_path / "plain", tmp_path / "marked"
    plain.write_text(text)
    marked.write_bytes(codecs.BOM_UTF8 + text.encode())
    expected, found = read_any_log(plain), read_any_log(marked)
    assert found.format == expected.format
    assert found.log.table.tolist() == expected.log.table.tolist()
    assert found.log.processors == expected.log.processors


@pytest.mark.parametrize("field", [{"user": 1e300}, {"group": -1e19}, {"wait": 1e40}, {"number": "9007199254740994"}])
def test_a_number_that_cannot_be_told_from_its_neighbours_is_a_fault(tmp_path, field):
    bad = row(**{"number": 2, **field})
    path = write(tmp_path, row(1), bad, row(3))
    with pytest.raises(InputError, match=r"log\.swf:3: field \d+: .* is beyond 2\^53"):
        read_swf(path)
    log = read_swf(path, on_bad="skip")
    assert log.table[:, Field.JOB].tolist() == [1, 3]
    assert [fault.line for fault in log.faults] == [3]


@pytest.mark.parametrize("processors", ["9" * 30, "9" * 5000, str(MAX_PROCESSORS + 1)])
def test_a_machine_beyond_what_is_counted_is_refused(tmp_path, processors):
    log = read_swf(write(tmp_path, row(1), processors=processors))
    with pytest.raises(InputError, match="processors is beyond 2,147,483,647"):
        clean(log)
    with pytest.raises(InputError, match="beyond 2,147,483,647"):
        clean(log, Cleaning(processors=10**23))
    with pytest.raises(InputError, match="--processors"):
        generated_log("x", "synth1", 10, None, 0, processors=10**23)


@pytest.mark.parametrize("kind", ["synth1", "lublin"])
@pytest.mark.parametrize("load", [1e-300, 0.0, -1.0, 11.0, float("nan")])
def test_a_load_at_which_times_leave_what_is_counted_is_refused(kind, load):
    with pytest.raises(InputError, match=r"--load: .* is not a share of a machine"):
        generated_log("x", kind, 10, load, 0)
    assert (np.diff(generated_log("x", kind, 50, 1e-4, 0).submit) >= 0).all()


def test_one_submission_far_away_makes_no_millions_of_weeks():
    """Two jobs today and one in 34,865 years: their means are plain, and there is no interval over so many weeks."""
    jobs = some([0, 10, int(TIME_MAX)], [10, 10, 10], [1, 1, 1])
    figures = figures_of(jobs, jobs.submit)
    assert figures["wait_seconds_mean"].value == 0.0
    assert figures["utilisation"].value == pytest.approx(30 / (4 * (TIME_MAX + 10)))
    assert {figure.low for figure in figures.values()} == {None}


def test_no_schedule_has_more_parts_than_weeks_are_looked_at():
    """A thousand jobs one after the other, each as long as can be: two milliards of weeks."""
    jobs = some([0] * 1000, [int(TIME_MAX)] * 1000, [4] * 1000)
    edges, used = use_by_week(jobs, np.arange(1000) * int(TIME_MAX))
    assert len(used) <= WEEKS_MAX
    assert (used / np.diff(edges)).tolist() == pytest.approx([4.0] * len(used))
    assert len(use_by_week(some([0], [10 * WEEK_SECONDS], [1]), np.zeros(1, np.int64))[1]) == 10


def test_the_groups_of_jobs_are_in_the_file_that_is_written(tmp_path):
    jobs, _ = clean(read_swf(write(tmp_path, row(1, group=7), row(2, group=3))))
    path = tmp_path / "out.swf"
    write_swf(log_of_jobs(jobs, ""), path)
    again, _ = clean(read_swf(path))
    assert again.group is not None
    assert again.group.tolist() == [7, 3]
    write_swf(log_of_jobs(replace(jobs, group=None), ""), path)
    assert read_swf(path).table[:, Field.GROUP].tolist() == [-1, -1]


def test_a_pipe_is_not_read_twice(tmp_path):
    """What told the format would be gone when the jobs are read, and a checksum would be that of nothing."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(InputError, match="is a pipe or a device"):
        read_any_log(path)
    with pytest.raises(InputError, match="a sweep knows its traces by their checksums"):
        log_source(path, Cleaning(), "fail", None, form="swf")


def test_seeds_beyond_any_use_are_told_and_not_counted():
    for text in ("1-99999999999", "1-60000,100001-170000"):
        with pytest.raises(InputError, match=r"--seeds: .* are more than 100,000 seeds"):
            parse_seeds(text)
    assert len(parse_seeds("log,1-99999")) == 100_000


def test_a_task_of_half_an_instance_is_a_fault(tmp_path):
    path = tmp_path / "tasks.csv"
    path.write_text(ALIBABA_ROW.format("7") + ALIBABA_ROW.format("0.5"))
    with pytest.raises(InputError, match=r"tasks\.csv:2: number_of_instances: '0\.5' is no whole number"):
        read_any_log(path, form="alibaba2017")
