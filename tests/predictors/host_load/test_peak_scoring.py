"""Forecasts of peaks over several slots are scored once their horizon is over, one after the other."""

from __future__ import annotations

from functools import partial

import numpy as np

from cotide_core.forecasts import HostLoadForecast
from cotide_predictors.host_load.peak_scoring import PeakScorer


def forecast(*peaks: float) -> HostLoadForecast:
    """The same number is the point and every quantile."""
    values = np.array(peaks)
    return HostLoadForecast(values, values, values, values)


def fed(scorer: PeakScorer, loads: list[list[float]], said: HostLoadForecast) -> PeakScorer:
    for values in loads:
        scorer.record(np.array(values), partial(HostLoadForecast, said.point, said.p50, said.p90, said.p99))
    return scorer


def test_the_highest_slot_of_the_horizon_counts_and_the_one_that_it_was_made_in_does_not() -> None:
    """.9 is the slot after which the forecast of .5 is made; then come .2, .6 and .3."""
    found = fed(PeakScorer(1, 3), [[0.9], [0.2], [0.6]], forecast(0.5)).scores()
    assert found.records.tolist() == [0]
    found = fed(PeakScorer(1, 3), [[0.9], [0.2], [0.6], [0.3]], forecast(0.5)).scores()
    assert found.records.tolist() == [1]
    np.testing.assert_allclose(found.bias, [-0.1], atol=1e-7)
    assert found.coverage.tolist() == [[0.0, 0.0, 0.0]]


def test_the_next_forecast_is_taken_when_the_one_before_is_over() -> None:
    """Peaks of two slots: (.1, .2) and (.3, .8), each beside .5."""
    scorer = fed(PeakScorer(1, 2), [[0.9], [0.1], [0.2], [0.3], [0.8]], forecast(0.5))
    found = scorer.scores()
    assert found.records.tolist() == [2]
    assert found.coverage.tolist() == [[0.5, 0.5, 0.5]]


def test_a_host_that_lacks_a_slot_or_came_within_the_horizon_is_not_scored() -> None:
    scorer = PeakScorer(2, 2)
    fed(scorer, [[0.1, 0.1], [0.2, np.nan]], forecast(0.5, 0.5))
    scorer = scorer.grown(3)
    fed(scorer, [[0.2, 0.2, 0.2]], forecast(0.5, 0.5, 0.5))
    assert scorer.scores().records.tolist() == [1, 0, 0]


def test_a_row_that_another_node_has_now_begins_anew() -> None:
    scorer = fed(PeakScorer(2, 2), [[0.1, 0.1], [0.2, 0.2], [0.2, 0.2], [0.2, 0.2]], forecast(0.5, 0.5))
    scorer.reset(np.array([1]))
    fed(scorer, [[0.2, 0.2]], forecast(0.5, 0.5))
    assert scorer.scores().records.tolist() == [2, 0]
