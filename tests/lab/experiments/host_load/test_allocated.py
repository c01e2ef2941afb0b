"""What batch pods will hold: each contender by hand, and the window that the project overwrote before."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_lab.experiments.hierarchical.data_center import MACHINES
from cotide_lab.experiments.host_load.allocated import (
    APPENDED,
    AT_LEAST,
    HELD,
    IN_USE,
    MAXIMA,
    OVERWRITTEN,
    WHOLE,
    Shadows,
    _missed,
    _point,
)
from cotide_predictors.host_load.feedback_ar import FeedbackAr

SHAPE = (2, len(MACHINES))


def path_of(records: list[float]) -> float:
    model = FeedbackAr(1)
    for value in records:
        model.record(np.array([value]))
    return float(model.path(1)[0, 0])


def test_contenders_differ_in_what_their_window_holds() -> None:
    """Maxima .1 .2 .35 .4 .6, each held to the end of its slot; .5 is held when the next slot begins."""
    shadows = Shadows(np.full((12, 60), 0.3) + 0.01 * np.random.default_rng(0).standard_normal((12, 60)))
    for held in (0.1, 0.2, 0.35, 0.4, 0.6):
        if shadows._overwritten:
            shadows.revise(np.full(SHAPE, held))
        shadows.record(np.zeros(SHAPE), np.full(SHAPE, held))
    shadows.revise(np.full(SHAPE, 0.5))
    shadows.forecast(np.zeros(SHAPE), np.full(SHAPE, 0.5))
    shadows.record(np.zeros(SHAPE), np.full(SHAPE, 0.9))
    found = {name: float(values[0]) for name, values in shadows.points[0].items()}
    assert found[HELD] == 0.5
    assert found[WHOLE] == 1.0
    # The slots began with what they reached: no rise.
    assert found[IN_USE] == pytest.approx(0.5)
    assert found[APPENDED] == pytest.approx(path_of([0.1, 0.2, 0.35, 0.4, 0.6, 0.5]))
    assert found[MAXIMA] == pytest.approx(path_of([0.1, 0.2, 0.35, 0.4, 0.6]))
    assert found[OVERWRITTEN] == pytest.approx(path_of([0.2, 0.35, 0.4, 0.6, 0.5]))
    assert found[APPENDED + AT_LEAST] == max(found[APPENDED], 0.5)
    assert shadows.truth[0][0] == pytest.approx(0.9)


def test_a_point_forecast_is_scored_by_hand_and_a_better_one_is_named() -> None:
    errors = [np.array([[0.1, -0.1]]), np.array([[0.2, 0.0]])]
    row = _point("one", errors, np.array([0.05, 0.06]), 1)
    assert row.mse == pytest.approx((0.01 + 0.02) / 2)
    assert row.under == pytest.approx(1 / 4)
    assert row.under_mean == pytest.approx(0.1 / 4)
    assert row.behind == pytest.approx(-0.04)
    assert row.high == pytest.approx(-0.04)
    assert _missed([row])
    assert not _missed([_point(IN_USE, errors, np.array([0.01, 0.02]), 1)])
