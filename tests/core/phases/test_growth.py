"""What a running pod asks for as its phases come: less at once, more where there is room, little while it waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cotide_core.phases.growth import HELD_MILLICORES, PAUSE_SECONDS, Growth, cpu_to_ask


def test_a_phase_that_needs_less_gives_back_at_once() -> None:
    assert cpu_to_ask(Growth(needs=200, asks=2000, waited_seconds=0), room=-500) == 200


def test_a_phase_that_needs_more_gets_it_where_there_is_room() -> None:
    # 1,500 more than it asks for, and 1,500 are free.
    assert cpu_to_ask(Growth(needs=2000, asks=500, waited_seconds=0), room=1500) == 2000


def test_a_phase_that_waits_for_room_is_held_small() -> None:
    assert cpu_to_ask(Growth(needs=2000, asks=500, waited_seconds=0), room=1499) == HELD_MILLICORES


def test_a_phase_that_waited_too_long_asks_all_the_same_so_that_room_is_kept() -> None:
    assert cpu_to_ask(Growth(needs=2000, asks=10, waited_seconds=PAUSE_SECONDS + 1), room=0) == 2000


@given(needs=st.integers(0, 5000), asks=st.integers(0, 5000), room=st.integers(-5000, 5000))
def test_before_its_bound_a_pod_never_asks_for_more_than_there_is(needs: int, asks: int, room: int) -> None:
    size = cpu_to_ask(Growth(needs, asks, waited_seconds=0), room)
    assert size <= asks or size - asks <= room
    assert cpu_to_ask(Growth(needs, size, waited_seconds=0), room - (size - asks)) == size  # at rest
