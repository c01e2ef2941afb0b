"""Plans of machines by type over a horizon: what they buy, when, and what they refuse to plan for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_core.provisioning.capacity_model import CapacityModel, ContainerClass, MachineType, Outlook, Park
from cotide_core.provisioning.capacity_plan import plan_capacity, round_up
from cotide_core.provisioning.capacity_program import CapacityProgram
from cotide_core.provisioning.power import PowerCurve
from cotide_solvers.highs import HighsSolver

PRICE = 0.1
"""Money for a kWh."""


def machine(name="even", *, capacity=(1.0, 1.0), count=10, watts=(100.0, 200.0), **rest):
    return MachineType(name, capacity, count, PowerCurve(watts), **rest)


def planned(model, demand, *, powered=None, price=PRICE, whole=False, park=None):
    """Plan for a demand that is certain: (W, K)."""
    wanted = np.asarray(demand, dtype=float)[:, :, None]
    outlook = Outlook((0.9,), wanted, np.full(model.horizon, price))
    there = park or Park.of(model, np.zeros(len(model.machines)) if powered is None else np.asarray(powered, float))
    return plan_capacity(CapacityProgram(model, 1, whole=whole), HighsSolver(), there, outlook)


def test_machines_are_those_that_the_containers_need_with_the_factor():
    # 10 containers of 0.25 with a factor of 1.2 fill 3.0 machines.
    model = CapacityModel((machine(),), (ContainerClass("quarter", (0.25, 0.1), 1.2),), horizon=2)
    plan = planned(model, [[10], [10]])
    assert plan.machines[:, 0].tolist() == [3, 3]
    assert plan.unserved.max() == pytest.approx(0, abs=1e-6)
    # 3 machines of 100 W and 10 containers of 25 W for ten minutes: 550 W / 6 h x 0.1 a kWh.
    assert plan.cost == pytest.approx((300 + 250) / 1000 * PRICE / 6)


def test_a_container_is_never_planned_on_a_machine_that_cant_hold_it():
    small = machine("small", capacity=(1.0, 0.25), watts=(10.0, 20.0))
    large = machine("large", capacity=(1.0, 1.0), watts=(300.0, 500.0))
    model = CapacityModel((small, large), (ContainerClass("wide", (0.1, 0.5), 1.0),), horizon=1)
    plan = planned(model, [[4]])
    assert plan.machines[0].tolist() == [0, 2]
    assert plan.containers[0].tolist() == [[0], [4]]


def test_a_machine_that_boots_draws_power_and_serves_later():
    slow = machine("slow", boot_steps=2, count=5)
    model = CapacityModel((slow,), (ContainerClass("one", (1.0, 1.0), 1.0),), horizon=4)
    plan = planned(model, [[0], [0], [0], [1]])
    assert plan.machines[:, 0].tolist() == [0, 1, 1, 1], "started at step 1, up two steps later"
    assert planned(model, [[1], [1], [1], [1]]).unserved[:, 0].round(6).tolist() == [1, 1, 0, 0]


def test_what_was_started_lately_stays_on():
    kept = machine("kept", minimum_up_steps=3)
    model = CapacityModel((kept,), (ContainerClass("one", (1.0, 1.0), 1.0),), horizon=3)
    park = Park(np.array([2.0]), np.array([10.0]), np.zeros((1, 3)), np.array([[2.0, 1.0, 0.0]]))
    assert planned(model, [[0], [0], [0]], park=park).machines[:, 0].tolist() == [2, 1, 0]


def test_switching_is_dear_so_a_short_dip_is_slept_through():
    # An idle hour costs 100 W x 0.1 = 0.01; two steps of five minutes 0.0017; switching off and on again 0.02.
    dear = machine("dear", on_cost=0.01, off_cost=0.01)
    free = machine("free")
    wanted = (ContainerClass("one", (1.0, 1.0), 1.0),)
    dip = [[4], [0], [0], [4]]
    assert planned(CapacityModel((dear,), wanted, horizon=4), dip, powered=[4]).machines[:, 0].tolist() == [4, 4, 4, 4]
    assert planned(CapacityModel((free,), wanted, horizon=4), dip, powered=[4]).machines[:, 0].tolist() == [4, 0, 0, 4]


def test_demand_above_all_capacity_is_left_unserved_and_says_what_a_machine_would_save():
    model = CapacityModel((machine(count=3),), (ContainerClass("one", (1.0, 1.0), 1.0),), horizon=1)
    plan = planned(model, [[5]])
    assert plan.machines[0, 0] == 3
    assert plan.unserved[0, 0] == pytest.approx(2)
    assert plan.worth_of_machine[0] > 0
    assert planned(model, [[1]]).worth_of_machine[0] == pytest.approx(0, abs=1e-12)


def test_the_level_of_service_decides_how_much_of_an_uncertain_demand_is_served():
    # Quantiles 4, 6 and 20: the last slice is needed with a chance below 3 %.
    demand = np.array([[[4.0, 6.0, 20.0]]])
    outlook = Outlook((0.5, 0.95, 0.999), demand, np.array([PRICE]))
    served = {}
    for level in (0.5, 0.9, 0.999):
        model = CapacityModel(
            (machine(count=50),), (ContainerClass("one", (1.0, 1.0), 1.0),), horizon=1, service_level=level
        )
        park = Park.of(model, np.zeros(1))
        served[level] = plan_capacity(CapacityProgram(model, 3), HighsSolver(), park, outlook).machines[0, 0]
    assert served == {0.5: 4, 0.9: 6, 0.999: 20}


def served_at(level, quantiles, probabilities=(0.5, 0.8, 0.95, 0.99), powered=0.0, **model):
    """Return the containers served in the last of twelve steps with the same quantiles."""
    slow = machine(count=50, on_cost=0.0007, boot_steps=1, minimum_up_steps=2)
    model = CapacityModel((slow,), (ContainerClass("tenth", (0.1, 0.05), **model),), service_level=level)
    demand = np.broadcast_to(np.array(quantiles, float), (12, 1, len(quantiles))).copy()
    outlook = Outlook(probabilities, demand, np.full(12, 0.04))
    park = Park.of(model, np.array([powered]))
    plan = plan_capacity(CapacityProgram(model, len(quantiles)), HighsSolver(), park, outlook)
    return quantiles[-1] - plan.unserved[-2, 0]


@pytest.mark.parametrize(
    ("level", "served"),
    # 0.65 is half of the way from 0.5 to 0.8, 0.97 half of that from 0.95 to 0.99.
    [(0.1, 50), (0.25, 50), (0.26, 50), (0.5, 50), (0.65, 75), (0.8, 100), (0.95, 150), (0.97, 175), (0.995, 200)],
)
def test_the_service_level_is_the_quantile_of_demand_that_is_served(level, served):
    assert served_at(level, (50.0, 100.0, 150.0, 200.0)) == pytest.approx(served)


def test_a_low_service_level_serves_a_low_quantile():
    quantiles, chances = (10.0, 30.0, 50.0, 100.0), (0.05, 0.25, 0.5, 0.8)
    served = [served_at(level, quantiles, chances) for level in (0.01, 0.05, 0.15, 0.25, 0.4)]
    assert served == pytest.approx([10, 10, 20, 30, 42])


def test_a_stated_value_serves_the_quantile_beyond_which_a_container_costs_more_than_it_is_worth():
    slow = machine(count=50)
    free = CapacityModel((slow,), (ContainerClass("tenth", (0.1, 0.05)),))
    cost = float(free.cheapest(0.04)[0])
    # 1.2 x 0.1 of 100 W and 10 W besides, at 0.04 a kWh.
    assert cost == pytest.approx((12 + 10) / 1000 * 0.04)
    model = CapacityModel((slow,), (ContainerClass("tenth", (0.1, 0.05), value=cost / 0.35),))
    assert model.worth(0.04)[1] == pytest.approx([0.65])
    outlook = Outlook((0.5, 0.8), np.tile([50.0, 100.0], (12, 1, 1)), np.full(12, 0.04))
    plan = plan_capacity(CapacityProgram(model, 2), HighsSolver(), Park.of(model, np.zeros(1)), outlook)
    assert plan.unserved[:, 0] == pytest.approx(np.full(12, 25.0))


def test_a_machine_whose_tasks_run_on_stays_at_the_lowest_service_level():
    """Thirty machines hold 250 running tasks: whatever comes later, that many are needed in the first step."""
    slow = machine(count=50, on_cost=0.0007, boot_steps=1, minimum_up_steps=2)
    model = CapacityModel((slow,), (ContainerClass("tenth", (0.1, 0.05)),), service_level=0.1)
    demand = np.tile([20.0, 50.0, 100.0], (12, 1, 1))
    demand[0] = 250.0
    outlook = Outlook((0.05, 0.5, 0.8), demand, np.full(12, 0.04))
    plan = plan_capacity(CapacityProgram(model, 3), HighsSolver(), Park.of(model, np.array([30.0])), outlook)
    assert plan.machines[0, 0] == 30


def test_whole_machines_cost_no_less_than_fractions_and_no_more_than_rounding_up():
    kinds = (machine("a", capacity=(1.0, 0.5)), machine("b", capacity=(0.5, 1.0), watts=(60.0, 90.0)))
    classes = (ContainerClass("x", (0.3, 0.1), 1.0), ContainerClass("y", (0.1, 0.35), 1.0))
    model = CapacityModel(kinds, classes, horizon=2)
    demand = [[5, 4], [7, 3]]
    fractions, whole = planned(model, demand), planned(model, demand, whole=True)
    assert fractions.cost <= whole.cost + 1e-9
    rounded = sum(kind.power.idle * fractions.machines[:, index].sum() for index, kind in enumerate(kinds))
    integral = sum(kind.power.idle * whole.machines[:, index].sum() for index, kind in enumerate(kinds))
    assert integral <= rounded


BAD = [
    ("price", lambda: Outlook((0.9,), np.ones((2, 1, 1)), np.array([np.nan, 1.0])), "a price is missing"),
    ("price", lambda: Outlook((0.9,), np.ones((2, 1, 1)), np.array([1.0])), "1 prices for 2 steps"),
    ("price", lambda: Outlook((0.9,), np.ones((2, 1, 1)), np.array([1e30, 1.0])), "is no price"),
    ("demand", lambda: Outlook((0.9,), np.full((2, 1, 1), np.nan), np.ones(2)), "not a number"),
    ("demand", lambda: Outlook((0.9,), np.full((2, 1, 1), -1.0), np.ones(2)), "must lie in"),
    ("demand", lambda: Outlook((0.9,), np.ones((3, 1, 1)), np.ones(2)), "has shape"),
    ("probabilities", lambda: Outlook((1.0,), np.ones((2, 1, 1)), np.ones(2)), "rise within"),
]


@pytest.mark.parametrize(("name", "outlook", "words"), BAD, ids=[words for _, _, words in BAD])
def test_absurd_outlooks_are_refused_in_one_sentence(name, outlook, words):
    model = CapacityModel((machine(),), (ContainerClass("one", (1.0, 1.0)),), horizon=2)
    with pytest.raises(InputError, match=words) as raised:
        plan_capacity(CapacityProgram(model, 1), HighsSolver(), Park.of(model, np.zeros(1)), outlook())
    assert raised.value.field == name
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (CapacityModel((), (ContainerClass("one", (1.0,)),)), "no machine type"),
        (CapacityModel((machine(),), ()), "no task class"),
        (CapacityModel((machine(count=-1),), (ContainerClass("one", (1.0, 1.0)),)), "not a number in"),
        (CapacityModel((machine(),), (ContainerClass("one", (1.0,)),)), "1 numbers where 2"),
        (CapacityModel((machine(),), (ContainerClass("one", (math.inf, 1.0)),)), "not a number in"),
        (CapacityModel((machine(),), (ContainerClass("one", (1.0, 1.0), 0.5),)), "not in \\[1, 100\\]"),
        (CapacityModel((machine(),), (ContainerClass("one", (1.0, 1.0)),), service_level=1.0), "not in \\(0, 1\\)"),
    ],
)
def test_absurd_models_are_refused_in_one_sentence(model, words):
    with pytest.raises(InputError, match=words):
        CapacityProgram(model, 1)


def test_no_demand_one_type_and_negative_prices_are_planned_for():
    model = CapacityModel((machine(),), (ContainerClass("one", (1.0, 1.0)),), horizon=2)
    assert planned(model, [[0], [0]], powered=[4]).machines.tolist() == [[0], [0]]
    # Who is paid for using power leaves all machines on, and no more than there are.
    assert planned(model, [[0], [0]], price=-1.0).machines.tolist() == [[10], [10]]


def test_a_class_that_no_machine_holds_is_unserved_and_the_others_are_not():
    model = CapacityModel(
        (machine(),), (ContainerClass("huge", (2.0, 2.0), 1.0), ContainerClass("one", (1.0, 1.0), 1.0)), horizon=1
    )
    plan = planned(model, [[3, 2]])
    assert plan.unserved[0].tolist() == pytest.approx([3, 0])
    assert plan.machines[0, 0] == 2


@settings(max_examples=40, deadline=None)
@given(
    demand=st.lists(st.floats(0, 1e6), min_size=6, max_size=6),
    powered=st.lists(st.integers(0, 500), min_size=2, max_size=2),
    count=st.lists(st.integers(0, 300), min_size=2, max_size=2),
    price=st.floats(-10, 1e4),
)
def test_whatever_is_asked_a_plan_is_whole_and_within_what_is_there(demand, powered, count, price):
    kinds = (machine("a", count=count[0]), machine("b", capacity=(0.5, 0.25), count=count[1], boot_steps=1))
    classes = (ContainerClass("x", (0.3, 0.1)), ContainerClass("y", (0.02, 0.2)))
    model = CapacityModel(kinds, classes, horizon=3)
    plan = planned(model, np.array(demand).reshape(3, 2), powered=powered, price=price)
    assert (plan.machines >= 0).all()
    assert (plan.machines <= np.array(count)[None]).all()
    assert (plan.machines == np.round(plan.machines)).all()
    used = 1.2 * np.einsum("tmk,kr->tmr", np.maximum(plan.containers - 1, 0), model.sizes)
    assert (used <= plan.machines[:, :, None] * model.capacity[None] + 1e-3).all(), "eq. 13, but for the rounding"


def test_rounding_up_forgives_a_solvers_noise():
    assert round_up(np.array([2.9999999, 3.0000001, 3.01, -1e-9])).tolist() == [3, 3, 4, 0]
