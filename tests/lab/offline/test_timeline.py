"""The timeline of blocks beside one entry a slot, and list scheduling beside a few obvious lines."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.lists.list_scheduling import ASSIGNMENTS, list_schedule
from cotide_lab.offline.lists.timeline import NEVER, earliest_start, empty_timelines, leave_behind, reserve
from cotide_lab.offline.orders import ORDERS
from cotide_lab.offline.schedule import Schedule, first_fault, stretches, total_completion


def jobs_of(*pairs: tuple[int, int], capacity: int = 10) -> JobList:
    """Jobs as (size, demand)."""
    return JobList(np.array([p for p, _ in pairs], np.int64), np.array([d for _, d in pairs], np.int64), capacity)


class Slots:
    """The reference: what is held in each slot of one machine, one number a slot."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.held = capacity, [0] * 4

    def earliest(self, demand: int, size: int) -> int:
        start = 0
        while True:
            self.held += [0] * (start + size - len(self.held))
            if all(self.held[slot] + demand <= self.capacity for slot in range(start, start + size)):
                return start
            start += 1

    def reserve(self, demand: int, size: int, start: int) -> None:
        for slot in range(start, start + size):
            self.held[slot] += demand


def by_slots(jobs: JobList, machines: int, order: list[int]) -> list[tuple[int, int]]:
    """EF by the reference: (start, machine) of each job."""
    lines = [Slots(jobs.capacity) for _ in range(machines)]
    placed = [(-1, -1)] * len(jobs)
    for job in order:
        size, demand = int(jobs.sizes[job]), int(jobs.demands[job])
        placed[job] = min((line.earliest(demand, size), number) for number, line in enumerate(lines))
        lines[placed[job][1]].reserve(demand, size, placed[job][0])
    return placed


REQUESTS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 10)), max_size=40)


@given(REQUESTS)
@settings(deadline=None)  # the first example compiles the kernels
def test_a_timeline_answers_as_one_entry_a_slot_does(requests: list[tuple[int, int]]) -> None:
    lines, slots = empty_timelines(1, 10, len(requests)), Slots(10)
    for size, demand in requests:
        start = slots.earliest(demand, size)
        assert earliest_start(lines, 0, demand, size, NEVER) == start
        assert earliest_start(lines, 0, demand, size, start + 1) == start
        assert earliest_start(lines, 0, demand, size, start) == start
        slots.reserve(demand, size, start)
        reserve(lines, 0, demand, size, start)


@given(seed=st.integers(0, 2**32), smallest=st.integers(1, 4))
@settings(max_examples=15, deadline=None)
def test_a_timeline_of_many_blocks_answers_as_one_entry_a_slot_does(seed: int, smallest: int) -> None:
    # 250 reservations make up to 500 segments: with 64 a block, splits are many.
    generator = np.random.default_rng(seed)
    lines, slots = empty_timelines(1, 20, 250), Slots(20)
    for _ in range(250):
        size, demand = int(generator.integers(1, 30)), int(generator.integers(smallest, 21))
        if generator.random() < 0.2:  # windows that reach over whole blocks
            size, demand = 400, smallest
        leave_behind(lines, 0, smallest)
        start = slots.earliest(demand, size)
        assert earliest_start(lines, 0, demand, size, NEVER) == start
        slots.reserve(demand, size, start)
        reserve(lines, 0, demand, size, start)
    assert lines.used[0] > 3
    for block in range(lines.used[0]):
        free = lines.free[block, : lines.length[block]]
        assert (lines.most[block], lines.least[block]) == (free.max(), free.min())


@given(REQUESTS, st.integers(1, 4), st.sampled_from(sorted(ORDERS)))
@settings(deadline=None)  # the first example compiles the kernels
def test_earliest_feasible_places_each_job_where_the_reference_does(
    requests: list[tuple[int, int]], machines: int, order: str
) -> None:
    jobs = jobs_of(*requests)
    schedule = list_schedule(jobs, machines, order, "ef")
    expected = by_slots(jobs, machines, ORDERS[order](jobs).tolist())
    assert list(zip(schedule.starts.tolist(), schedule.machines.tolist(), strict=True)) == expected


@given(REQUESTS, st.integers(1, 4), st.sampled_from([*ORDERS, "random"]), st.sampled_from(ASSIGNMENTS))
@settings(deadline=None)  # the first example compiles the kernels
def test_every_list_schedule_is_feasible(
    requests: list[tuple[int, int]], machines: int, order: str, assignment: str
) -> None:
    jobs = jobs_of(*requests)
    assert first_fault(jobs, machines, list_schedule(jobs, machines, order, assignment)) is None  # type: ignore[arg-type]


