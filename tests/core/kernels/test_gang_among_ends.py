"""The earliest start of a gang where things only end: by halving, against one moment after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.kernels.machine_gangs import plan_among_ends, plan_gangs
from cotide_core.kernels.machine_plan import NO_ROOM, NOWHERE, RESERVED, STARTS, Demands, Plan
from cotide_core.kernels.machines import Profiles

NOW = 100
SEGMENTS = 64


def profiles_of(machines: list[tuple[int, list[tuple[int, int]]]]) -> Profiles:
    """Machines of what is free now and of what ends when, of one resource."""
    times = np.zeros((len(machines), SEGMENTS), np.int64)
    free = np.zeros((len(machines), SEGMENTS, 1), np.int64)
    sizes = np.zeros(len(machines), np.int64)
    for at, (present, ends) in enumerate(machines):
        free[at, 0], size = present, 1
        for moment, amount in sorted(ends):
            times[at, size], free[at, size], size = moment, free[at, size - 1] + amount, size + 1
        sizes[at] = size
    return Profiles(times, free, sizes)


def demands_of(groups: list[int], needs: list[int], soft: list[int], may: list[bool]) -> Demands:
    """One resource; all pods of all groups last for 50 and may go to the same machines."""
    kinds, machines = len(needs), len(may)
    need = np.array([[one] for one in needs], np.int64)
    zero = np.zeros(kinds, np.int64)
    return Demands(
        np.array(groups, np.int64), need, need.copy(), np.full(kinds, 50, np.int64), zero, np.ones((1, machines)), zero,
        np.array([may]), np.array([soft], np.int64), zero, np.full((1, machines), NOW, np.int64),
    )  # fmt: skip


def plan_of(pods: int, machines: int) -> Plan:
    return Plan(np.full(pods, -1), np.full(pods, -1), np.zeros(machines, np.bool_))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[tuple[int, list[tuple[int, int]]]], list[int], list[bool]]:
    end = st.tuples(st.integers(NOW + 1, NOW + 30), st.integers(1, 4))
    machines = draw(st.lists(st.tuples(st.integers(-2, 4), st.lists(end, max_size=4)), min_size=1, max_size=5))
    soft = draw(st.lists(st.integers(0, 2), min_size=len(machines), max_size=len(machines)))
    may = draw(st.lists(st.booleans(), min_size=len(machines), max_size=len(machines)))
    return machines, soft, may


@given(cases(), st.integers(1, 6), st.integers(1, 3))
def test_like_pods_start_when_and_where_a_plan_starts_them(case, pods: int, need: int) -> None:
    machines, soft, may = case
    demands = demands_of([0] * pods, [need], soft, may)
    found, planned = plan_of(pods, len(may)), plan_of(pods, len(may))
    outcome = plan_among_ends(profiles_of(machines), NOW, demands, found)
    done = plan_gangs(
        profiles_of(machines), NOW, demands, np.zeros(pods, np.int64), np.arange(pods), 1, pods + 1, planned
    )
    assert NO_ROOM not in (outcome, done)
    assert found.machine.tolist() == planned.machine.tolist()
    assert found.start.tolist() == planned.start.tolist()
    starts = set(found.start.tolist())
    assert outcome == (NOWHERE if starts == {-1} else STARTS if starts == {NOW} else RESERVED)


@given(cases(), st.lists(st.integers(0, 2), min_size=1, max_size=6))
def test_unlike_pods_start_together_where_there_is_room_or_nobody_does(case, groups: list[int]) -> None:
    machines, soft, may = case
    groups, needs = sorted(groups), [3, 2, 1]
    profiles, found = profiles_of(machines), plan_of(len(groups), len(may))
    outcome = plan_among_ends(profiles, NOW, demands_of(groups, needs, soft, may), found)
    if outcome == NOWHERE:
        assert set(found.start.tolist()) == {-1}
        return
    (start,) = set(found.start.tolist())
    held = [
        sum(needs[group] for group, on in zip(groups, found.machine, strict=True) if on == at) for at in range(len(may))
    ]
    for at, (present, ends) in enumerate(machines):
        free = present + sum(amount for moment, amount in ends if moment <= start)
        assert held[at] == 0 or (may[at] and held[at] <= free)
