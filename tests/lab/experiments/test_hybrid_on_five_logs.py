"""`hybrid` on a part of each of the five logs, with settings chosen on the other four: the rows of the docs."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import NamedTuple

import pytest
from repository import DATA, ROOT

from cotide_lab.trace_replay.kernels.platform import PlatformSettings
from cotide_lab.trace_replay.kernels.replay_state import NEVER
from cotide_lab.trace_replay.metrics import bounded_slowdown
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import run_policy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.swf import read_swf
from cotide_sim.traces.jobs.swf_cleaning import Cleaning, clean

PART = 20_000
FILES = {
    "HPC2N": "HPC2N-2002-2.2-cln.swf.gz",
    "SDSC-BLUE": "SDSC-BLUE-2000-4.2-cln.swf.gz",
    "CTC-SP2": "CTC-SP2-1996-3.1-cln.swf.gz",
    "KTH-SP2": "KTH-SP2-1996-2.1-cln.swf.gz",
    "LLNL-Atlas": "LLNL-Atlas-2006-2.1-cln.swf.gz",
}
TITLE = "The first 20,000 jobs of each log"
TOLERANCE = 0.01
"""What another machine's logarithms may change: forecasts are whole seconds, and the schedules of a log are chaotic."""


class Printed(NamedTuple):
    """A row of the docs: mean wait and longest wait in seconds, mean bounded slowdown."""

    settings: PlatformSettings
    held_out: tuple[float, float, float]
    shipped: tuple[float, float, float]
    easy: tuple[float, float, float]


def printed_rows() -> dict[str, Printed]:
    runs = json.loads((ROOT / "docs" / "results" / "platform-settings.json").read_text())["runs"]
    rows = next(table["rows"] for run in runs for table in run["tables"] if table["title"] == TITLE)
    found = {}
    for log, chosen, *cells in rows:
        first, second, reserved = (int(number) for number in re.findall(r"\d+", chosen))
        held_out, shipped, easy = ((cells[at], cells[at + 1], cells[at + 2]) for at in (0, 3, 6))
        found[log] = Printed(PlatformSettings((first, second), NEVER, reserved), held_out, shipped, easy)
    return found


def part_of(log: str) -> BatchJobs:
    jobs, _ = clean(read_swf(DATA / "swf" / FILES[log]), Cleaning())
    columns = ("numbers", "submit", "run", "demand", "request", "user")
    return dataclasses.replace(jobs, **{name: getattr(jobs, name)[:PART].copy() for name in columns})


def figures(jobs: BatchJobs, settings: PlatformSettings | None) -> tuple[float, float, float]:
    policy = POLICIES["easy"] if settings is None else dataclasses.replace(POLICIES["hybrid"], platform=settings)
    start = run_policy(jobs, policy).start
    wait = start - jobs.submit
    return float(wait.mean()), float(bounded_slowdown(jobs, start).mean()), float(wait.max())


def test_the_docs_have_a_row_for_each_of_the_five_logs():
    assert list(printed_rows()) == list(FILES)


@pytest.mark.data
@pytest.mark.parametrize("log", FILES)
def test_hybrid_waits_as_the_docs_say_on_a_log_that_chose_none_of_its_settings(log):
    if not (DATA / "swf" / FILES[log]).is_file():
        pytest.skip(f"no log at {DATA / 'swf' / FILES[log]}; name the directory of swf/ in COTIDE_DATA")
    jobs, row = part_of(log), printed_rows()[log]
    assert figures(jobs, row.settings) == pytest.approx(row.held_out, rel=TOLERANCE)
    assert figures(jobs, PlatformSettings()) == pytest.approx(row.shipped, rel=TOLERANCE)
    assert figures(jobs, None) == pytest.approx(row.easy, rel=TOLERANCE)