def test_a_small_job_runs_in_the_hole_that_larger_ones_left() -> None:
    # SJF on one machine of 10: 6 units in [0, 2); 7 do not fit beside them, so [2, 5); 4 for 4 slots do not fit beside
    # 7 from slot 2 on, so from 5; 3 for 5 slots fit from 0 on.
    jobs = jobs_of((2, 6), (3, 7), (4, 4), (5, 3))
    assert list_schedule(jobs, 1, "sjf", "ef").starts.tolist() == [0, 2, 5, 0]


def test_least_work_counts_volume_and_not_size() -> None:
    # In SJF order: machine 0 gets 1 x 10 = 10, machine 1 gets 2 x 1 = 2 and then, with less work, 3 x 1 = 3 as well.
    assert list_schedule(jobs_of((1, 10), (2, 1), (3, 1)), 2, "sjf", "lw").machines.tolist() == [0, 1, 1]


def test_the_three_orders_differ_and_keep_ties_in_job_order() -> None:
    jobs = jobs_of((4, 1), (1, 9), (2, 2), (2, 2))
    assert {name: order(jobs).tolist() for name, order in ORDERS.items()} == {
        "sjf": [1, 2, 3, 0],
        "sdf": [0, 2, 3, 1],
        "svf": [0, 2, 3, 1],  # volumes 4, 9, 4, 4
    }


def test_random_draws_depend_on_the_generator_alone() -> None:
    jobs = jobs_of(*((1 + n % 5, 1 + n % 7) for n in range(50)))

    def starts(seed: int) -> list[int]:
        return list_schedule(jobs, 3, "random", "random", np.random.default_rng(seed)).starts.tolist()

    assert starts(1) == starts(1)
    assert starts(1) != starts(2)


def test_the_judge_finds_what_is_infeasible() -> None:
    jobs = jobs_of((2, 6), (2, 5))

    def fault(starts: list[int], machines: list[int]) -> str | None:
        return first_fault(jobs, 2, Schedule(np.array(starts), np.array(machines)))

    assert fault([0, 0], [0, 1]) is None
    assert fault([0, 2], [0, 0]) is None
    assert fault([0, 1], [0, 0]) == "machine 0 holds 11 of 10 units at time 1"
    assert fault([0, -1], [0, 1]) == "job 1 starts before time 0"
    assert fault([0, 0], [0, 2]) == "job 1 runs on no machine of 0 to 1"
    assert fault([0], [0]) == "1 starts and 1 machines for 2 jobs"


def test_completion_and_stretch_are_counted_from_time_0() -> None:
    # Completions 2 and 2 + 4 = 6; stretches 2/2 and 6/4.
    jobs = jobs_of((2, 6), (4, 5))
    schedule = Schedule(np.array([0, 2]), np.array([0, 0]))
    assert total_completion(jobs, schedule) == 8
    assert stretches(jobs, schedule).tolist() == [1.0, 1.5]


@pytest.mark.parametrize(
    ("sizes", "demands", "capacity", "message"),
    [
        ([1, 0], [1, 1], 5, "sizes: job 1: 0 is outside"),
        ([1, 1], [1, 6], 5, "demands: job 1: 6 is outside 1 to 5"),
        ([1], [1, 1], 5, "demands: "),
        ([1], [1], 0, "capacity: 0 units"),
        ([1 << 60], [8], 8, "sizes: the volumes"),
    ],
)
def test_an_instance_that_makes_no_sense_is_refused(
    sizes: list[int], demands: list[int], capacity: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        JobList(np.array(sizes), np.array(demands), capacity)


def test_unknown_orders_and_no_machines_are_refused() -> None:
    with pytest.raises(InputError, match="no order"):
        list_schedule(jobs_of((1, 1)), 1, "fifo", "ef")
    with pytest.raises(InputError, match="0 machines"):
        list_schedule(jobs_of((1, 1)), 0, "sjf", "ef")


DIGEST = """
import numpy as np
from cotide_lab.offline.algorithms import ALGORITHMS
from cotide_lab.offline.job_list import JobList
draw = np.random.default_rng(5)
jobs = JobList(draw.integers(1, 40, 300), draw.integers(1, 201, 300), 200)
for name, algorithm in ALGORITHMS.items():
    machines = 1 if name == "single" else 3
    schedule = algorithm(jobs, machines, np.random.default_rng(1))
    print(name, schedule.starts.tolist(), schedule.machines.tolist())
"""


def test_schedules_are_the_same_without_compilation() -> None:
    texts = [
        subprocess.run(
            [sys.executable, "-c", DIGEST], env={**os.environ, **extra}, capture_output=True, text=True, check=True
        ).stdout
        for extra in ({}, {"NUMBA_DISABLE_JIT": "1"})
    ]
    assert texts[0].startswith("sjf-ef")
    assert texts[0] == texts[1]
