"""Policy predictive looks as far ahead as a job runs: who would not end before the peak waits, or goes elsewhere."""

from __future__ import annotations

import math

import pytest
from engine_objects import node_upserted, pod_upserted
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.config import HierarchicalConfig, SchedulerConfig
from cotide_core.cycle import Scheduler
from cotide_core.events import (
    Event,
    NodeForecasted,
    NodeUsageSampled,
    PeakAhead,
    PodPhase,
    RunTimeForecast,
    RunTimesForecasted,
)
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind, Evict, Instruction, Wait, WaitReason
from cotide_core.state.host_load import MAX_HORIZONS
from cotide_core.state.shapes import lasting

BEFORE_IT_ENDS = "1 predicted to need the room for online pods before it would end"
SLOT = 300.0


def peaks(*ahead: tuple[float, float], at: str = "a", now: float = 0.0) -> list[Event]:
    """A node of 1,000m whose online pods use 100 and 200 in this slot, and (seconds from now, millicores) beyond."""
    further = tuple(PeakAhead(now + until, cpu, 0.0) for until, cpu in ahead)
    return [
        NodeUsageSampled(at, now, 100.0, 0.0),
        NodeForecasted(at, now + SLOT, 200.0, 0.0, 0.0, 0.0, ahead=further),
    ]


def job(name: str, seconds: float, cpu: int = 400) -> Event:
    """A job whose user asks for half of what it may take: its p90 is ``seconds``."""
    return pod_upserted(name, cpu, requested_seconds=seconds / 2)


def engine(*events: Event, policy: str = "predictive") -> Scheduler:
    knobs = HierarchicalConfig(capacity_share=1.0, usage_stale_seconds=3600.0)
    scheduler = Scheduler(SchedulerConfig(policy=policy, hierarchical=knobs), HeuristicCatalogue())
    scheduler.handle([node_upserted("a", 1000), *events], 0.0)
    return scheduler


def bound(out: list[Instruction]) -> dict[str, str]:
    return {one.key[2:]: one.node for one in out if isinstance(one, Bind)}


def test_a_job_that_ends_before_the_peak_goes_and_one_that_does_not_waits_and_says_so() -> None:
    """800m are free in this slot, 100m from 300 s to 1,200 s; 200 s fit into the slot, 600 s do not."""
    out = engine(*peaks((1200, 900))).handle([job("short", 200)], 1.0)
    assert bound(out) == {"short": "a"}
    (wait,) = engine(*peaks((1200, 900))).handle([job("long", 600)], 1.0)
    assert isinstance(wait, Wait)
    assert wait.reason is WaitReason.INSUFFICIENT_SLACK
    assert wait.message == f"0/1 nodes are available: {BEFORE_IT_ENDS}"


def test_it_goes_elsewhere_where_no_peak_comes_before_its_end() -> None:
    elsewhere = [node_upserted("b", 1000), *peaks((1200, 300), at="b")]
    assert bound(engine(*peaks((1200, 900)), *elsewhere).handle([job("long", 600)], 1.0)) == {"long": "b"}


def test_the_nearest_horizon_that_reaches_its_end_counts_and_for_the_longest_job_the_longest() -> None:
    event = peaks((600, 300), (1200, 500), (2400, 900))
    assert bound(engine(*event).handle([job("x", 500)], 1.0)) == {"x": "a"}
    assert bound(engine(*event).handle([job("x", 900)], 1.0)) == {"x": "a"}
    assert bound(engine(*event).handle([job("x", 2000)], 1.0)) == {}
    assert bound(engine(*event).handle([job("x", 90_000)], 1.0)) == {}


def test_a_job_that_waits_for_the_peak_is_tried_again_when_the_peak_is_forecast_lower() -> None:
    scheduler = engine(*peaks((1200, 900)))
    scheduler.handle([job("long", 600)], 1.0)
    assert bound(scheduler.handle(peaks((1200, 850), now=2.0), 2.0)) == {}
    assert bound(scheduler.handle(peaks((1200, 400), now=3.0), 3.0)) == {"long": "a"}


def test_a_shorter_job_of_the_same_kind_is_not_refused_for_the_longer() -> None:
    """They ask for the same and are of one type; in the queue's order the shorter comes first, so it comes later."""
    scheduler = engine(*peaks((1200, 900)))
    assert bound(scheduler.handle([job("long", 600)], 1.0)) == {}
    assert bound(scheduler.handle([job("short", 200)], 1.0)) == {"short": "a"}


def test_what_is_told_of_its_run_time_decides_how_far_is_looked() -> None:
    scheduler = engine(*peaks((1200, 900)))
    scheduler.handle([job("long", 600)], 1.0)
    event = RunTimesForecasted((RunTimeForecast("d/long", "u-long", 50.0, 100.0),))
    assert bound(scheduler.handle([event], 1.0)) == {"long": "a"}


def test_the_slot_counts_where_nothing_is_forecast_beyond_it_and_under_hierarchical() -> None:
    assert bound(engine(*peaks()).handle([job("long", 600)], 1.0)) == {"long": "a"}
    by_slot = engine(*peaks((1200, 900)), policy="hierarchical")
    assert bound(by_slot.handle([job("long", 600)], 1.0)) == {"long": "a"}


def test_nobody_is_evicted_for_a_job_that_the_peak_would_hit_anyway() -> None:
    """The peak takes 900m; without the gratis pod 100m would be left, too few for 400."""
    gratis = pod_upserted("g", 700, WorkloadClass.GRATIS, node="a", phase=PodPhase.RUNNING, started_seconds=0.0)
    out = engine(*peaks((1200, 900)), gratis).handle([job("long", 600)], 1.0)
    assert not [one for one in out if isinstance(one, Evict)]
    out = engine(*peaks((1200, 900)), gratis).handle([job("short", 200)], 1.0)
    assert [one.key for one in out if isinstance(one, Evict)] == ["d/g"]


@pytest.mark.parametrize("cpu", [math.nan, math.inf, -1.0])
def test_a_peak_that_can_not_be_is_as_good_as_none(cpu: float) -> None:
    assert bound(engine(*peaks((1200, cpu))).handle([job("long", 600)], 1.0)) == {"long": "a"}


def test_horizons_beyond_those_that_are_read_change_nothing() -> None:
    many = [(600.0 + number, 300.0) for number in range(MAX_HORIZONS)]
    assert bound(engine(*peaks(*many, (9e9, 999))).handle([job("x", 500)], 1.0)) == {"x": "a"}


@given(st.floats(1e-3, 1e9))
def test_run_times_are_rounded_up_by_less_than_half(seconds: float) -> None:
    assert seconds <= lasting(seconds) <= 1.5 * seconds


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_who_has_no_run_time_is_placed_by_the_slot(seconds: float) -> None:
    assert lasting(seconds) == 0.0
