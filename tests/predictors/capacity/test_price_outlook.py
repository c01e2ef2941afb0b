"""Prices foreseen from those that came: back to their mean, a tenth of the way each quarter of an hour."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_predictors.capacity.price_outlook import foreseen_prices

HISTORY = np.array([[1.0, 5.0], [1.0, 5.0], [4.0, 5.0]])


def test_the_first_price_is_that_of_now_and_later_ones_go_back_to_the_mean() -> None:
    found = foreseen_prices(HISTORY, 100, 900.0)
    assert found[:3, 0] == pytest.approx([4.0, 2 + 0.9 * 2, 2 + 0.81 * 2])
    assert found[-1, 0] == pytest.approx(2.0, abs=1e-3)
    assert found[:, 1] == pytest.approx([5.0] * 100)


def test_steps_of_an_hour_go_four_times_as_far_as_those_of_a_quarter() -> None:
    assert foreseen_prices(HISTORY, 3, 3600.0)[1] == pytest.approx(foreseen_prices(HISTORY, 9, 900.0)[4])


def test_a_history_that_is_old_has_gone_on_meanwhile() -> None:
    assert foreseen_prices(HISTORY, 2, 900.0, 900.0) == pytest.approx(foreseen_prices(HISTORY, 3, 900.0)[1:])


def test_of_one_price_alone_it_holds() -> None:
    assert foreseen_prices(np.array([7.0]), 3, 900.0).tolist() == [7.0, 7.0, 7.0]
