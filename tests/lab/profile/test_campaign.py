"""A campaign goes on where it was, stops at its limits, and keeps nothing that measured something else."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cotide_core.errors import ClusterError, InputError
from cotide_lab.predictors.profiling.design import Cell, Mix, Rule
from cotide_lab.predictors.profiling.windows import JobKind
from cotide_lab.profile.campaign import Budget, run_campaign
from cotide_lab.profile.journal import NAME, Journal
from cotide_lab.profile.meters import LoadCommand, Reading
from cotide_lab.profile.plan import BatchJob, Plan

FOR_EVER = Budget(math.inf, math.inf)


class Machine:
    """Runs nothing, and notes what it was asked to."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.mixes: list[Mix] = []

    @contextmanager
    def running(self, mix: Mix, jobs: Sequence[BatchJob]) -> Iterator[Machine]:
        self.mixes.append(mix)
        yield self

    def mark(self) -> None:
        pass

    def take(self) -> tuple[tuple[tuple[str, float], ...], float]:
        return (), 0.0

    def failed(self) -> tuple[tuple[str, int], ...]:
        return (("sort", 1),) if self.mixes[-1] else ()


class Meter:
    """Says 1 ms and 1 ms more for each window; fails at the ``broken``-th."""

    def __init__(self, broken: int = 10**9, p95: float = 1.0, kernel_share: float = math.nan) -> None:
        self.seeds: list[int] = []
        self.kernel_share = kernel_share
        self.broken, self.p95 = broken, p95

    def measure(self, rate: float, warm_up: float, seconds: float, harm_milliseconds: float, seed: int) -> Reading:
        self.seeds.append(seed)
        if len(self.seeds) == self.broken:
            raise InputError("the load failed", field="--load-command")
        return Reading(self.p95, rate, 100, seconds, False, 0.0, self.kernel_share, 0.25)


def plan(**changes: object) -> Plan:
    given = {
        "mode": "active", "source": "tcp://x:1", "jobs": (BatchJob(JobKind("sort", 10, 250), "true"),),
        "rates": (100.0, 200.0), "counts": (1,), "pairs": False, "warm_up_seconds": 0.0, "window_seconds": 4.0,
        "rule": Rule(2, 2), "limit_milliseconds": 10.0, "allocatable_millicores": 1000, "service": "", "seed": 0,
    }  # fmt: skip
    return Plan(**{**given, **changes})  # type: ignore[arg-type]  # as the test says


def run(journal: Journal, machine: Machine, meter: Meter, budget: Budget = FOR_EVER) -> str:
    return run_campaign(journal, machine, meter, budget, lambda what, share: None)


def test_every_cell_is_measured_as_often_as_the_rule_says(tmp_path: Path) -> None:
    journal = Journal(tmp_path, plan())
    assert run(journal, Machine(), Meter()) == ""
    assert len(journal.windows) == 8  # two rates, alone and beside a sort, twice each
    assert {window.cell for window in journal.windows} == set(plan().cells())


def test_a_campaign_that_failed_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    whole = Journal(tmp_path / "whole", plan())
    run(whole, Machine(), Meter())
    with pytest.raises(InputError, match="the load failed"):
        run(Journal(tmp_path / "broken", plan()), Machine(), Meter(broken=4))
    again = Journal(tmp_path / "broken", plan())
    assert len(again.windows) == 3
    meter = Meter()
    run(again, Machine(), meter)
    assert [window.cell for window in again.windows] == [window.cell for window in whole.windows]
    assert meter.seeds == [3, 4, 5, 6, 7]


def test_a_job_that_fails_now_and_then_is_in_the_journal_and_a_journal_without_such_is_read(tmp_path: Path) -> None:
    run(Journal(tmp_path, plan()), Machine(), Meter())
    assert {window.failed_jobs for window in Journal(tmp_path, None).windows if window.cell.mix} == {(("sort", 1),)}
    path = tmp_path / NAME
    path.write_text(re.sub(r', "failed_jobs": [][", a-z0-9]*(?=, "at)', "", path.read_text()))
    assert {window.failed_jobs for window in Journal(tmp_path, None).windows} == {()}


def test_whose_times_they_are_is_in_the_journal_and_a_journal_without_such_is_read(tmp_path: Path) -> None:
    run(Journal(tmp_path, plan()), Machine(), Meter(kernel_share=0.5))
    assert {window.kernel_share for window in Journal(tmp_path, None).windows} == {0.5}
    path = tmp_path / NAME
    path.write_text(re.sub(r' "kernel_share": 0.5, "reading_lag_milliseconds": 0.25,', "", path.read_text()))
    kept = Journal(tmp_path, None).windows
    assert all(math.isnan(one.kernel_share) and math.isnan(one.reading_lag_milliseconds) for one in kept)


