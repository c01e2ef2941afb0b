"""EASY as simulators differ on it: rules against a slow simulator, differences job by job, published figures."""

import dataclasses
import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st
from repository import DATA

from cotide_core.errors import InputError
from cotide_lab.commands.experiment_command import command
from cotide_lab.experiments.backfilling.easy_differences import compare
from cotide_lab.experiments.backfilling.easy_variants import (
    AS_PUBLISHED,
    PUBLISHED,
    PUBLISHED_VARIANT,
    VARIANTS,
    published_of,
    replayed,
)
from cotide_lab.trace_replay.event_by_event import ONCE_A_MOMENT, PYSS, PYSS_SHORTEST_FIRST, EventRules, replay_events
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import run_policy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.swf import read_swf

SWF = DATA / "swf"
needs_data = [
    pytest.mark.data,
    pytest.mark.skipif(not SWF.is_dir(), reason=f"no logs at {SWF}; name their parent in COTIDE_DATA"),
]
ONE_AT_A_TIME = EventRules()
RULES = (
    ONCE_A_MOMENT,
    ONE_AT_A_TIME,
    EventRules(submits_first=0),
    PYSS,
    PYSS._replace(submits_first=0),
    ONCE_A_MOMENT._replace(beside=0),
    ONCE_A_MOMENT._replace(fixed=1),
    PYSS._replace(beside=0, fixed=1),
    PYSS_SHORTEST_FIRST,
    ONCE_A_MOMENT._replace(shortest_first=1),
)


def jobs_of(*rows, processors=4):
    """Rows of (submit, run, demand, request)."""
    submit, run, demand, request = np.array(rows, dtype=np.int64).T.copy()
    numbers = np.arange(1, len(rows) + 1, dtype=np.int64)
    return BatchJobs("by hand", processors, numbers, submit, run, demand, request, np.ones_like(numbers))


@dataclass(eq=False)
class Slow:
    """A simulator with a list of events and a timetable that is asked anew for everything."""

    jobs: BatchJobs
    rules: EventRules

    def starts(self):
        self.start, self.ended, self.queue, self.started, self.promise = {}, set(), [], [], {}
        events = [(int(second), 0, job) for job, second in enumerate(self.jobs.submit)]
        while events:
            now = min(second for second, _, _ in events)
            submits = sorted(event for event in events if event[:2] == (now, 0))
            # The ends of a second in the order in which their jobs were started.
            ends = sorted((event for event in events if event[:2] == (now, 1)), key=lambda e: self.started.index(e[2]))
            first = submits + ends if self.rules.submits_first else ends + submits
            for event in ends + submits if self.rules.together else first[:1]:
                events.remove(event)
                _, is_end, job = event
                if is_end:
                    self.ended.add(job)
                else:
                    self.queue.append(job)
            before = len(self.started)
            if (
                self.rules.together
                or not self.rules.newcomer_only
                or is_end
                or self.jobs.demand[job] <= self.free(now, now)
            ):
                self.decide(now)
            events += [(now + int(self.jobs.run[job]), 1, job) for job in self.started[before:]]
        return [self.start[job] for job in range(len(self.jobs))]

    def free(self, second, now):
        """Processors that the timetable shows free at a second, as known now."""
        held = 0
        for job in self.started:
            planned_end = self.start[job] + self.jobs.request[job]
            over = planned_end <= second if self.rules.free_as_planned or second > now else False
            held += 0 if job in self.ended or over else int(self.jobs.demand[job])
        return self.jobs.processors - held

    def begin(self, job, now):
        self.queue.remove(job)
        self.started.append(job)
        self.start[job] = now

    def decide(self, now):
        demand, request = self.jobs.demand, self.jobs.request
        while self.queue and demand[self.queue[0]] <= self.free(now, now):
            self.begin(self.queue[0], now)
        if not self.queue:
            return
        first = self.queue[0]
        planned = sorted({self.start[job] + int(request[job]) for job in self.started if job not in self.ended})
        # A planned end may be this very second or, where ends wait for their turn, have just been reached.
        shadow = next(second for second in planned if self.after(second, now) >= demand[first])
        if self.rules.fixed:
            shadow = self.promise[first] = max(shadow, self.promise.get(first, 0))
        extra = self.after(shadow, now) - demand[first]
        others = self.queue[1:]
        for job in sorted(others, key=lambda job: request[job]) if self.rules.shortest_first else others:
            if demand[job] > self.free(now, now):
                continue
            if now + request[job] <= shadow:
                self.begin(job, now)
            elif self.rules.beside and demand[job] <= extra:
                extra -= demand[job]
                self.begin(job, now)

    def after(self, second, now):
        """Processors free once all that is planned to end by a second has ended."""
        held = sum(
            int(self.jobs.demand[job])
            for job in self.started
            if job not in self.ended and self.start[job] + self.jobs.request[job] > second
        )
        return self.jobs.processors - held


