"""Laws of how much cpu batch may use, and of how it is shared out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_node_agent.control_law import (
    LEAST_FACTOR,
    Claim,
    LawSettings,
    LawState,
    Observation,
    divide,
    next_allowance,
)

LAW = LawSettings(target_share=0.9, half_life_seconds=5.0, floor_cpus=0.05)
CPUS = st.floats(0, 8)
SHARES = st.one_of(st.none(), st.floats(0, 1))
STEPS = st.lists(st.tuples(st.floats(0.01, 3), CPUS, CPUS, SHARES), min_size=1, max_size=30)
CLAIMS = st.lists(
    st.builds(Claim, st.floats(0, 2), st.one_of(st.just(float("inf")), st.floats(0, 4)), st.floats(0.01, 4)), max_size=8
)


def run(*steps: tuple[float, float, float, float | None], capacity: float = 8.0) -> list[float]:
    """Allowances after steps of (seconds, used, published, waiting)."""
    state, now, found = LawState(), 0.0, []
    for seconds, used, published, waiting in steps:
        now += seconds
        state, allowance = next_allowance(LAW, state, Observation(capacity, used, published, waiting), now)
        found.append(allowance)
    return found


def test_room_is_what_services_leave_of_the_target() -> None:
    assert run((1, 3.0, 0, None)) == [pytest.approx(0.9 * 8 - 3.0)]


def test_a_rise_takes_room_at_once_and_a_fall_gives_half_of_it_back_each_half_life() -> None:
    # Target 7.2. At 1 cpu there is room for 6.2; at 5 for 2.2; 5 s after the fall the peak is 1 + 4/2 = 3.
    assert run((1, 1.0, 0, None), (0.25, 5.0, 0, None), (5, 1.0, 0, None)) == pytest.approx([6.2, 2.2, 4.2])


def test_room_that_was_forecast_comes_back_at_once() -> None:
    # 3 were published: they are there a moment after the fall, and no more than 7.2 - 5 = 2.2 before it.
    assert run((1, 5.0, 3.0, None), (0.25, 1.0, 3.0, None)) == pytest.approx([2.2, max(3.0, 7.2 - (1 + 4 * 0.5**0.05))])


def test_waiting_halves_the_room_twice_a_second_at_most_and_calm_gives_it_back_slowly() -> None:
    cut = run((1, 1.0, 0, 0.5), (0.25, 1.0, 0, 0.5), (0.25, 1.0, 0, 0.5))
    assert cut == pytest.approx([3.1, 3.1, 1.55])
    # Calm begins at 2 s; after 3 s of it a tenth of the whole comes back each second.
    steps = [(1, 1.0, 0, 0.5), *[(1, 1.0, 0, 0.0)] * 5]
    assert run(*steps) == pytest.approx([3.1, 3.1, 3.1, 3.1 + 0.62, 3.1 + 1.24, 3.1 + 1.86])


def test_between_both_thresholds_nothing_changes() -> None:
    assert run((1, 1.0, 0, 0.5), *[(2, 1.0, 0, 0.15)] * 5) == pytest.approx([3.1] * 6)


@given(STEPS)
def test_the_allowance_is_never_above_what_is_left_now_nor_below_the_floor(
    steps: list[tuple[float, float, float, float | None]],
) -> None:
    for (_, used, _, _), allowance in zip(steps, run(*steps), strict=True):
        assert LAW.floor_cpus <= allowance <= max(LAW.floor_cpus, 0.9 * 8 - used) + 1e-9


@given(STEPS, CPUS, CPUS)
def test_more_use_by_services_never_leaves_more_room(
    steps: list[tuple[float, float, float, float | None]], one: float, other: float
) -> None:
    less, more = sorted((one, other))
    assert run(*steps, (0.25, more, 0, None))[-1] <= run(*steps, (0.25, less, 0, None))[-1] + 1e-9


@given(STEPS)
def test_after_a_calm_while_everything_is_given_back(steps: list[tuple[float, float, float, float | None]]) -> None:
    # 8 cpus fade to 8 x 2^-24 in two minutes; a factor of 0.1 recovers in 3 + 9 s.
    assert LEAST_FACTOR == 0.1
    calm = [(1.0, 0.0, 0.0, 0.0)] * 120
    assert run(*steps, *calm)[-1] == pytest.approx(7.2, abs=1e-5)


@given(st.floats(0, 8), CLAIMS)
def test_shares_add_up_and_nobody_has_less_than_its_floor(allowance: float, claims: list[Claim]) -> None:
    given_out = divide(allowance, claims)
    floors = sum(claim.floor_cpus for claim in claims)
    assert sum(given_out) == pytest.approx(max(allowance, floors) if claims else 0.0)
    for claim, amount in zip(claims, given_out, strict=True):
        assert amount >= claim.floor_cpus - 1e-9


@given(st.floats(0, 8), CLAIMS)
def test_who_needs_more_has_for_its_weight_no_less_than_anybody_else(allowance: float, claims: list[Claim]) -> None:
    given_out = divide(allowance, claims)
    levels = [(amount - claim.floor_cpus) / claim.weight for claim, amount in zip(claims, given_out, strict=True)]
    for claim, amount, level in zip(claims, given_out, levels, strict=True):
        if amount < claim.needs_cpus - 1e-9:
            assert all(level >= other - 1e-6 for other in levels)


def test_what_one_does_not_need_goes_to_the_others_by_weight() -> None:
    claims = [Claim(0.1, 0.2, 1), Claim(0.1, float("inf"), 1), Claim(0.1, float("inf"), 3)]
    # 2.0: floors .3, the first needs .1 more; 1.6 are left for weights 1 and 3.
    assert divide(2.0, claims) == pytest.approx([0.2, 0.5, 1.3])
