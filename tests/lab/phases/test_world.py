"""The world of phases: times by hand, rules side by side, and what a run must never do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotide_core.errors import InputError
from cotide_core.phases.profile import Phase, Profile
from cotide_lab.phases.mixes import mix
from cotide_lab.phases.rules import RULES, groups_of, slowed
from cotide_lab.phases.tables import tables
from cotide_lab.phases.utility import Weights
from cotide_lab.phases.workload import Stage, Workload, stragglers
from cotide_lab.phases.world import bound, refused, run, slowed_share

NARROW = Profile((Phase("shuffle", (1000, 1), 10_000), Phase("reduce", (4000, 1), 5000)))


def phased(*stages: Stage, submitted: tuple[int, ...] = (0,), cores: int = 4) -> Workload:
    tasks = sum(stage.tasks for stage in stages)
    return Workload(
        name="by hand",
        kinds=("job",) * len(submitted),
        submitted=np.array(submitted, np.int64),
        stages=stages,
        factor=np.ones(tasks),
        capacity=np.array([[1000 * cores, 100]], np.int64),
    )


def test_task_level_runs_one_after_the_other_where_phases_overlap() -> None:
    two = phased(Stage(0, NARROW, 2, reduces=False))
    # The largest phase takes all four cores: 15 s + 15 s.
    assert run(two, "task").job_seconds.tolist() == [30.0]
    # Both shuffle at once, then reduce in turn: 10 + 5 + 5 s; one paused for 5 s.
    outcome = run(two, "phases")
    assert outcome.job_seconds.tolist() == [20.0]
    assert outcome.longest_pause_seconds == 5.0
    # 2 x (10 s x 1 core + 5 s x 4 cores) in 20 s of 4 cores
    assert outcome.utilisation[0] == pytest.approx(60 / 80)


def test_a_task_may_have_to_wait_for_the_largest_of_its_needs_and_for_a_kubelet() -> None:
    two = phased(Stage(0, NARROW, 2, reduces=False))
    # The second starts when the first is done; each waits a second for its four cores: 2 x (10 + 1 + 5) s.
    outcome = run(two, "fifo", Weights(whole=1), growing_milliseconds=1000)
    assert outcome.job_seconds.tolist() == [32.0]
    assert outcome.longest_pause_seconds == 0.0


def test_tasks_that_grow_together_are_dealt_to_different_nodes() -> None:
    two = phased(Stage(0, NARROW, 2, reduces=False))
    outcome = run(replace(two, capacity=np.repeat(two.capacity, 2, axis=0)), "phases")
    assert (outcome.job_seconds.tolist(), outcome.longest_pause_seconds) == ([15.0], 0.0)


@pytest.mark.parametrize(("rule", "second"), [("fifo", 1.9), ("task-fifo", 1.9), ("drf", 2.9)])
def test_by_arrival_the_first_job_has_all_its_tasks_before_the_next_starts(rule: str, second: float) -> None:
    # The 4 cores are free at 1 s. The second job's four tasks then run before the third's and end at 2 s; by shares two
    # of each run at a time, and both jobs end at 3 s.
    whole, quick = Profile((Phase("map", (4000, 1), 1000),)), Profile((Phase("map", (1000, 1), 1000),))
    stages = (Stage(0, whole, 1, reduces=False), *(Stage(job, quick, 4, reduces=False) for job in (1, 2)))
    outcome = run(phased(*stages, submitted=(0, 100, 200)), rule)
    assert outcome.job_seconds.tolist() == [1.0, second, 2.8]


def test_a_stage_opens_when_the_one_before_is_done() -> None:
    quick = Profile((Phase("map", (1000, 1), 3000),))
    both = phased(Stage(0, quick, 4, reduces=False), Stage(0, quick, 1, reduces=True))
    assert run(both, "phases").job_seconds.tolist() == [6.0]


@pytest.mark.parametrize("rule", RULES)
def test_the_same_workload_gives_the_same_run_and_no_rule_beats_the_bound(rule: str) -> None:
    small = mix("puma", 1, 3)
    first, second = run(small, rule), run(small, rule)
    assert first.job_seconds.tolist() == second.job_seconds.tolist()
    assert first.job_seconds.mean() >= bound(small)
    assert (first.utilisation <= 1).all()


def test_slots_are_as_large_as_the_largest_task() -> None:
    wide = Profile((Phase("map", (2000, 60), 3000),))
    _, capacity = groups_of(
        "slots", phased(Stage(0, NARROW, 2, reduces=False), Stage(0, wide, 1, reduces=True), cores=8)
    )
    assert capacity.sum() == 1  # 100 bytes hold one task of 60, 8 cores two of 4


def test_a_phase_that_is_given_half_of_what_it_needs_takes_twice_as_long() -> None:
    phase = Phase("sort", (500, 800), 4000)
    assert slowed(phase, (250, 800)) == 8000
    assert slowed(phase, (250, 200)) == 16_000
    assert slowed(phase, (900, 900)) == 4000


def test_a_whole_task_of_half_its_cpu_lets_two_run_at_once_and_slows_only_what_needs_more() -> None:
    two = phased(Stage(0, NARROW, 2, reduces=False))
    # 2 of 4 cores each: the shuffle needs one and takes 10 s, the reduce needs four and takes 10 s in place of 5 s.
    assert run(two, "task", size=0.5).job_seconds.tolist() == [20.0]
    assert run(two, "slots", size=0.5).job_seconds.tolist() == [20.0]
    # By phases both shuffle on a core each, then reduce on two each: the 20 s that two reduces in turn take, too.
    assert run(two, "drf", size=0.5).job_seconds.tolist() == [20.0]
    assert run(two, "drf", size=0.5).longest_pause_seconds == 0.0
    assert run(two, "drf").longest_pause_seconds == 5.0


def test_the_printed_utility_leaves_idle_what_a_job_would_hold_beyond_its_fair_share() -> None:
    # Two jobs on 4 cores; the first is one task of 12 s on one core, the second eight of 3 s on one core each. By the
    # printed utility the second holds two cores, its fair share, until it ends at 12 s, and one core idles: a third
    # costs 0.5 fair shares, and saves 0.0001 x (8/2 - 8/3) waves. The logarithm lets three run at once.
    quick, long = Profile((Phase("map", (1000, 1), 3000),)), Profile((Phase("map", (1000, 1), 12_000),))
    two = phased(Stage(0, long, 1, reduces=False), Stage(1, quick, 8, reduces=False), submitted=(0, 0))
    assert run(two, "printed").job_seconds.tolist() == [12.0, 12.0]
    assert run(two, "phases").job_seconds.tolist() == [12.0, 9.0]


def test_a_scheduler_that_starts_nothing_is_slower_than_one_task_after_the_other() -> None:
    two = phased(Stage(0, NARROW, 2, reduces=False), Stage(1, NARROW, 1, reduces=False), submitted=(0, 1000))
    # Three tasks of 15 s after the last submission at 1 s.
    assert refused(two).job_seconds.tolist() == [46.0, 45.0]
    assert refused(two).utilisation.tolist() == [0.0, 0.0]


def test_misstated_needs_stay_within_the_share_and_the_truth_does_not_change() -> None:
    before = mix("gridmix", 1, 5)
    after = before.misstated(0.5, 5)
    assert any(stage.stated != stage.true for stage in after.stages)
    for old, new in zip(before.stages, after.stages, strict=True):
        assert new.true is old.true
        assert new.stated is not None
        for true, stated in zip(new.true.phases, new.stated.phases, strict=True):
            assert all(0.49 * a <= b <= 1.51 * a for a, b in zip(true.need, stated.need, strict=True))


def test_one_task_in_twenty_is_a_straggler() -> None:
    factor = stragglers(100_000, np.random.default_rng(0))
    assert 0.045 < (factor > 1.6).mean() < 0.055
    assert np.median(factor) == pytest.approx(1.0, abs=0.05)


def test_two_equal_jobs_that_share_equally_are_not_slowed_and_one_that_waits_is() -> None:
    submitted, work = np.zeros(2, np.int64), np.array([[10.0], [10.0]])  # seconds of the whole cluster
    assert slowed_share(submitted, np.array([20_000, 20_000]), work, np.ones(2)) == 0.0
    # Alone on a half, each takes 20 s: one that ends after 30 s while the other ended at 10 s shared with 4/3 jobs.
    assert slowed_share(submitted, np.array([10_000, 30_000]), work, np.ones(2)) == 0.5


def test_the_bound_serves_the_job_with_the_least_left_first() -> None:
    # 4 cores: jobs of 8 and 2 core-seconds at 0: the short one ends after 0.5 s, the long one after 2.5 s.
    long = Profile((Phase("map", (1000, 1), 1000),))
    two = phased(Stage(0, long, 8, reduces=False), Stage(1, long, 2, reduces=False), submitted=(0, 0))
    assert bound(two) == pytest.approx(1.5)


def test_the_bound_lets_a_shorter_job_come_before_one_that_runs() -> None:
    long = Profile((Phase("map", (1000, 1), 1000),))
    two = phased(Stage(0, long, 16, reduces=False), Stage(1, long, 4, reduces=False), submitted=(0, 1000))
    # The first has 3 of 4 s left at 1 s; the second takes 1 s, and the first ends at 5 s: (5 + 1) / 2.
    assert bound(two) == pytest.approx(3.0)


def test_a_task_larger_than_any_node_is_refused() -> None:
    with pytest.raises(InputError, match="no node has room"):
        tables([(0, NARROW, 1)], np.array([[3000, 100]]))
