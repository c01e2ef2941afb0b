"""Where a pod is whose work does not say it: seen from usage, else by the stated lengths, one phase after the other."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.phases.progress import (
    CLOCKS_APART_SECONDS,
    READINGS_TO_MOVE,
    SETTLED_SECONDS,
    UNSEEN_SECONDS,
    Progress,
    Readiness,
    StatedPhase,
    Usage,
    advanced,
    looks_like_next,
    memory_from,
    shown,
)

READ, COUNT, WRITE = StatedPhase("read", 200, seconds=90), StatedPhase("count", 2000), StatedPhase("write", 100)
PHASES = (READ, COUNT, WRITE)


def by_clock(granted: float | None, now: float) -> int:
    return advanced(Progress(0, 0.0, granted), PHASES, now, None).position


def read(progress: Progress, *readings: tuple[float, float], phases: tuple[StatedPhase, ...] = PHASES) -> Progress:
    """Where a pod is after readings: when, and how many millicores."""
    for at, millicores in readings:
        progress = advanced(progress, phases, at, Usage(millicores, math.nan, at))
    return progress


def test_without_a_measurement_the_stated_seconds_count_from_the_grant() -> None:
    assert by_clock(granted=10, now=99.9) == 0
    assert by_clock(granted=10, now=100) == 1


def test_a_phase_that_waits_for_its_size_does_not_end() -> None:
    assert by_clock(granted=None, now=1e6) == 0


def test_a_phase_of_no_stated_length_and_the_last_one_stay() -> None:
    assert advanced(Progress(1, 0, 0), PHASES, 1e6, None).position == 1
    assert advanced(Progress(2, 0, 0), PHASES, 1e6, None).position == 2


def test_usage_beyond_the_middle_is_the_next_phase_after_some_readings() -> None:
    # Between 200 and 2,000 lies 1,100. The first reading may still be of what was before.
    begun = Progress(0, 0.0, 0.0)
    assert read(begun, *((SETTLED_SECONDS - 20 + 15 * turn, 1500) for turn in range(READINGS_TO_MOVE))).position == 0
    later = [(SETTLED_SECONDS + 15 * turn, 1101.0) for turn in range(READINGS_TO_MOVE)]
    assert read(begun, *later[:-1]).position == 0
    moved = read(begun, *later)
    assert (moved.position, moved.granted_seconds) == (1, None)


def test_one_reading_counts_once_and_a_quiet_one_begins_anew() -> None:
    begun = Progress(0, 0.0, 0.0)
    assert read(begun, *[(100.0, 1500.0)] * 10).position == 0
    assert read(begun, (100.0, 1500.0), (115.0, 1500.0), (130.0, 900.0), (145.0, 1500.0)).position == 0


def test_where_usage_tells_phases_apart_the_clock_is_not_asked() -> None:
    # Read should last 90 s; at 500 s it still uses what reading uses.
    assert read(Progress(0, 0.0, 0.0), (500.0, 210.0)).position == 0


def test_where_needs_are_alike_usage_says_nothing_and_the_clock_does() -> None:
    alike = (StatedPhase("a", 1000, seconds=90), StatedPhase("b", 1200))
    assert looks_like_next(*alike, Usage(1200, 0, 0)) is None
    assert read(Progress(0, 0.0, 0.0), (90.0, 1000.0), phases=alike).position == 1


@pytest.mark.parametrize(("used", "verdict"), [(90.0, False), (160.0, True), (math.nan, None)])
def test_memory_decides_where_cpu_is_alike_and_it_grows(used: float, verdict: bool | None) -> None:
    assert looks_like_next(StatedPhase("a", 100, 100), StatedPhase("b", 100, 200), Usage(100, used, 0)) is verdict


def test_memory_that_falls_tells_nothing() -> None:
    assert looks_like_next(StatedPhase("a", 100, 200), StatedPhase("b", 100, 100), Usage(100, 50, 0)) is None


@pytest.mark.parametrize(
    ("granted", "was_ready", "ready", "since", "position"),
    [
        (None, False, False, 50.0, 0),  # it waits for its size
        (10.0, False, False, 5.0, 0),  # it has not seen the grant yet
        (10.0, False, False, 10.0 + CLOCKS_APART_SECONDS, 0),  # its node's clock may be ahead
        (10.0, False, False, 10.1 + CLOCKS_APART_SECONDS, 1),
        (10.0, True, False, 5.0, 1),  # its node's clock may be behind
        (10.0, True, True, 12.0, 0),
    ],
)
def test_readiness_that_ended_since_the_grant_is_the_next_phase(
    granted: float | None, was_ready: bool, ready: bool, since: float, position: int
) -> None:
    before = Progress(0, 0.0, granted, was_ready=was_ready)
    assert shown(before, PHASES, 30.0, Readiness(ready, since, 0.0)).position == position


@pytest.mark.parametrize(
    ("now", "started", "position"),
    [
        (10.0 + UNSEEN_SECONDS - 0.1, 0.0, 0),  # its probe may still come
        (10.0 + UNSEEN_SECONDS, 0.0, 1),
        (10.0 + UNSEEN_SECONDS, 20.0, 0),  # its image came after the grant
        (20.0 + UNSEEN_SECONDS, 20.0, 1),
    ],
)
def test_work_that_was_through_before_its_probe_looked_does_not_wait_for_ever(
    now: float, started: float, position: int
) -> None:
    assert shown(Progress(0, 0.0, 10.0), PHASES, now, Readiness(False, 0.0, started)).position == position


def test_readiness_since_the_grant_is_remembered_and_the_last_phase_stays() -> None:
    ready = shown(Progress(0, 0.0, 0.0), PHASES, 1.0, Readiness(True, 0.0, 0.0))
    assert shown(ready, PHASES, 2.0, Readiness(False, 0.0, 0.0)) == Progress(1, 2.0)
    assert shown(Progress(2, 0.0, 0.0, was_ready=True), PHASES, 9.0, Readiness(False, 8.0, 0.0)).position == 2


def test_memory_is_needed_for_all_that_follows_and_unstated_is_the_largest() -> None:
    phases = (StatedPhase("a", 1, 300), StatedPhase("b", 1, 100), StatedPhase("c", 1, 200))
    assert [memory_from(phases, position) for position in range(3)] == [300, 200, 200]
    assert [memory_from((*phases, StatedPhase("d", 1)), position) for position in range(4)] == [300] * 4
    assert memory_from(PHASES, 0) == 0


@given(
    readings=st.lists(st.tuples(st.floats(0, 1e4), st.one_of(st.floats(0, 5000), st.just(math.nan))), max_size=30),
    stated=st.lists(st.integers(0, 4000), min_size=1, max_size=5),
)
def test_phases_come_in_order_and_one_at_a_time(readings: list[tuple[float, float]], stated: list[int]) -> None:
    phases = tuple(StatedPhase(str(position), need, seconds=50) for position, need in enumerate(stated))
    progress = Progress(0, 0.0, 0.0)
    for at, millicores in sorted(readings, key=lambda reading: reading[0]):
        after = advanced(progress, phases, at, Usage(millicores, math.nan, at))
        assert after.position in (progress.position, progress.position + 1)
        assert after.position < len(phases)
        progress = after
