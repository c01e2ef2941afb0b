"""Equations 14 to 17, with their arithmetic shown."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cotide_lab.phases.utility import (
    DISTANCE,
    LOGARITHM,
    dominant_share,
    fairness_gain,
    parallelism_gain,
    shortness_gain,
    wait_penalty,
)


def amounts(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_the_dominant_share_is_that_of_the_scarcest_resource() -> None:
    # 2 of 10 cores, 3 + 1 of 8 GB: 4/8
    assert dominant_share(amounts(2, 3), amounts(0, 1), amounts(0, 0), amounts(10, 8)) == 0.5


def test_a_job_further_below_its_share_gains_more_fairness_from_the_same_phase() -> None:
    gains = [fairness_gain(before, before + 0.1, 4, LOGARITHM) for before in (0.0, 0.2, 0.5)]
    assert gains[0] > gains[1] > gains[2] > 0


def test_fairness_gain_is_the_logarithm_of_shares_in_fair_shares() -> None:
    # four jobs: 0.1 -> 0.2 of the cluster is 0.4 -> 0.8 fair shares
    assert fairness_gain(0.1, 0.2, 4, LOGARITHM) == pytest.approx(math.log(0.81 / 0.41))


def test_by_distance_a_job_gains_up_to_its_fair_share_and_loses_as_much_beyond_it() -> None:
    # two jobs: 0.4 -> 0.5 of the cluster is 0.8 -> 1 fair share, 0.5 -> 0.6 is 1 -> 1.2
    assert fairness_gain(0.4, 0.5, 2, DISTANCE) == pytest.approx(0.2)
    assert fairness_gain(0.5, 0.6, 2, DISTANCE) == pytest.approx(-0.2)
    # 0.4 -> 0.7 is 0.8 -> 1.4: 0.2 nearer, 0.4 farther
    assert fairness_gain(0.4, 0.7, 2, DISTANCE) == pytest.approx(-0.2)


def test_a_job_is_worth_more_the_less_work_it_has_left() -> None:
    # a tenth of all work against a half: five times as little
    assert shortness_gain(0.1) - shortness_gain(0.5) == pytest.approx(math.log(5))
    assert shortness_gain(1.0) == 0.0
    assert math.isfinite(shortness_gain(-1e-17))  # what sums of floats may come to at the end


def test_parallelism_gain_counts_waves_saved() -> None:
    assert parallelism_gain(12, 2) == 12 / 2 - 12 / 3
    assert parallelism_gain(12, 0) == 12 / 0.5 - 12  # epsilon is 1/2


def test_a_pause_is_worth_more_the_longer_it_lasts() -> None:
    assert wait_penalty(10, 0.5, 3) == 0.5 * 100 + 3
    assert wait_penalty(20, 0.5, 3) - wait_penalty(10, 0.5, 3) > wait_penalty(10, 0.5, 3) - wait_penalty(0, 0.5, 3)
