"""Algorithm 2 on arrays: by example, against the printed one, and the laws that the paper leaves out."""

from __future__ import annotations

import numpy as np
import phase_reference as reference
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.phases.profile import Phase, Profile
from cotide_lab.phases.node_report import desk, end_phase, open_group, report
from cotide_lab.phases.safe_state import stays_safe
from cotide_lab.phases.tables import DONE, NONE, OPEN, PAUSED, RUNNING, WAITING, Nodes, Work, tables
from cotide_lab.phases.utility import DISTANCE, EPSILON, FLOOR, LOGARITHM, Weights

NEVER = 10**12
UNBOUNDED = Weights(pause_milliseconds=NEVER, start_milliseconds=NEVER, overcommit=1e9, shortness=0.0)
"""As the paper prints it."""


def chain(*needs: tuple[int, int], seconds: float = 10) -> Profile:
    return Profile(tuple(Phase(str(number), need, int(1000 * seconds)) for number, need in enumerate(needs)))


def one_node(groups: list[tuple[int, Profile, int]], *, cores: int = 8, memory: int = 8) -> tuple[Work, Nodes]:
    work, nodes = tables(groups, np.array([[cores, memory]]))
    for group in range(len(groups)):
        open_group(work, group, 0)
    work.counts[0] = len(work.held)
    return work, nodes


def granted(work: Work, nodes: Nodes, now: int = 0, weights: Weights = UNBOUNDED, node: int = 0) -> list[int]:
    room = desk(work)
    return room.granted[: report(work, nodes, weights, node, now, room)].tolist()


def test_a_node_starts_as_many_tasks_as_their_first_phases_fit() -> None:
    work, nodes = one_node([(0, chain((2, 1), (1, 1)), 9)])
    assert granted(work, nodes) == [0, 1, 2, 3]
    assert nodes.free.tolist() == [[0, 4]]


def test_a_phase_that_needs_less_goes_on_at_once_and_gives_back() -> None:
    work, nodes = one_node([(0, chain((4, 3), (1, 2)), 1)])
    granted(work, nodes)
    assert end_phase(work, nodes, 0, 5000) == RUNNING
    assert nodes.free.tolist() == [[7, 6]]


def test_a_phase_that_needs_more_pauses_and_holds_no_cpu_and_the_lesser_memory() -> None:
    work, nodes = one_node([(0, chain((4, 3), (6, 2)), 1)])
    granted(work, nodes)
    assert end_phase(work, nodes, 0, 5000) == PAUSED
    assert nodes.free.tolist() == [[8, 6]]
    assert granted(work, nodes, 6000) == [0]
    assert nodes.free.tolist() == [[2, 6]]


def test_a_task_that_ends_gives_all_back() -> None:
    work, nodes = one_node([(0, chain((4, 3)), 1)])
    granted(work, nodes)
    assert end_phase(work, nodes, 0, 9000) == DONE
    assert nodes.free.tolist() == [[8, 8]]
    assert work.held.tolist() == [[0, 0]]


def test_tasks_that_would_wait_for_each_other_for_ever_are_not_all_started() -> None:
    # Each holds 2 of 8 and will want 6: three leave 2 + 2 for the one that ends first, which is 4 short of 6 - 2 = 4.
    work, nodes = one_node([(0, chain((1, 2), (1, 6)), 9)])
    assert granted(work, nodes) == [0, 1]
    assert stays_safe(work, nodes, 0, NONE, 0) is False


def test_the_job_with_the_lower_dominant_share_comes_first() -> None:
    work, nodes = one_node([(0, chain((2, 1)), 2), (1, chain((2, 1)), 2)], cores=6)
    assert granted(work, nodes) == [0, 2, 1] or granted(work, nodes) == [2, 0, 3]


def test_a_pause_beyond_its_bound_stops_new_starts_on_its_node() -> None:
    weights = Weights(pause_milliseconds=1000, start_milliseconds=NEVER)
    work, nodes = one_node([(0, chain((1, 3), (1, 7)), 1), (1, chain((1, 3)), 9)])
    assert sorted(granted(work, nodes, weights=weights)) == [0, 1]
    assert end_phase(work, nodes, 0, 100) == PAUSED
    end_phase(work, nodes, 1, 1200)
    assert granted(work, nodes, 1200, weights) == [0]  # 1,100 ms paused: no task of job 1 goes before it


