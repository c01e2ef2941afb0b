"""Policies from a user's file: the same schedules as the kernels', and every fault of theirs named at its line."""

from __future__ import annotations

import numpy as np
import pytest
from repository import ROOT

from cotide_core.errors import InputError
from cotide_lab.predictors.run_time.sequential.catalogue import SEQUENTIAL
from cotide_lab.trace_replay.check import faults_of
from cotide_lab.trace_replay.policies import POLICIES
from cotide_lab.trace_replay.runner import RUNTIMES, run_policy
from cotide_lab.trace_replay.user_policy import is_policy_file, load_policy
from cotide_lab.trace_replay.user_replay import run_user_policy
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

EXAMPLES = ROOT / "examples" / "policies"

EASY = '''
import numpy as np

def choose(queue, machine):
    """EASY: the first of the queue gets a reservation, the others may overtake if they leave it alone."""
    chosen, free, shadow, extra = [], machine.free, None, 0
    ends = list(zip(machine.planned_end.tolist(), machine.demand.tolist()))
    for index in range(len(queue)):
        demand, end = int(queue.demand[index]), machine.now + int(queue.forecast[index])
        if shadow is None and demand > free:
            level = free
            for time in sorted({end for end, _ in ends}):
                level += sum(amount for end, amount in ends if end == time)
                shadow, extra = time, level - demand
                if level >= demand:
                    break
        elif demand <= free and (shadow is None or end <= shadow or demand <= extra):
            extra -= demand if shadow is not None and end > shadow else 0
            chosen.append(index)
            free -= demand
            ends.append((end, demand))
    return chosen
'''


def random_jobs(count=1500, seed=1, requests=40_000):
    rng = np.random.default_rng(seed)
    run = rng.integers(1, 20_000, count)
    return BatchJobs(
        name="random",
        processors=64,
        numbers=np.arange(count) + 100,
        submit=np.cumsum(rng.integers(0, 2 * 1500, count)),
        run=run,
        demand=rng.integers(1, 20, count),
        request=run + rng.integers(0, requests, count),
        user=rng.integers(-1, 30, count),
    )


def policy(directory, text, name="mine.py"):
    path = directory / name
    path.write_text(text)
    return load_policy(str(path))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_shortest_first_from_a_file_is_the_kernels_sjf_job_by_job(runtime):
    jobs = random_jobs(**({"count": 300} if runtime in ("trees", *SEQUENTIAL) else {}))
    theirs = run_user_policy(jobs, load_policy(str(EXAMPLES / "shortest_first.py")), runtime)
    ours = run_policy(jobs, POLICIES["sjf-queue"], runtime)
    assert np.array_equal(theirs.start, ours.start)
    assert np.array_equal(theirs.forecast, ours.forecast)
    assert (theirs.policy, theirs.rounds) == ("shortest_first", ours.rounds)


@pytest.mark.parametrize("runtime", [name for name in RUNTIMES if name not in ("trees", *SEQUENTIAL)])
def test_easy_from_a_file_is_the_kernels_easy_also_where_jobs_outlive_their_forecasts(tmp_path, runtime):
    jobs = random_jobs(seed=2)
    theirs = run_user_policy(jobs, policy(tmp_path, EASY), runtime)
    assert np.array_equal(theirs.start, run_policy(jobs, POLICIES["easy"], runtime).start)
    assert runtime not in ("last-two", "learned") or (theirs.forecast < jobs.run).any()


def test_the_example_with_memory_makes_a_feasible_schedule_that_serves_the_least_served():
    jobs = random_jobs(seed=3)
    fair = run_user_policy(jobs, load_policy(str(EXAMPLES / "fair_backfill.py")))
    assert faults_of(jobs, fair) == []
    assert not np.array_equal(fair.start, run_policy(jobs, POLICIES["easy"]).start)
    again = run_user_policy(jobs, load_policy(str(EXAMPLES / "fair_backfill.py")))
    assert np.array_equal(fair.start, again.start)


