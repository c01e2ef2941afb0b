"""Several services in one program: who has the room that not all can have, and what is whole of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_core.provisioning import placement_model, placement_plan
from cotide_core.provisioning.placement_model import DataCentre, PlacementModel, PlacementOutlook, ServiceLevel
from cotide_core.provisioning.placement_plan import PlacementPlan, plan_placement
from cotide_core.provisioning.placement_program import PlacementProgram
from cotide_core.provisioning.placement_rounding import fitted
from cotide_core.provisioning.programs import Floats
from cotide_solvers import highs
from cotide_solvers.clarabel import ClarabelSolver
from cotide_solvers.convex import ConvexSolver

SEEDS = st.integers(0, 10_000)


def level(penalty: float = 1e-3, **rest: float) -> ServiceLevel:
    """A server of 50 requests a second takes 25: 0.02 s are left of 0.1 s after 0.08 s on the way."""
    return ServiceLevel(0.1, 50.0, 1.0, penalty, **rest)


def model(
    services: tuple[ServiceLevel, ...], servers: tuple[float, ...] = (6.0,), horizon: int = 3, on_cost: float = 0.0
) -> PlacementModel:
    centres = tuple(DataCentre(f"place-{number}", most, on_cost) for number, most in enumerate(servers))
    shape = (len(centres), 1)
    return PlacementModel(centres, ("all",), np.full(shape, 0.08), np.zeros(shape), services, horizon=horizon)


def planned(
    what: PlacementModel, demand: list[float], now: list[list[float]] | None = None, waits: list[bool] | None = None
) -> PlacementPlan:
    """Plan for steady requests a second by service; the first data centre costs 1 an hour, the next 2 ..."""
    steps, centres, services = what.horizon, len(what.centres), len(what.services)
    price = np.broadcast_to(np.arange(1.0, centres + 1), (steps, centres))
    rates = np.broadcast_to(np.array(demand)[:, None], (steps, services, 1))
    start = np.zeros((services, centres)) if now is None else np.array(now)
    held = None if waits is None else np.array(waits)
    return plan_placement(PlacementProgram(what), ConvexSolver(), start, PlacementOutlook(rates, price), held)


def first(plan: PlacementPlan) -> list[list[float]]:
    """Servers of the first step by service and data centre."""
    return [own.servers[0].tolist() for own in plan.services]


@pytest.mark.parametrize("dear_first", [True, False])
def test_scarce_room_goes_to_whom_a_lost_request_costs_most_in_whatever_order(dear_first: bool) -> None:
    """Of six servers each of two wants four."""
    services = (level(2e-3), level(1e-3)) if dear_first else (level(1e-3), level(2e-3))
    plan = planned(model(services), [100.0, 100.0])
    assert first(plan) == ([[4], [2]] if dear_first else [[2], [4]])
    assert plan.services[1 if dear_first else 0].unserved[0, 0] == pytest.approx(50)
    # One server more would serve 25 requests a second of 0.001 for three hours, and cost three.
    assert plan.worth_of_server[0] == pytest.approx(3 * (25 * 3600 * 1e-3 - 1))


def test_who_needs_most_servers_for_a_lost_request_goes_without() -> None:
    """A lost request costs both the same; a server of one takes twice the room of the other's."""
    plan = planned(model((level(size=2.0), level())), [100.0, 100.0])
    assert first(plan) == [[1], [4]]


def test_a_server_of_twice_the_size_costs_twice_the_price_and_is_whole() -> None:
    """Of seven servers three of size 2 fit; the fourth stands in the next place."""
    plan = planned(model((level(size=2.0),), (7.0, 9.0), horizon=1), [100.0])
    assert first(plan) == [[3, 1]]
    assert plan.cost == pytest.approx(3 * 2 * 1 + 1 * 2 * 2)


def test_who_can_go_elsewhere_leaves_the_near_place_to_who_can_not() -> None:
    """In the order of a file the first service would take the cheap place, and the second lose its requests."""
    near = ServiceLevel(0.1, 50.0, 1.0, 1e-3)
    far = ServiceLevel(0.2, 25.0, 1.0, 1e-3)
    what = model((far, near), (6.0, 9.0))
    delays = np.array([[0.08], [0.1]])
    what = PlacementModel(what.centres, ("all",), delays, np.zeros((2, 1)), (far, near), horizon=3)
    plan = planned(what, [50.0, 150.0])
    assert first(plan)[1] == [6, 0]
    assert max(own.unserved.max() for own in plan.services) == pytest.approx(0)


def test_what_one_service_gives_up_another_has_unless_it_can_not_go_yet() -> None:
    """The first falls from six to four; while it can't, the second stands where there is room."""
    what = model((level(1e-3), level(2e-3)), (6.0, 4.0), on_cost=0.01)
    now = [[6.0, 0.0], [0.0, 0.0]]
    plan = planned(what, [100.0, 100.0], now)
    assert first(plan) == [[4, 0], [2, 2]]
    assert plan.scarce.tolist() == [True, False]
    assert first(planned(what, [100.0, 100.0], now, [True, False])) == [[4, 0], [0, 4]]


