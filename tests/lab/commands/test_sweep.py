"""`cotide sweep` as a user runs it: killed and gone on with, stopped, given what it can't use, on a Dask cluster."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from repository import ROOT

from cotide_lab.sweeps.pool import PARENT_POLL_SECONDS

CELLS = ("--synthetic", "synth1", "--jobs", "2500", "--policy", "fcfs,easy", "--runtime", "request,last-two")
SEEDS = 15
COUNT = SEEDS * 4
DEADLINE_SECONDS = 120
EXAMPLES = ROOT / "examples" / "policies"

needs_distributed = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="dask.distributed is not installed"
)
needs_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")


def command(results, *arguments, seeds=f"1-{SEEDS}"):
    chosen = ["--seeds", seeds, "--results", str(results), *map(str, arguments)]
    return [sys.executable, "-m", "cotide_cli", "sweep", *CELLS, *chosen]


def run(*arguments):
    return subprocess.run(
        arguments, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False, stdin=subprocess.DEVNULL
    )


def sweep(*arguments):
    return run(sys.executable, "-m", "cotide_cli", "sweep", *map(str, arguments))


def journal_lines(results):
    journal = Path(f"{results}.journal")
    return journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []


def wait_for(condition):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stopped_at_five(results, number, *arguments):
    """Start a sweep, signal it once five cells are kept; return its exit code, stderr and its workers' ids."""
    process = subprocess.Popen(command(results, *arguments), stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for(lambda: len(journal_lines(results)) > 5 or process.poll() is not None)
    children = [int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    process.send_signal(number)
    _, said = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, said, children


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def keys(results):
    return [json.loads(line.partition(b" ")[2])["key"] for line in journal_lines(results)[1:]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    results = tmp_path_factory.mktemp("whole") / "r.csv"
    done = run(*command(results, "--workers", 1))
    assert done.returncode == 0, done.stderr
    assert f"{COUNT} cells, {COUNT} run now, 0 kept, 0 failed" in done.stderr
    return results.read_bytes()


def test_a_killed_sweep_goes_on_with_nothing_lost_and_nothing_run_twice(tmp_path, undisturbed):
    results = tmp_path / "r.csv"
    code, _, workers = stopped_at_five(results, signal.SIGKILL, "--workers", 2)
    assert code == -signal.SIGKILL
    assert not results.exists()
    kept = keys(results)
    assert 5 <= len(kept) < COUNT
    begin = time.monotonic()
    wait_for(lambda: not any(is_alive(worker) for worker in workers))
    assert time.monotonic() - begin < 20 * PARENT_POLL_SECONDS
    # As if it had been killed in the middle of its last line.
    journal = Path(f"{results}.journal")
    os.truncate(journal, journal.stat().st_size - 7)
    done = run(*command(results, "--workers", 2))
    assert done.returncode == 0, done.stderr
    assert f"journal:{len(kept) + 1}: half-written line cut off, its cell is run again" in done.stderr
    assert f"{COUNT - len(kept) + 1} run now, {len(kept) - 1} kept" in done.stderr
    assert keys(results)[: len(kept) - 1] == kept[:-1]
    assert len(keys(results)) == len(set(keys(results))) == COUNT
    assert results.read_bytes() == undisturbed


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGINT, 2), (signal.SIGTERM, 2), (signal.SIGTERM, 1)])
def test_ctrl_c_and_sigterm_stop_with_one_line_and_leave_no_process(number, workers, tmp_path, undisturbed):
    results = tmp_path / "r.csv"
    code, said, children = stopped_at_five(results, number, "--workers", workers)
    assert code == 128 + number
    assert said.splitlines()[-1] == f"stopped by {number.name}; the same command continues with the rest"
    assert "Warning" not in said
    assert not results.exists()
    wait_for(lambda: not any(is_alive(child) for child in children))
    assert run(*command(results, "--workers", 1)).returncode == 0
    assert len(keys(results)) == len(set(keys(results))) == COUNT
    assert results.read_bytes() == undisturbed


