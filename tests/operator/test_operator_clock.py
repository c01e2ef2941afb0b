"""The operator's clock: as fast as it is told, and never backwards."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_operator.clock import ScaledClock, real_clock


def test_the_real_clock_is_the_wall() -> None:
    before = time.time()
    now = real_clock().now()
    assert before <= now <= time.time()
    assert real_clock().from_wall(123.25) == 123.25


def test_twenty_times_as_fast_since_the_origin() -> None:
    clock = ScaledClock(origin_seconds=1000.0, speed=20.0)
    assert clock.from_wall(1003.0) == 1060.0
    assert clock.to_wall(1060.0) == 1003.0


@given(st.floats(0, 2e9), st.floats(0.01, 1000), st.floats(0, 2e9))
def test_there_and_back_is_the_same_second(origin: float, speed: float, wall: float) -> None:
    clock = ScaledClock(origin, speed)
    assert clock.to_wall(clock.from_wall(wall)) == pytest.approx(wall, abs=1e-3)


def test_a_wall_that_is_set_back_holds_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, walls = ScaledClock(), iter([100.0, 50.0, 101.0])
    monkeypatch.setattr(time, "time", lambda: next(walls))
    assert [clock.now() for _ in range(3)] == [100.0, 100.0, 101.0]
