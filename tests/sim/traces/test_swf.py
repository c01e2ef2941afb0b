"""The SWF reader, its cleaning rules and the writer: values as in the file, each fault and each rule with its line."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_lab.experiments.backfilling.run_times import run_log
from cotide_sim.traces.jobs import swf, swf_rows
from cotide_sim.traces.jobs.swf import Field, read_swf
from cotide_sim.traces.jobs.swf_cleaning import Cleaning, clean
from cotide_sim.traces.jobs.swf_exclusion import parse_exclusion
from cotide_sim.traces.jobs.swf_rows import parse_block
from cotide_sim.traces.jobs.swf_write import format_swf, log_of_schedule, write_swf

HEADER = "; Version: 2.2\n; MaxProcs: 10 (batch)\n;\n;   user=3 (1 job removed)\n"


def row(number, submit=0, run=5, allocated=2, requested=2, limit=10, user=1, status=1):
    return f"{number} {submit} 0 {run} {allocated} -1 -1 {requested} {limit} -1 {status} {user} 1 1 1 -1 -1 -1\n"


def write(directory: Path, *rows: str, header: str = HEADER, name: str = "log.swf") -> Path:
    path = directory / name
    data = (header + "".join(rows)).encode()
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(data))
    return path


@pytest.mark.parametrize("name", ["log.swf", "log.swf.gz", "log.swf.bz2", "log.swf.xz"])
def test_rows_header_and_line_numbers_are_read(tmp_path, name):
    log = read_swf(write(tmp_path, row(1), "\n", "; a note\n", row(2, submit=7, run=0.5), name=name))
    assert log.table[:, Field.JOB].tolist() == [1, 2]
    assert log.table[:, Field.RUN].tolist() == [5, 0.5]
    assert log.lines.tolist() == [5, 8]
    assert log.processors == 10
    assert log.value("version") == "2.2"
    assert ("", "a note") in log.header
    assert log.faults == ()


def test_a_log_longer_than_a_block_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(swf, "BLOCK_BYTES", 100)
    log = read_swf(write(tmp_path, *(row(number, submit=number) for number in range(50)), name="log.swf.gz"))
    assert log.table[:, Field.SUBMIT].tolist() == list(range(50))
    assert log.lines.tolist() == list(range(5, 55))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2 3\n", "3 fields where the format has 18"),
        (row(1).replace(" 10 ", " ten "), "field 9: 'ten' is not a number"),
        (row(1).replace(" 10 ", " nan "), "field 9: 'nan' is not a finite number"),
        (row(1).replace(" 10 ", " 1_0 "), "field 9: '1_0' is not a finite number"),
        (row(1).replace("\n", " 4\n"), "19 fields"),
        ("--5" + row(1), "field 1: '--51' is not a number"),
    ],
)
def test_a_broken_row_is_named_by_line_and_skipped_on_request(tmp_path, line, message):
    path = write(tmp_path, row(7), line, row(9, submit=3))
    with pytest.raises(InputError, match=r"log\.swf:6: ") as caught:
        read_swf(path)
    assert message in str(caught.value)
    log = read_swf(path, on_bad="skip")
    assert [(fault.line, message in fault.message) for fault in log.faults] == [(6, True)]
    assert log.table[:, Field.JOB].tolist() == [7, 9]


def test_a_truncated_archive_is_named_at_the_line_where_it_ends(tmp_path):
    path = write(tmp_path, *(row(number, submit=number * 37) for number in range(4000)), name="log.swf.gz")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(InputError, match="damaged or cut off here"):
        read_swf(path)
    log = read_swf(path, on_bad="skip")
    assert 0 < len(log.table) < 4000
    assert log.faults[-1].line == log.lines[-1] + 1


def test_a_missing_file_an_empty_log_and_a_text_are_refused_in_a_sentence(tmp_path):
    with pytest.raises(InputError, match="can't be read"):
        read_swf(tmp_path / "none.swf")
    with pytest.raises(InputError, match="holds no job"):
        read_swf(write(tmp_path))
    (tmp_path / "text").write_text("what is this\n")
    with pytest.raises(InputError, match="holds no job: 3 fields"):
        read_swf(tmp_path / "text", on_bad="skip")


cells = st.one_of(
    st.integers(-5, 10**16).map(str),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.3f}"),
    st.sampled_from(
        [
            "1e3",
            ".5",
            "5.",
            "-",
            "x",
            "+4",
            "inf",
            "0x1",
            "-0",
            "00012",
            "12345678901234567890123",
            "0.1234567890123456789",
        ]
    ),
)
lines = st.one_of(
    st.lists(cells, min_size=17, max_size=19).map(" ".join),
    st.lists(st.integers(-1, 999).map(str), min_size=18, max_size=18).map("\t ".join),
    st.sampled_from(["", "   ", "; note", " ;x", "\r", "1 2 3"]),
)


@settings(max_examples=300)
@given(st.lists(lines, max_size=6), st.booleans())
def test_the_compiled_scan_and_the_slow_parser_agree_on_every_line(texts, ends):
    data = ("\n".join(texts) + ("\n" if ends else "")).encode()
    fast = parse_block(data, 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swf_rows, "compiles", lambda: False)
        slow = parse_block(data, 10)
    assert np.array_equal(fast.table, slow.table)
    assert fast.lines.tolist() == slow.lines.tolist()
    assert (fast.comments, fast.faults, fast.line_count) == (slow.comments, slow.faults, slow.line_count)


def test_each_rule_that_touches_a_row_is_counted_with_its_first_line(tmp_path):
    rows = [
        row(1, submit=5),
        row(2, submit=6, run=-1),  # dropped
        row(3, submit=7, run=0),  # dropped
        row(4, submit=8, run=20, limit=10),  # cut
        row(5, submit=9, limit=-1),  # request from the longest run, job 4's before it is cut
        row(6, submit=10, requested=-1, allocated=3),
        row(7, submit=11, requested=-1, allocated=-1),  # dropped
        row(8, submit=12, requested=11),  # dropped
        row(1, submit=13),  # dropped
        row(9, submit=2),  # sorted
    ]
    jobs, report = clean(read_swf(write(tmp_path, *rows)))
    assert jobs.numbers.tolist() == [9, 1, 4, 5, 6]
    assert jobs.run.tolist() == [5, 5, 10, 5, 5]
    assert jobs.request.tolist() == [10, 10, 10, 20, 10]
    assert jobs.demand.tolist() == [2, 2, 2, 2, 3]
    found = {count.rule.split(":")[0]: (count.rows, count.first_line, count.dropped) for count in report.rules}
    assert found == {
        "job number seen before": (1, 13, True),
        "run time unknown, zero or negative": (2, 6, True),
        "no requested time": (1, 9, False),
        "ran longer than requested": (1, 8, False),
        "no requested processors": (1, 10, False),
        "number of processors unknown": (1, 11, True),
        "larger than the machine of 10 processors": (1, 12, True),
        "submitted before the row above": (1, 14, False),
    }
    assert report.rows == report.jobs + sum(count.rows for count in report.rules if count.dropped)


@pytest.mark.parametrize(
    ("rows", "rule", "message"),
    [
        ([row(1), row(1)], {"duplicates": "fail"}, "log.swf:6: job number seen before"),
        ([row(1, submit=4), row(2, submit=3)], {"unsorted": "fail"}, "log.swf:6: submitted before the row above"),
        ([row(1), row(2, run=-1), row(3, run=-2)], {"negative": "fail"}, "log.swf:7: run time negative"),
        ([row(1, requested=11)], {"too_large": "fail"}, "log.swf:5: larger than the machine"),
        ([row(1, run=0)], {}, "no job is left after cleaning: 1 run time unknown"),
    ],
)
def test_a_rule_can_be_fatal_and_names_file_and_line(tmp_path, rows, rule, message):
    log = read_swf(write(tmp_path, *rows))
    with pytest.raises(InputError) as caught:
        clean(log, Cleaning(**rule))
    assert message in str(caught.value)


def test_options_choose_the_demand_the_overrun_and_what_never_ran(tmp_path):
    log = read_swf(write(tmp_path, row(1, allocated=3, requested=2, run=20, limit=10), row(2, run=0)))
    jobs, _ = clean(log, Cleaning(demand="allocated", overrun="raise", not_run="one-second"))
    assert (jobs.demand.tolist(), jobs.run.tolist(), jobs.request.tolist()) == ([3, 2], [20, 1], [20, 10])
    assert clean(log, Cleaning(demand="larger"))[0].demand.tolist() == [3]


def test_of_partial_executions_only_the_summary_line_is_a_job(tmp_path):
    """Job 2 ran twice for 2 s; its first line sums up. Job 3 is written as its last part alone, which is no job."""
    log = read_swf(
        write(
            tmp_path,
            row(1),
            row(2, submit=1, run=4),
            row(2, submit=1, run=2, status=2),
            row(2, submit=-1, run=2, status=3),
            row(3, submit=2, status=4),
        )
    )
    jobs, report = clean(log, Cleaning(duplicates="fail", unsorted="fail"))
    assert (jobs.numbers.tolist(), jobs.run.tolist()) == ([1, 2], [5, 4])
    (sentence,) = report.sentences()
    assert sentence.endswith("log.swf:7: 3 rows dropped: partial executions (status 2, 3, 4) (first case)")
    assert len(run_log(log).jobs.submit_seconds) == 2


def test_a_run_time_of_zero_of_a_completed_job_is_a_run_of_one_second(tmp_path):
    """The format rounds to seconds. A failed or cancelled job of 0 s never ran, and -1 is unknown."""
    rows = [row(1, run=0), row(2, run=0, status=0), row(3, run=0, status=5), row(4, run=-1), row(5)]
    log = read_swf(write(tmp_path, *rows))
    jobs, report = clean(log, Cleaning(not_run="completed", negative="fail"))
    assert (jobs.numbers.tolist(), jobs.run.tolist()) == ([1, 5], [1, 5])
    assert [(count.rule, count.rows) for count in report.rules][:2] == [
        ("run time zero of a completed job: one second instead", 1),
        ("run time unknown, zero or negative", 3),
    ]
    assert clean(log, Cleaning(not_run="completed").of_a_table())[0].numbers.tolist() == [5]


def test_no_request_says_nothing_of_a_jobs_own_run_time_unless_it_is_asked_to(tmp_path):
    """Two logs that differ in the run time of job 2 only, which names no request: what policies see is the same."""
    for kept in ("cut", "keep"):
        seen = []
        for run in (3, 7):
            log = read_swf(write(tmp_path, row(1, run=50, limit=40), row(2, run=run, limit=-1)))
            seen.append(clean(log, Cleaning(overrun=kept))[0].request.tolist())
        assert seen == [[40, 50], [40, 50]]
    cleaned = clean(log, Cleaning(no_request="run"))[0]
    assert cleaned.request.tolist() == [40, 7]
    beyond = clean(log, Cleaning(overrun="keep"))[0]
    assert (beyond.run.tolist(), beyond.request.tolist()) == ([50, 7], [40, 50])


def test_a_log_without_a_machine_size_asks_for_one(tmp_path):
    log = read_swf(write(tmp_path, row(1), header="; MaxProcs: -1\n"))
    with pytest.raises(InputError, match="--processors"):
        clean(log)
    assert clean(log, Cleaning(processors=4))[0].processors == 4
    assert read_swf(write(tmp_path, row(1), header="; MaxNodes: 6\n")).processors == 6


def test_the_archives_own_filters_leave_rows_out(tmp_path):
    log = read_swf(write(tmp_path, *(row(number, user=number % 2) for number in range(1, 9))))
    jobs, report = clean(log, Cleaning(exclusions=(parse_exclusion("user=1 and (job>=3 and job<=5)"),)))
    assert jobs.numbers.tolist() == [1, 2, 4, 6, 7, 8]
    assert report.rules[0].rows == 2
    with pytest.raises(InputError, match="'owner=1' is no comparison"):
        parse_exclusion("owner=1 and job>3")


@pytest.mark.parametrize("name", ["out.swf", "out.swf.gz"])
def test_a_written_log_reads_back_the_same_and_is_the_same_bytes_again(tmp_path, name):
    log = read_swf(write(tmp_path, row(1, run=0.25), row(2, submit=10**9)))
    write_swf(log, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    back = read_swf(tmp_path / name)
    assert np.array_equal(back.table, log.table)
    assert back.header == log.header
    write_swf(back, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


def test_a_schedule_is_written_with_its_waits(tmp_path):
    jobs, _ = clean(read_swf(write(tmp_path, row(1, submit=3), row(2, submit=4))))
    text = format_swf(log_of_schedule(jobs, np.array([3, 9]), "by hand")).decode()
    assert "; MaxProcs: 10\n" in text
    assert text.endswith("2 4 5 5 2 -1 -1 2 10 -1 1 1 1 -1 -1 -1 -1 -1\n")
    with pytest.raises(InputError, match="can't be written"):
        write_swf(log_of_schedule(jobs, np.array([3, 9]), "x"), tmp_path / "no" / "such.swf")


def test_numbers_too_long_for_the_compiled_scan_are_read_exactly(tmp_path):
    log = read_swf(write(tmp_path, row(1, run="0.1234567890123456789", limit="12345678901234567890123")))
    assert log.table[0, Field.RUN] == 0.1234567890123456789
    assert log.table[0, Field.LIMIT] == 12345678901234567890123.0
