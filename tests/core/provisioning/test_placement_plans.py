"""Plans of servers over data centres: where, when, and what they refuse to plan for."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_core.provisioning.placement_model import (
    DataCentre,
    PlacementModel,
    PlacementOutlook,
    ServiceLevel,
    with_carbon,
)
from cotide_core.provisioning.placement_plan import hold, plan_placement
from cotide_core.provisioning.placement_program import PlacementProgram
from cotide_solvers.clarabel import ClarabelSolver
from cotide_solvers.convex import ConvexSolver

# 0.02 s are left of 0.1 s after 0.08 s on the way; rho = 0.02 / (0.02 + 1/50) = 0.5, so 25 requests/s a server.
LEVEL = ServiceLevel(0.1, 50.0, 1.0, penalty=1e-3)


def model(*, centres=2, networks=1, horizon=3, delays=0.08, on_cost=0.0, **rest):
    data_centres = tuple(DataCentre(f"place-{n}", 10.0, on_cost, on_cost) for n in range(centres))
    shape = (centres, networks)
    names = tuple(f"net-{n}" for n in range(networks))
    wide = np.broadcast_to(np.asarray(delays, dtype=float), shape)
    options = {"egress": np.zeros(shape), "services": (rest.pop("level", LEVEL),), "horizon": horizon, **rest}
    return PlacementModel(data_centres, names, wide, **options)


def planned(what, demand, price, *, servers=None, solver=None, available=None):
    """Plan for the one service there is; what is of all services stands beside its own."""
    outlook = PlacementOutlook(np.asarray(demand, float)[:, None], np.asarray(price, float), available)
    start = np.zeros(len(what.centres)) if servers is None else np.asarray(servers, float)
    plan = plan_placement(PlacementProgram(what), solver or ConvexSolver(), start[None], outlook)
    one = {name: getattr(plan.services[0], name) for name in ("servers", "exact", "split", "unserved")}
    return SimpleNamespace(**one, cost=plan.cost, worth_of_server=plan.worth_of_server)


def test_a_server_takes_what_delay_and_queueing_leave_it():
    assert model().servers_per_rate().ravel().tolist() == pytest.approx([1 / 25, 1 / 25])
    assert np.isinf(model(delays=np.array([[0.08], [0.2]])).servers_per_rate()[0, 1, 0])


def test_servers_stand_where_they_are_cheap_and_move_when_it_pays():
    cheap_then_dear = [[1.0, 2.0], [3.0, 2.0], [3.0, 2.0]]
    plan = planned(model(), [[100.0]] * 3, cheap_then_dear)
    assert plan.servers.tolist() == [[4, 0], [0, 4], [0, 4]]
    assert plan.split[:, 0].tolist() == pytest.approx([1, 0])
    assert plan.cost == pytest.approx(4 * 1 + 4 * 2 + 4 * 2)


def test_a_move_that_costs_more_than_it_saves_is_not_made():
    # Moving four servers costs 4 x (5 + 5) = 40; it would save 2 hours x 4 x 1 = 8.
    plan = planned(model(on_cost=5.0), [[100.0]] * 3, [[1.0, 2.0], [3.0, 2.0], [3.0, 2.0]], servers=[4, 0])
    assert plan.servers.tolist() == [[4, 0]] * 3


def test_a_full_data_centre_says_what_one_more_server_would_save():
    # 300 requests/s need 12 servers; the cheap place has 10, so two stand where an hour costs 3 more.
    plan = planned(model(horizon=1), [[300.0]], [[1.0, 4.0]])
    assert plan.servers[0].tolist() == [10, 2]
    assert plan.worth_of_server.tolist() == pytest.approx([3.0, 0.0], abs=1e-4)


def test_demand_above_all_capacity_is_unserved():
    plan = planned(model(horizon=1), [[600.0]], [[1.0, 1.0]])
    assert plan.servers[0].tolist() == [10, 10]
    assert plan.unserved[0, 0] == pytest.approx(100, abs=1e-3)


def test_a_lost_data_centre_is_left_for_the_others():
    available = np.array([0.0, 1.0])
    plan = planned(model(horizon=1), [[100.0]], [[1.0, 9.0]], servers=[4, 0], available=available)
    assert plan.servers[0].tolist() == [0, 4]


def test_what_crosses_is_paid_for():
    dear = np.array([[1e-3], [0.0]])  # a server's 25 requests/s cross for 25 x 3600 x 0.001 = 90 an hour
    plan = planned(model(horizon=1, egress=dear), [[100.0]], [[1.0, 40.0]])
    assert plan.servers[0].tolist() == [0, 4]


def test_carbon_is_a_price():
    # 400 g/kWh x 0.25 kW = 0.1 kg an hour, at 0.05 a kilogram.
    assert with_carbon(np.array([[1.0]]), np.array([[400.0]]), 0.25, 0.05).tolist() == [[1.005]]


def test_both_solvers_find_the_same_cost_and_a_quadratic_penalty_shifts_what_is_missing():
    what = model(centres=3, networks=4, horizon=4, delays=np.linspace(0.01, 0.09, 12).reshape(3, 4), on_cost=0.3)
    rng = np.random.default_rng(3)
    demand, price = rng.uniform(0, 300, (4, 4)), rng.uniform(0.5, 2, (4, 3))
    linear, interior = planned(what, demand, price), planned(what, demand, price, solver=ClarabelSolver())
    assert linear.cost == pytest.approx(interior.cost, rel=1e-5)
    level = ServiceLevel(0.1, 50.0, 1.0, penalty=0.0, quadratic_penalty=1e-3)
    # A server an hour costs 1 and serves 25: the last 25 x 1e-3 s missing per server equal its price at s = 40.
    plan = planned(model(centres=1, horizon=1, level=level), [[200.0]], [[1.0]])
    assert plan.unserved[0, 0] == pytest.approx(40, rel=1e-3)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_what_the_interior_point_method_answers_is_feasible_and_its_duals_prove_it_the_optimum(seed):
    rng = np.random.default_rng(seed)
    level = ServiceLevel(0.1, 50.0, 1.0, penalty=1e-4, quadratic_penalty=1e-4)
    what = model(centres=4, networks=8, horizon=6, delays=rng.uniform(0.01, 0.12, (4, 8)), on_cost=0.3, level=level)
    program = PlacementProgram(what)
    outlook = PlacementOutlook(rng.uniform(0, 200, (6, 1, 8)), rng.uniform(0.5, 2, (6, 4)))
    filled = program.fill(rng.uniform(0, 9, (1, 4)), outlook)
    solved = ClarabelSolver().solve(filled)
    over = filled.matrix.dense() @ solved.x - filled.bound
    assert np.abs(over[: filled.equalities]).max() < 1e-5
    assert max(over[filled.equalities :].max(), -solved.x.min()) < 1e-5
    # Weak duality: b . y - x Q x / 2 bounds the cost from below.
    below = filled.bound @ solved.row_duals - filled.quadratic @ solved.x**2 / 2
    assert solved.cost == pytest.approx(below, rel=1e-5, abs=1e-5)


def test_a_program_that_fails_without_refinement_is_solved_with_it(monkeypatch):
    tried = []
    set_up = ClarabelSolver._set_up

    def told(self, program, *, refined):
        tried.append(refined)
        made = set_up(self, program, refined=refined)
        return made if refined else SimpleNamespace(solve=lambda: SimpleNamespace(status="InsufficientProgress"))

    monkeypatch.setattr(ClarabelSolver, "_set_up", told)
    plan = planned(model(horizon=1), [[300.0]], [[1.0, 4.0]], solver=ClarabelSolver())
    assert (tried, plan.servers[0].tolist()) == ([False, True], [10, 2])


def test_small_changes_are_left_alone_unless_requests_would_wait():
    before, wanted = np.array([10.0, 10.0, 10.0]), np.array([9.0, 11.0, 5.0])
    assert hold(before, wanted, np.array([9.0, 11.0, 5.0]), 0.2).tolist() == [10, 11, 5]


@pytest.mark.parametrize(
    ("demand", "price", "words"),
    [
        ([[np.nan]], [[1.0, 1.0]], "demand: a forecast of demand is missing"),
        ([[-1.0]], [[1.0, 1.0]], "demand: demand must lie in"),
        ([[1.0]], [[np.nan, 1.0]], "price: a price is missing"),
        ([[1.0]], [[1.0]], "price: has shape"),
        ([[1.0], [1.0]], [[1.0, 1.0]], "demand: has shape"),
    ],
)
def test_absurd_outlooks_are_refused_in_one_sentence(demand, price, words):
    with pytest.raises(InputError, match=words):
        planned(model(horizon=1), demand, price)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: model(centres=0), "no data centre"),
        (lambda: model(networks=0), "no access network"),
        (lambda: model(delays=1.0), "near enough"),
        (lambda: model(delays=np.nan), "numbers >= 0"),
        (lambda: model(horizon=0), "horizon"),
        (lambda: model(level=ServiceLevel(0.1, 0.0)), "service rate"),
    ],
)
def test_absurd_models_are_refused_in_one_sentence(make, words):
    with pytest.raises(InputError, match=words):
        PlacementProgram(make())


def test_no_demand_and_negative_prices_are_planned_for():
    assert planned(model(horizon=1), [[0.0]], [[1.0, 1.0]], servers=[3, 3]).servers.tolist() == [[0, 0]]
    assert planned(model(horizon=1), [[0.0]], [[-1.0, 1.0]]).servers.tolist() == [[10, 0]], "no more than there are"


@settings(max_examples=30, deadline=None)
@given(
    demand=st.lists(st.floats(0, 1e5), min_size=4, max_size=4),
    price=st.lists(st.floats(-10, 100), min_size=4, max_size=4),
    servers=st.lists(st.floats(0, 100), min_size=2, max_size=2),
)
def test_whatever_is_asked_servers_are_whole_within_capacity_and_shares_sum_to_one(demand, price, servers):
    what = model(networks=2, horizon=2, on_cost=0.5)
    plan = planned(what, np.reshape(demand, (2, 2)), np.reshape(price, (2, 2)), servers=servers)
    assert ((plan.servers >= 0) & (plan.servers <= 10)).all()
    assert (plan.servers == np.round(plan.servers)).all()
    total = plan.split.sum(axis=0)
    assert all(share == pytest.approx(1) or share == 0 for share in total)
