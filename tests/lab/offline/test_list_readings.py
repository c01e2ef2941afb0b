"""Lists placed in other ways than into the first hole, against slow implementations, and what HYBRID can't beat."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_lab.offline import bounds
from cotide_lab.offline.hybrid import high_demand, hybrid
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.lists.list_scheduling import list_schedule, on_given
from cotide_lab.offline.lists.whatever_fits import whatever_fits
from cotide_lab.offline.lists.without_overtaking import in_order
from cotide_lab.offline.schedule import Schedule, first_fault, total_completion


def jobs_of(*pairs: tuple[int, int], capacity: int = 10) -> JobList:
    """Jobs as (size, demand)."""
    return JobList(np.array([p for p, _ in pairs], np.int64), np.array([d for _, d in pairs], np.int64), capacity)


@st.composite
def lists(draw: st.DrawFn) -> tuple[JobList, int, np.ndarray, np.ndarray | None]:
    """Jobs of 10-unit machines, how many machines, an order, and machines chosen beforehand or none."""
    pairs = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 10)), max_size=25))
    machines = draw(st.integers(1, 4))
    order = np.array(draw(st.permutations(range(len(pairs)))), np.int64)
    chosen = draw(st.none() | st.lists(st.integers(0, machines - 1), min_size=len(pairs), max_size=len(pairs)))
    return jobs_of(*pairs), machines, order, None if chosen is None else np.array(chosen, np.int64)


def slow_in_order(jobs: JobList, machines: int, order: np.ndarray, chosen: np.ndarray | None, across: bool) -> Schedule:
    """From the definition: the first time, not before the list's last start, at which what still runs leaves room."""
    starts, where = np.zeros(len(jobs), np.int64), np.full(len(jobs), -1, np.int64)
    placed: list[int] = []
    for job in order:
        found = []
        for machine in range(machines) if chosen is None else [int(chosen[job])]:
            there = [one for one in placed if where[one] == machine]
            earlier = placed if across else there
            time = max((int(starts[one]) for one in earlier), default=0)
            while sum(int(jobs.demands[one]) for one in there if starts[one] + jobs.sizes[one] > time) > int(
                jobs.capacity - jobs.demands[job]
            ):
                time += 1
            found.append((time, machine))
        starts[job], where[job] = min(found)
        placed.append(int(job))
    return Schedule(starts, where)


def slow_whatever_fits(jobs: JobList, machines: int, order: np.ndarray, chosen: np.ndarray | None) -> Schedule:
    """Slot by slot: every waiting job in order, on the first machine that has room now."""
    starts, where = np.full(len(jobs), -1, np.int64), np.full(len(jobs), -1, np.int64)
    for time in itertools.count():
        for job in order:
            if starts[job] >= 0:
                continue
            for machine in range(machines) if chosen is None else [int(chosen[job])]:
                held = sum(
                    int(jobs.demands[one])
                    for one in order
                    if where[one] == machine and starts[one] + jobs.sizes[one] > time
                )
                if held + jobs.demands[job] <= jobs.capacity:
                    starts[job], where[job] = time, machine
                    break
        if (starts >= 0).all():
            return Schedule(starts, where)
    raise AssertionError


@given(lists(), st.booleans())
@settings(deadline=None)  # the first example compiles
def test_lists_without_overtaking_are_as_the_definition_has_them(case, across: bool) -> None:
    jobs, machines, order, chosen = case
    found = in_order(jobs, machines, order, chosen, across=across)
    slow = slow_in_order(jobs, machines, order, chosen, across)
    assert (found.starts.tolist(), found.machines.tolist()) == (slow.starts.tolist(), slow.machines.tolist())
    assert first_fault(jobs, machines, found) is None


@given(lists())
@settings(deadline=None)
def test_whatever_fits_starts_slot_by_slot(case) -> None:
    jobs, machines, order, chosen = case
    found = whatever_fits(jobs, machines, order, chosen)
    slow = slow_whatever_fits(jobs, machines, order, chosen)
    assert (found.starts.tolist(), found.machines.tolist()) == (slow.starts.tolist(), slow.machines.tolist())
    assert first_fault(jobs, machines, found) is None