def row(number, submit, run_seconds, demand, limit):
    return f"{number} {submit} -1 {run_seconds} {demand} -1 -1 {demand} {limit} -1 1 1 1 1 1 -1 -1 -1\n"


def log_file(path, jobs=200):
    rows = "".join(row(number, number * 20_000, 30_000, 1 + number % 4, 40_000) for number in range(1, jobs + 1))
    path.write_text("; MaxProcs: 4\n" + rows)
    return path


def test_a_log_and_its_drawn_weeks_stand_in_the_table_and_another_log_of_that_name_is_refused(tmp_path):
    log, results = log_file(tmp_path / "log.swf"), tmp_path / "r.csv"
    arguments = ("--trace", log, "--policy", "easy", "--seeds", "log,5", "--workers", 1, "--results", results)
    assert sweep(*arguments).returncode == 0
    rows = list(csv.DictReader(results.open()))
    assert [(found["trace"], found["seed"]) for found in rows] == [("log.swf", ""), ("log.swf", "5")]
    assert rows[0]["wait_seconds_mean"] != rows[1]["wait_seconds_mean"]
    simulated = run(
        sys.executable, "-m", "cotide_cli", "simulate", "--trace", str(log), "--policy", "easy", "-o", "json"
    )
    expected = json.loads(simulated.stdout)["policies"]["easy"]
    assert float(rows[0]["wait_seconds_mean"]) == expected["wait_seconds_mean"]
    log_file(log, jobs=150)
    refused = sweep(*arguments)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert f"{results}.journal: holds results of another log.swf (sha256 " in refused.stderr


def test_generators_and_traces_of_other_formats_are_swept_too(tmp_path):
    trace, results = tmp_path / "tasks.csv", tmp_path / "r.csv"
    trace.write_text("".join(f"{100 * at},{100 * at + 50},1,{at},1,Terminated,100,0.1\n" for at in range(9)))
    arguments = ("--trace", trace, "--generate", "lublin", "--jobs", 50, "--policy", "easy", "--workers", 1)
    done = sweep(*arguments, "--results", results)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(results.open()))
    assert [(found["trace"], found["jobs"]) for found in rows] == [("lublin-50-load-0.9", "50"), ("tasks.csv", "9")]
    assert "one processor is a tenth of a core" in rows[1]["settings"]
    assert "read as alibaba2017: one processor is a tenth of a core" in done.stderr


