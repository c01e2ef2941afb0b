"""The best cut of a path into steady stretches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_predictors.phases import change_points as module
from cotide_predictors.phases.change_points import change_points


def levels(*stretches: tuple[int, float]) -> list[float]:
    return [level for length, level in stretches for _ in range(length)]


def path(*columns: list[float], noise: float = 0.0, seed: int = 0) -> np.ndarray:
    steady = np.column_stack(columns)
    return steady + np.random.default_rng(seed).normal(0, noise, steady.shape)


def test_a_change_of_either_column_is_found_where_it_is() -> None:
    cpu, memory = levels((20, 0.2), (28, 0.9)), levels((36, 0.5), (12, 0.1))
    assert change_points(path(cpu, memory), most=8) == (20, 36)


@pytest.mark.parametrize("seed", range(5))
def test_changes_are_found_in_noise(seed: int) -> None:
    found = change_points(path(levels((16, 0.2), (16, 0.8), (16, 0.4)), noise=0.05, seed=seed), most=8)
    assert len(found) == 2
    assert np.abs(np.subtract(found, (16, 32))).max() <= 1


def test_noise_alone_is_seldom_cut() -> None:
    cuts = [change_points(path(levels((48, 0.5)), noise=0.1, seed=seed), most=8) for seed in range(40)]
    assert sum(map(bool, cuts)) <= 4


def test_there_are_never_more_stretches_than_asked_for() -> None:
    steps = path(levels(*((6, 0.1 + 0.8 * (turn % 2)) for turn in range(8))))
    assert len(change_points(steps, most=16)) == 7
    assert len(change_points(steps, most=3)) <= 2


def test_a_path_of_one_step_has_no_change() -> None:
    assert change_points(path([0.4]), most=4) == ()


def slow_cut(values: np.ndarray, penalty: float, shortest: int) -> float:
    """The least cost over all cuts, by trying each."""
    best = np.inf
    for count in range(len(values)):
        for cuts in itertools.combinations(range(1, len(values)), count):
            parts = np.split(values, cuts)
            if min(map(len, parts)) >= min(shortest, len(values)):
                cost = sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts) + penalty * count
                best = min(best, cost)
    return float(best)


@given(
    values=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=8),
    penalty=st.floats(0.01, 1),
    shortest=st.integers(1, 3),
)
def test_no_other_cut_costs_less(values: list[tuple[float, float]], penalty: float, shortest: int) -> None:
    table = np.array(values)
    cuts = module._best_cut(table, penalty, shortest)
    parts = np.split(table, cuts)
    cost = sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts) + penalty * len(cuts)
    assert cost == pytest.approx(slow_cut(table, penalty, shortest), abs=1e-9)
