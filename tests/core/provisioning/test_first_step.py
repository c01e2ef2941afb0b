"""What a plan's first step comes to where tasks wait and machines are busy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.provisioning.capacity_model import CapacityModel, ContainerClass, MachineType
from cotide_core.provisioning.capacity_plan import CapacityPlan
from cotide_core.provisioning.first_step import Standing, first_step, pack_waiting
from cotide_core.provisioning.power import PowerCurve

SMALL = MachineType("small", (1.0, 1.0), 4, PowerCurve((50.0, 90.0)))
LARGE = MachineType("large", (2.0, 2.0), 4, PowerCurve((80.0, 200.0)))
MODEL = CapacityModel((SMALL, LARGE), (ContainerClass("any", (0.5, 0.5)),), horizon=2)


def planned(*machines):
    table = np.array([machines, machines], dtype=float)
    return CapacityPlan(table, np.zeros((2, 2, 1)), np.zeros((2, 1)), 0.0, np.zeros(2), 1)


def after(plan, *, free=(), kind=(), busy=None, waiting=(), available=(4, 4), price=0.1, model=MODEL, **rest):
    """The first step of a plan: what waits and what is free in shares of a small machine's cpu and memory."""
    parts = np.array(free, dtype=float).reshape(-1, 2)
    standing = Standing(
        np.array(available, dtype=float), parts, np.array(kind, dtype=np.int64),
        np.array([True] * len(parts) if busy is None else busy, dtype=np.bool_),
        np.array(waiting, dtype=float).reshape(-1, 2), **rest,
    )  # fmt: skip
    return first_step(plan, model, standing, price).machines[0].tolist()


FULL = (0.0, 0.0)


def test_what_waits_beside_parts_that_are_each_too_small_has_a_machine_at_once():
    parts = {"free": [(0.4, 1.0), (0.4, 1.0)], "kind": [0, 0], "moves": True}
    assert after(planned(2, 0), waiting=[(0.6, 0.1)], **parts) == [3, 0]
    assert after(planned(2, 0), waiting=[(0.4, 0.1), (0.4, 0.1)], **parts) == [2, 0], "it fits"


def test_a_machine_that_boots_is_room_and_stays_wanted_for_what_waits():
    parts = {"free": [(1.0, 1.0), FULL], "kind": [0, 0], "busy": [False, True], "moves": True}
    assert after(planned(1, 0), waiting=[(0.6, 0.1)], **parts) == [2, 0]
    assert after(planned(1, 0), waiting=[(0.6, 0.1)] * 2, **parts) == [3, 0], "it holds one"
    assert after(planned(1, 0), **parts) == [1, 0], "nobody waits for it"


def test_parts_of_busy_machines_are_filled_before_an_idle_one_is_kept():
    parts = {"free": [(1.0, 1.0), (0.7, 0.7)], "kind": [0, 0], "busy": [False, True], "moves": True}
    assert after(planned(0, 0), waiting=[(0.6, 0.1)], **parts) == [0, 0]


def test_of_the_types_that_take_it_the_one_that_is_cheapest_idle_is_started():
    assert after(planned(1, 0), waiting=[(0.6, 0.1)], free=[FULL], kind=[0]) == [2, 0]
    assert after(planned(1, 0), waiting=[(1.5, 0.1)], free=[FULL], kind=[0]) == [1, 1], "too large for the other"
    takes = np.array([[False, True]])
    assert after(planned(1, 0), waiting=[(0.6, 0.1)], free=[(0.9, 0.9)], kind=[0], takes=takes) == [1, 1]


def test_rent_counts_beside_energy_and_where_energy_costs_nothing_the_draw_does():
    dear = MachineType("small", (1.0, 1.0), 4, PowerCurve((50.0, 90.0)), hourly_cost=1.0)
    rented = CapacityModel((dear, LARGE), MODEL.classes, horizon=2)
    assert after(planned(0, 0), waiting=[(0.6, 0.1)], model=rented) == [0, 1]
    assert after(planned(0, 0), waiting=[(0.6, 0.1)], price=-0.1) == [1, 0]


def test_no_more_are_started_than_there_are_and_the_next_type_helps_out():
    five = [(0.9, 0.9)] * 5
    assert after(planned(0, 0), free=[FULL] * 3, kind=[0, 0, 0], waiting=five) == [4, 2]
    assert after(planned(0, 0), waiting=five, available=(2, 1)) == [2, 1]


def test_a_plan_that_wants_more_is_followed():
    assert after(planned(4, 3), waiting=[(0.6, 0.1)]) == [4, 3]
    assert after(planned(2, 2)) == [2, 2]


def test_only_idle_machines_go_where_nobody_moves_tasks():
    there = {"free": [FULL, (0.5, 0.5), (1.0, 1.0), FULL], "kind": [0, 0, 0, 1], "busy": [True, True, False, True]}
    assert after(planned(0, 0), **there) == [2, 1]
    assert after(planned(0, 0), **there, moves=True) == [0, 0]


def test_a_type_that_helps_nobody_who_waits_may_go():
    there = {"free": [(1.0, 1.0), FULL], "kind": [0, 1], "busy": [False, True]}
    assert after(planned(0, 0), waiting=[(1.5, 1.5)], **there) == [0, 2]


@settings(max_examples=60, deadline=None)
@given(
    waiting=st.lists(st.tuples(st.sampled_from([0.1, 0.3, 0.7, 1.2]), st.sampled_from([0.0, 0.2, 0.9])), max_size=12),
    free=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=4),
)
def test_started_machines_and_free_parts_hold_all_that_waits_as_first_fit_one_by_one_does(waiting, free):
    needs, parts = np.array(waiting).reshape(-1, 2), np.array(free).reshape(-1, 2)
    capacity, left = MODEL.capacity, np.array([math.inf, math.inf])
    found = pack_waiting(
        capacity, np.array([1.0, 2.0]), left, needs, free=parts, kind=np.zeros(len(parts), dtype=np.int64)
    )
    bins, more = [part.copy() for part in parts], [0, 0]
    different = {need: index for index, need in reversed(list(enumerate(waiting)))}
    for need in sorted(waiting, key=lambda one: (-max(one), different[one])):
        one = next((part for part in bins if (np.array(need) <= part + 1e-9).all()), None)
        if one is None:
            kind = 0 if max(need) <= 1.0 else 1
            more[kind] += 1
            one = capacity[kind].copy()
            bins.append(one)
        one -= need
    assert found.more.tolist() == pytest.approx(more)
