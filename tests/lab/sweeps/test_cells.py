"""What a sweep runs: seeds, names, drawn weeks and generated logs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_lab.job_logs.generated_log import generated_log
from cotide_lab.sweeps.cells import Cell, LogSource
from cotide_lab.sweeps.plan import parse_seeds, synthetic_source, tasks_of
from cotide_lab.sweeps.weeks import resampled, whole_weeks
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

WEEK = 7 * 86_400


def jobs_at(submit):
    ones = np.ones(len(submit), dtype=np.int64)
    return BatchJobs("log", 4, np.arange(len(submit)) + 100, np.array(submit), ones, ones, ones, np.arange(len(submit)))


def source_of(jobs, name="log", digest="a"):
    columns = np.stack([jobs.submit, jobs.run, jobs.demand, jobs.request, jobs.user])
    return LogSource(name, digest, "settings", jobs.processors, columns)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("log", (None,)), ("3,1-3", (1, 2, 3)), ("7,log", (None, 7)), ("0-0", (0,))],
)
def test_seeds_are_numbers_spans_and_the_log_itself(text, expected):
    assert parse_seeds(text) == expected


@pytest.mark.parametrize("text", ["", "x", "3-1", "1-", "-1", "log-2", "1.5"])
def test_what_is_no_seed_is_refused(text):
    with pytest.raises(InputError, match="is no seed"):
        parse_seeds(text)


@given(
    gaps=st.lists(st.integers(0, WEEK // 3), max_size=60),
    seed=st.integers(0, 99),
    weeks=st.none() | st.integers(1, 9),
)
def test_drawn_weeks_hold_whole_weeks_at_their_hour(gaps, seed, weeks):
    # No gap is longer than a third of a week: no week is empty, and the tail makes two weeks and more.
    jobs = jobs_at(1000 + np.cumsum([0, *gaps, *[WEEK // 3] * 8]))
    drawn = resampled(jobs, seed, weeks)
    available = whole_weeks(jobs)
    week_of = (jobs.submit - jobs.submit[0]) // WEEK
    new_week = drawn.submit // WEEK
    assert (np.diff(drawn.submit) >= 0).all()
    assert new_week.max() < (weeks or available)
    # Users stand for the original jobs: each new week is all of one old week, hour by hour.
    old = drawn.user
    assert (drawn.submit % WEEK == (jobs.submit[old] - jobs.submit[0]) % WEEK).all()
    for week in np.unique(new_week):
        members = old[new_week == week]
        assert members.tolist() == np.flatnonzero(week_of == week_of[members[0]]).tolist()
    again = resampled(jobs, seed, weeks)
    assert (again.submit == drawn.submit).all()
    assert drawn.numbers.tolist() == list(range(1, len(drawn) + 1))


def test_a_part_of_a_week_is_never_drawn_and_one_week_is_too_few():
    jobs = jobs_at([0, WEEK, 2 * WEEK + 5])  # two whole weeks; the third job lies in a part of a week
    assert set(np.concatenate([resampled(jobs, seed).user for seed in range(20)]).tolist()) == {0, 1}
    with pytest.raises(InputError, match="spans 1 whole weeks"):
        resampled(jobs_at([0, WEEK]), 1)


def test_generated_jobs_fill_the_asked_share_of_the_machine_in_the_long_run():
    jobs = generated_log("x", "synth1", 20_000, 0.8, 3)
    work = float((jobs.run * jobs.demand).sum())
    # 20,000 exponential gaps: the span's relative standard deviation is 1 / sqrt(20,000) = 0.7 %.
    assert work / (jobs.processors * float(jobs.submit[-1])) == pytest.approx(0.8, rel=0.03)
    assert (jobs.request >= jobs.run).all()
    assert (jobs.request <= 5 * jobs.run).all()


def test_every_parameter_is_part_of_a_cells_key():
    cell = Cell("t", "a", "s", "request", "easy", None)
    changes = {
        "trace": "u", "trace_sha256": "b", "settings": "r", "runtime": "last-two", "policy": "fcfs", "seed": 0,
    }  # fmt: skip
    keys = {cell.key, *(replace(cell, **{name: value}).key for name, value in changes.items())}
    assert len(keys) == 1 + len(changes)


def test_cells_are_the_product_and_settings_tell_drawn_weeks_apart():
    source = source_of(jobs_at([0, 3 * WEEK]))
    tasks = tasks_of([source, synthetic_source("synth1", 50, 0.5)], ["fcfs", "easy"], ["request"], (None, 1, 2))
    assert len({cell.key for cell, _ in tasks}) == 3 * 2 + 2 * 2
    settings = {cell.seed: cell.settings for cell, _ in tasks if cell.trace == "log"}
    assert settings[None] == "settings"
    assert settings[1] == "settings; as many weeks drawn with replacement"


def test_names_given_twice_logs_too_short_and_generators_without_a_number_are_refused():
    short = source_of(jobs_at([0, 10]))
    with pytest.raises(InputError, match="log is given twice"):
        tasks_of([short, short], ["fcfs"], ["request"], None)
    with pytest.raises(InputError, match="log spans 0 whole weeks"):
        tasks_of([short], ["fcfs"], ["request"], (1,))
    with pytest.raises(InputError, match="'log' is for trace files"):
        tasks_of([synthetic_source("synth2", 50, 0.5)], ["fcfs"], ["request"], (None,))