def test_a_torn_line_is_a_window_less(tmp_path: Path) -> None:
    run(Journal(tmp_path, plan()), Machine(), Meter())
    path = tmp_path / NAME
    path.write_text(path.read_text()[:-30])
    assert len(Journal(tmp_path, plan()).windows) == 7
    assert len(Journal(tmp_path, None).windows) == 7


@pytest.mark.parametrize("line", ["{}", "nonsense", '{"window": {"cell": {"rate": 1, "mix": []}}}', "[" * 100_000])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    run(Journal(tmp_path, plan()), Machine(), Meter())
    path = tmp_path / NAME
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n")
    with pytest.raises(InputError, match=rf"{NAME}:3: not an entry"):
        Journal(tmp_path, plan())


def test_windows_of_another_campaign_are_not_mixed_in(tmp_path: Path) -> None:
    Journal(tmp_path, plan())
    with pytest.raises(InputError, match="limit_milliseconds, job sort"):
        Journal(tmp_path, plan(limit_milliseconds=5.0, jobs=(BatchJob(JobKind("sort", 11, 250), "true"),)))
    assert Journal(tmp_path, plan(rates=(100.0, 200.0, 300.0))).plan.rates[-1] == 300.0  # more of the same may be asked


def test_no_journal_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no campaign"):
        Journal(tmp_path, None)


def test_jobs_that_fail_end_the_campaign_and_leave_no_window(tmp_path: Path) -> None:
    journal = Journal(tmp_path, plan())
    with pytest.raises(ClusterError, match="failed 3 times"):
        run(journal, Machine("'true' failed 3 times"), Meter())
    assert journal.windows == []


def test_the_harm_that_is_allowed_ends_it(tmp_path: Path) -> None:
    """11 ms is over the limit of 10, each window 4 s: after 12 s no window begins."""
    journal = Journal(tmp_path, plan())
    assert "over its limit for 12 s" in run(journal, Machine(), Meter(p95=11.0), Budget(math.inf, 10.0))
    assert len(journal.windows) == 3


def test_no_time_is_no_window(tmp_path: Path) -> None:
    journal = Journal(tmp_path, plan())
    assert "8 windows are left" in run(journal, Machine(), Meter(), Budget(-1.0, math.inf))
    assert journal.windows == []


def test_pairs_put_one_of_each_together() -> None:
    jobs = tuple(BatchJob(JobKind(name, 0, 250), "true") for name in ("sort", "grep"))
    assert plan(jobs=jobs, pairs=True, counts=(1, 2)).mixes() == [
        (), (("grep", 1),), (("grep", 2),), (("sort", 1),), (("sort", 2),), (("grep", 1), ("sort", 1)),
    ]  # fmt: skip


def test_a_users_load_command_is_told_what_to_do_and_read_by_its_last_line() -> None:
    said = json.dumps({"p95_ms": 3.5, "requests_per_second": 99})
    found = LoadCommand(f"echo warming {{warm_up}}; test {{rate}} = 100 && echo '{said}'").measure(
        100, 1, 2, math.inf, 0
    )
    assert (found.p95_milliseconds, found.achieved_rate, found.seconds) == (3.5, 99.0, 2.0)


def test_what_the_runner_of_a_container_says_after_it_is_passed_over() -> None:
    """As ``kubectl run --rm`` does."""
    command = """echo '{"p95_ms": 3.5}'; echo 'pod "load" deleted' # {rate}"""
    assert LoadCommand(command).measure(100, 1, 2, math.inf, 0).p95_milliseconds == 3.5


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo {rate}", "the last line is '100'"),
        ("echo {rate} >&2; exit 4", "failed with exit code 4: 100"),
        ("""echo '{"p95_ms": -1}' # {rate}""", "not a measurement"),
        ("""echo '{"p95_ms": "NaN"}' # {rate}""", "not a measurement"),
        ("""echo '{"p95_ms": 1, "seconds": Infinity}' # {rate}""", "not a measurement"),
        ("""echo '{"p95_ms": 1, "requests_per_second": Infinity}' # {rate}""", "not a measurement"),
        ("""echo '{"p95_ms": 1, "requests": Infinity}' # {rate}""", "the last line is"),
    ],
)
def test_a_load_command_that_says_nothing_is_quoted(command: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        LoadCommand(command).measure(100, 0, 1, math.inf, 0)


def test_a_load_command_without_a_rate_is_refused() -> None:
    with pytest.raises(InputError, match=r"has no \{rate\}"):
        LoadCommand("wrk http://x")


@pytest.mark.parametrize("target", ["ftp://x:1", "memcached://x", "tcp://:5", "http://x:99999"])
def test_a_target_that_nobody_knows_is_refused(target: str) -> None:
    with pytest.raises(InputError, match="--target"):
        LoadCommand(target)


def test_a_cell_is_the_same_after_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, plan())
    run(journal, Machine(), Meter())
    assert Journal(tmp_path, None).windows == journal.windows
    assert Journal(tmp_path, None).windows[0].cell == Cell(100.0)
