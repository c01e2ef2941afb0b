"""What a running pod asks for as its phases come: less at once, more where there is room, little while it waits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.phases.growth import HELD_MILLICORES, PAUSE_SECONDS, Amounts, Growth, size_to_ask

AMPLE = Amounts(1000, 1000)


def cpu(needs: int, asks: int, room: int, waited: float = 0.0) -> int:
    """What a pod without memory asks for."""
    return size_to_ask(Growth(Amounts(needs, 0), Amounts(asks, 0), waited), Amounts(room, 0)).millicores


def memory(needs: int, asks: int, used: float | None, room: Amounts = AMPLE) -> Amounts:
    """What a pod asks for that needs and has 10 millicores."""
    return size_to_ask(Growth(Amounts(10, needs), Amounts(10, asks), 0.0, used), room)


def test_a_phase_that_needs_less_gives_back_at_once() -> None:
    assert cpu(needs=200, asks=2000, room=-500) == 200


def test_a_phase_that_needs_more_gets_it_where_there_is_room() -> None:
    # 1,500 more than it asks for, and 1,500 are free.
    assert cpu(needs=2000, asks=500, room=1500) == 2000


def test_a_phase_that_waits_for_room_is_held_small() -> None:
    assert cpu(needs=2000, asks=500, room=1499) == HELD_MILLICORES


def test_a_phase_that_waited_too_long_asks_all_the_same_so_that_room_is_kept() -> None:
    assert cpu(needs=2000, asks=10, room=0, waited=PAUSE_SECONDS + 1) == 2000


def test_memory_is_given_back_once_what_is_used_fits_with_a_tenth_to_spare() -> None:
    assert memory(needs=120, asks=400, used=109.0) == (10, 120)
    assert memory(needs=120, asks=400, used=110.0) == (10, 400)


@pytest.mark.parametrize("used", [None, math.nan])
def test_memory_stays_where_nobody_measured_it(used: float | None) -> None:
    assert memory(needs=110, asks=400, used=used) == (10, 400)


def test_phases_that_state_no_memory_leave_it_as_it_is() -> None:
    assert memory(needs=0, asks=400, used=1.0) == (10, 400)


def test_work_that_goes_back_waits_for_memory_and_keeps_what_it_has() -> None:
    assert memory(needs=400, asks=100, used=90.0, room=Amounts(1000, 299)) == (HELD_MILLICORES, 100)
    assert memory(needs=400, asks=100, used=90.0, room=Amounts(-5, 300)) == (10, 400)


def test_memory_is_given_back_by_a_phase_that_waits_for_cpu() -> None:
    pod = Growth(Amounts(2000, 100), Amounts(500, 400), 0.0, used_bytes=50.0)
    assert size_to_ask(pod, Amounts(0, 0)) == (HELD_MILLICORES, 100)


amounts = st.builds(Amounts, st.integers(0, 5000), st.integers(0, 5000))
rooms = st.builds(Amounts, st.integers(-5000, 5000), st.integers(-5000, 5000))


@given(needs=amounts, asks=amounts, room=rooms, used=st.one_of(st.none(), st.floats(0, 5000)))
def test_before_its_bound_a_pod_never_asks_for_more_than_there_is(
    needs: Amounts, asks: Amounts, room: Amounts, used: float | None
) -> None:
    size = size_to_ask(Growth(needs, asks, 0.0, used), room)
    assert all(want <= has or want - has <= free for want, has, free in zip(size, asks, room, strict=True))
    left = Amounts(*(free - want + has for free, want, has in zip(room, size, asks, strict=True)))
    assert size_to_ask(Growth(needs, size, 0.0, used), left) == size  # at rest


@given(needs=amounts, asks=amounts, room=rooms, used=st.floats(0, 5000), waited=st.floats(0, 100))
def test_memory_in_use_is_never_given_away(
    needs: Amounts, asks: Amounts, room: Amounts, used: float, waited: float
) -> None:
    size = size_to_ask(Growth(needs, asks, waited, used), room)
    assert size.memory_bytes >= min(asks.memory_bytes, used)