@st.composite
def logs(draw):
    """Small logs on few seconds, so that much happens at once and many jobs run to their request."""
    count = draw(st.integers(1, 16))
    short = st.integers(1, 4)
    gaps = draw(st.lists(st.sampled_from([0, 0, 1, 2]), min_size=count, max_size=count))
    runs = draw(st.lists(short, min_size=count, max_size=count))
    slack = draw(st.lists(st.sampled_from([0, 0, 1, 2]), min_size=count, max_size=count))
    demands = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    return jobs_of(*zip(np.cumsum(gaps), runs, demands, np.add(runs, slack), strict=True))


# A log where it matters that a submission alone starts nobody else, which one in a thousand random logs is.
NEWCOMER_ONLY = jobs_of(
    (0, 1, 3, 2), (1, 1, 2, 1), (1, 3, 1, 3), (1, 3, 2, 3), (1, 3, 1, 3), (1, 2, 2, 4),
    (2, 1, 4, 1), (4, 1, 2, 1), (4, 2, 2, 2), (4, 1, 1, 2), (6, 1, 4, 2), (6, 1, 3, 1),
)  # fmt: skip

MORE_THAN_FIT = jobs_of(*[(0, 1, 1, 1)] * 7)
"""At 1 the processors of four jobs are free, though only the first's end was handled: then six jobs run on four."""


@settings(max_examples=60, deadline=None)
@given(jobs=logs())
@example(jobs=NEWCOMER_ONLY)
@example(jobs=MORE_THAN_FIT)
def test_each_rule_gives_the_starts_of_the_slow_simulator(jobs):
    for rules in RULES:
        assert replay_events(jobs, rules).tolist() == Slow(jobs, rules).starts()


@settings(max_examples=100, deadline=None)
@given(jobs=logs())
def test_deciding_once_a_moment_gives_the_schedule_of_the_kernel(jobs):
    assert replay_events(jobs, ONCE_A_MOMENT).tolist() == run_policy(jobs, POLICIES["easy"]).start.tolist()
    shortest = replay_events(jobs, ONCE_A_MOMENT._replace(shortest_first=1))
    assert shortest.tolist() == run_policy(jobs, POLICIES["easy-sjbf"]).start.tolist()


def test_two_ends_at_one_second_are_seen_together_or_one_by_one():
    # Jobs 1 and 2 hold two processors each and both end at 10, before their request. Job 3 wants all four, job 4 two
    # for 5 s. Seen together, the ends let job 3 start. Seen one by one, the first end leaves two processors, and job 4
    # is planned to be gone (15) before job 2 is (20).
    jobs = jobs_of((0, 10, 2, 20), (0, 10, 2, 20), (1, 7, 4, 7), (2, 5, 2, 5))
    assert replay_events(jobs, ONCE_A_MOMENT).tolist() == [0, 0, 10, 17]
    assert replay_events(jobs, ONE_AT_A_TIME).tolist() == [0, 0, 15, 10]
    # With requests of 10 s the plan frees all four processors at 10, whichever end is handled first.
    short = replace(jobs, request=np.array([10, 10, 7, 5]))
    assert replay_events(short, PYSS).tolist() == [0, 0, 10, 17]