def test_four_ways_to_place_one_list() -> None:
    # One machine of 10. Job 0 holds 6 for 4, job 1 wants 6 and waits, job 2 wants 4 for 9, job 3 wants 4 for 4.
    jobs = jobs_of((4, 6), (4, 6), (9, 4), (4, 4))
    order = np.arange(4)
    # Into holes: job 2 fits beside both, job 3 then follows it at 9, when job 1 (4 to 8) has gone, too.
    assert list_schedule(jobs, 1, "sjf", "ef").starts.tolist() == [0, 4, 4, 0]
    assert on_given(jobs, 1, order, np.zeros(4, np.int64)).starts.tolist() == [0, 4, 0, 8]
    # No overtaking: job 2 may not start before job 1, at 4.
    assert in_order(jobs, 1, order).starts.tolist() == [0, 4, 4, 8]
    assert whatever_fits(jobs, 1, order).starts.tolist() == [0, 4, 0, 8]


def test_starts_never_fall_across_machines() -> None:
    # Job 1 fills machine 1 until 5. Job 2 wants a whole machine: machine 0 is free at 2. Job 3 would fit at 0 nowhere.
    jobs = jobs_of((2, 10), (5, 6), (4, 10), (1, 4))
    order = np.arange(4)
    assert in_order(jobs, 2, order).starts.tolist() == [0, 0, 2, 0]
    assert in_order(jobs, 2, order, across=True).starts.tolist() == [0, 0, 2, 2]


@st.composite
def instances(draw: st.DrawFn) -> JobList:
    sizes = st.one_of(st.integers(1, 8), st.integers(1, 2000))
    return jobs_of(*draw(st.lists(st.tuples(sizes, st.integers(1, 20)), max_size=40)), capacity=20)


@given(instances(), st.integers(2, 9))
@settings(deadline=None)
def test_hybrid_relisted_is_never_above_hybrid_or_svf_ef(jobs: JobList, machines: int) -> None:
    cost = total_completion(jobs, hybrid(jobs, machines, relist=True))
    assert cost <= total_completion(jobs, hybrid(jobs, machines))
    assert cost <= total_completion(jobs, list_schedule(jobs, machines, "svf", "ef"))


@given(instances(), st.integers(2, 9))
@settings(deadline=None, max_examples=40)
def test_no_schedule_with_the_sets_apart_is_below_its_floor(jobs: JobList, machines: int) -> None:
    high = np.flatnonzero(high_demand(jobs))
    low = np.flatnonzero(~high_demand(jobs))
    for split in range(1, machines):
        for order in ("sjf", "svf", "sdf"):
            cost = total_completion(jobs.taken(high), list_schedule(jobs.taken(high), split, order, "ef"))
            cost += total_completion(jobs.taken(low), list_schedule(jobs.taken(low), machines - split, order, "ef"))
            assert bounds.apart_floor(jobs, machines, split) <= cost * (1 + 1e-9)


def best_of_all(jobs: JobList) -> int:
    """The optimum on one machine: some order gives it (each job at its first hole)."""
    zeros = np.zeros(len(jobs), np.int64)
    return min(
        total_completion(jobs, on_given(jobs, 1, np.array(order, np.int64), zeros))
        for order in itertools.permutations(range(len(jobs)))
    )


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 10)), min_size=1, max_size=5))
@settings(deadline=None, max_examples=40)
def test_floors_are_no_higher_than_the_optimum_found_by_trying_everything(pairs) -> None:
    jobs = jobs_of(*pairs)
    assert bounds.volume_floor(jobs, 1) <= best_of_all(jobs) * (1 + 1e-9)
    high, low = jobs.taken(np.flatnonzero(high_demand(jobs))), jobs.taken(np.flatnonzero(~high_demand(jobs)))
    assert bounds.apart_floor(jobs, 2, 1) <= (best_of_all(high) + best_of_all(low)) * (1 + 1e-9)


def test_the_floor_from_volumes_by_hand() -> None:
    # Volumes 4 and 12 on one machine of 10: busy dates .2 and .4 + .6 = 1; half of the sizes 2 + 3: 1 + 1.5.
    assert bounds.volume_floor(jobs_of((2, 2), (3, 4)), 1) == pytest.approx(0.2 + 1.0 + 2.5)
    # A demand of 6 of 10 is high: alone on its machine it ends at 5. The other one needs its 3.
    assert bounds.apart_floor(jobs_of((5, 6), (3, 4)), 2, 1) == pytest.approx(5 + 3)