def test_who_must_yield_yields_although_nobody_can_have_the_room_before_it_is_gone() -> None:
    """Else nothing would ever move: in each turn it would be best to yield in the next."""
    for horizon in (1, 3):
        what = model((level(1e-3), level(2e-3)), horizon=horizon)
        assert first(planned(what, [150.0, 100.0], [[6.0], [0.0]])) == [[2], [4]]
        assert first(planned(what, [150.0, 100.0], [[6.0], [0.0]], [True, False])) == [[2], [0]]


def test_who_must_move_for_a_rise_that_is_foreseen_begins_a_step_before_it() -> None:
    """The first can stand in the second place, too; the second can't, and its requests come in the next step."""
    services = (level(1e-3), level(2e-3))
    delays = np.array([[0.08, 0.08], [0.08, np.inf]])
    centres = (DataCentre("a", 4.0), DataCentre("b", 4.0))
    what = PlacementModel(centres, ("x", "y"), delays, np.zeros((2, 2)), services, horizon=3)
    rates = np.array([[[100.0, 0.0], [0.0, coming]] for coming in (0.0, 100.0, 100.0)])
    outlook = PlacementOutlook(rates, np.broadcast_to([1.0, 2.0], (3, 2)))
    plan = plan_placement(PlacementProgram(what), ConvexSolver(), np.array([[4.0, 0.0], [0.0, 0.0]]), outlook)
    assert first(plan) == [[0, 4], [0, 0]]


def test_what_a_service_leaves_behind_is_not_given_away_before_it_has_arrived_elsewhere() -> None:
    """The first moves from the first place to the second, of which the second service can use none."""
    what = model((level(2e-3), level(2e-3)), (4.0, 4.0))
    near = PlacementModel(
        what.centres, ("a", "b"), np.array([[0.08, 0.08], [np.inf, 0.08]]), np.zeros((2, 2)), what.services, horizon=3
    )
    rates = np.broadcast_to(np.array([[0.0, 100.0], [100.0, 0.0]]), (3, 2, 2))
    outlook = PlacementOutlook(rates, np.ones((3, 2)))
    plan = plan_placement(PlacementProgram(near), ConvexSolver(), np.array([[4.0, 0.0], [0.0, 0.0]]), outlook)
    assert first(plan) == [[0, 4], [0, 0]]
    plan = plan_placement(PlacementProgram(near), ConvexSolver(), np.array([[4.0, 4.0], [0.0, 0.0]]), outlook)
    assert first(plan) == [[0, 4], [4, 0]]


def test_a_fraction_that_finds_no_room_is_taken_over_elsewhere() -> None:
    """Each of three wants one and a half of four servers: one is rounded up, and what two lack stands next door."""
    plan = planned(model((level(),) * 3, (4.0, 9.0)), [37.5] * 3)
    servers = np.array(first(plan))
    assert servers[:, 0].sum() == 4
    assert servers.sum(axis=1).tolist() == [2, 2, 2]
    assert max(own.unserved[0, 0] for own in plan.services) == pytest.approx(0, abs=1e-6)


def test_two_services_do_not_take_turns_over_a_fraction() -> None:
    exact, now, room, worth = (
        np.array([[3.6], [2.4]]),
        np.array([[3.0], [3.0]]),
        np.array([6.0]),
        np.array([[5.0], [1]]),
    )
    assert fitted(exact, now, np.array([True, True]), np.ones(2), room, worth).tolist() == [[3], [3]]
    assert fitted(exact, now, np.array([True, False]), np.ones(2), room, worth).tolist() == [[4], [2]]


