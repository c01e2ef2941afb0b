"""The one way in which experiments compare."""

from __future__ import annotations

import math

import pytest

from cotide_core.errors import InputError
from cotide_lab.experiments.like_for_like import REFINEMENTS, Interval, Ratio, Spread, chosen, halfway, reported


def test_the_cheapest_setting_that_keeps_the_goal_is_chosen():
    assert chosen({0.1: 5.0, 0.5: 7.0, 0.9: 9.0}, {0.1: 0.3, 0.5: -0.1, 0.9: -0.9}) == 0.5


def test_without_a_setting_that_keeps_the_goal_the_nearest_one_is_chosen():
    assert chosen({0.1: 5.0, 0.5: 7.0}, {0.1: 2.0, 0.5: 0.2}) == 0.5


@pytest.mark.parametrize(
    ("excess", "found"),
    [
        ({0.1: 0.3, 0.5: -0.1, 0.9: -0.9}, 0.3),  # 0.1 is cheaper and misses the goal
        ({0.1: 0.3, 0.5: 0.1, 0.9: -0.9}, 0.7),
        ({0.1: -0.3, 0.5: -0.5, 0.9: -0.9}, None),  # the cheapest keeps the goal
        ({0.1: 0.3, 0.5: 0.2, 0.9: 0.1}, None),  # none keeps it
    ],
)
def test_the_next_setting_lies_halfway_to_the_cheaper_neighbour(excess: dict[float, float], found: float | None):
    next_setting = halfway({0.1: 5.0, 0.5: 7.0, 0.9: 9.0}, excess)
    assert next_setting == (found if found is None else pytest.approx(found))


def test_halving_three_times_finds_a_threshold_within_an_eighth_of_the_step():
    cost, excess = {0.0: 0.0, 1.0: 1.0}, {0.0: 0.3, 1.0: -0.7}
    for _ in range(REFINEMENTS):
        setting = halfway(cost, excess)
        assert setting is not None
        cost[setting], excess[setting] = setting, 0.3 - setting
    assert chosen(cost, excess) == 0.375


def test_a_ratio_is_the_geometric_mean_with_students_interval():
    ratio = Ratio.of([1.0, 4.0], [2.0, 2.0])
    assert ratio.mean == pytest.approx(1.0)
    # Logarithms -0.693 and 0.693: deviation 0.980, t with one degree of freedom 12.706, over the root of 2.
    assert math.log(ratio.high) == pytest.approx(12.7062 * math.log(2), rel=1e-4)
    assert not ratio.beyond_noise
    assert Ratio.of([0.9, 0.91, 0.9], [1.0, 1.0, 1.0]).beyond_noise


def test_one_seed_has_no_interval_and_what_serves_nothing_has_a_ratio_of_zero():
    single = Ratio.of([0.5], [1.0])
    assert single.mean == 0.5
    assert math.isnan(single.low)
    assert Ratio.of([1.0, 2.0], [math.inf, math.inf]).mean == 0.0
    assert Spread.of([1.0, 3.0]) == Spread(2.0, 1.0, 3.0)


def test_an_interval_of_one_seed_is_its_value() -> None:
    assert Interval.of([2.0]) == Interval.of([2.0, 2.0]) == Interval(2.0, 2.0, 2.0, 2.0)


def test_an_interval_is_students_and_one_large_value_leaves_the_median_where_it_is() -> None:
    # mean 4, deviation sqrt(((-3)^2 + (-2)^2 + 5^2) / 2) = 4.359, t(0.975, 2) = 4.303
    found = Interval.of([1.0, 2.0, 9.0])
    assert (found.mean, found.median) == (4.0, 2.0)
    assert found.high == pytest.approx(4 + 4.303 * 4.359 / 3**0.5, abs=1e-2)


def test_a_seed_on_which_settings_are_chosen_is_refused() -> None:
    assert reported(range(3)) == (0, 1, 2)
    with pytest.raises(InputError, match="chosen on seed 102"):
        reported([5, 102])