def test_a_node_starts_no_more_than_it_can_expect_to_serve() -> None:
    # 10 s of 1 core and 10 s of 7: 4 in the mean. Of 8 cores 1.5 times are 12, so three, and 12 - 4 + 7 once one grew.
    weights = UNBOUNDED._replace(overcommit=1.5)
    work, nodes = one_node([(0, chain((1, 1), (7, 1)), 9)])
    assert granted(work, nodes, weights=weights) == [0, 1, 2]
    assert nodes.expected.tolist() == [[12, 3]]
    end_phase(work, nodes, 0, 100)
    assert nodes.expected.tolist() == [[15, 3]]
    assert granted(work, nodes, 100, weights) == []
    end_phase(work, nodes, 1, 100)
    end_phase(work, nodes, 2, 100)
    assert granted(work, nodes, 100, weights) == [0]
    assert [end_phase(work, nodes, task, 200) for task in (0,)] == [DONE]
    assert nodes.expected.tolist() == [[14, 2]]


@pytest.mark.parametrize(("measure", "slots"), [(LOGARITHM, 10), (DISTANCE, 5)])
def test_by_distance_one_of_two_jobs_is_declined_what_exceeds_its_fair_share(measure: int, slots: int) -> None:
    # Ten cores, two jobs, and only one has tasks that wait. Its fifth core is its fair share; the sixth costs 0.2 fair
    # shares, and saves 0.0001 x (20/5 - 20/6) waves: the utility is negative (Algorithm 2, lines 14 and 15).
    work, nodes = one_node([(0, chain((1, 1)), 20)], cores=10, memory=100)
    work.counts[0] = 2
    assert len(granted(work, nodes, weights=UNBOUNDED._replace(measure=measure))) == slots
    assert nodes.declined[0] == (slots < 10)


def test_a_high_weight_of_performance_grants_what_distance_alone_declines() -> None:
    # The sixth core: 0.5 x (20/5 - 20/6) = 0.33 above the loss of 0.2; the seventh 0.5 x (20/6 - 20/7) = 0.24, the
    # eighth 0.5 x (20/7 - 20/8) = 0.18 below it.
    work, nodes = one_node([(0, chain((1, 1)), 20)], cores=10, memory=100)
    work.counts[0] = 2
    assert len(granted(work, nodes, weights=UNBOUNDED._replace(measure=DISTANCE, alpha=0.5))) == 7


def test_of_jobs_with_equal_shares_the_one_with_less_left_comes_first_and_shares_still_count() -> None:
    # 3 and 9 equal tasks: a quarter and three quarters of all work.
    work, nodes = one_node([(0, chain((2, 1)), 9), (1, chain((2, 1)), 3)])
    assert work.left.tolist() == [0.75, 0.25]
    short = UNBOUNDED._replace(shortness=0.5)
    # A job without any gains log(0.25 x 2 / 0.01 + 1) = 3.9, with a task log(1.01 / 0.51) = 0.68 and then 0.4; being
    # short adds 0.5 log(1 / 0.75) = 0.14 or 0.5 log(1 / 0.25) = 0.69: each gets one, then the short one two more.
    assert granted(work, nodes, weights=short) == [9, 0, 10, 11]


def test_what_a_job_has_left_falls_with_each_task_that_is_done() -> None:
    # Tasks of 10 s with 4 of 8 cores, and of 10 s with 6 of 8 GB: 5 and 7.5 s of the node, twice and once; 17.5 in all.
    work, nodes = one_node([(0, chain((4, 1)), 2), (1, chain((1, 6)), 1)])
    assert work.left.tolist() == pytest.approx([10 / 17.5, 7.5 / 17.5])
    granted(work, nodes)
    assert end_phase(work, nodes, 0, 9000) == DONE
    assert work.left.tolist() == pytest.approx([5 / 17.5, 7.5 / 17.5])


def test_a_node_without_tasks_starts_one_whatever_it_expects() -> None:
    work, nodes = one_node([(0, chain((8, 8)), 2)])
    assert granted(work, nodes, weights=UNBOUNDED._replace(overcommit=0.5)) == [0]


def test_a_group_that_waits_too_long_has_a_node_kept_free() -> None:
    weights = Weights(pause_milliseconds=NEVER, start_milliseconds=1000)
    work, nodes = tables([(0, chain((8, 8)), 1), (1, chain((1, 1)), 99)], np.array([[8, 8]]))
    work.counts[0] = 2
    open_group(work, 1, 0)
    small = granted(work, nodes, 0, weights)
    assert len(small) == 8
    open_group(work, 0, 0)
    end_phase(work, nodes, small[0], 900)
    assert granted(work, nodes, 900, weights) == [9]
    end_phase(work, nodes, small[1], 1500)
    assert granted(work, nodes, 1500, weights) == []
    assert nodes.kept_for[0] == 0
    for task in [*small[2:], 9]:
        end_phase(work, nodes, task, 3000)
    assert granted(work, nodes, 3000, weights) == [0]
    assert nodes.kept_for[0] == NONE


