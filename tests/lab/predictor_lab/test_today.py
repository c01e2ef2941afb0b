"""What beats today's predictors by decision is said with an interval, and only beyond noise."""

from __future__ import annotations

import numpy as np

from cotide_lab.predictor_lab.cells import LabCell, LabOutcome
from cotide_lab.predictor_lab.today import against_today

BLOCKS = 12


def outcome(predictor: str, level: float, *, noise: float = 0.01, seed: int = 0) -> LabOutcome:
    """Twelve blocks of ten hours in which a predictor needs so many nodes; all meet the same days."""
    days = np.random.default_rng(1).normal(0, 0.5, BLOCKS)
    own = np.random.default_rng(len(predictor)).normal(0, noise, BLOCKS)
    blocks = (tuple((10 * (level + days + own)).tolist()), (10.0,) * BLOCKS)
    cell = LabCell("usage-path", "a.csv", "a", "series: all", predictor, seed)
    return LabOutcome(cell, 120, {"nodes_at_overload": level}, {"nodes_at_overload": blocks}, {}, None)


def test_fewer_nodes_beyond_noise_beat_today_and_the_best_comes_first() -> None:
    found = against_today([outcome("host-load", 10.0), outcome("ridge", 9.5), outcome("boosting", 9.0)])
    assert [list(one.better) for one in found] == [["boosting", "ridge"]]
    assert found[0].nearest is None
    assert found[0].sentence.startswith("a.csv: by nodes_at_overload better than host-load, beyond noise: boosting (-1")


def test_where_nobody_does_the_nearest_is_named() -> None:
    (found,) = against_today([outcome("host-load", 10.0), outcome("ridge", 9.99, noise=1.0), outcome("mean", 12.0)])
    assert found.better == {}
    assert found.nearest is not None
    assert found.nearest[0] == "ridge"
    assert "no predictor beats host-load beyond noise; nearest is ridge (" in found.sentence


def test_one_of_many_that_is_better_by_chance_is_not_told_apart() -> None:
    """Predictors that differ from today's by noise alone: one by one at 95 % that of 47 letters would win."""
    baselines = [outcome("r" * number, 10.0, noise=0.3) for number in range(40, 62)]
    (found,) = against_today([outcome("host-load", 10.0), *baselines])
    assert found.better == {}


def test_without_a_run_of_todays_predictor_nothing_is_said() -> None:
    assert against_today([outcome("ridge", 9.0), outcome("mean", 12.0)]) == []
    assert against_today([outcome("host-load", 9.0)]) == []
