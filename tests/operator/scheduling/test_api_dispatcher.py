"""Writes that explain give way to writes that bind, and the newest of a kind is the one that is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from cotide_operator.scheduling.api_dispatcher import BUSY_PER_SECOND, CATCH_UP_SECONDS, HOLD_SECONDS, ApiDispatcher


async def run_until(lane: ApiDispatcher, done: Callable[[], bool]) -> None:
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
    lane, written = ApiDispatcher(lambda: False, per_second=1000.0, workers=1), list[str]()
    lane.submit("a", writer(written, "old"))
    lane.submit("b", writer(written, "b"))
    lane.submit("a", writer(written, "new"))
    assert len(lane) == 2
    await run_until(lane, lambda: len(written) == 2)
    assert written == ["new", "b"]


async def test_a_full_lane_refuses_and_says_so() -> None:
    lane, written = ApiDispatcher(lambda: False, bound=1), list[str]()
    assert lane.submit("a", writer(written, "a"))
    assert not lane.submit("b", writer(written, "b"))
    assert lane.submit("a", writer(written, "again"))  # its place is taken already


async def test_while_bindings_are_asked_for_a_write_waits_for_a_calm_moment() -> None:
    written: list[str] = []
    busy = True
    lane = ApiDispatcher(lambda: busy, per_second=1000.0)
    lane.submit("a", writer(written, "a"))
    assert lane.rate() == 0.0
    task = asyncio.create_task(lane.run())
    await asyncio.sleep(0)
    busy = False
    assert (written, lane.rate()) == ([], 1000.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await run_until(lane, lambda: written == ["a"])


def test_what_waited_long_enough_is_written_as_fast_as_it_takes_to_catch_up() -> None:
    now, written = 0.0, list[str]()
    lane = ApiDispatcher(lambda: True, now=lambda: now)
    for index in range(3000):
        lane.submit(index, writer(written, str(index)))
    now = HOLD_SECONDS - 0.1
    lane.submit(0, writer(written, "newer"))  # in the place, and as old as, what it replaces
    assert lane.rate() == 0.0
    now = HOLD_SECONDS
    assert lane.rate() == 3000 / CATCH_UP_SECONDS == 100.0
    for index in range(3000, 12_000):
        lane.submit(index, writer(written, str(index)))
    assert lane.rate() == 200.0, "never faster than when nothing else is to do"


async def test_few_that_waited_long_enough_are_written_at_the_least_rate() -> None:
    now, written = 0.0, list[str]()
    lane = ApiDispatcher(lambda: True, per_second=100_000.0, now=lambda: now)
    for index in range(6):
        lane.submit(index, writer(written, str(index)))
    now = HOLD_SECONDS
    started = time.monotonic()
    await run_until(lane, lambda: len(written) == 6)
    # Six writes need five intervals of 1/20 s; without the brake they would take a few milliseconds.
    assert time.monotonic() - started >= 5 / BUSY_PER_SECOND * 0.9


async def test_a_write_that_nobody_needs_any_more_is_taken_back() -> None:
    lane, written = ApiDispatcher(lambda: False, per_second=1000.0), list[str]()
    lane.submit("a", writer(written, "a"))
    lane.submit("b", writer(written, "b"))
    lane.take_back("a")
    lane.take_back("never submitted")
    await run_until(lane, lambda: bool(written))
    assert written == ["b"]