class World:
    """Services, networks and data centres of a seed; ``room`` scales the capacity."""

    def __init__(self, seed: int, room: float) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.services = tuple(
            ServiceLevel(
                rng.uniform(0.1, 0.2), rng.uniform(20, 80), 1.0, rng.uniform(1e-5, 1e-3), size=rng.choice([1.0, 1.5])
            )
            for _ in range(3)
        )
        self.centres = tuple(DataCentre(f"d{n}", np.floor(room * rng.uniform(5, 30)), 0.05, 0.02) for n in range(3))
        self.delays, self.egress = rng.uniform(0.01, 0.09, (3, 4)), rng.uniform(0, 1e-7, (3, 4))
        self.demand, self.price = rng.uniform(0, 100, (4, 3, 4)), rng.uniform(0.02, 0.2, (4, 3))

    def model(self, *services: int) -> PlacementModel:
        levels = tuple(self.services[service] for service in services)
        names = tuple("abcd")
        return PlacementModel(self.centres, names, self.delays, self.egress, levels, 3600.0, 4)

    def outlook(self, *services: int, taken: Floats | None = None) -> PlacementOutlook:
        capacity = np.array([centre.servers for centre in self.centres])
        left = None if taken is None else np.clip(1.0 - taken / np.maximum(capacity, 1.0), 0.0, 1.0)
        return PlacementOutlook(self.demand[:, list(services)], self.price, left)

    def plan(self, now: Floats, *services: int) -> PlacementPlan:
        return plan_placement(PlacementProgram(self.model(*services)), ConvexSolver(), now, self.outlook(*services))


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_where_capacity_does_not_bind_each_service_has_what_it_would_have_alone(seed: int) -> None:
    world = World(seed, room=100.0)
    now = world.rng.integers(0, 20, (3, 3)).astype(float)
    together = world.plan(now, 0, 1, 2)
    assert not together.scarce.any()
    assert together.worth_of_server.tolist() == pytest.approx([0.0] * 3, abs=1e-6)
    for service, own in enumerate(together.services):
        alone = world.plan(now[[service]], service)
        assert own.servers.tolist() == alone.services[0].servers.tolist()
        assert own.exact == pytest.approx(alone.services[0].exact, abs=1e-5)
        assert own.cost == pytest.approx(alone.cost, rel=1e-6)
    assert together.cost == pytest.approx(sum(own.cost for own in together.services), rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, room=st.floats(0.1, 3.0))
def test_one_program_never_costs_more_than_one_after_the_other(seed: int, room: float) -> None:
    world = World(seed, room)
    program = PlacementProgram(world.model(0, 1, 2))
    together = ConvexSolver().solve(program.fill(np.zeros((3, 3)), world.outlook(0, 1, 2))).cost
    taken, in_order = np.zeros(3), 0.0
    for service in range(3):
        own = PlacementProgram(world.model(service))
        solved = ConvexSolver().solve(own.fill(np.zeros((1, 3)), world.outlook(service, taken=taken)))
        in_order += solved.cost
        there = solved.x[own.blocks[1][:, 0]] + solved.x[own.blocks[3][:, 0]]
        taken += there.max(axis=0) * world.services[service].size
    assert together <= in_order * (1 + 1e-6) + 1e-9


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, room=st.floats(0.05, 3.0))
def test_whole_servers_of_all_services_fit_beside_what_runs(seed: int, room: float) -> None:
    check_that_all_fits(seed, room)


def test_they_fit_also_where_attempts_are_at_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_plan, "ATTEMPTS", 2)
    for seed in range(20):
        check_that_all_fits(seed, 0.5)


def check_that_all_fits(seed: int, room: float) -> None:
    world = World(seed, room)
    now = world.rng.integers(0, 6, (3, 3)).astype(float)
    waits = world.rng.random(3) < 0.5
    program, outlook = PlacementProgram(world.model(0, 1, 2)), world.outlook(0, 1, 2)
    counts = np.array(first(plan_placement(program, ConvexSolver(), now, outlook, waits)))
    sizes = np.array([service.size for service in world.services])
    capacity = np.array([centre.servers for centre in world.centres])
    assert (counts == np.round(counts)).all()
    assert (sizes @ counts <= capacity + 1e-3).all()
    rises = (counts > now).any(axis=0)
    stays = waits | (counts > now).any(axis=1)
    assert (sizes @ np.where(stays[:, None], np.maximum(counts, now), counts) <= capacity + 1e-3)[rises].all()


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_both_solvers_find_the_same_cost_for_several_services(seed: int) -> None:
    world = World(seed, room=0.5)
    program = PlacementProgram(world.model(0, 1, 2))
    filled = program.fill(np.zeros((3, 3)), world.outlook(0, 1, 2))
    assert ConvexSolver().solve(filled).cost == pytest.approx(ClarabelSolver().solve(filled).cost, rel=1e-5)


def test_a_large_program_begins_with_an_interior_point_method_and_has_the_same_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(3, room=0.5)
    small = world.plan(np.zeros((3, 3)), 0, 1, 2)
    monkeypatch.setattr(highs, "SIMPLEX_COLUMNS", 0)
    large = world.plan(np.zeros((3, 3)), 0, 1, 2)
    assert large.cost == pytest.approx(small.cost, rel=1e-9)
    assert first(large) == first(small)


def test_more_than_can_be_planned_with_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_model, "MAX_COLUMNS", 20)
    words = r"^services: 2 services, 1 data centres, 1 networks and 3 steps need 33 variables, at most 20 are planned"
    with pytest.raises(InputError, match=words):
        PlacementProgram(model((level(), level())))


def test_a_mistake_about_one_of_several_services_names_it() -> None:
    with pytest.raises(InputError, match="delay asked for of api"):
        PlacementProgram(model((level(), ServiceLevel(0.05, 50.0, name="api"))))
    with pytest.raises(InputError, match=r"services\[api\]: needs a delay and a service rate"):
        PlacementProgram(model((level(), ServiceLevel(0.1, 0.0, name="api"))))
