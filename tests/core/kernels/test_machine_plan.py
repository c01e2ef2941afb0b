"""The kernel for many machines against a slow, obvious implementation, and by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.kernels.machine_plan import NO_ROOM, Demands, Plan, plan_machines
from cotide_core.kernels.machines import NEVER, Profiles, earliest_on, occupy

NOW = 100


@dataclass
class Machine:
    """What is there, and who holds how much from when to when."""

    there: tuple[int, int]
    holds: list[tuple[int, int, tuple[int, int]]] = field(default_factory=list)

    def has(self, begin: int, end: int, need: tuple[int, int]) -> bool:
        """Look at every moment at which something changes."""
        moments = {begin, *(time for hold in self.holds for time in hold[:2] if begin <= time < end)}
        return all(
            need[r] == 0 or self.there[r] - sum(h[2][r] for h in self.holds if h[0] <= moment < h[1]) >= need[r]
            for moment in moments
            for r in range(2)
        )

    def earliest(self, length: int, need: tuple[int, int]) -> int:
        """Try now and every later end: a start between two ends is never feasible before the later one."""
        candidates = sorted({NOW, *(hold[1] for hold in self.holds if hold[1] > NOW)})
        return next((at for at in candidates if self.has(at, at + length, need)), NEVER)


@dataclass
class Case:
    machines: list[Machine]
    pods: list[int]
    """Group of each."""
    needs: list[tuple[int, int]]
    lengths: list[int]
    stretch: list[float]
    may: list[bool]
    soft: list[int]
    second: list[int]
    most_reserved: int
    most_starts: int
    opened: list[bool]
    kept: list[tuple[int, int]]

    def lasts(self, pod: int, at: int) -> int:
        return math.ceil(self.lengths[self.pods[pod]] * self.stretch[at])


def reference(case: Case) -> list[tuple[int, int]]:  # noqa: PLR0912  one step after the other, as it is told
    """Plan one pod after another by trying every machine."""
    machines, plan, opened = case.machines, list(case.kept), list(case.opened)

    def hold(pod: int, at: int, begin: int):
        return begin, begin + case.lasts(pod, at), case.needs[case.pods[pod]]

    def choices(pod: int, rows):
        need = case.needs[case.pods[pod]]
        found = [(machines[n].earliest(case.lasts(pod, n), need), case.soft[n], n) for n in rows if case.may[n]]
        return min((one for one in found if one[0] < NEVER), default=(NEVER, 0, -1))

    for pod, (at, promised) in enumerate(plan):
        begin = max(NOW, promised)
        if at < 0:
            continue
        if case.may[at] and machines[at].has(*hold(pod, at, begin)):
            plan[pod] = (at, begin)
            machines[at].holds.append(hold(pod, at, begin))
        else:
            plan[pod] = (-1, -1)
            opened[at] = True
    starts = reserved = 0
    done = set()
    for pod, (at, begin) in enumerate(plan):
        if reserved >= case.most_reserved or starts >= case.most_starts:
            break
        done.add(pod)
        rows = range(len(machines)) if at < 0 else [n for n in range(len(machines)) if opened[n]]
        if at >= 0:
            machines[at].holds.remove(hold(pod, at, begin))
        best = choices(pod, rows)
        if at >= 0:
            own = choices(pod, [at])[0] if opened[at] else begin
            # It stays where it is unless another machine has it strictly earlier.
            best = (own, 0, at) if own <= best[0] else best
            if (best[2], best[0]) != (at, begin):
                opened[at] = True
        plan[pod] = (best[2], best[0]) if best[2] >= 0 else (-1, -1)
        if best[2] >= 0:
            machines[best[2]].holds.append(hold(pod, best[2], best[0]))
            starts += best[0] == NOW
            reserved += best[0] > NOW
    for pod in case.second:
        if starts >= case.most_starts or case.most_reserved > len(plan):
            break
        best = choices(pod, range(len(machines))) if pod not in done else (NEVER, 0, -1)
        if best[0] == NOW:
            plan[pod] = (best[2], NOW)
            machines[best[2]].holds.append(hold(pod, best[2], NOW))
            starts += 1
    return plan


def kernel(case: Case, segments: int = 64) -> list[tuple[int, int]] | None:
    count = len(case.machines)
    times = np.full((count, segments), -NEVER, np.int64)
    free = np.zeros((count, segments, 2), np.int64)
    sizes = np.ones(count, np.int64)
    for n, machine in enumerate(case.machines):
        free[n, 0] = machine.there
        for begin, end, amounts in machine.holds:
            sizes[n] = occupy(times[n], free[n], sizes[n], begin, end, np.array(amounts, np.int64), 1)
    groups = len(case.needs)
    need = np.array(case.needs, np.int64).reshape(groups, 2)
    group = np.array(case.pods, np.int64)
    several = np.bincount(group, minlength=groups) > 1
    slot = np.where(several, np.cumsum(several), 0)
    machine = np.array([at for at, _ in case.kept], np.int64)
    start = np.array([begin for _, begin in case.kept], np.int64)
    zeros = np.zeros(groups, np.int64)
    demands = Demands(
        group, need, need.copy(), np.array(case.lengths, np.int64), zeros, np.array([case.stretch]), zeros,
        np.array([case.may]), np.array([case.soft], np.int64), slot, np.full((1 + int(several.sum()), count), NOW),
    )  # fmt: skip
    plan = Plan(machine, start, np.array(case.opened))
    second = np.array(case.second, np.int64)
    done = plan_machines(
        Profiles(times, free, sizes), NOW, demands, second, case.most_reserved, case.most_starts, plan
    )  # fmt: skip
    return None if done == NO_ROOM else list(zip(machine.tolist(), start.tolist(), strict=True))


amounts = st.tuples(st.integers(0, 6), st.integers(0, 6))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    machines = []
    for _ in range(draw(st.integers(1, 4))):
        running = draw(st.lists(st.tuples(st.integers(NOW + 1, NOW + 20), amounts), max_size=4))
        machines.append(Machine(draw(amounts), [(0, end, taken) for end, taken in running]))
    count, groups = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    pods = [draw(st.integers(0, groups - 1)) for _ in range(count)]
    kept = st.one_of(st.just((-1, -1)), st.tuples(st.integers(0, len(machines) - 1), st.integers(NOW - 3, NOW + 30)))
    with_kept = draw(st.booleans())

    def each(values: st.SearchStrategy, size: int) -> list:
        return draw(st.lists(values, min_size=size, max_size=size))

    return Case(
        machines=machines,
        pods=pods,
        needs=each(amounts, groups),
        lengths=each(st.integers(1, 15), groups),
        stretch=each(st.sampled_from((1.0, 1.0, 1.5, 2.3)), len(machines)),
        may=each(st.sampled_from((True, True, True, False)), len(machines)),
        soft=each(st.sampled_from((0, 0, 1, 2)), len(machines)),
        second=draw(st.permutations(range(count))),
        most_reserved=count + 1 if with_kept else draw(st.sampled_from((1, 2, count + 1))),
        most_starts=draw(st.sampled_from((1, 2, count + 1))),
        opened=each(st.booleans(), len(machines)),
        kept=each(kept, count) if with_kept else [(-1, -1)] * count,
    )


@settings(max_examples=600, deadline=None)
@given(case=cases())
def test_plans_equal_the_reference_pod_by_pod(case: Case) -> None:
    found = kernel(case)
    assert found == reference(case)


def test_too_many_segments_are_told_and_nothing_is_written_beyond_the_arrays() -> None:
    """Each of three pods in a row needs two more segments than there are."""
    case = Case(
        [Machine((1, 1))], [0, 0, 0], [(1, 1)], [5], [1.0], [True], [0], [0, 1, 2], 4, 4, [False], [(-1, -1)] * 3
    )
    assert kernel(case, segments=4) is None
    assert kernel(case, segments=8) == [(0, 100), (0, 105), (0, 110)]


def test_the_earliest_start_skips_a_gap_that_is_too_short() -> None:
    """Two of three are free until 110 and from 130 on; between 110 and 130 it is one."""
    times, free = np.full((1, 8), -NEVER, np.int64), np.zeros((1, 8, 1), np.int64)
    free[0, 0] = 2
    size = occupy(times[0], free[0], 1, 110, 130, np.array([1]), 1)
    need = np.array([2])
    assert earliest_on(times[0], free[0], size, NOW, 10, need, NEVER) == 100
    assert earliest_on(times[0], free[0], size, NOW, 11, need, NEVER) == 130
    assert earliest_on(times[0], free[0], size, NOW, 11, need, 130) == 130
    assert earliest_on(times[0], free[0], size, NOW, 11, np.array([3]), NEVER) == NEVER


def test_what_a_reservation_leaves_is_open_to_pods_that_were_refused_there_before() -> None:
    """Two machines of 1; the second is busy until 101. All pods take 1 for 5; the middle one is kept on the first from
    102 on. The first pod finds 107 there and takes 101 on the second machine. Then the middle one moves to 100, so that
    the third finds 105 on the first machine and need not wait for 106 on the second.
    """
    machines = [Machine((1, 0)), Machine((1, 0), [(0, 101, (1, 0))])]
    needs, kept = [(1, 0), (1, 0)], [(-1, -1), (0, 102), (-1, -1)]
    case = Case(
        machines, [0, 1, 0], needs, [5, 5], [1.0, 1.0], [True, True], [0, 0], [0, 1, 2], 4, 4, [True, False], kept
    )
    assert kernel(case) == [(1, 101), (0, 100), (0, 105)] == reference(case)