def test_a_planned_end_counts_before_it_was_handled():
    # Job 1 holds two processors and job 3 one, so job 2 waits for three. At 2 three things happen: job 4, of two
    # processors and 1 s, is submitted; job 1 ends a second early; job 3 ends as planned. The submission comes first.
    # By the plan two processors are free then, and job 4 is gone by 3, when job 2 is reserved to start: it goes ahead.
    jobs = jobs_of((0, 2, 2, 3), (0, 1, 3, 1), (0, 2, 1, 2), (2, 1, 2, 1))
    assert replay_events(jobs, PYSS).tolist() == [0, 3, 0, 2]
    # Where processors are free only once an end was handled, job 4 finds one, and job 1's end lets job 2 start.
    assert replay_events(jobs, ONE_AT_A_TIME).tolist() == [0, 2, 0, 3]
    assert replay_events(jobs, ONCE_A_MOMENT).tolist() == [0, 2, 0, 3]


def test_a_forecast_below_the_run_time_is_refused():
    with pytest.raises(InputError, match="job 1 runs 5 s, longer than the 4 s planned"):
        replay_events(jobs_of((0, 5, 1, 9)), PYSS, np.array([4]))


def test_differences_are_counted_job_by_job():
    jobs = jobs_of((0, 10, 1, 10), (5, 20, 1, 20), (7, 10, 1, 10))
    before, after = np.array([0, 5, 17]), np.array([0, 9, 57])
    slowdowns = [(start - jobs.submit + jobs.run) / jobs.run for start in (before, after)]
    # Job 2 waits 4 s more of 20: +.2; job 3 40 s more of 10: +4; together 4.2, all of it by the ten that change most.
    found = compare(jobs, before, slowdowns[0], jobs, after, slowdowns[1])
    assert (found.common, found.only_before, found.only_after, found.moved) == (3, 0, 0, 2)
    assert found.change == pytest.approx(4.2)
    assert found.top_share == found.top_of_all == pytest.approx(1)
    assert [(job.number, job.change) for job in found.top] == [(3, pytest.approx(4.0)), (2, pytest.approx(0.2))]
    # They part at 5, when job 2 starts in the first replay only; it was submitted then, and nothing ended.
    assert found.first is not None
    assert (found.first.second, found.first.job.number, found.first.submitted) == (5, 2, (2,))
    assert found.first.ended == found.first.planned == ()


def test_jobs_of_one_replay_only_are_compared_with_nothing():
    jobs = jobs_of((0, 10, 1, 10), (5, 20, 1, 20))
    fewer = jobs_of((0, 10, 1, 10))
    start, slowdown = np.array([0, 5]), np.array([1.0, 1.0])
    found = compare(jobs, start, slowdown, fewer, start[:1], slowdown[:1])
    assert (found.common, found.only_before, found.moved, found.first, found.top) == (1, 1, 0, None, ())
    assert found.top_share is None


@pytest.fixture
def log(tmp_path):
    """Two hundred jobs on eight processors, busy, on few seconds, half of them running to their request."""
    rng = np.random.default_rng(5)
    lines = ["; MaxProcs: 8"]
    submit = 0
    for number in range(1, 201):
        submit += 20 * int(rng.integers(0, 4))
        taken, asked = 20 * int(rng.integers(1, 6)), 120 if number % 2 else 0
        size, status = int(rng.integers(1, 6)), int(rng.choice([0, 1, 5]))
        lines.append(f"{number} {submit} 0 {taken} {size} -1 -1 {size} {max(taken, asked)} -1 {status} 1 1 1 1 1 -1 -1")
    path = tmp_path / "small.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def called(*arguments):
    return CliRunner().invoke(command, ["easy-variants", *map(str, arguments)], standalone_mode=False)


