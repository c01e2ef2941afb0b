"""The same time yesterday is a day ago, however long a slot is."""

import math

import numpy as np
import pytest
from engine_objects import running_pod

from cotide_core.classes import WorkloadClass
from cotide_core.events import PodUpserted, ServiceSampled
from cotide_predictors.host_load.experts import EXPERTS, ExpertBank
from cotide_predictors.host_load.slot_ring import DAY_SECONDS, slots_of_day
from cotide_predictors.request_rates.service_rates import ServiceRates

YESTERDAY = EXPERTS.index("yesterday")


@pytest.mark.parametrize(("seconds", "slots"), [(300.0, 288), (100.0, 864), (86_400.0, 1), (60.0, 1440)])
def test_a_day_has_as_many_slots_as_fit(seconds: float, slots: int) -> None:
    assert slots_of_day(seconds) == slots


def test_no_day_is_remembered_where_slots_are_shorter_than_a_minute() -> None:
    assert slots_of_day(59.0) is None
    bank = ExpertBank(1, ceiling=1.0, day_slots=None)
    for value in (0.1, 0.2, 0.3):
        bank.record(np.array([value]), bank.forecast(np.array([0.5]), 1)[0])
    assert bank.forecast(np.array([0.5]), 1)[0][0, YESTERDAY] == 0.5


def test_yesterdays_load_counts_for_a_third_beside_the_centre() -> None:
    """Four slots are a day. The slot after .5 was .2 a day ago, between .1 and .3: .65 x .5 + .35 x .2 = .395."""
    bank = ExpertBank(1, ceiling=1.0, day_slots=4)
    for value in (0.1, 0.2, 0.3, 0.4, 0.5):
        bank.record(np.array([value]), bank.forecast(np.array([0.5]), 1)[0])
    assert bank.forecast(np.array([0.5]), 1)[0][0, YESTERDAY] == pytest.approx(0.395)


def test_a_day_of_one_slot_is_the_slot_before() -> None:
    bank = ExpertBank(1, ceiling=1.0, day_slots=1)
    for value in (0.1, 0.3):
        bank.record(np.array([value]), bank.forecast(np.array([0.5]), 1)[0])
    assert bank.forecast(np.array([0.5]), 1)[0][0, YESTERDAY] == pytest.approx(0.65 * 0.5 + 0.35 * 0.3)


def test_rates_in_slots_of_100_seconds_are_foreseen_by_the_day_before() -> None:
    """In the morning of the fourth day the rate is 1,000; 20 minutes later 1,000 + 900 sin(2 pi 12 / 864) = 1,078."""
    rates = ServiceRates(100.0, (12,), 0.5)
    rates.take([PodUpserted(running_pod("p", "n", cls=WorkloadClass.ONLINE, workload="d/web", ours=False))], 0.0)
    day = round(DAY_SECONDS / 100.0)
    last = 3 * day + day // 4
    for slot in range(last + 1):
        rate = 1000.0 - 900.0 * math.cos(2 * math.pi * slot / day)
        rates.take([ServiceSampled("d/p", rate)], slot * 100.0)
    forecast = rates.take([], (last + 1) * 100.0)
    assert forecast is not None
    assert dict(forecast.forecasts)["d/p"] == pytest.approx((1078.0,), rel=0.02)
