"""`cotide simulate`: one table or one document on stdout, what was done to the log on stderr, errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

POLICIES = "fcfs,easy,conservative"


def row(number, submit, run, demand, limit):
    return f"{number} {submit} -1 {run} {demand} -1 -1 {demand} {limit} -1 1 1 1 1 1 -1 -1 -1\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.swf"
    rows = "".join(row(number, number * 20_000, 30_000, 1 + number % 4, 40_000) for number in range(1, 200))
    path.write_text("; MaxProcs: 4\n" + rows)
    return path


def cotide(*arguments):
    command = [sys.executable, "-m", "cotide_cli", "simulate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_json_has_the_promised_fields_and_is_the_same_again_but_for_wall_times(log):
    documents = []
    for _ in range(2):
        done = cotide("--trace", log, "--policy", POLICIES, "-o", "json")
        assert done.returncode == 0, done.stderr
        documents.append(json.loads(done.stdout))
    found = documents[0]
    assert (found["trace"], found["jobs"], list(found["policies"])) == (str(log), 199, POLICIES.split(","))
    for figures in found["policies"].values():
        assert {"wait_seconds_mean", "bounded_slowdown_mean", "stretch_mean", "utilisation", "wall_seconds"} <= set(
            figures
        )
        low, high = figures["intervals_95"]["wait_seconds_mean"]
        assert low <= figures["wait_seconds_mean"] <= high
    assert found["policies"]["easy"]["wait_seconds_mean"] < found["policies"]["fcfs"]["wait_seconds_mean"]
    for document in documents:
        for figures in document["policies"].values():
            assert figures.pop("wall_seconds") >= 0
    assert documents[0] == documents[1]


def test_the_table_names_policies_intervals_and_the_filter(log):
    done = cotide("--trace", log, "--policy", "easy,svf-plan", "--runtime", "last-two")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["policy", "easy", "online-svf"]
    assert "199 jobs of 199 rows on 4 processors, run times as last-two; demand requested" in done.stdout
    assert done.stderr == ""


def test_a_report_and_schedules_are_written(log, tmp_path):
    report, schedules = tmp_path / "report.html", tmp_path / "out"
    done = cotide("--trace", log, "--policy", "fcfs,easy", "--report", report, "--swf", schedules)
    assert done.returncode == 0, done.stderr
    text = report.read_text()
    assert text.count("<svg") == 3
    assert "http-equiv" not in text
    assert "<script src" not in text
    assert "easy" in text
    again = cotide("--trace", schedules / "easy.swf", "--policy", "easy", "-o", "json")
    assert json.loads(again.stdout)["jobs"] == 199


@pytest.mark.parametrize(
    ("change", "arguments", "code", "words"),
    [
        ("", ["--policy", "easyy"], 2, "policy: there is no 'easyy'"),
        ("", ["--exclude", "colour=3"], 2, "exclude: 'colour=3' is no comparison"),
        ("1 2 x\n", [], 2, "log.swf:201: 3 fields where the format has 18"),
        ("1 2 x\n", ["--on-bad", "skip"], 0, "log.swf:201: skipped: 3 fields"),
        (row(500, 9**9, 5, 5, 5), [], 2, "log.swf:201: larger than the machine of 4 processors"),
        (row(500, 9**9, 5, 5, 5), ["--on-bad", "skip"], 0, "1 row dropped: larger than the machine"),
        (row(7, 9**9, 5, 1, 5), [], 2, "log.swf:201: job number seen before"),
        (row(500, 3, 5, 1, 5), [], 2, "log.swf:201: submitted before the row above"),
        (row(500, 9**9, -5, 1, 5), [], 0, "1 row dropped: run time unknown, zero or negative"),
    ],
)
def test_what_is_wrong_with_a_log_or_an_argument_is_one_line_with_its_place(log, change, arguments, code, words):
    log.write_text(log.read_text() + change)
    done = cotide("--trace", log, "--policy", "easy", *arguments)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_log_that_is_not_there_is_a_usage_error(tmp_path):
    done = cotide("--trace", tmp_path / "none.swf")
    assert done.returncode == 2
    assert done.stderr.startswith("cotide: ")


def test_many_broken_rows_are_told_as_a_number_and_counted(log):
    log.write_text(log.read_text() + "1 2 x\n" * 30)
    done = cotide("--trace", log, "--policy", "fcfs", "--on-bad", "skip", "-o", "json")
    assert json.loads(done.stdout)["broken_rows"] == 30
    assert len(done.stderr.splitlines()) == 21
    assert "skipped 10 more such lines, up to 230" in done.stderr
