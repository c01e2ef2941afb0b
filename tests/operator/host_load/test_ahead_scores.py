"""The longer horizons that jobs are placed by are scored, and shown once there is enough to say."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_operator.host_load.forecasters import Forecasters
from cotide_operator.host_load.score_metrics import write_ahead
from cotide_operator.observability.metrics import Metrics

NODES = 8
SLOTS = 3


def shown(slots: int, **options: object) -> float | None:
    """The share of peaks over three slots at or below the p90, after so many slots of a steady load."""
    forecasters = Forecasters(NODES, ahead_slots=(SLOTS,), **options)
    loads = 0.4 + np.random.default_rng(3).normal(0.0, 0.02, (slots, 4, NODES))
    for values in loads:
        forecasters.record(values)
    metrics = Metrics()
    write_ahead(metrics, forecasters.ahead_scores())
    labels = {"forecaster": "online-cpu-3-slots", "quantile": "0.9"}
    return metrics.registry.get_sample_value("cotide_forecast_coverage_ratio", labels)


def test_the_share_of_peaks_that_a_quantile_covered_is_a_metric() -> None:
    covered = shown(400)
    assert covered is not None
    assert 0.85 <= covered <= 0.97


@pytest.mark.parametrize(("slots", "is_shown"), [(1 + 5 * SLOTS, False), (1 + 6 * SLOTS, True)])
def test_nothing_is_shown_before_48_peaks(slots: int, *, is_shown: bool) -> None:
    """One slot without a forecast, then a peak of each of the eight nodes every three slots."""
    assert (shown(slots) is not None) is is_shown


def test_a_predictor_that_knows_no_longer_horizon_shows_none() -> None:
    assert shown(100, predictor="sigma-percentile") is None
