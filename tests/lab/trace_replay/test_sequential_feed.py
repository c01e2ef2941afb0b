"""Forecasts made at a replay's pauses: what they are told and when, and who relies on them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from batch_logs import jobs_of, random_jobs

from cotide_core.errors import InputError
from cotide_lab.commands import simulate_command
from cotide_lab.predictors.run_time.sequential.catalogue import SEQUENTIAL
from cotide_lab.trace_replay import sequential_feed
from cotide_lab.trace_replay.check import faults_of
from cotide_lab.trace_replay.policies import POLICIES, policy_of
from cotide_lab.trace_replay.runner import RUNTIMES, run_policy
from cotide_predictors.run_time.sequential.forecaster import Answers, points_only

DAY = 86_400


class Spy:
    """Writes down what it is told and asked; says twice as many seconds as the row's number, and 5 above that."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def finished(self, jobs: np.ndarray, run_seconds: np.ndarray, finish_seconds: np.ndarray) -> None:
        self.seen.append(("finished", jobs.tolist(), run_seconds.tolist(), finish_seconds.tolist()))

    def submitted(self, rows: slice) -> Answers:
        self.seen.append(("submitted", rows.start, rows.stop))
        point = 2.0 * np.arange(rows.start, rows.stop)
        return Answers(point, point + 5.0)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """The forecaster of the next replay; those that only compile a kernel have others."""
    spies: list[Spy] = []

    def made(*_: Any, **__: Any) -> Spy:
        spies.append(Spy())
        found.seen = spies[-1].seen
        return spies[-1]

    found = Spy()
    monkeypatch.setattr(sequential_feed, "sequential_forecaster", made)
    return found


def test_ends_are_told_in_order_before_the_next_submission_and_never_at_their_own_second(spy: Spy) -> None:
    """One processor each of three. 0 runs from 0 to 4, 1 from 0 to 3, 2 from 3 to 8; 3 comes at 4, 4 at 9."""
    jobs = jobs_of((0, 4, 1, 10), (0, 3, 1, 10), (3, 5, 1, 10), (4, 1, 1, 10), (9, 1, 1, 10), processors=3)
    found = run_policy(jobs, POLICIES["fcfs"], "fmkf")
    assert found.start.tolist() == [0, 0, 3, 4, 9]
    assert spy.seen == [
        ("submitted", 0, 2),
        ("submitted", 2, 3),  # at 3, the second at which job 1 ends
        ("finished", [1], [3.0], [3.0]),
        ("submitted", 3, 4),  # at 4, the second at which job 0 ends
        ("finished", [0, 3, 2], [4.0, 1.0, 5.0], [4.0, 5.0, 8.0]),
        ("submitted", 4, 5),
    ]
    assert found.forecast.tolist() == [1, 2, 4, 6, 8]  # at least a second


def test_a_forecast_stays_within_the_request_and_its_upper_one_above_it(spy: Spy) -> None:
    """Rows 0 to 3 say 0, 2, 4 and 6 seconds, and 5 more nine times in ten; the requests are 3."""
    jobs = jobs_of(*((number, 1, 1, 3) for number in range(4)))
    assert run_policy(jobs, POLICIES["easy"], "mdn").forecast.tolist() == [1, 2, 3, 3]
    columns = sequential_feed.FeedColumns(*np.zeros((3, 4), np.int64), np.full(4, -1))
    feed = sequential_feed.SequentialFeed("mdn", jobs, columns, threshold=0.6, seed=0, rebuild_seconds=DAY)
    feed.advance(0)
    assert columns.upper[0] == 3