def test_a_policy_is_shown_forecasts_and_never_run_times(tmp_path):
    """Two logs that differ in how long the last job really runs; all that a policy sees until its end is the same."""
    text = "seen = []\ndef choose(queue, machine):\n    seen.append((repr(queue), repr(machine)))\n    return [0]\n"
    shown = []
    for last in (5, 9):
        ones = np.ones(3, dtype=np.int64)
        jobs = BatchJobs("", 2, ones, np.array([0, 1, 2]), np.array([1, 1, last]), ones, 10 * ones, ones)
        mine = policy(tmp_path, text)
        run_user_policy(jobs, mine)
        shown.append(mine._made.__globals__["seen"])
    assert shown[0] == shown[1]
    assert len(shown[0]) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def choose(queue, machine):\n    return [1 / 0]\n", "mine.py:2: in choose: ZeroDivisionError: division"),
        ("import numpy as np\ndef choose(q, m):\n    return f(q)\ndef f(q):\n    return np.ones(3) @ np.ones(2)\n",
         "mine.py:5: in f: ValueError: matmul"),
        ("def choose(queue, machine)\n    return []\n", "mine.py:1: SyntaxError: expected ':'"),
        ("import no_such_module\n", "mine.py:1: in <module>: ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = 1\n", "mine.py: defines no class Policy and no function choose"),
        ("class Policy:\n    def pick(self, queue, machine): ...\n", "mine.py: class Policy has no method choose("),
        ("class Policy:\n    def __init__(self, a): ...\n", "mine.py: TypeError: Policy.__init__() missing 1 required"),
        ("def choose(queue): ...\n", "mine.py: TypeError: choose() takes 1 positional argument but 2 were given"),
        ("def choose(queue, machine):\n    return [7]\n", "mine.py: mine chose index 7 at 0 s in a queue of 1"),
        ("def choose(queue, machine):\n    return [0, 0]\n", "mine.py: mine chose an index twice at 0 s"),
        ("def choose(queue, machine):\n    return 'all'\n", "mine.py: mine answered 'a' at 0 s, which is no index"),
        ("def choose(queue, machine):\n    return 1.5\n", "mine.py: mine answered float at 0 s; a list of indices"),
        ("def choose(queue, machine):\n    return range(len(queue))\n",
         "mine.py: mine chose job 2 at 1 s, which needs 3 processors where 1 are free"),
        ("def choose(queue, machine):\n    return None\n", "mine.py: mine left 2 jobs waiting for ever, job 1 first"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_users_file_is_one_line_that_names_it(tmp_path, text, words):
    pair = np.array([1, 2])
    jobs = BatchJobs("", 4, pair, np.array([0, 1]), 9 * pair, np.array([3, 3]), 9 * pair, pair)
    with pytest.raises(InputError) as caught:
        run_user_policy(jobs, policy(tmp_path, text))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_a_module_like_any_other(tmp_path):
    text = """
from __future__ import annotations
from dataclasses import dataclass, field

@dataclass
class Policy:
    seen: dict[int, int] = field(default_factory=dict)

    def submitted(self, job):
        self.seen[job.number] = job.submit

    def choose(self, queue, machine):
        assert set(queue.job.tolist()) <= set(self.seen)
        return 0 if queue.demand[0] <= machine.free else None
"""
    jobs = random_jobs(50)
    assert faults_of(jobs, run_user_policy(jobs, policy(tmp_path, text))) == []


def test_a_file_called_as_one_of_our_policies_is_not_held_to_its_promises(tmp_path):
    jobs = random_jobs(200)
    last_first = (
        "def choose(queue, machine):\n    return [len(queue) - 1] if queue.demand[-1] <= machine.free else []\n"
    )
    schedule = run_user_policy(jobs, policy(tmp_path, last_first, "fcfs.py"))
    assert schedule.policy == "fcfs.py"
    assert faults_of(jobs, schedule) == []


def test_a_file_may_hold_several_policies_and_one_is_named_behind_a_colon(tmp_path):
    text = "def first(queue, machine):\n    '''The first.'''\n    return 0\nclass Policy:\n    choose = None\n"
    path = tmp_path / "mine.py"
    path.write_text(text)
    chosen = load_policy(f"{path}:first")
    assert (chosen.name, chosen.summary) == ("mine:first", "The first.")
    with pytest.raises(InputError, match=r"mine.py: defines no 'second'"):
        load_policy(f"{path}:second")
    with pytest.raises(InputError, match=r"none.py: can't be read: No such file"):
        load_policy(str(tmp_path / "none.py"))
    assert [is_policy_file(name) for name in ("./a.py", "a.py:b", "easy", "easy.pyc")] == [True, True, False, False]