def test_every_reading_is_shown_with_what_it_changes(log):
    done = called(log)
    assert done.return_value == 0
    assert "as predictsim" in done.stdout
    assert "they part at second" in done.stdout
    document = json.loads(called(log, "-o", "json").stdout)
    rows = {row["name"]: row for row in document["logs"][0]["rows"]}
    assert rows["status 5 (cancelled) dropped"]["jobs"] < rows["default"]["jobs"] == 200
    assert rows["default"]["difference"]["moved"] == 0
    assert rows["one event at a time, submissions first"]["difference"]["moved"] > 0
    assert rows["threshold 1 s"]["mean"] >= rows["default"]["mean"] >= rows["threshold 60 s"]["mean"]
    # Readings of SDSC-BLUE's machine say nothing about another one.
    assert not any(name.startswith("machine of") for name in rows)


def test_a_published_figure_that_is_missed_is_said_and_is_exit_code_3(log, tmp_path):
    copy = tmp_path / "KTH-SP2-of-another-kind.swf"
    copy.write_text(log.read_text())
    done = called("--data", tmp_path)
    assert done.return_value == 3
    assert "missed:" in done.stdout
    assert "from the published figure" in done.stdout


def test_mistakes_are_told_in_one_line(tmp_path):
    for arguments, message in (
        ((), "names no log; give files"),
        (("--data", tmp_path / "none"), "no such directory"),
        (("--data", tmp_path), "holds no log named KTH-SP2, CTC-SP2, SDSC-BLUE"),
    ):
        done = called(*arguments)
        assert isinstance(done.exception, InputError)
        assert message in str(done.exception)


class TestPublishedFigures:
    """What the authors of predictsim give for EASY, to their digits where the cleaned log holds the same jobs."""

    pytestmark = needs_data

    def outcome(self, log, name=PUBLISHED_VARIANT):
        variant = next(variant for variant in VARIANTS if variant.name == name)
        _, _, slowdown = replayed(variant, read_swf(next(SWF.glob(f"{log}*.swf.gz"))))
        return slowdown

    def figures(self, slowdown):
        return slowdown.mean(), slowdown.max(), np.sqrt((slowdown**2).mean())

    @pytest.mark.parametrize("name", AS_PUBLISHED)
    def test_on_ctc_mean_largest_and_root_mean_square_are_theirs_to_eleven_digits(self, name):
        slowdown, known = self.outcome("CTC-SP2", name), PUBLISHED["CTC-SP2"]
        assert len(slowdown) == known.jobs
        assert self.figures(slowdown) == pytest.approx(dataclasses.astuple(known.of(name)), rel=1e-11)

    @pytest.mark.parametrize("name", AS_PUBLISHED)
    @pytest.mark.parametrize(("log", "missing", "near"), [("KTH-SP2", 14, 6e-4), ("SDSC-BLUE", 6, 2e-4)])
    def test_where_the_log_of_today_lacks_its_first_jobs_they_are_theirs_but_for_these(self, log, missing, near, name):
        slowdown, known = self.outcome(log, name), PUBLISHED[log]
        assert len(slowdown) == known.jobs - missing
        assert self.figures(slowdown) == pytest.approx(dataclasses.astuple(known.of(name)), rel=near)

    def test_on_sdsc_blue_deciding_event_by_event_alone_is_not_what_they_did(self):
        _, known = published_of("x/SDSC-BLUE-2000-4.2-cln.swf.gz")
        for name, off in (("default", 0.0244), ("one event at a time, submissions first", 0.0303)):
            assert self.outcome("SDSC-BLUE", name).mean() / known.easy.mean - 1 == pytest.approx(off, abs=1e-4)
