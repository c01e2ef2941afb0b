"""What `hybrid` pays on whole logs for its bound of the wait: the rows of the docs."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from repository import DATA, ROOT

from cotide_lab.trace_replay.kernels.platform import PlatformSettings
from cotide_lab.trace_replay.kernels.replay_state import NEVER
from cotide_lab.trace_replay.metrics import bounded_slowdown
from cotide_lab.trace_replay.policies import POLICIES, ReplayPolicy
from cotide_lab.trace_replay.runner import run_policy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.swf import read_swf
from cotide_sim.traces.jobs.swf_cleaning import Cleaning, clean

SWF = DATA / "swf"
TITLE = "What the bound of the wait costs, on whole logs"
BACKFILLING = ("easy", "easy-sjbf", "conservative")
TOLERANCE = 0.01
"""As in `test_hybrid_on_five_logs`."""
DAY = 86_400
ROWS: dict[str, tuple[str, float, bool]] = {
    "HPC2N": ("HPC2N-2002-2.2-cln.swf.gz", 1.0, True),
    "SDSC-BLUE": ("SDSC-BLUE-2000-4.2-cln.swf.gz", 1.0, True),
    "CTC-SP2": ("CTC-SP2-1996-3.1-cln.swf.gz", 1.0, True),
    "KTH-SP2": ("KTH-SP2-1996-2.1-cln.swf.gz", 1.0, True),
    "LLNL-Atlas": ("LLNL-Atlas-2006-2.1-cln.swf.gz", 1.0, True),
    "lublin": ("lublin_256.swf.gz", 1.0, True),
    "LLNL-Atlas, gaps x .85": ("LLNL-Atlas-2006-2.1-cln.swf.gz", 0.85, True),
    "LLNL-Atlas, gaps x .9, no requests": ("LLNL-Atlas-2006-2.1-cln.swf.gz", 0.9, False),
}
"""File, factor on the times between submissions, and whether users ask for a run time."""

Figures = tuple[float, float, float]
"""Mean wait in seconds, mean bounded slowdown and longest wait in days."""


def jobs_of(row: str) -> BatchJobs:
    file, factor, requests = ROWS[row]
    jobs, _ = clean(read_swf(SWF / file), Cleaning())
    request = jobs.request if requests else np.full(len(jobs), jobs.run.max())
    return dataclasses.replace(jobs, submit=(jobs.submit * factor).astype(np.int64), request=request)


def figures(jobs: BatchJobs, policy: ReplayPolicy) -> Figures:
    start = run_policy(jobs, policy).start
    wait = start - jobs.submit
    return float(wait.mean()), float(bounded_slowdown(jobs, start).mean()), float(wait.max()) / DAY


def measured(row: str) -> tuple[Figures, Figures, tuple[float, float]]:
    """Return `hybrid`, `hybrid` without a bound, and the best backfilling for each mean by itself."""
    jobs, hybrid = jobs_of(row), POLICIES["hybrid"]
    unbounded = dataclasses.replace(hybrid, platform=PlatformSettings(patience_seconds=NEVER))
    baselines = [figures(jobs, POLICIES[name]) for name in BACKFILLING]
    best = min(rival[0] for rival in baselines), min(rival[1] for rival in baselines)
    return figures(jobs, hybrid), figures(jobs, unbounded), best


def printed_rows() -> dict[str, list[tuple[float, ...]]]:
    runs = json.loads((ROOT / "docs" / "results" / "platform-settings.json").read_text())["runs"]
    rows = next(table["rows"] for run in runs for table in run["tables"] if table["title"] == TITLE)
    return {log: [tuple(cells[:3]), tuple(cells[3:6]), tuple(cells[6:])] for log, *cells in rows}


def test_the_docs_have_a_row_for_each_log():
    assert list(printed_rows()) == list(ROWS)


@pytest.mark.data
@pytest.mark.parametrize("row", ROWS)
def test_on_whole_logs_the_bound_of_the_wait_costs_what_the_docs_say(row):
    if not (SWF / ROWS[row][0]).is_file():
        pytest.skip(f"no log at {SWF / ROWS[row][0]}; name the directory of swf/ in COTIDE_DATA")
    for found, printed in zip(measured(row), printed_rows()[row], strict=True):
        assert found == pytest.approx(printed, rel=TOLERANCE, abs=0.006)
