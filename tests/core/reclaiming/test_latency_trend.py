"""A service whose measured p95 rises towards its limit is relieved before it breaks, where that is worth the work.

The scene is that of `latency_scene`: the limit is 10 ms, p = rate / 1000 x the sum of the weights of the jobs, .1 a
quiet one and .8 a loud one. Samples come every 10 s; a break would be observed for 15 s more.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from engine_objects import running_pod
from latency_scene import GRATIS, KNOBS, NODE, Scene

from cotide_core.classes import WorkloadClass
from cotide_core.events import NodeUpserted, PodDeleted, PodUpserted, ServiceSampled, WorkloadDeleted
from cotide_core.instructions import EvictCause
from cotide_core.reclaiming.evictions_in_flight import Evictions
from cotide_core.reclaiming.latency_trend import LEAST_SAMPLES, TrendRelief, crossing_probability

RISING = (6.0, 6.8, 7.6, 8.6, 9.7)
"""By a factor of about 1.13 each: the next is 11 ms."""


def scene(*, loud_for: float, **fields: bool) -> Scene:
    """A loud job that begins at 90 s."""
    return Scene(relieves_trend=True).starts("loud", 90.0, loud_for, "loud", **fields)


def measured(found: Scene, course: tuple[float, ...], since: float = 91.0) -> list[list[str]]:
    """Return who is asked to leave after each sample, ten seconds apart."""
    return [found.measured(since + 10.0 * number, value) for number, value in enumerate(course)]


def test_the_pod_that_helps_leaves_before_the_limit_breaks() -> None:
    """The break is nearly certain: its 25 s until a relief cost 50 core seconds, and the work is lost in any case."""
    found = scene(loud_for=400.0)
    assert measured(found, RISING) == [[], [], [], [], ["loud"]]
    assert found.causes == [EvictCause.LATENCY_RISES]
    assert found.reasons[0].startswith("the p95 of d/web on n rises towards its limit, and is above it at the next")


def test_a_service_whose_promise_ends_with_its_last_sample_is_left_alone() -> None:
    found = scene(loud_for=400.0)
    measured(found, RISING[:-1])
    assert found.handle(131.0, ServiceSampled("d/web", 1000.0, RISING[-1]), WorkloadDeleted("d/web")) == []


@pytest.mark.parametrize("course", [tuple(reversed(RISING)), (9.7,) * 5, (6.0, 9.7, 6.2, 9.5, 6.1)])
def test_a_p95_that_does_not_rise_moves_nobody(course: tuple[float, ...]) -> None:
    assert measured(scene(loud_for=400.0), course) == [[]] * 5


def test_a_rise_far_below_the_limit_moves_nobody() -> None:
    assert measured(scene(loud_for=400.0), (1.0, 1.1, 1.2, 1.3, 1.4)) == [[]] * 5


def test_fewer_samples_than_a_line_needs_move_nobody() -> None:
    assert measured(scene(loud_for=400.0), RISING[-(LEAST_SAMPLES - 1) :]) == [[]] * (LEAST_SAMPLES - 1)


def test_who_would_not_be_sent_away_after_the_break_is_not_before_it() -> None:
    """The loud job ends 9 s after the last sample: 18 core seconds at most, for its 41."""
    assert measured(scene(loud_for=50.0), RISING) == [[]] * 5


def test_samples_beside_another_mix_are_no_part_of_the_line() -> None:
    found = scene(loud_for=400.0)
    assert measured(found, RISING[:-1]) == [[]] * 4
    found.handle(130.5, ServiceSampled("d/web", 0.0, RISING[-2]))
    found.starts("more", 130.6, 200.0)
    assert found.measured(131.0, RISING[-1]) == []


def test_gratis_goes_first_where_it_helps_at_all() -> None:
    found = Scene(relieves_trend=True).starts("loud", 90.0, 400.0, "loud").starts("free", 125.0, 400.0, cls=GRATIS)
    assert measured(found, RISING, since=126.0) == [[], [], [], [], ["free"]]


def test_without_the_knob_nothing_is_done_before_the_break() -> None:
    found = Scene().starts("loud", 90.0, 400.0, "loud")
    assert measured(found, RISING) == [[]] * 5


def test_who_must_not_be_disrupted_stays() -> None:
    assert measured(scene(loud_for=400.0, do_not_disrupt=True), RISING) == [[]] * 5


def test_the_line_is_that_of_least_squares_with_its_error_of_prediction() -> None:
    """Residuals -.1, .2, -.1 about a slope of .1: s = .245, and the error three steps on is s sqrt(1 + 1/3 + 4/2)."""
    logs = [-0.5 - 0.1, -0.4 + 0.2, -0.3 - 0.1]
    error = math.sqrt(0.06) * math.sqrt(1 + 1 / 3 + 4 / 2)
    wanted = 0.5 * math.erfc(0.2 / error / math.sqrt(2))
    assert crossing_probability([0.0, 1.0, 2.0], logs, 3.0) == pytest.approx(wanted)
    assert crossing_probability([0.0, 1.0, 2.0], [-0.3, -0.2, -0.1], 4.0) == 1.0
    assert crossing_probability([0.0, 1.0, 2.0], [-0.3, -0.2, -0.15], 2.0) < 0.5
    assert crossing_probability([1.0, 1.0, 1.0], [-0.3, -0.2, -0.1], 4.0) == 0.0


def test_nothing_is_remembered_of_pods_and_nodes_that_went() -> None:
    found = Scene(relieves_trend=True).starts("loud", 0.0, 400.0, "loud")
    other = running_pod("other", "m", cls=WorkloadClass.ONLINE, workload="d/web", ours=False)
    found.handle(1.0, NodeUpserted(replace(NODE.node, name="m")), PodUpserted(other))
    state, relief = found.scheduler.state, TrendRelief(KNOBS)

    def take(now: float, key: str, value: float) -> int:
        sample = ServiceSampled(key, 1000.0, value)
        state.apply(sample)
        relief.sampled(sample, state, now)
        law = found.scheduler.qos_forecaster
        return len(relief.relieve(state, Evictions(KNOBS), lambda _: 0.0, lambda _: 400.0, law, now))

    assert sum(take(10.0 * number, "d/web", value) for number, value in enumerate(RISING)) == 1
    assert relief.remembered == 2
    state.apply(PodDeleted("d/web", "u-web"))
    take(71.0, "d/other", 12.0)
    take(72.0, "d/other", 9.0)
    assert relief.remembered == 1
