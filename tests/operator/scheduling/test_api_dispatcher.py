"""Writes that explain give way to writes that bind, and the newest of a kind is the one that is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from cotide_operator.scheduling.api_dispatcher import (
    BUSY_PER_SECOND,
    CATCH_UP_SECONDS,
    HOLD_SECONDS,
    RUN,
    SMALL_BACKLOG,
    URGENT_BUSY_PER_SECOND,
    URGENT_PER_SECOND,
    URGENT_SECONDS,
    ApiDispatcher,
)


async def run_until(dispatcher: ApiDispatcher, done: Callable[[], bool]) -> None:
    task = asyncio.create_task(dispatcher.run())
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
    dispatcher, written = ApiDispatcher(lambda: False, per_second=1000.0, workers=1), list[str]()
    dispatcher.submit("a", writer(written, "old"), "ns")
    dispatcher.submit("b", writer(written, "b"), "ns")
    dispatcher.submit("a", writer(written, "new"), "ns")
    assert len(dispatcher) == 2
    await run_until(dispatcher, lambda: len(written) == 2)
    assert written == ["new", "b"]


async def test_a_full_lane_refuses_and_says_so() -> None:
    dispatcher, written = ApiDispatcher(lambda: False, bound=1), list[str]()
    assert dispatcher.submit("a", writer(written, "a"), "ns")
    assert not dispatcher.submit("b", writer(written, "b"), "ns")
    assert dispatcher.submit("a", writer(written, "again"), "ns")  # its place is taken already


def test_the_burst_of_a_whole_large_cluster_in_one_namespace_finds_room() -> None:
    dispatcher, write = ApiDispatcher(lambda: True), writer([], "")
    assert all(dispatcher.submit(("event", number), write, "burst") for number in range(50_000))
    assert dispatcher.submit("event", write, "other"), "a burst leaves room for others"


async def test_namespaces_take_turns_so_that_a_crowd_of_one_holds_nobody_up() -> None:
    dispatcher, written = ApiDispatcher(lambda: False, per_second=1000.0, workers=1), list[str]()
    for index in range(100):
        dispatcher.submit(("note", f"crowd/{index}"), writer(written, f"crowd/{index}"), "crowd")
    for name in ("a", "b"):
        dispatcher.submit(("note", f"other/{name}"), writer(written, f"other/{name}"), "other")
    await run_until(dispatcher, lambda: len(written) == 102)
    assert written[:5] == ["crowd/0", "other/a", "crowd/1", "other/b", "crowd/2"]
    assert written[5:] == [f"crowd/{index}" for index in range(3, 100)]


def test_a_namespace_may_have_as_much_waiting_as_is_left_so_that_none_fills_the_lane() -> None:
    dispatcher = ApiDispatcher(lambda: False, bound=8)

    def taken(namespace: str) -> int:
        return sum(dispatcher.submit((namespace, number), writer([], ""), namespace) for number in range(8))

    assert [taken("first"), taken("second"), taken("third")] == [4, 2, 1]  # half of 8, of 4 and of 2
    dispatcher.take_back(("first", 0))
    dispatcher.take_back(("first", 1))
    assert dispatcher.submit(("second", 2), writer([], ""), "second"), "two of three that are left"
    assert not dispatcher.submit(("first", 9), writer([], ""), "first"), "two of two that are left"


async def test_while_bindings_are_asked_for_a_crowd_waits_for_a_calm_moment() -> None:
    written: list[str] = []
    busy = True
    dispatcher = ApiDispatcher(lambda: busy, per_second=1000.0)
    for index in range(SMALL_BACKLOG + 1):
        dispatcher.submit(index, writer(written, str(index)), "ns")
    assert dispatcher.rate() == 0.0
    task = asyncio.create_task(dispatcher.run())
    await asyncio.sleep(0)
    busy = False
    assert (written, dispatcher.rate()) == ([], 1000.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await run_until(dispatcher, lambda: len(written) == SMALL_BACKLOG + 1)


async def test_who_says_little_does_not_wait_for_what_others_bind() -> None:
    dispatcher, written = ApiDispatcher(lambda: True, workers=1), list[str]()
    for index in range(SMALL_BACKLOG + 1):
        dispatcher.submit(index, writer(written, str(index)), "crowd")
    assert dispatcher.rate() == 0.0
    for word in ("a", "b"):
        dispatcher.submit(word, writer(written, word), "other")
    assert dispatcher.rate() == BUSY_PER_SECOND
    await run_until(dispatcher, lambda: len(written) == 2)
    assert (written, dispatcher.rate()) == (["a", "b"], 0.0), "the crowd still waits"


def test_what_waited_long_enough_is_written_as_fast_as_it_takes_to_catch_up() -> None:
    now, written = 0.0, list[str]()
    dispatcher = ApiDispatcher(lambda: True, now=lambda: now)
    for index in range(3000):
        dispatcher.submit(index, writer(written, str(index)), "ns")
    now = HOLD_SECONDS - 0.1
    dispatcher.submit(0, writer(written, "newer"), "ns")  # in the place, and as old as, what it replaces
    assert dispatcher.rate() == 0.0
    now = HOLD_SECONDS
    assert dispatcher.rate() == 3000 / CATCH_UP_SECONDS == 100.0
    for index in range(3000, 12_000):
        dispatcher.submit(index, writer(written, str(index)), "ns")
    assert dispatcher.rate() == 200.0, "never faster than when nothing else is to do"


async def test_few_that_waited_long_enough_are_written_at_the_least_rate() -> None:
    now, written = 0.0, list[str]()
    dispatcher = ApiDispatcher(lambda: True, per_second=100_000.0, now=lambda: now)
    for index in range(6):
        dispatcher.submit(index, writer(written, str(index)), "ns")
    now = HOLD_SECONDS
    started = time.monotonic()
    await run_until(dispatcher, lambda: len(written) == 6)
    # Six writes need five intervals of 1/20 s; without the brake they would take a few milliseconds.
    assert time.monotonic() - started >= 5 / BUSY_PER_SECOND * 0.9


async def test_a_write_that_nobody_needs_any_more_is_taken_back() -> None:
    dispatcher, written = ApiDispatcher(lambda: False, per_second=1000.0), list[str]()
    dispatcher.submit("a", writer(written, "a"), "ns")
    dispatcher.submit("b", writer(written, "b"), "ns")
    dispatcher.take_back("a")
    dispatcher.take_back("never submitted")
    await run_until(dispatcher, lambda: bool(written))
    assert written == ["b"]


async def test_a_namespace_whose_writes_hang_holds_up_no_other() -> None:
    dispatcher, written = ApiDispatcher(lambda: False, per_second=10_000.0), list[str]()
    hanging = 0

    async def hang() -> None:
        nonlocal hanging
        hanging += 1
        await asyncio.Event().wait()

    for index in range(100):
        dispatcher.submit(index, hang, "slow")
    task = asyncio.create_task(dispatcher.run())
    for word in "abc":  # one after another, each when the slow ones had their turn
        for _ in range(20):
            await asyncio.sleep(0.001)
        dispatcher.submit(word, writer(written, word), "other")
    async with asyncio.timeout(5):
        while len(written) < 3:
            await asyncio.sleep(0.001)
    assert hanging == 8, "no more of them are under way than one namespace may have"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_waits_for_a_write_of_its_own_namespace_is_written_once_that_is_done() -> None:
    dispatcher, written, answered = (
        ApiDispatcher(lambda: False, per_second=10_000.0, workers=2),
        list[str](),
        asyncio.Event(),
    )

    async def slow() -> None:
        await answered.wait()
        written.append("slow")

    dispatcher.submit("slow", slow, "ns")
    dispatcher.submit("next", writer(written, "next"), "ns")
    task = asyncio.create_task(dispatcher.run())
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert written == []
    answered.set()
    async with asyncio.timeout(5):
        while len(written) < 2:
            await asyncio.sleep(0.001)
    assert written == ["slow", "next"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_newer_write_waits_for_an_older_one_that_is_on_its_way() -> None:
    dispatcher, written, answered = ApiDispatcher(lambda: False, per_second=10_000.0), list[str](), asyncio.Event()

    async def old() -> None:
        await answered.wait()
        written.append("old")

    dispatcher.submit("note", old, "ns")
    task = asyncio.create_task(dispatcher.run())
    await asyncio.sleep(0.005)
    for word in ("replaced", "new"):
        dispatcher.submit("note", writer(written, word), "ns")
    dispatcher.submit("other", writer(written, "other"), "ns")
    async with asyncio.timeout(5):
        while not written:
            await asyncio.sleep(0.001)
        assert written == ["other"]
        answered.set()
        while len(written) < 3:
            await asyncio.sleep(0.001)
    assert written == ["other", "old", "new"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_first_refusal_is_written_next_though_a_crowd_waits_and_bindings_are_asked_for() -> None:
    dispatcher, written = ApiDispatcher(lambda: True, workers=1), list[str]()
    for index in range(1000):
        dispatcher.submit(index, writer(written, str(index)), "crowd")
    dispatcher.submit("first", writer(written, "first"), "crowd", urgent=True)
    assert dispatcher.rate() == URGENT_BUSY_PER_SECOND
    await run_until(dispatcher, lambda: bool(written))
    assert written == ["first"]


async def test_first_refusals_of_a_crowd_leave_one_of_a_few_writes_to_others() -> None:
    dispatcher, written = ApiDispatcher(lambda: False, per_second=100_000.0, workers=1), list[str]()
    for index in range(3 * RUN):
        dispatcher.submit(("first", index), writer(written, "first"), "crowd", urgent=True)
    for word in ("a", "b"):
        dispatcher.submit(word, writer(written, word), "other")
    await run_until(dispatcher, lambda: len(written) == 3 * RUN + 2)
    run = ["first"] * RUN
    assert written == [*run, "a", *run, "b", *run]


async def test_of_first_refusals_too_namespaces_take_turns() -> None:
    dispatcher, written = ApiDispatcher(lambda: False, per_second=1000.0, workers=1), list[str]()
    for index in range(100):
        dispatcher.submit(index, writer(written, f"crowd/{index}"), "crowd", urgent=True)
    dispatcher.submit("other", writer(written, "other"), "other", urgent=True)
    await run_until(dispatcher, lambda: len(written) >= 3)
    assert written[:3] == ["crowd/0", "other", "crowd/1"]


def test_a_crowd_of_first_refusals_is_written_in_seconds_while_bindings_are_asked_for() -> None:
    busy = True
    dispatcher = ApiDispatcher(lambda: busy)
    for index in range(3000):
        dispatcher.submit(index, writer([], ""), "ns", urgent=True)
    assert dispatcher.rate() == 3000 / URGENT_SECONDS
    busy = False
    assert dispatcher.rate() == URGENT_PER_SECOND
    for index in range(3000):
        dispatcher.take_back(index)
    assert (len(dispatcher), dispatcher.rate()) == (0, 200.0)


async def test_what_replaces_a_first_refusal_has_its_place() -> None:
    dispatcher, written = ApiDispatcher(lambda: False, per_second=1000.0, workers=1), list[str]()
    dispatcher.submit("other", writer(written, "other"), "ns")
    dispatcher.submit("note", writer(written, "first"), "ns", urgent=True)
    dispatcher.submit("note", writer(written, "latest"), "ns")
    await run_until(dispatcher, lambda: len(written) == 2)
    assert written == ["latest", "other"]
