"""The guard asks about the highest rate that is forecast until a job will have ended, where a policy looks so far.

The law of `latency_scene`: p = rate / 1000 x the sum of the weights of the jobs, .8 a loud one; .1 is accepted.
"""

from __future__ import annotations

import pytest
from engine_objects import pod
from latency_scene import HELD, Scene

from cotide_core.events import PodDeleted, PodUpserted, RateForecast, RatesForecasted, ServiceSampled
from cotide_core.instructions import Bind
from cotide_core.state.rate_forecasts import NOW, RateForecasts


def forecast(*rates: float, until: float = 1000.0) -> RatesForecasted:
    return RatesForecasted((60.0, 240.0), until, (RateForecast("d/web", rates),))


def binds(scene: Scene, name: str, at: float, seconds: float, **fields: object) -> bool:
    """Whether a loud job that is predicted to take so long gets the node at once; it is taken away again."""
    waiting = pod(name, type="loud", requested_seconds=seconds, **fields)
    found = any(isinstance(one, Bind) for one in scene.scheduler.handle([PodUpserted(waiting)], at))
    scene.handle(at, PodDeleted(waiting.key, waiting.uid))
    return found


def scene(policy: str = "predictive") -> Scene:
    """The service has 100 requests a second: p is .08 beside a loud job."""
    found = Scene(policy)
    found.handle(10.0, ServiceSampled("d/web", 100.0, HELD))
    return found


def test_a_long_job_is_refused_for_a_rise_that_a_short_one_does_not_meet() -> None:
    found = scene()
    found.handle(11.0, forecast(110.0, 900.0))
    assert binds(found, "short", 12.0, 10.0)  # .088
    assert not binds(found, "long", 13.0, 120.0)  # .72
    assert binds(found, "short-again", 14.0, 10.0)


def test_a_refused_long_job_says_nothing_of_a_larger_short_one() -> None:
    """A forecast never falls when a mix grows: a refusal covers larger jobs of the type, but those of its horizon."""
    found = scene()
    found.handle(11.0, forecast(110.0, 900.0))
    assert not binds(found, "long", 12.0, 120.0)
    assert binds(found, "short", 13.0, 10.0, input_bytes=10)


def test_policies_that_look_at_the_present_only_ask_about_the_present_rate() -> None:
    found = scene("qpsm")
    found.handle(11.0, forecast(900.0, 900.0))
    assert binds(found, "long", 12.0, 120.0)


def test_a_forecast_that_fell_lets_in_who_was_refused() -> None:
    found = scene()
    found.handle(11.0, forecast(900.0, 900.0))
    waiting = pod("job", type="loud", requested_seconds=30.0)
    assert not [one for one in found.scheduler.handle([PodUpserted(waiting)], 12.0) if isinstance(one, Bind)]
    assert [one for one in found.scheduler.handle([forecast(110.0, 110.0)], 13.0) if isinstance(one, Bind)]


def test_a_forecast_that_is_out_of_date_counts_no_more() -> None:
    found = scene()
    found.handle(11.0, forecast(900.0, 900.0, until=20.0))
    assert not binds(found, "early", 20.0, 30.0)
    assert binds(found, "late", 20.1, 30.0)


def test_the_present_rate_counts_where_less_is_forecast() -> None:
    found = scene()
    found.handle(11.0, ServiceSampled("d/web", 900.0, HELD), forecast(1.0, 1.0))
    assert not binds(found, "job", 12.0, 30.0)


@pytest.mark.parametrize("rates", [(float("nan"), 1.0), (-1.0, 1.0), (1.0,)])
def test_a_forecast_that_can_not_be_is_as_good_as_none(rates: tuple[float, ...]) -> None:
    forecasts = RateForecasts()
    forecasts.take(forecast(5.0, 6.0))
    forecasts.take(forecast(*rates))
    assert forecasts.of("d/web") == ()


def test_rates_never_fall_from_a_horizon_to_a_longer_one() -> None:
    forecasts = RateForecasts()
    forecasts.take(forecast(7.0, 6.0))
    assert forecasts.of("d/web")[:2] == (7.0, 7.0)


@pytest.mark.parametrize(("seconds", "horizon"), [(0.0, NOW), (1.0, 1), (60.0, 1), (61.0, 2), (9999.0, 2)])
def test_a_run_is_judged_by_the_shortest_horizon_that_reaches_its_end_else_the_longest(
    seconds: float, horizon: int
) -> None:
    forecasts = RateForecasts()
    assert forecasts.horizon_of(seconds) == NOW  # nothing was told
    forecasts.take(forecast(1.0, 1.0))
    assert forecasts.horizon_of(seconds) == horizon


def test_other_horizons_end_what_was_told_with_the_old_ones() -> None:
    forecasts = RateForecasts()
    forecasts.take(forecast(5.0, 6.0))
    forecasts.take(RatesForecasted((30.0,), 1000.0, (RateForecast("d/other", (1.0,)),)))
    assert (forecasts.of("d/web"), forecasts.horizons_seconds) == ((), (30.0,))
