"""Small parts of the replay kernels: heap, ordered lists, availability profile; compiled and not compiled alike."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.kernels import compiled as compiled_module
from cotide_core.kernels.ordered_jobs import index_of, insert, remove_at
from cotide_lab.predictors.run_time.kernels.run_forecasts import GIVEN, LEARNED, corrected, past_of
from cotide_lab.trace_replay.kernels.profile import change, earlier_start, earliest_start, first_room, forget_past, move
from cotide_lab.trace_replay.kernels.time_heap import heap_pop, heap_push

unhurried = settings(deadline=None)  # the first call compiles
pairs = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50)), max_size=30)


def arrays(size):
    return np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)


@unhurried
@given(pairs)
def test_a_heap_gives_pairs_back_in_order(values):
    times, jobs = arrays(30)
    size = 0
    for time, job in values:
        size = heap_push(times, jobs, size, time, job)
    taken = []
    while size:
        taken.append((int(times[0]), int(jobs[0])))
        size = heap_pop(times, jobs, size)
    assert taken == sorted(values)


@unhurried
@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=30), st.randoms(use_true_random=False))
def test_an_ordered_list_stays_in_order_through_insertions_and_removals(values, rng):
    keys, jobs = arrays(30)
    size = 0
    for key, job in rng.sample(sorted(values), len(values)):
        size = insert(keys, jobs, size, key, job)
    gone = set(rng.sample(sorted(values), len(values) // 2))
    for key, job in gone:
        size = remove_at(keys, jobs, size, index_of(keys, jobs, size, key, job))
    assert list(zip(keys[:size].tolist(), jobs[:size].tolist(), strict=True)) == sorted(values - gone)


def build(blocks, capacity=10, horizon=60):
    """Return a profile with blocks (begin, seconds, demand) laid in, and the same as one number a second."""
    times, free = arrays(128)
    times[0], free[0], size = 0, capacity, 1
    seconds = np.full(horizon, capacity)
    for begin, length, demand in blocks:
        size = change(times, free, size, begin, begin + length, -demand)
        seconds[begin : begin + length] -= demand
    return times, free, size, seconds


blocks = st.lists(st.tuples(st.integers(0, 25), st.integers(1, 15), st.integers(1, 2)), max_size=5)


@unhurried
@given(blocks, st.integers(0, 30), st.integers(1, 12), st.integers(1, 10))
def test_the_earliest_start_is_the_first_second_that_fits(laid, now, length, demand):
    times, free, size, seconds = build(laid)
    found = earliest_start(times, free, size, now, length, demand)
    assert found == next(t for t in range(now, 60) if (seconds[t : t + length] >= demand).all())


@unhurried
@given(blocks, st.integers(0, 20), st.integers(1, 12), st.integers(1, 10))
def test_a_reserved_job_moves_to_the_first_second_that_fits_without_itself(laid, now, length, demand):
    times, free, size, seconds = build(laid)
    held = next(t for t in range(25, 60) if (seconds[t : t + length] >= demand).all())
    size = change(times, free, size, held, held + length, -demand)
    found = earlier_start(times, free, size, now, length, demand, held)
    assert found == next(t for t in range(now, 60) if (seconds[t : t + length] >= demand).all())


@unhurried
@given(blocks)
def test_a_profile_has_a_border_where_the_number_of_free_processors_changes_and_nowhere_else(laid):
    times, free, size, seconds = build(laid)
    borders = [0, *(t for t in range(1, 60) if seconds[t] != seconds[t - 1])]
    assert times[:size].tolist() == borders
    assert free[:size].tolist() == [int(seconds[t]) for t in borders]


@unhurried
@given(blocks, st.integers(0, 12), st.integers(1, 12), st.integers(1, 12), st.integers(1, 2))
def test_a_moved_reservation_leaves_the_profile_that_it_makes_when_it_is_laid_there_at_first(
    laid, begin, later, length, demand
):
    held = begin + later
    times, free, size, _ = build([*laid, (held, length, demand)], capacity=12)
    size = move(times, free, size, held, begin, length, demand)
    other_times, other_free, other_size, _ = build([*laid, (begin, length, demand)], capacity=12)
    assert times[:size].tolist() == other_times[:other_size].tolist()
    assert free[:size].tolist() == other_free[:other_size].tolist()


@unhurried
@given(blocks, st.integers(1, 10))
def test_the_first_room_is_the_first_segment_with_as_many_free(laid, demand):
    times, free, _, seconds = build(laid)
    assert times[first_room(free, demand)] == next(t for t in range(60) if seconds[t] >= demand)


@unhurried
@given(blocks, st.integers(0, 40))
def test_taking_everything_back_leaves_one_segment_and_the_past_can_be_forgotten(laid, now):
    times, free, size, seconds = build(laid)
    kept_times, kept_free = times.copy(), free.copy()
    kept = forget_past(kept_times, kept_free, size, now)
    for moment in range(now, 60):
        assert kept_free[np.searchsorted(kept_times[:kept], moment, side="right") - 1] == seconds[moment]
    for begin, length, demand in laid:
        size = change(times, free, size, begin, begin + length, demand)
    assert (size, int(free[0])) == (1, 10)


def test_a_job_that_outlives_its_forecast_is_given_its_upper_forecast_then_its_request_and_then_twice_its_age():
    one = np.ones(1, dtype=np.int64)
    past = past_of(LEARNED, 1, one, one, one)
    past.upper[0] = 60
    assert [corrected(LEARNED, 0, 100, elapsed, past.upper) for elapsed in (40, 60, 100)] == [60, 100, 200]
    assert [corrected(GIVEN, 0, 100, elapsed, past.upper) for elapsed in (40, 100)] == [100, 200]


PROGRAM = """
import sys
if sys.argv[1] == "absent":
    sys.modules["numba"] = None
