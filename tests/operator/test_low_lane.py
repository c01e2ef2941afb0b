"""Writes that explain give way to writes that bind, and the newest of a kind is the one that is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from cotide_operator.low_lane import BUSY_PER_SECOND, LowLane


async def run_until(lane: LowLane, done: Callable[[], bool]) -> None:
    task = asyncio.create_task(lane.run())
    try:
        async with asyncio.timeout(10):
            while not done():
                await asyncio.sleep(0.005)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def writer(written: list[str], word: str) -> Callable[[], Awaitable[None]]:
    async def write() -> None:
        written.append(word)

    return write


async def test_a_newer_write_replaces_the_older_one_in_its_place() -> None:
    lane, written = LowLane(lambda: False, per_second=1000.0, workers=1), list[str]()
    lane.submit("a", writer(written, "old"))
    lane.submit("b", writer(written, "b"))
    lane.submit("a", writer(written, "new"))
    assert len(lane) == 2
    await run_until(lane, lambda: len(written) == 2)
    assert written == ["new", "b"]


async def test_a_full_lane_refuses_and_says_so() -> None:
    lane, written = LowLane(lambda: False, bound=1), list[str]()
    assert lane.submit("a", writer(written, "a"))
    assert not lane.submit("b", writer(written, "b"))
    assert lane.submit("a", writer(written, "again"))  # its place is taken already


async def test_while_bindings_are_under_way_the_lane_is_slow_but_not_still() -> None:
    lane, written = LowLane(lambda: True, per_second=100_000.0), list[str]()
    for index in range(6):
        lane.submit(index, writer(written, str(index)))
    started = time.monotonic()
    await run_until(lane, lambda: len(written) == 6)
    # Six writes need five intervals of 1/20 s; without the brake they would take a few milliseconds.
    assert time.monotonic() - started >= 5 / BUSY_PER_SECOND * 0.9