def test_a_failed_cell_makes_the_exit_code_1_and_stands_in_the_table(tmp_path):
    # Weeks 2 and 3 of three are empty: some draws of one week hold no job, others do.
    log, results = tmp_path / "log.swf", tmp_path / "r.csv"
    log.write_text("; MaxProcs: 4\n" + row(1, 0, 60, 1, 60) + row(2, 22 * 86_400, 60, 1, 60))
    arguments = ("--trace", log, "--policy", "easy", "--seeds", "10-14", "--weeks", 1, "--workers", 1)
    done = sweep(*arguments, "--results", results)
    rows = list(csv.DictReader(results.open()))
    failed = [found for found in rows if found["error"]]
    assert (done.returncode, len(rows)) == (1, 5)
    assert 0 < len(failed) < 5
    assert {found["error"] for found in failed} == {"log.swf: the drawn weeks hold no job"}
    assert done.stderr.count("failed: log.swf easy request seed") == len(failed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--results", "r.txt"), "must end in .csv or .parquet"),
        (("--results", "no/r.csv"), "lies in no directory that exists"),
        (("--results", "r.csv"), "nothing to replay"),
        (("--results", "r.csv", "--synthetic", "synth1", "--policy", "best"), "there is no 'best'"),
        (("--results", "r.csv", "--synthetic", "synth1", "--policy", ","), "--policy: names nothing"),
        (("--results", "r.csv", "--synthetic", "synth1", "--runtime", "oracle"), "--runtime: there is no 'oracle'"),
        (("--results", "r.csv", "--synthetic", "synth1", "--seeds", "many"), "--seeds: 'many' is no seed"),
        (("--results", "r.csv", "--synthetic", "synth1", "--load", "nan"), "--load: nan is not a share of a machine"),
        (("--results", "r.csv", "--trace", "absent.swf"), "absent.swf: can't be read"),
        (
            ("--results", "r.csv", "--synthetic", "synth1", "--policy", "mine.py:Fair"),
            "mine.py: can't be read: No such",
        ),
        (("--results", "r.csv", "--synthetic", "synth1", "--policy-file", "mine"), "mine: can't be read: No such file"),
        (("--results", "r.csv", "--synthetic", "synth1", "--workers", "2", "--dask", "a:1"), "has its own workers"),
    ],
)
def test_what_cannot_work_is_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch, capfd):
    from cotide_cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["cotide", "sweep", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.main()
    said = capfd.readouterr().err
    assert (caught.value.code, said.count("\n")) == (2, 1)
    assert message in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        ("distributed", ("--results", "r.csv", "--dask", "tcp://127.0.0.1:1"), "needs dask.distributed, which is not"),
        ("pyarrow", ("--results", "r.parquet"), "Parquet needs pyarrow, which is not installed"),
    ],
)
def test_an_optional_library_that_is_missing_is_named(module, arguments, message, tmp_path, monkeypatch, capfd):
    from cotide_cli import main

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == module else find(name, *rest))
    monkeypatch.setitem(sys.modules, module, None)  # an import of it then fails as if it were not there
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["cotide", "sweep", "--synthetic", "synth1", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.main()
    said = capfd.readouterr().err
    assert (caught.value.code, said.count("\n")) == (2, 1)
    assert message in said


@needs_pyarrow
def test_parquet_holds_what_csv_holds(tmp_path):
    import pyarrow.parquet

    for ending in ("csv", "parquet"):
        assert run(*command(tmp_path / f"r.{ending}", "--workers", 1, seeds="1-2")).returncode == 0
    table = pyarrow.parquet.read_table(tmp_path / "r.parquet").to_pylist()
    rows = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert [{name: "" if value is None else str(value) for name, value in found.items()} for found in table] == rows


@needs_distributed
def test_a_dask_cluster_gives_the_same_bytes_and_a_lost_one_is_said_in_one_line(tmp_path, undisturbed):
    from distributed import LocalCluster

    results, log = tmp_path / "r.csv", log_file(tmp_path / "log.swf")
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        code, said, _ = stopped_at_five(results, signal.SIGTERM, "--dask", address)
        assert (code, said) == (143, "stopped by SIGTERM; the same command continues with the rest\n")
        done = run(*command(results, "--dask", address))
        assert done.returncode == 0, done.stderr
        arguments = ("--trace", log, "--policy", "easy", "--seeds", "log,5")
        assert sweep(*arguments, "--dask", address, "--results", tmp_path / "there.csv").returncode == 0
        assert sweep(*arguments, "--workers", 1, "--results", tmp_path / "here.csv").returncode == 0
        mine = (
            "--synthetic",
            "synth1",
            "--jobs",
            200,
            "--policy",
            f"fcfs,{EXAMPLES}/fair_backfill.py",
            "--seeds",
            "1-3",
        )
        for name, how in (("far", ("--dask", address)), ("near", ("--workers", 2))):
            done = sweep(*mine, *how, "--results", tmp_path / f"{name}.csv")
            assert (done.returncode, "6 run now" in done.stderr) == (0, True), done.stderr
    assert (tmp_path / "far.csv").read_bytes() == (tmp_path / "near.csv").read_bytes()
    assert results.read_bytes() == undisturbed
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()
    lost = sweep(*arguments, "--dask", address, "--results", tmp_path / "lost.csv")
    assert (lost.returncode, lost.stderr) == (1, f"cotide: no Dask scheduler answers at {address}\n")


@needs_distributed
def test_what_answers_and_is_no_dask_scheduler_is_said_in_one_line(tmp_path):
    """As the port of a scheduler's dashboard, which speaks HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
                    connection.close()

        threading.Thread(target=answer, daemon=True).start()
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        done = sweep("--synthetic", "synth1", "--dask", address, "--results", tmp_path / "r.csv")
    assert (done.returncode, done.stderr) == (1, f"cotide: no Dask scheduler answers at {address}\n")