import hashlib
import numpy as np
from cotide_core.kernels.compiled import compiles
from cotide_lab.trace_replay.kernels.conservative import ConservativeRule, replay_conservative
from cotide_lab.trace_replay.kernels.easy import QueueRule, replay_queue
from cotide_predictors.run_time.kernels.forest import Forest
from cotide_lab.trace_replay.kernels.replay_state import Jobs, new_replay_state
from cotide_lab.trace_replay.kernels.on_machines.gangs import Gangs
from cotide_lab.trace_replay.machine_replay import MachineRule, replay_machines
from cotide_lab.trace_replay.kernels.plan import PlanRule, replay_plan
from cotide_lab.trace_replay.kernels.platform import platform_rule, replay_platform
from cotide_lab.predictors.run_time.kernels.run_forecasts import past_of
from cotide_lab.trace_replay.kernels.slack import replay_slack, slack_rule
assert compiles() == (sys.argv[1] == "compiled"), compiles()
rng = np.random.default_rng(5)
jobs = 200
log = (np.cumsum(rng.integers(0, 9, jobs)), rng.integers(1, 60, jobs), rng.integers(1, 17, jobs),
       rng.integers(60, 90, jobs), rng.integers(-1, 4, jobs))
said = hashlib.sha256()
def replayed(kernel, past, mode, rule):
    columns = Jobs(*log, log[3].copy(), *np.full((2, jobs), -1))
    said.update(str(kernel(columns, past, mode, 0, np.zeros(2, dtype=np.int64), new_replay_state(jobs), rule)).encode())
    for array in columns[-3:]:
        said.update(array.tobytes())
for mode in (0, 1, 2):
    for kernel, rule in ((replay_queue, QueueRule(16, 0, 0)), (replay_queue, QueueRule(16, 1, 2)),
                         (replay_conservative, ConservativeRule(16)), (replay_plan, PlanRule(16, 2)),
                         (replay_slack, slack_rule(16, np.full(jobs, 50)))):
        replayed(kernel, past_of(mode, 4, log[4], log[2], log[3]), mode, rule)
tree = Forest(*(np.array(a, np.int32) for a in ([0, 3], [0, -1, -1, 15, -1, -1])),
              np.array([5, -2, 1, 2, 0.3, 0.6], np.float32),
              *(np.array([one, 0, 0, two, 0, 0], np.int32) for one, two in ((1, 4), (2, 5), (1, 5))), np.zeros(1))
for mode in (3, 4, 5):
    past = past_of(mode, 4, log[4], log[2], log[3], log[0])
    past = past._replace(trees=past.trees._replace(lengths=tree, ratings=tree))
    rule = platform_rule(16, mode, past, log[3].copy(), np.full(jobs, 1))
    replayed(replay_platform, past, mode, rule)
    for array in (rule.upper, rule.predictable, past.upper, past.reliability, past.trees.rated):
        said.update(array.tobytes())
