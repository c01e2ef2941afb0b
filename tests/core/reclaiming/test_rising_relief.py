"""A service that holds its limit is relieved where its rate is forecast to rise and the model says that this helps.

The scene is that of `latency_scene`: p = rate / 1000 x the sum of the weights of the jobs, .1 a quiet one and .8 a loud
one. The service has 100 requests a second, and holds its limit.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_objects import running_pod
from latency_scene import BROKEN, GRATIS, HELD, KNOBS, NODE, Scene

from cotide_core.classes import WorkloadClass
from cotide_core.events import (
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    RateForecast,
    RatesForecasted,
    ServiceSampled,
    WorkloadDeleted,
)
from cotide_core.instructions import EvictCause
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.rising_relief import RisingRelief


def rises_to(rate: float, until: float = 1000.0) -> RatesForecasted:
    """A forecast over 50 and 100 s."""
    return RatesForecasted((50.0, 100.0), until, (RateForecast("d/web", (rate, rate)),))


def scene(**knobs: bool) -> Scene:
    """A loud job of 200 s and a quiet one, both just begun."""
    found = Scene(relieves_rising=True, **knobs)
    found.starts("loud", 90.0, 200.0, "loud").starts("quiet", 90.0, 200.0)
    found.handle(95.0, ServiceSampled("d/web", 100.0, HELD))
    return found


def test_the_pod_that_makes_a_rising_rate_break_the_limit_leaves_before_it_does() -> None:
    """Now p is .09, at 1,000/s .9; it holds, so it breaks with (.9 - .09) / .91 = 89 %, and without the loud job with
    (.1 - .09) / .91 = 1 %. That is 44 s of the next 50, worth 88 core seconds; ten are lost."""
    found = scene()
    assert found.handle(100.0, rises_to(1000.0)) == ["loud"]
    assert found.causes == [EvictCause.LATENCY_RISES]
    assert "breaks its limit with 89 %, without this pod with 1 %" in found.reasons[0]
    assert found.reasons[0].startswith("d/web is forecast to get more requests on n within 50 s")


def test_nobody_leaves_for_less_than_the_work_that_is_lost() -> None:
    """88 core seconds are worth the loud job's work up to then, 88 s: at 170 s it has done 80, at 180 s 90."""
    assert scene().handle(170.0, ServiceSampled("d/web", 100.0, HELD), rises_to(1000.0)) == ["loud"]
    assert scene().handle(180.0, ServiceSampled("d/web", 100.0, HELD), rises_to(1000.0)) == []


@pytest.mark.parametrize("rate", [100.0, 50.0])
def test_a_rate_that_does_not_rise_moves_nobody(rate: float) -> None:
    assert scene().handle(100.0, rises_to(rate)) == []


def test_without_the_knob_only_a_measured_break_moves_anybody() -> None:
    found = Scene().starts("loud", 90.0, 200.0, "loud")
    found.handle(95.0, ServiceSampled("d/web", 100.0, HELD))
    assert found.handle(100.0, rises_to(1000.0)) == []


def test_a_service_that_broke_already_is_left_to_the_relief_of_breaks() -> None:
    found = scene()
    found.handle(99.0, ServiceSampled("d/web", 100.0, BROKEN))
    assert found.handle(100.0, rises_to(1000.0)) == []


def test_a_service_whose_promise_ends_before_its_rate_rises_is_left_alone() -> None:
    assert scene().handle(100.0, rises_to(1000.0), WorkloadDeleted("d/web")) == []


def test_a_service_that_nobody_measures_is_left_alone() -> None:
    assert scene().handle(95.0 + 61.0, rises_to(1000.0)) == []


def test_gratis_goes_first_where_it_helps_at_all() -> None:
    """The quiet one is gratis: without it p is .8, 77 % of .91; 11 points of 50 s are worth 12 core seconds, ten are
    lost."""
    found = Scene(relieves_rising=True)
    found.starts("loud", 90.0, 200.0, "loud").starts("free", 95.0, 200.0, cls=GRATIS)
    found.handle(96.0, ServiceSampled("d/web", 100.0, HELD))
    assert found.handle(100.0, rises_to(1000.0)) == ["free"]


def test_nothing_is_remembered_of_pods_and_nodes_that_went() -> None:
    """Two services hold and are looked at. One goes with its node, on which there was a round; the other breaks."""
    found = scene()
    second = NodeUpserted(replace(NODE.node, name="m"))
    other = running_pod("other", "m", cls=WorkloadClass.ONLINE, workload="d/web", ours=False)
    rising = RatesForecasted(
        (50.0, 100.0), 1000.0, tuple(RateForecast(f"d/{name}", (1000.0, 1000.0)) for name in ("web", "other"))
    )
    state, relief = found.scheduler.state, RisingRelief(KNOBS)
    for event in (second, PodUpserted(other), rising):
        state.apply(event)

    def take(now: float, *samples: ServiceSampled) -> int:
        for sample in samples:
            state.apply(sample)
            relief.sampled(sample, state, now)
        law = found.scheduler.qos_forecaster
        return len(relief.relieve(state, Evictions(KNOBS), lambda _: 0.0, lambda _: 100.0, law, now))

    assert take(100.0, *(ServiceSampled(key, 100.0, HELD) for key in ("d/web", "d/other"))) == 2
    assert relief.remembered == 5  # two services hold, both were looked at, and one node pauses
    state.apply(PodDeleted("d/web", "u-web"))
    state.apply(NodeDeleted("n"))
    take(131.0, ServiceSampled("d/other", 100.0, BROKEN))
    assert relief.remembered == 0
