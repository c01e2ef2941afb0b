"""Intervals over blocks, ranks and claims, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_lab.predictor_lab.blocks import (
    critical_difference,
    difference_interval,
    mean_interval,
    mean_ranks,
    paired_interval,
    sums_by_block,
)
from cotide_lab.predictor_lab.cells import LabCell, LabOutcome
from cotide_lab.predictor_lab.claims import judged


def outcome(predictor: str, accuracy: float, blocks: int = 8) -> LabOutcome:
    cell = LabCell("run-time", "log", "d", "s", predictor, 0)
    return LabOutcome(
        cell, 80, {"accuracy": accuracy}, {"accuracy": ((10 * accuracy,) * blocks, (10.0,) * blocks)}, {}, None
    )


def test_blocks_hold_sums_and_counts_of_what_is_known() -> None:
    found = sums_by_block(np.array([0, 0, 2, 2]), np.array([1.0, 2.0, 4.0, np.nan]))
    assert found == ((3.0, 0.0, 4.0), (2.0, 0.0, 1.0))


def test_a_difference_of_the_same_blocks_has_no_width() -> None:
    noisy = (tuple(np.random.default_rng(0).random(20).tolist()), (1.0,) * 20)
    shifted = (tuple(value + 0.5 for value in noisy[0]), (1.0,) * 20)
    found = difference_interval(shifted, noisy)
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))


def test_a_paired_interval_is_students_over_blocks() -> None:
    """Differences 1 to 5, mean 3, deviation 1.581; four degrees of freedom: 2.776 x 1.581 / sqrt(5) = 1.963 at 95 %."""
    flat = ((0.0,) * 5, (10.0,) * 5)
    found = paired_interval((tuple(10.0 * number for number in range(1, 6)), (10.0,) * 5), flat, 0.95)
    assert (found.value, found.low, found.high) == pytest.approx((3.0, 3.0 - 1.963, 3.0 + 1.963), abs=1e-3)
    assert paired_interval(((1.0,) * 3, (1.0,) * 3), ((1.0,) * 3, (1.0,) * 3), 0.95).low is None


def test_too_few_blocks_give_no_interval() -> None:
    assert mean_interval(((1.0, 2.0), (1.0, 1.0))).low is None


def test_mean_ranks_share_ties() -> None:
    found = mean_ranks(
        {"a": {"x": 0.9, "y": 0.5, "z": 0.5}, "b": {"x": 0.9, "y": 0.8, "z": 0.1}}, higher_is_better=True
    )
    assert found == {"x": 1.0, "y": 2.25, "z": 2.75}  # in a: 1, 2.5, 2.5; in b: 1, 2, 3


def test_the_critical_difference_is_the_tabled_one() -> None:
    """Demsar 2006, Table 5: 2.569 for four classifiers; sqrt(4 x 5 / (6 x 10)) = 0.577."""
    assert critical_difference(4, 10) == pytest.approx(2.569 * np.sqrt(20 / 60), rel=1e-3)


def test_a_claim_holds_only_with_its_whole_interval() -> None:
    """.8 / .6 - 1 = 33.3 %, just enough; .79 / .6 - 1 = 31.7 %."""
    held = judged([outcome("fmkf", 0.8), outcome("last-two", 0.6)])
    missed = judged([outcome("fmkf", 0.79), outcome("last-two", 0.6)])
    assert [one.holds for one in held] == [True]
    assert [one.holds for one in missed] == [False]
    assert "does not hold: fmkf is 33 % more accurate than last-two" in missed[0].sentence
    assert "found +31.7%" in missed[0].sentence


def test_a_claim_that_was_not_run_is_left_out() -> None:
    assert judged([outcome("fmkf", 0.8)]) == []
