"""Forecasts of a recorded series are pinned: whoever stores what forecasters know otherwise changes none of them."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.kernels.array_types import Floats
from cotide_operator.host_load.forecasters import Forecasters

NODES = 5
SLOTS = 330
"""More than the day that the experts remember, and than the window of the scores."""

PINNED = [
    88.40058097505063,
    96.48503802397813,
    104.9005257643913,
    76.60425138654763,
    75.7902553814571,
    98.51678275519917,
    99.15771485613529,
    102.98334466492912,
]
CPU_36_SLOTS = [
    0.7620516083788874,
    0.7765864811402504,
    0.7818335191305679,
    0.8340219946729792,
    0.8160609210498222,
]
SCORES = [
    1339.2896974914356,
    1338.711224161128,
    1338.9389849998315,
    1339.1732075793143,
    471.4248188972851,
    11.512633167207241,
    470.8867957508865,
    13.21577709633857,
]
"""Online pods: of 2026-11-26, before rings of slots. Batch pods: of 2026-11-28, by what is held and its mean rise."""


def series() -> Floats:
    """(SLOTS, 4, NODES) shares: a daily course, noise, and a record missing here and there."""
    slots, nodes = np.arange(SLOTS)[:, None, None], np.arange(NODES)
    forecaster = np.arange(4)[:, None]
    course = 0.35 + 0.05 * nodes + 0.2 * np.sin(2 * np.pi * slots / 288 + forecaster)
    noise = 0.08 * np.modf(np.sin(12.9898 * slots + 78.233 * nodes + 37.719 * forecaster) * 43.7585)[0]
    found: Floats = np.clip(course + noise, 0.0, 1.0)
    found[(slots * 7 + forecaster + nodes) % 41 == 0] = np.nan
    return found


def played() -> tuple[Forecasters, Floats]:
    """The forecasters after the series, and (SLOTS,) the sum of all that was forecast in each slot."""
    forecasters, sums = Forecasters(NODES, ahead_slots=(3, 36)), []
    for slot, values in enumerate(series()):
        if slot == 150:
            forecasters.reset([3])
        forecasters.record(values)
        forecasters.revise(np.array([1, 4]), np.array([[0.3, 0.5], [0.4, 0.2]]))
        made, _ = forecasters.made()
        forecast = [*made.slot, *(one for _, *both in made.ahead for one in both)]
        sums.append(sum(float((one.point + one.p50 + one.p90 + one.p99).sum()) for one in forecast))
    return forecasters, np.array(sums)


def test_a_recorded_series_is_forecast_and_scored_as_ever() -> None:
    forecasters, sums = played()
    assert sums[[0, 1, 40, 149, 150, 288, 289, 329]].tolist() == pytest.approx(PINNED, rel=1e-12)
    made, _ = forecasters.made()
    assert made.ahead[1][1].p99.tolist() == pytest.approx(CPU_36_SLOTS, rel=1e-12)
    scores = [*forecasters.scores(), *forecasters.ahead_scores().values()]
    found = [float(np.nansum(score.absolute_error + score.coverage.sum(axis=1) + score.records)) for score in scores]
    assert found == pytest.approx(SCORES, rel=1e-12)
