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


class Machine:
    """A machine's two clocks, of which only one can be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.uptime = 1000.0, 50.0
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic", lambda: self.uptime)

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.uptime += seconds


@pytest.mark.parametrize(("set_by", "after_ten"), [(-3600.0, 9.0), (3600.0, 11.0), (-0.5, 9.5), (0.0, 10.0)])
def test_a_machine_clock_that_is_set_is_followed_slowly(
    monkeypatch: pytest.MonkeyPatch, set_by: float, after_ten: float
) -> None:
    machine, clock = Machine(monkeypatch), ScaledClock()
    assert clock.now() == 1000.0
    machine.wall += set_by
    assert clock.now() == 1000.0  # nothing has passed
    machine.passes(10.0)
    assert clock.now() == pytest.approx(1000.0 + after_ten)


def test_a_clock_catches_up_with_the_machine_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, clock = Machine(monkeypatch), ScaledClock()
    clock.now()
    machine.wall += 60.0
    for _ in range(600):  # a tenth of 600 s is the minute
        machine.passes(1.0)
        clock.now()
    assert clock.now() == pytest.approx(machine.wall)
