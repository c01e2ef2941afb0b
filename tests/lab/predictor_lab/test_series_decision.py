"""What a path is worth is counted at the same safety for everybody."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_lab.predictor_lab.plan import cells_of, source_of
from cotide_lab.predictor_lab.report import ranks_of, tables_of
from cotide_lab.predictor_lab.series.decision import OVERLOADED, capacity_held, node_capacity, nodes_needed
from cotide_lab.predictor_lab.series.task import run

HOURS, SERIES, SLOTS = 40, 8, 12


def truth() -> np.ndarray:
    """Half of the series are high when the others are low, and change roles each hour."""
    generator = np.random.default_rng(9)
    high = (np.arange(HOURS)[:, None] + np.arange(SERIES)[None, :]) % 2 == 0
    return np.clip(np.where(high, 0.8, 0.1)[:, :, None] + generator.normal(0, 0.01, (HOURS, SERIES, SLOTS)), 0, 1)


def test_what_is_held_for_a_known_sum_is_what_is_needed() -> None:
    """Of 40 hours, 38 are as said and two need a tenth more: the margin at 5 % is still 0."""
    paths = np.full((HOURS, 2, SLOTS), 0.5)
    needed = paths.copy()
    needed[:2] *= 1.1
    held = capacity_held(needed, paths, np.ones(2))
    assert held == pytest.approx(np.ones(HOURS) / needed.sum(axis=1).max(axis=1).mean(), rel=0.01)


def test_a_constant_error_costs_nothing_since_the_margin_takes_it_back() -> None:
    paths = truth()
    one = capacity_held(paths, paths, np.ones(SERIES))
    other = capacity_held(paths, paths - 0.3, np.ones(SERIES))
    assert other == pytest.approx(one)


def test_who_knows_which_series_is_high_needs_fewer_nodes_at_the_same_overload() -> None:
    """A node holds 1.0. Pairs of a high and a low series fit (0.9); who takes all for high keeps each alone."""
    actual, scale = truth(), np.full(SERIES, 0.05)
    knowing = nodes_needed(actual, actual, scale, 1.0)
    mean = np.broadcast_to(actual.mean(axis=(0, 2))[None, :, None], actual.shape)
    ignorant = nodes_needed(actual, mean, scale, 1.0)
    assert knowing.mean() == pytest.approx(4.0, abs=0.3)
    assert ignorant.mean() > knowing.mean() + 1
    assert 0 < OVERLOADED < 0.05


def test_a_node_holds_the_largest_series() -> None:
    assert node_capacity(np.array([[0.1, 0.2], [np.nan, 0.2]])) == pytest.approx(0.8)
    assert node_capacity(np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 9.0]])) == 9.0


def test_a_report_ranks_paths_by_error_and_by_both_decisions() -> None:
    tasks = cells_of("usage-path", [source_of(None, hosts=5)], ["last-value", "yesterday", "smoothing"], [0])
    ranks = ranks_of(tables_of([run(*task) for task in tasks]))
    assert [rank.figure for rank in ranks] == ["mase", "nodes_at_overload", "capacity_at_shortfall"]
    assert all(len(rank.ranks) == 3 for rank in ranks)
