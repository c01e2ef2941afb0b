"""Live forecasts of request rates: asked by the loop, told as events, shown as scores."""

from __future__ import annotations

import math

import pytest
from engine_objects import running_pod

from cotide_core.classes import WorkloadClass
from cotide_core.errors import InputError
from cotide_core.events import Event, PodUpserted, RatesForecasted, ServiceSampled
from cotide_core.forecasting.heuristics import HeuristicCompletion
from cotide_operator.config.host_load_settings import RATE_QUANTILES
from cotide_operator.config.settings import engine_config, parse_settings
from cotide_operator.models.rate_forecaster import HORIZONS_SLOTS, RateForecaster
from cotide_operator.observability.metrics import Metrics
from cotide_predictors.request_rates.rate_model import LEVELS

SLOT, DAY = 300.0, 288
SOURCE = "metricsSource: {scrape: {url: 'http://127.0.0.1:1/metrics'}}\n"
HEAD = "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n"


def three_days(quantile: float | None) -> tuple[list[Event], Metrics]:
    """What the loop is told, and the metrics."""
    now, metrics = [0.0], Metrics()
    event_forecaster = RateForecaster(SLOT, quantile, metrics, lambda: now[0])
    web = running_pod("web", "n", cls=WorkloadClass.ONLINE, workload="d/web", ours=False)
    forecast = event_forecaster.ahead([PodUpserted(web)], HeuristicCompletion())
    for slot in range(3 * DAY):
        now[0] = slot * SLOT
        rate = 1000.0 - 900.0 * math.cos(2 * math.pi * slot / DAY)
        forecast += event_forecaster.ahead([ServiceSampled("d/web", rate)], HeuristicCompletion())
    return forecast, metrics


def value(metrics: Metrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(f"cotide_{name}", labels)
    assert found is not None
    return found


def test_every_slot_is_told_once_and_scored_beside_the_last_value() -> None:
    forecast, metrics = three_days(0.5)
    assert len(forecast) == 3 * DAY - 1
    assert isinstance(forecast[-1], RatesForecasted)
    assert forecast[-1].horizons_seconds == tuple(SLOT * slots for slots in HORIZONS_SLOTS)
    losses = [
        value(metrics, "request_rate_loss", forecaster=one, horizon="12-slots") for one in ("forecast", "last-value")
    ]
    assert losses[0] < losses[1]
    assert value(metrics, "request_rate_trusted_share") > 0.5
    assert 0 < value(metrics, "forecast_coverage_ratio", forecaster="request-rate-12-slots", quantile="0.5") < 1


def test_without_a_quantile_nothing_is_told_and_all_is_scored() -> None:
    forecast, metrics = three_days(None)
    assert forecast == []
    assert value(metrics, "request_rate_loss", forecaster="forecast", horizon="36-slots") > 0


def test_the_quantiles_that_may_be_asked_for_are_those_that_are_kept() -> None:
    assert set(RATE_QUANTILES) == set(LEVELS)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("requestRates: {quantile: 0.55}\n", "must be one of 0.5, 0.6, 0.75, 0.9"),
        ("requestRates: {enabled: true}\n", "needs a metricsSource"),
        (f"{SOURCE}policy: qpsm\nrequestRates: {{quantile: 0.5}}\n", "the policy predictive"),
        (f"{SOURCE}policy: predictive\noverload: {{relievesRising: true}}\n", "needs requestRates.quantile"),
    ],
)
def test_what_can_not_be_forecast_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        parse_settings(HEAD + text)


def test_predictive_scores_rates_by_itself_and_relieves_rises_where_told() -> None:
    settings = parse_settings(f"{HEAD}{SOURCE}policy: predictive\n")
    assert settings.forecasts_rates
    assert not parse_settings(f"{HEAD}{SOURCE}policy: qpsm\n").forecasts_rates
    text = f"{HEAD}{SOURCE}policy: predictive\nrequestRates: {{quantile: 0.6}}\noverload: {{relievesRising: true}}\n"
    config = engine_config(parse_settings(text))
    assert config.hierarchical is not None
    assert config.hierarchical.relieves_rising