needs = st.tuples(st.integers(1, 6), st.integers(1, 6))
profiles = st.lists(needs, min_size=1, max_size=3).map(lambda chosen: chain(*chosen))
groups_of = st.lists(st.tuples(st.integers(0, 2), profiles, st.integers(1, 3)), min_size=1, max_size=3)


def twin(groups: list[tuple[int, Profile, int]]) -> list[reference.Job]:
    jobs = [reference.Job(number) for number in range(max(job for job, _, _ in groups) + 1)]
    number = 0
    for group, (job, profile, size) in enumerate(groups):
        for _ in range(size):
            jobs[job].tasks.append(reference.Task(number, jobs[job], group, [phase.need for phase in profile.phases]))
            number += 1
    return jobs


@settings(max_examples=60, deadline=None)
@given(groups=groups_of, measure=st.sampled_from([LOGARITHM, DISTANCE]), data=st.data())
def test_the_kernel_selects_what_the_printed_algorithm_selects(groups, measure, data) -> None:  # type: ignore[no-untyped-def]
    unbounded = UNBOUNDED._replace(measure=measure)
    work, nodes = one_node(groups)
    jobs = twin(groups)
    work.counts[0] = sum(bool(job.tasks) for job in jobs)
    weights = (UNBOUNDED.alpha, UNBOUNDED.wait_square, UNBOUNDED.wait_constant, FLOOR, EPSILON, measure)
    tasks = {task.number: task for job in jobs for task in job.tasks}
    for moment in range(6):
        now = 1000 * moment
        order = [*nodes.tasks[0, : nodes.held[0]].tolist()]
        for group in work.open[: work.counts[OPEN]]:
            order += np.flatnonzero((work.group == group) & (work.state == WAITING)).tolist()
        picked = granted(work, nodes, now, unbounded)
        assert picked == reference.report([tasks[one] for one in order], jobs, (8, 8), moment, weights)
        running = np.flatnonzero(work.state == RUNNING).tolist()
        if not running:
            return
        ending = data.draw(st.sampled_from(running))
        state = end_phase(work, nodes, ending, now)
        twin_task = tasks[ending]
        twin_task.paused_at = moment
        twin_task.state = {RUNNING: "running", PAUSED: "paused", DONE: "done"}[state]
        twin_task.phase += state != DONE
        twin_task.node = None if state == DONE else 0
        if state == DONE and not any(one.state != "done" for one in twin_task.job.tasks):
            work.counts[0] -= 1


@settings(max_examples=60, deadline=None)
@given(groups=groups_of, order=st.randoms(use_true_random=False))
def test_work_of_any_needs_comes_to_its_end_within_capacity(groups, order) -> None:  # type: ignore[no-untyped-def]
    """No starvation: while a task is left, something runs, whatever order phases end in."""
    work, nodes = one_node(groups)
    weights, now = Weights(pause_milliseconds=3000, start_milliseconds=5000), 0
    while (work.state != DONE).any():
        granted(work, nodes, now, weights)
        assert (nodes.free >= 0).all()
        running = np.flatnonzero(work.state == RUNNING).tolist()
        assert running
        now += 1000
        end_phase(work, nodes, order.choice(running), now)
    assert (nodes.free == nodes.capacity).all()
    assert (work.held == 0).all()


@settings(max_examples=40, deadline=None)
@given(big=st.lists(needs, min_size=2, max_size=3), bound=st.integers(1, 30))
def test_a_pause_lasts_at_most_its_bound_and_the_work_left_on_its_node(big, bound) -> None:  # type: ignore[no-untyped-def]
    """An endless stream of small tasks beside one that pauses: each phase takes 10 s."""
    small = chain((1, 1))
    work, nodes = one_node([(0, chain(*big), 1), (1, small, 2000)])
    weights = Weights(pause_milliseconds=1000 * bound, start_milliseconds=20_000)
    ends: list[tuple[int, int]] = []
    now = 0
    while work.state[0] != DONE:
        ends += [(now + 10_000, task) for task in granted(work, nodes, now, weights)]
        if work.state[0] == PAUSED:
            # What runs when the bound is reached ends within 10 s; a report comes with each end.
            assert now - work.paused[0] <= 1000 * bound + 10_000
        assert now <= 20_000 + 10_000 + len(big) * (1000 * bound + 20_000)
        ends.sort()
        now, task = ends.pop(0)
        if end_phase(work, nodes, task, now) == RUNNING:
            ends.append((now + 10_000, task))