need = np.stack([log[2], 17 - log[2]], axis=1)
for code, order in ((0, 1), (1, 0), (2, 0), (3, 2)):
    past, pieces, shape = past_of(2, 4, log[4], log[2], log[3]), 1 + log[0] % 3, np.arange(jobs)
    none = np.zeros((jobs, 2), np.int64)
    gangs = Gangs(pieces, need, shape, pieces, np.array([0, 1, 0, 1]), np.full((4, 2), 40), none)
    columns = Jobs(*log, log[3].copy(), *np.full((2, jobs), -1))
    rounds, held = replay_machines(columns, gangs, past, 2, MachineRule(code, order, 0), np.zeros(2, dtype=np.int64))
    for array in (*columns[-3:], held.first, held.used, held.placed, held.counts):
        said.update(array.tobytes())
for mode in (0, 2):
    past = past_of(mode, 4, log[4], log[2], log[3])
    replayed(replay_platform, past, mode, platform_rule(16, mode, past, log[3].copy(), np.full(jobs, 1)))
print(said.hexdigest())
"""


def digest(how: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kernels_give_the_same_bytes_compiled_switched_off_and_without_numba():
    found = {digest("compiled"), digest("off", NUMBA_DISABLE_JIT="1"), digest("absent")}
    assert len(found) == 1


def test_a_kernel_compiles_uncached_where_no_directory_can_be_written(monkeypatch):
    asked = []

    class Numba:
        def njit(self, **options):
            asked.append(options.get("cache", False))

            def decorate(function):
                if options.get("cache"):
                    raise RuntimeError("cannot cache function: no locator available")
                return function

            return decorate

    monkeypatch.setattr(compiled_module, "_numba", Numba)
    assert compiled_module.compiled(lambda: 3)() == 3
    assert asked == [True, False]


def test_numba_is_loaded_by_the_first_call_of_a_kernel_and_not_before():
    program = """
import sys
from cotide_core.config import SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.forecasting.heuristics import HeuristicCatalogue
Scheduler(SchedulerConfig(policy="fifo"), HeuristicCatalogue())
print("numba" in sys.modules)
Scheduler(SchedulerConfig(policy="qpsm"), HeuristicCatalogue())
print("numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "True"]


@compiled_module.compiled
def sum_up_to(number):
    return number + sum_up_to(number - 1) if number else 0


def test_a_kernel_may_call_itself():
    assert sum_up_to(4) == 4 + 3 + 2 + 1


def test_the_cache_name_of_a_kernel_changes_with_what_it_calls(monkeypatch):
    def kernel():
        return heap_pop

    before = compiled_module._digest(kernel)
    other = globals()["heap_push"]
    monkeypatch.setitem(globals(), "heap_pop", other)
    assert compiled_module._digest(kernel) != before


class Row(NamedTuple):
    first: int
    second: int


def test_the_cache_name_of_a_kernel_changes_with_the_order_of_its_tuples_fields(monkeypatch):
    """Machine code reads a field at its place: 7 - 2 would become 2 - 7."""

    def kernel(row: Row) -> int:
        return row.first - row.second

    before = compiled_module._digest(kernel)
    monkeypatch.setitem(globals(), "Row", NamedTuple("Row", [("second", int), ("first", int)]))
    assert compiled_module._digest(kernel) != before


@compiled_module.inlined
def step(number: int) -> int:
    return number


@compiled_module.inlined
def twice(number: int) -> int:
    return 2 * number


@compiled_module.compiled
def add_steps(count: int) -> int:
    total = 0
    for number in range(count):
        total += step(number)
    return total


def test_a_loop_takes_other_steps_and_stays_what_it_is():
    """0 + 1 + 2 + 3 = 6, each twice: 12."""
    doubled = compiled_module.with_steps(add_steps, "add_doubled", step=twice)
    assert (add_steps(4), doubled(4), add_steps(4)) == (6, 12, 6)


@pytest.mark.parametrize("begin", [3, 9])
def test_an_empty_change_changes_nothing(begin):
    times, free, size, _ = build([(2, 4, 1)])
    assert change(times, free, size, begin, begin, -5) == size
