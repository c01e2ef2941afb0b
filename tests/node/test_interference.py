"""The benchmark of interference in small, in a machine of its own: it measures, and nothing is left of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from machine import SKIP_CODE, stale
from repository import ROOT

SECONDS = 400.0
ROWS = "alone,besteffort+agent,predictive"


def test_it_measures_the_service_alone_beside_the_kernels_class_and_under_a_policy(tmp_path: Path) -> None:
    before = stale()
    machine, benchmark = ROOT / "tests/node/machine/machine.py", ROOT / "benchmarks/interference/interference.py"
    options = ["--repeats", "1", "--seconds", "0.5", "--rows", ROWS, "--out", str(tmp_path), "-o", "json"]
    command = [sys.executable, str(machine), "--", sys.executable, str(benchmark), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode == SKIP_CODE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    windows = {one["row"]: one for one in found["windows"]}
    assert {one["row"]: one["windows"] for one in found["rows"]} == dict.fromkeys(ROWS.split(","), 1)
    assert (windows["alone"]["batch_pods"], windows["alone"]["batch_cores"]) == (0, 0)
    agent = windows["besteffort+agent"]
    assert agent["batch_pods"] == 4
    assert agent["agent"]["batch_allowance_cores"] <= 0.95  # of the one cpu that the pods have
    assert all(
        window["requests"] > 1000 and window["unanswered"] == 0 for window in windows.values()
    )  # 4,000/s for half a second
    # The policy heard of the service's rate by the user's query.
    assert windows["predictive"]["told"]["rps"] > 0
    assert stale() <= before  # machines of others may come and go meanwhile
