"""What makes contenders comparable: intervals, and knobs that are chosen on seeds of their own."""

from __future__ import annotations

import pytest

from cotide_core.errors import InputError
from cotide_sim.experiments.like_for_like import Interval, best_knob, interval, reported


def test_an_interval_of_one_seed_is_its_value() -> None:
    assert interval([2.0]) == interval([2.0, 2.0]) == Interval(2.0, 2.0, 2.0, 2.0)


def test_an_interval_is_students_and_the_median_is_not_moved_by_one_large_value() -> None:
    # mean 4, deviation sqrt(((-3)^2 + (-2)^2 + 5^2) / 2) = 4.359, t(0.975, 2) = 4.303
    found = interval([1.0, 2.0, 9.0])
    assert (found.mean, found.median) == (4.0, 2.0)
    assert found.high == pytest.approx(4 + 4.303 * 4.359 / 3**0.5, abs=1e-2)


def test_of_equal_knobs_the_first_is_chosen() -> None:
    assert best_knob([3, 1, -1], abs) == 1


def test_a_seed_on_which_knobs_are_chosen_is_refused() -> None:
    assert reported(range(3)) == (0, 1, 2)
    with pytest.raises(InputError, match="chosen on seed 102"):
        reported([5, 102])