def test_where_nothing_is_said_of_an_upper_forecast_it_is_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    class Points(Spy):
        def submitted(self, rows: slice) -> Answers:
            return points_only(np.full(rows.stop - rows.start, 2.0))

    monkeypatch.setattr(sequential_feed, "sequential_forecaster", lambda *_, **__: Points())
    jobs = jobs_of((0, 1, 1, 30), (1, 1, 1, 40))
    columns = sequential_feed.FeedColumns(*np.zeros((3, 2), np.int64), np.full(2, -1))
    feed = sequential_feed.SequentialFeed("fmkf", jobs, columns, threshold=0.6, seed=0, rebuild_seconds=DAY)
    assert feed.advance(0) == 1
    assert (columns.forecast[0], columns.upper[0], columns.predictable[0]) == (2, 30, 0)


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_a_run_time_that_is_not_over_changes_nothing_of_a_schedule(name: Any) -> None:
    """A job that started after day 5 runs for a week instead: all starts and forecasts before its end stay, those of
    its own user's jobs included that come while it runs."""
    jobs = dataclasses.replace(random_jobs(600), request=np.full(600, 10 * DAY))
    one = run_policy(jobs, POLICIES["hybrid"], name)
    ends = one.start + jobs.run
    own = (jobs.user[:, None] == jobs.user) & (jobs.submit > one.start[:, None]) & (jobs.submit < ends[:, None])
    # A forecast that is outlived makes a round of its own; a job whose forecast holds makes none until its end.
    job = int(np.argmax(np.where((one.start > 5 * DAY) & (jobs.run < one.forecast), own.sum(axis=1), -1)))
    assert own[job].any()
    run = jobs.run.copy()
    run[job] = 7 * DAY
    other = run_policy(dataclasses.replace(jobs, run=run), POLICIES["hybrid"], name)
    end = ends[job]
    before, submitted = one.start < end, jobs.submit <= end
    assert np.array_equal(one.forecast[submitted], other.forecast[submitted])
    assert np.array_equal(one.start[before], other.start[before])
    assert not np.array_equal(one.start, other.start)


@pytest.mark.parametrize("policy", ["easy-sjbf", "conservative", "slack", "svf", "hybrid", "hybrid-printed"])
def test_a_schedule_is_feasible_and_the_same_again_in_another_thread(policy: str) -> None:
    jobs = random_jobs(400)
    schedule = run_policy(jobs, policy_of(policy), "mlkf")
    assert faults_of(jobs, schedule) == []
    again = run_policy(jobs, policy_of(policy), "mlkf", watch=lambda _: None)
    assert again.start.tobytes() == schedule.start.tobytes()
    assert schedule.start.tobytes() != run_policy(jobs, policy_of(policy), "request").start.tobytes()


def test_hybrid_relies_on_users_who_were_forecast_well_or_on_nobody_or_everybody() -> None:
    jobs = random_jobs(600)
    own = run_policy(jobs, POLICIES["hybrid"], "fmkf")
    nobody = run_policy(jobs, POLICIES["hybrid"], "fmkf", reliability="nobody")
    everybody = run_policy(jobs, POLICIES["hybrid"], "fmkf", reliability="everybody")
    assert [one.source for one in (own, nobody, everybody)] == [
        "fmkf",
        "fmkf, nobody predictable",
        "fmkf, everybody predictable",
    ]
    assert len({one.start.tobytes() for one in (own, nobody, everybody)}) == 3
    with pytest.raises(InputError, match=r"--reliability: trees rate the forecasts of learned and trees, not fmkf"):
        run_policy(jobs, POLICIES["hybrid"], "fmkf", reliability="trees")


def test_rarer_refits_make_other_forecasts_and_rarer_rebuilds_fewer_trees() -> None:
    jobs = random_jobs(600)
    daily, weekly = (run_policy(jobs, POLICIES["easy"], "mdn", rebuild_seconds=days * DAY) for days in (1, 7))
    assert not np.array_equal(daily.forecast, weekly.forecast)
    rebuilds = [run_policy(jobs, POLICIES["easy"], "trees", rebuild_seconds=days * DAY).rebuilds for days in (1, 3)]
    assert rebuilds[0] >= 2 * rebuilds[1] > 0


def test_the_command_offers_every_source_of_run_times() -> None:
    assert simulate_command.RUNTIMES == RUNTIMES
