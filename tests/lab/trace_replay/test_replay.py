"""Replays from end to end: feasible schedules, figures by hand, intervals, and the published numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from batch_logs import jobs_of, random_jobs
from repository import DATA

from cotide_core.errors import InputError
from cotide_core.policies.catalogue import BY_NAME, Runner, names
from cotide_lab.predictors.run_time.sequential.catalogue import SEQUENTIAL
from cotide_lab.trace_replay.check import faults_of
from cotide_lab.trace_replay.metrics import WEEK_SECONDS, bounded_slowdown, figures_of, use_by_week, waiting_by_time
from cotide_lab.trace_replay.policies import POLICIES, policy_of
from cotide_lab.trace_replay.runner import RUNTIMES, Schedule, run_policy
from cotide_sim.traces.jobs.swf import read_swf
from cotide_sim.traces.jobs.swf_cleaning import Cleaning, clean

SWF = DATA / "swf"
needs_data = [
    pytest.mark.data,
    pytest.mark.skipif(not SWF.is_dir(), reason=f"no logs at {SWF}; name their parent in COTIDE_DATA"),
]


def test_the_queue_by_time_is_the_mean_number_that_waits_in_each_stretch():
    """Jobs wait from 0 to 4 and from 2 to 4: over 0-2 one does, over 2-4 two, over 4-8 none, over 0-8 6 / 8."""
    jobs, start = jobs_of((0, 9, 1, 9), (2, 9, 1, 9)), np.array([4, 4])
    assert waiting_by_time(jobs, start, np.array([0, 2, 4, 8])).tolist() == [1.0, 2.0, 0.0]
    assert waiting_by_time(jobs, start, np.array([0, 8])).tolist() == [0.75]


@pytest.mark.parametrize("runtime", [name for name in RUNTIMES if name not in ("trees", *SEQUENTIAL)])
@pytest.mark.parametrize("name", names(Runner.POOL))
def test_every_schedule_is_feasible_and_the_same_again(name, runtime):
    jobs = random_jobs()
    schedule = run_policy(jobs, POLICIES[name], runtime)
    assert faults_of(jobs, schedule) == []
    again = run_policy(jobs, POLICIES[name], runtime, watch=lambda done: None)
    assert again.start.tobytes() == schedule.start.tobytes()


@pytest.mark.parametrize("name", ["easy", "conservative", "slack", "svf", "hybrid"])
def test_a_replay_on_boosted_trees_is_feasible_and_the_same_again_in_another_thread(name):
    """600 jobs of ten days: trees are grown on all but the first days, of which fewer than 100 jobs have ended."""
    jobs = random_jobs(600)
    schedule = run_policy(jobs, POLICIES[name], "trees", reliability="trees")
    assert 6 <= schedule.rebuilds <= 10
    assert faults_of(jobs, schedule) == []
    again = run_policy(jobs, POLICIES[name], "trees", reliability="trees", watch=lambda done: None)
    assert again.start.tobytes() == schedule.start.tobytes()
    assert schedule.start.tobytes() != run_policy(jobs, POLICIES[name], "learned").start.tobytes()


def test_trees_that_rate_the_mixtures_forecasts_change_who_is_predictable():
    jobs = random_jobs(600)
    by_trees = run_policy(jobs, POLICIES["hybrid"], reliability="trees")
    assert (by_trees.source, by_trees.rebuilds > 0) == ("learned, rated by trees", True)
    assert by_trees.start.tobytes() != run_policy(jobs, POLICIES["hybrid"]).start.tobytes()
    # Nobody else asks how sure a forecast is, so no tree is grown for them.
    assert run_policy(jobs, POLICIES["easy"], "learned", reliability="trees").rebuilds == 0


def test_a_run_time_that_is_not_over_changes_nothing_of_a_schedule_on_trees():
    """A job that ran 3 h after day 5 runs for a week instead: all starts and forecasts before its end stay."""
    jobs = dataclasses.replace(random_jobs(600), request=np.full(600, 10 * 86_400))
    one = run_policy(jobs, POLICIES["hybrid"], "trees", reliability="trees")
    long = (jobs.run > 8000) & (one.start > 5 * 86_400) & (jobs.run < one.forecast)
    job = int(np.argmax(long))
    run = jobs.run.copy()
    run[job] = 7 * 86_400
    other = run_policy(dataclasses.replace(jobs, run=run), POLICIES["hybrid"], "trees", reliability="trees")
    end = one.start[job] + jobs.run[job]
    before, submitted = one.start < end, jobs.submit < end
    assert np.array_equal(one.start[before], other.start[before])
    assert np.array_equal(one.forecast[submitted], other.forecast[submitted])
    assert not np.array_equal(one.start, other.start)


def test_a_hand_made_day_shows_what_each_policy_is_about():
    """Four processors. 1 holds three until 10 (asked 20); 2 needs all; 3 fits beside 1 and is over by 20; 4 is not."""
    jobs = jobs_of((0, 10, 3, 20), (1, 5, 4, 5), (2, 8, 1, 18), (3, 30, 1, 30))
    starts = {name: run_policy(jobs, POLICIES[name]).start.tolist() for name in names(Runner.POOL)}
    assert starts["fcfs"] == [0, 10, 15, 15]
    assert starts["easy"] == [0, 10, 2, 15]
    assert starts["conservative"] == [0, 10, 2, 15]
    assert starts["sjf-queue"] == [0, 10, 15, 15]
    # Planned anew at 2: the first job of the plan by forecast is 2 (5 s at 20), then 3 (18 s at 2).
    assert starts["sjf"] == [0, 10, 2, 15]


def test_the_first_of_the_queue_keeps_its_promise_and_the_backfilled_do_not_touch_it():
    jobs = jobs_of((0, 100, 3, 100), (1, 10, 3, 10), (2, 98, 1, 98), (3, 98, 1, 98))
    schedule = run_policy(jobs, POLICIES["easy"])
    assert schedule.promise.tolist() == [-1, 100, -1, -1]
    assert schedule.start.tolist() == [0, 100, 2, 100]


def test_the_last_two_finished_runs_of_a_user_are_the_forecast_and_never_unfinished_ones():
    jobs = jobs_of((0, 10, 1, 100), (0, 30, 1, 100), (20, 5, 1, 100), (40, 5, 1, 100), (40, 5, 1, 12))
    forecast = run_policy(jobs, POLICIES["easy"], "last-two").forecast
    # At 20 only the first has ended; at 40 the runs of 30 s and 5 s ended last, the 5 s one first (at 25).
    assert forecast.tolist() == [100, 100, 100, 17, 12]


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ([0, 0, 9, 20], "job 3 starts before it was submitted"),
        ([0, 5, 10, 20], "5 of 4 processors in use at 5 s"),
        ([0, 20, 10, 30], "job 3 overtakes the one before it"),
    ],
)
def test_the_check_finds_a_spoiled_schedule(start, words):
    jobs = jobs_of((0, 10, 3, 10), (0, 5, 2, 5), (10, 5, 3, 5), (10, 5, 4, 5))
    none = np.full(4, -1, dtype=np.int64)
    spoiled = Schedule("fcfs", "request", np.array(start, dtype=np.int64), jobs.request, none, 0, 0.0)
    assert any(words in fault for fault in faults_of(jobs, spoiled)), faults_of(jobs, spoiled)


def test_the_check_finds_a_broken_promise():
    jobs = jobs_of((0, 10, 3, 10), (0, 5, 2, 5))
    late = Schedule("conservative", "request", np.array([0, 12]), jobs.request, np.array([0, 10]), 0, 0.0)
    assert faults_of(jobs, late) == ["job 2 starts later than it was promised"]


def test_figures_are_what_the_definitions_say():
    jobs = jobs_of((0, 2, 4, 2), (0, 20, 2, 20))
    start = np.array([0, 10])
    # Slowdowns: max(1, 2/10) = 1 and (10 + 20)/20 = 1.5; stretch 1 and 1.5; used 8 + 40 of 4 x 30 processor seconds.
    assert bounded_slowdown(jobs, start).tolist() == [1.0, 1.5]
    figures = figures_of(jobs, start)
    assert {name: figure.value for name, figure in figures.items()} == pytest.approx(
        {
            "wait_seconds_mean": 5.0,
            "bounded_slowdown_mean": 1.25,
            "stretch_mean": 1.25,
            "response_seconds_mean": 16.0,
            "utilisation": 0.4,
        }
    )
    assert figures["wait_seconds_mean"].low is None, "one week gives no interval"


def test_the_use_of_weeks_adds_up_to_all_processor_seconds():
    jobs = random_jobs()
    start = run_policy(jobs, POLICIES["easy"]).start
    edges, used = use_by_week(jobs, start)
    assert used.sum() == (jobs.demand * jobs.run).sum()
    assert (used <= np.diff(edges) * jobs.processors).all()
    busy = ((start < edges[2]) & (start + jobs.run > edges[1])).nonzero()[0]
    overlap = np.minimum(start + jobs.run, edges[2])[busy] - np.maximum(start, edges[1])[busy]
    assert used[1] == (overlap * jobs.demand[busy]).sum()


def test_intervals_hold_the_figure_depend_on_the_seed_only_and_shrink_to_nothing_when_weeks_are_alike():
    jobs = random_jobs()
    start = run_policy(jobs, POLICIES["easy"]).start
    figures = figures_of(jobs, start, seed=3)
    for figure in figures.values():
        assert figure.low is not None
        assert figure.high is not None
        assert figure.low < figure.value < figure.high
    assert figures_of(jobs, start, seed=3) == figures != figures_of(jobs, start, seed=4)
    alike = jobs_of(*((week * WEEK_SECONDS, 50, 1, 50) for week in range(6)))
    same = figures_of(alike, alike.submit + 7)["wait_seconds_mean"]
    assert (same.low, same.value, same.high) == (7.0, 7.0, 7.0)


def test_a_policy_is_found_by_its_names_only():
    assert policy_of(" EASY ") is POLICIES["easy"]
    assert all(policy_of(alias) is POLICIES[name] for name in POLICIES for alias in BY_NAME[name].aliases)
    with pytest.raises(InputError, match="there is no 'esay', did you mean 'easy'"):
        policy_of("esay")


def test_an_interrupted_replay_ends_its_thread():
    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_policy(random_jobs(), POLICIES["easy"], watch=interrupt)


class TestPublishedFigures:
    """Average bounded slowdown of EASY and of its shortest-job backfill, as the authors of predictsim give it."""

    pytestmark = needs_data

    def slowdown(self, jobs, policy, runtime="request", **options):
        return bounded_slowdown(jobs, run_policy(jobs, POLICIES[policy], runtime, **options).start).mean()

    def log(self, name):
        return clean(read_swf(SWF / f"{name}.swf.gz"))[0]

    def test_on_kth_they_come_out_within_one_percent(self):
        jobs = self.log("KTH-SP2-1996-2.1-cln")
        assert len(jobs) == 28_467
        assert self.slowdown(jobs, "easy") == pytest.approx(92.6, rel=0.01)
        assert self.slowdown(jobs, "easy", one_by_one=True) == pytest.approx(92.6, rel=0.001)
        assert self.slowdown(jobs, "easy-sjbf", "last-two") == pytest.approx(62.9, rel=0.01)
        assert self.slowdown(jobs, "easy-sjbf", "clairvoyant") == pytest.approx(49.8, rel=0.01)

    def test_on_ctc_easy_comes_out_within_one_percent_when_events_are_decided_on_one_by_one(self):
        jobs = self.log("CTC-SP2-1996-3.1-cln")
        assert self.slowdown(jobs, "easy", one_by_one=True) == pytest.approx(49.6, rel=0.01)
        assert self.slowdown(jobs, "easy") == pytest.approx(49.6, rel=0.02)

    def test_on_sdsc_blue_easy_is_three_percent_above_and_the_clairvoyant_meets_its_figure(self):
        jobs = self.log("SDSC-BLUE-2000-4.2-cln")
        assert self.slowdown(jobs, "easy") == pytest.approx(36.5, rel=0.03)
        assert self.slowdown(jobs, "easy-sjbf", "clairvoyant") == pytest.approx(13.2, rel=0.01)

    def test_a_dozen_jobs_more_or_less_move_the_average_by_about_as_much_as_the_differences_above(self):
        jobs = self.log("CTC-SP2-1996-3.1-cln")
        rng = np.random.default_rng(0)
        found = []
        for _ in range(8):
            state = np.ones(len(jobs), dtype=np.bool_)
            state[rng.choice(len(jobs), 14, replace=False)] = False
            names = ("numbers", "submit", "run", "demand", "request", "user")
            found.append(
                self.slowdown(dataclasses.replace(jobs, **{n: getattr(jobs, n)[state] for n in names}), "easy")
            )
        assert np.std(found) > 0.01 * np.mean(found)

    @pytest.mark.parametrize("name", ["KTH-SP2-1996-2.1-cln", "LLNL-Atlas-2006-2.1-cln", "HPC2N-2002-2.2-cln"])
    def test_schedules_of_real_logs_pass_the_check(self, name):
        jobs = self.log(name)
        for policy in ("fcfs", "easy", "easy-svbf", "conservative", "hybrid"):
            assert faults_of(jobs, run_policy(jobs, POLICIES[policy])) == []

    def test_on_kth_the_platform_closes_more_than_four_fifths_of_the_gap_and_learned_times_are_the_more_accurate(self):
        jobs = self.log("KTH-SP2-1996-2.1-cln")
        easy, best = self.slowdown(jobs, "easy"), self.slowdown(jobs, "easy-sjbf", "clairvoyant")
        assert (easy - self.slowdown(jobs, "hybrid")) / (easy - best) > 0.8
        learned, last_two = (run_policy(jobs, POLICIES["easy"], name).forecast for name in ("learned", "last-two"))
        accuracy = [np.mean(np.minimum(f, jobs.run) / np.maximum(f, jobs.run)) for f in (learned, last_two)]
        assert accuracy[0] > accuracy[1] + 0.06

    def test_the_reader_finds_every_row_of_every_log(self):
        rows = {path.name: len(read_swf(path).table) for path in sorted(SWF.glob("*.swf.gz"))}
        assert rows["HPC2N-2002-2.2-cln.swf.gz"] == 202_871
        assert rows["SDSC-BLUE-2000-4.2-cln.swf.gz"] == 243_306

    def test_requested_processors_and_cut_runs_are_the_filter_of_the_published_figure(self):
        log = read_swf(SWF / "KTH-SP2-1996-2.1-cln.swf.gz")
        other = clean(log, Cleaning(demand="allocated", overrun="raise"))[0]
        assert abs(self.slowdown(other, "easy") - 92.6) > 0.015 * 92.6
