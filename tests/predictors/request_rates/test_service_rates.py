"""What the engine is told of rates: once a slot, by pod, a rise only where the forecast is the better guess."""

from __future__ import annotations

import math

import pytest
from engine_objects import running_pod

from cotide_core.classes import WorkloadClass
from cotide_core.events import (
    PodDeleted,
    PodUpserted,
    RatesForecasted,
    ServiceSampled,
    Workload,
    WorkloadDeleted,
    WorkloadUpserted,
)  # fmt: skip
from cotide_predictors.host_load.slot_ring import DAY_SLOTS
from cotide_predictors.request_rates.service_rates import FIRST_SERVICES, ServiceRates

SLOT = 300.0


def rate_at(slot: int) -> float:
    return 1000.0 - 900.0 * math.cos(2 * math.pi * slot / DAY_SLOTS)


def online(name: str) -> PodUpserted:
    return PodUpserted(running_pod(name, "n", cls=WorkloadClass.ONLINE, workload="d/web", ours=False))


def after_days(level: float | None = 0.5, days: float = 3.25) -> tuple[ServiceRates, RatesForecasted | None]:
    """A busy pod and one with half its rate; what was told at the last slot's end."""
    rates, forecast = ServiceRates(SLOT, (1, 12), level), None
    rates.take([online("busy"), online("calm")], 0.0)
    for slot in range(int(days * DAY_SLOTS) + 1):
        rate = rate_at(slot)
        sampled = [ServiceSampled("d/busy", rate), ServiceSampled("d/calm", rate / 2)]
        forecast = rates.take(sampled, slot * SLOT) or forecast
    return rates, rates.take([], (int(days * DAY_SLOTS) + 1) * SLOT)


def test_each_pod_is_told_its_own_rate_raised_as_that_of_its_workload() -> None:
    """At a quarter of a day of the fourth: 1,000 and 500 now, 1,233 and 616 within the hour."""
    _, forecast = after_days()
    assert forecast is not None
    assert forecast.horizons_seconds == (300.0, 3600.0)
    found = dict(forecast.forecasts)
    assert found["d/busy"][1] == pytest.approx(1233.0, rel=0.05)
    assert found["d/calm"][1] == pytest.approx(found["d/busy"][1] / 2)
    now = (int(3.25 * DAY_SLOTS) + 1) * SLOT
    assert forecast.until_seconds == now + 2 * SLOT


def test_nothing_is_told_within_a_slot_and_nothing_where_only_scores_are_wanted() -> None:
    rates, _ = after_days()
    now = (int(3.25 * DAY_SLOTS) + 1) * SLOT
    assert rates.take([ServiceSampled("d/busy", 5.0)], now + 1.0) is None
    shadow, forecast = after_days(None)
    assert forecast is None
    assert shadow.scores(0.5)[1].loss < shadow.scores(0.5)[1].last_value_loss


def test_a_service_that_is_not_better_foreseen_is_told_its_last_value() -> None:
    """In the first hours nothing is trusted yet."""
    _, forecast = after_days(days=0.1)
    assert forecast is not None
    assert dict(forecast.forecasts)["d/busy"] == pytest.approx((rate_at(28), rate_at(28)))


def test_the_past_teaches_before_the_first_measurement() -> None:
    rates = ServiceRates(SLOT, (1, 12), 0.5)
    rates.remember({"d/web": [rate_at(slot) for slot in range(3 * DAY_SLOTS)]})
    forecast = None
    rates.take([online("busy")], 0.0)
    for slot in range(DAY_SLOTS // 4 + 2):
        forecast = rates.take([ServiceSampled("d/busy", rate_at(slot))], slot * SLOT) or forecast
    assert forecast is not None
    assert dict(forecast.forecasts)["d/busy"][1] == pytest.approx(1233.0, rel=0.05)


def test_pods_and_workloads_that_are_gone_are_told_nothing_of() -> None:
    rates, _ = after_days()
    now = (int(3.25 * DAY_SLOTS) + 2) * SLOT
    forecast = rates.take([PodDeleted("d/calm", "u-calm")], now)
    assert forecast is not None
    assert [one.pod for one in forecast.forecasts] == ["d/busy"]
    assert rates.take([WorkloadDeleted("d/web")], now + SLOT) is None


def test_more_services_than_rows_make_room() -> None:
    rates = ServiceRates(SLOT, (1,), 0.5)
    for number in range(20):
        pod = running_pod(f"p{number}", "n", cls=WorkloadClass.ONLINE, workload=f"d/w{number}", ours=False)
        rates.take([PodUpserted(pod), ServiceSampled(f"d/p{number}", 10.0 + number)], 0.0)
    forecast = rates.take([], SLOT)
    assert forecast is not None
    assert {one.pod: one.requests_per_second for one in forecast.forecasts}["d/p19"] == (29.0,)


def test_services_that_come_and_go_take_no_more_room_than_there_were_at_once() -> None:
    """Pods outlive their Workload by some slots, or name one that never was."""
    rates = ServiceRates(SLOT, (1,), 0.5)
    for number in range(60):
        name, key = f"p{number}", f"d/w{number}"
        pod = running_pod(name, "n", cls=WorkloadClass.ONLINE, workload=key, ours=False)
        sampled = [PodUpserted(pod), ServiceSampled(f"d/{name}", 10.0 + number)]
        come = [WorkloadUpserted(Workload(key, 10.0))] if number % 2 else []
        rates.take([*come, *sampled], 3 * number * SLOT)
        rates.take([WorkloadDeleted(key)] if number % 2 else [], (3 * number + 1) * SLOT)
        rates.take([PodDeleted(f"d/{name}", f"u-{name}")], (3 * number + 2) * SLOT)
    assert rates.services <= FIRST_SERVICES


def test_a_level_that_is_not_kept_is_refused() -> None:
    with pytest.raises(ValueError, match="levels"):
        ServiceRates(SLOT, (1,), 0.55)
