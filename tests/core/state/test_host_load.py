"""What batch and gratis pods may use: one formula, for placements and for what is published."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.classes import WorkloadClass
from cotide_core.events import (
    ForecastScored,
    Node,
    NodeForecasted,
    NodeUpserted,
    NodeUsageSampled,
    Pod,
    PodDeleted,
    PodUpserted,
)
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.host_load import offered, slack

STALE = 60.0
ANY = st.floats() | st.floats(0, 2000)  # nan, infinite, negative and huge ones among them, and likely ones
MOMENTS = st.just(50.0) | st.floats()
AMOUNTS = st.integers(0, 10_000)


def state_with(millicores: int = 1000, memory: int = 1000, requested: int = 0) -> ClusterState:
    state = ClusterState()
    state.apply(NodeUpserted(Node("a", (("cpu", millicores), ("memory", memory), ("pods", 10)))))
    requests = (("cpu", requested), ("memory", requested))
    state.apply(PodUpserted(Pod("d/web", "u", WorkloadClass.ONLINE, requests, 0.0, node="a")))
    return state


def offer(state: ClusterState, now: float, share: float = 0.95) -> tuple[list[int], bool]:
    peak, believed = state.host_load.online_peak(now, STALE)
    found = offered(state.host_load.physical(), peak, believed, share)
    return found[:, 0].tolist(), bool(believed[0])


def test_a_believed_forecast_offers_the_share_less_the_peak() -> None:
    state = state_with(requested=800)
    state.apply(NodeUsageSampled("a", 0.0, 200.0, 100.0))
    state.apply(NodeForecasted("a", 300.0, 300.0, 150.0, 0.0, 0.0))
    assert offer(state, 10.0) == ([650, 800], True)  # 950 - 300, 950 - 150


def test_a_peak_above_the_share_offers_nothing_and_not_less() -> None:
    state = state_with(requested=800)
    state.apply(NodeUsageSampled("a", 0.0, 200.0, 100.0))
    state.apply(NodeForecasted("a", 300.0, 980.0, 150.0, 0.0, 0.0))
    assert offer(state, 10.0) == ([0, 800], True)  # 950 - 980


def test_within_the_slot_a_measurement_above_the_forecast_counts() -> None:
    state = state_with(requested=800)
    state.apply(NodeForecasted("a", 300.0, 300.0, 150.0, 0.0, 0.0))
    state.apply(NodeUsageSampled("a", 0.0, 500.0, 100.0))
    assert offer(state, 10.0) == ([450, 800], True)  # 950 - 500


@pytest.mark.parametrize(
    ("now", "sampled_at", "until"),
    [(100.0, 0.0, 300.0), (10.0, 0.0, 5.0)],
    ids=["the feed is stale", "the slot is over"],
)
def test_without_a_believed_forecast_requests_count_and_nothing_is_withheld(
    now: float, sampled_at: float, until: float
) -> None:
    state = state_with(requested=800)
    state.apply(NodeUsageSampled("a", sampled_at, 200.0, 100.0))
    state.apply(NodeForecasted("a", until, 300.0, 150.0, 0.0, 0.0))
    assert offer(state, now) == ([200, 200], False)  # 1000 - 800


def test_fallen_back_a_burst_above_the_requests_counts() -> None:
    state = state_with(requested=800)
    state.apply(NodeUsageSampled("a", 0.0, 900.0, 100.0))
    assert offer(state, 10.0) == ([100, 200], False)


def test_once_the_feed_is_silent_a_measurement_counts_only_while_online_pods_are_there() -> None:
    state = state_with(requested=0)
    state.apply(NodeUsageSampled("a", 0.0, 700.0, 100.0))
    silent = 2 * STALE
    assert offer(state, silent) == ([300, 900], False), "1000 - 700: a pod that asks for nothing may still use it"
    state.apply(PodDeleted("d/web", "u"))
    assert offer(state, 10.0) == ([300, 900], False), "still measured: something is there"
    assert offer(state, silent) == ([1000, 1000], False), "nobody is left whom the measurement could be about"


def test_online_pods_that_ask_for_more_than_there_is_leave_nothing_and_not_less() -> None:
    assert offer(state_with(requested=1500), 0.0) == ([0, 0], False)


@given(AMOUNTS, AMOUNTS, ANY, ANY, ANY, MOMENTS, MOMENTS, st.floats(0.01, 1.0))
def test_whatever_is_told_the_offer_is_within_what_is_there(
    millicores: int, requested: int, used: float, memory: float, peak: float, until: float, at: float, share: float
) -> None:
    state = state_with(millicores, 1000, requested)
    state.apply(NodeUsageSampled("a", at, used, memory))
    state.apply(NodeForecasted("a", until, peak, memory, peak, used))
    now = 50.0
    (cpu, held), believed = offer(state, now, share)
    assert 0 <= cpu <= millicores
    assert 0 <= held <= 1000
    online, _ = state.host_load.online_peak(now, STALE)
    usable = share * millicores if believed else millicores
    assert cpu == 0 or online[0, 0] + cpu <= usable * (1 + 1e-12)
    if not believed:
        assert cpu <= max(0, millicores - requested)
    assert math.isfinite(online[0, 0])


@given(st.floats(0, 2000), st.floats(0, 2000), st.floats(0.01, 1.0), st.booleans())
def test_more_online_load_never_means_a_larger_offer(low: float, high: float, share: float, believed: bool) -> None:
    low, high = sorted((low, high))
    physical = np.full((2, 2), 1000.0)
    peaks = np.array([[low, high], [low, high]])
    found = offered(physical, peaks, np.array([believed, believed]), share)
    assert found[0, 0] >= found[0, 1]
    bare = slack(physical, peaks, np.array([believed, believed]), share)
    assert (found <= np.maximum(bare, 0)).all()


def test_a_score_changes_nothing_that_the_engine_knows() -> None:
    state = state_with(requested=800)
    state.apply(NodeUsageSampled("a", 0.0, 200.0, 100.0))
    before = (offer(state, 10.0), state.columns.clock, list(state.relieved))
    state.apply(ForecastScored("a", "online-cpu", 300.0, 9.0, 9.0, 9.0, 9.0, 9.0, 0.5, 0.5, 0.5, 0.1, False))
    assert (offer(state, 10.0), state.columns.clock, list(state.relieved)) == before
