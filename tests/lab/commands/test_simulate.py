"""`cotide simulate`: one table or one document on stdout, what was done to the log on stderr, errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from cotide_core.errors import InputError
from cotide_lab.commands.simulate_command import command

POLICIES = "fcfs,easy,conservative"


def row(number, submit, run, demand, limit):
    return f"{number} {submit} -1 {run} {demand} -1 -1 {demand} {limit} -1 1 1 1 1 1 -1 -1 -1\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.swf"
    rows = "".join(row(number, number * 20_000, 30_000, 1 + number % 4, 40_000) for number in range(1, 200))
    path.write_text("; MaxProcs: 4\n" + rows)
    return path


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """Compiles the kernels here, without a limit: on a busy machine that alone took longer than a run may.

    What is compiled is kept on disk, for the processes below.
    """
    path = tmp_path_factory.mktemp("warm") / "log.swf"
    path.write_text("; MaxProcs: 4\n" + "".join(row(number, number, 3, 2, 4) for number in range(1, 9)))
    for arguments in (("--policy", POLICIES), ("--policy", "easy,svf-plan", "--runtime", "last-two")):
        CliRunner().invoke(command, ["--trace", str(path), *arguments], standalone_mode=False, catch_exceptions=False)


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
    assert [line.split()[0] for line in lines[:3]] == ["policy", "easy", "svf"]
    assert "199 jobs of 199 rows on 4 processors, run times as last-two; demand requested" in done.stdout
    assert done.stderr == ""


def test_a_report_and_schedules_are_written(log, tmp_path):
    report, schedules = tmp_path / "report.html", tmp_path / "out"
    done = cotide("--trace", log, "--policy", "fcfs,easy", "--report", report, "--swf", schedules)
    assert done.returncode == 0, done.stderr
    text = report.read_text()
    assert text.count("<svg") == 6
    assert "Against easy" in text
    assert f"cotide simulate --trace {log}" in text
    assert 'name="viewport"' in text
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
        (row(500, 9**9, -5, 1, 5), [], 2, "log.swf:201: run time negative"),
        (row(500, 9**9, -5, 1, 5), ["--on-bad", "skip"], 0, "1 row dropped: run time unknown, zero or negative"),
        (row(500, 9**9, -1, 1, 5), [], 0, "1 row dropped: run time unknown, zero or negative"),
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


def test_a_trace_in_another_format_is_known_by_its_content_and_its_conversion_is_said(tmp_path):
    header = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    rows = [f"pod-{at},{100 * at},1024,0,0,,LS,Succeeded,{at},{at + 60},{at + 20}" for at in range(1, 9)]
    trace = tmp_path / "pods.csv"
    trace.write_text("\n".join([header, *rows, "pod-9,many,1024,0,0,,LS,Running,1,2,1", ""]))
    refused = cotide("--trace", trace, "--policy", "easy")
    assert (refused.returncode, refused.stderr) == (2, f"cotide: {trace}:10: cpu_milli: 'many' is not a number\n")
    arguments = ("--processors", 10, "--on-bad", "skip", "-o", "json")
    done = cotide("--trace", trace, "--policy", "easy", *arguments)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["format"], found["jobs"], found["rows"], found["broken_rows"]) == ("openb", 8, 8, 1)
    assert found["conversion"] in done.stderr
    # Each waited for 20 s and ran for 40 s.
    assert found["recorded"] == {"jobs": 8, "wait_seconds_mean": 20.0, "bounded_slowdown_mean": 1.5}
    assert f"{trace}:10: skipped: cpu_milli: 'many' is not a number" in done.stderr
    forced = cotide("--trace", trace, "--format", "swf", "--policy", "easy")
    assert f"{trace}:1: 1 field where the format has 18" in forced.stderr


def test_generated_jobs_are_those_of_the_seed_and_what_is_written_replays_alike(tmp_path):
    arguments = ("--generate", "lublin", "--jobs", 300, "--processors", 64, "--seed", 5, "-o", "json")
    files = [tmp_path / name for name in ("one.swf.gz", "two.swf.gz")]
    first, again = (cotide(*arguments, "--policy", "easy,fcfs", "--write-swf", file) for file in files)
    assert first.returncode == 0, first.stderr
    assert files[0].read_bytes() == files[1].read_bytes()
    figures = [json.loads(done.stdout)["policies"]["easy"]["wait_seconds_mean"] for done in (first, again)]
    replayed = cotide("--trace", files[0], "--policy", "easy", "-o", "json")
    figures.append(json.loads(replayed.stdout)["policies"]["easy"]["wait_seconds_mean"])
    assert figures[0] == figures[1] == figures[2]
    assert "seed 5" in json.loads(first.stdout)["filter"]


def test_a_policy_from_a_file_stands_beside_the_others(log, tmp_path):
    mine = tmp_path / "mine.py"
    text = "def choose(queue, machine):\n    return (queue.demand.cumsum() <= machine.free).nonzero()[0]\n"
    mine.write_text(text)  # first come, first served, as one line of numpy has it
    report = tmp_path / "r.html"
    done = cotide(
        "--trace", log, "--policy", f"fcfs,{mine}:choose", "--policy-file", mine, "-o", "json", "--report", report
    )
    assert done.returncode == 0, done.stderr
    policies = json.loads(done.stdout)["policies"]
    assert list(policies) == ["fcfs", "mine:choose", "mine"]
    assert len({figures["wait_seconds_mean"] for figures in policies.values()}) == 1
    assert "written in mine.py" in report.read_text()
    mine.write_text("def choose(queue, machine):\n    return quue\n")
    failed = cotide("--trace", log, "--policy-file", mine)
    words = "in choose: NameError: name 'quue' is not defined"
    assert (failed.returncode, failed.stderr.startswith(f"cotide: {mine}:2: {words}")) == (2, True), failed.stderr
    assert failed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--trace: name a trace with --trace or a generator with --generate"),
        (["--trace", "x.swf", "--generate", "synth1"], "--trace: name a trace with --trace or a generator"),
        (["--trace", "x.swf", "--jobs", "5"], "--jobs: is for --generate"),
        (["--generate", "synth1", "--load", "nan"], "--load: nan is not a share of a machine"),
        (["--generate", "synth1", "--processors", "8"], "--processors: jobs of synth1 request up to 200 processors"),
        (["--generate", "lublin", "--policy-file", "none.py"], "none.py: can't be read"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(arguments, words):
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)
    assert words in str(caught.value)
