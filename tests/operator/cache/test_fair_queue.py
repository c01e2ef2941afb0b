"""Keys of many tenants take turns, and the slots for work on them are shared."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_operator.cache.fair_queue import FairQueue, FairSemaphore


def queue_of(*keys: str, slots: int | None = None, slots_each: int | None = None) -> FairQueue[str]:
    """A queue of keys, each of the tenant of its first letter."""
    queue: FairQueue[str] = FairQueue(slots=slots, slots_each=slots_each)
    for key in keys:
        queue.add(key, key[0])
    return queue


def popped(queue: FairQueue[str]) -> list[str]:
    return list(iter(queue.pop, None))


def test_a_tenant_that_is_passed_over_keeps_its_place() -> None:
    queue = queue_of("a0", "a1", "b0")
    queue.add("a1", "b")  # waits already, where it was put first
    assert queue.turn(lambda tenant: tenant != "a") == "b"
    assert queue.turn(lambda _: False) is None
    queue.drop("a0")
    queue.drop("never added")
    assert (len(queue), queue.count("a"), "a0" in queue, popped(queue)) == (2, 1, False, ["a1", "b0"])


def test_without_slots_none_is_held() -> None:
    queue = queue_of("a0", "a1")
    assert (popped(queue), queue.in_flight) == (["a0", "a1"], 0)


@given(st.lists(st.sampled_from("abcd"), max_size=60))
def test_each_tenant_has_one_turn_a_round_and_its_keys_come_in_their_order(tenants: list[str]) -> None:
    keys = [f"{tenant}{number}" for number, tenant in enumerate(tenants)]
    order = popped(queue_of(*keys))
    assert [key for tenant in "abcd" for key in order if key[0] == tenant] == sorted(
        keys, key=lambda key: (key[0], int(key[1:]))
    )
    for number, key in enumerate(order):
        later = next((n for n in range(number + 1, len(order)) if order[n][0] == key[0]), len(order))
        waiting = {one[0] for one in order[number:]} - {key[0]}
        between = [one[0] for one in order[number + 1 : later]]
        assert later == len(order) or set(between) == waiting
        assert len(between) == len(set(between)) or later == len(order)


def test_a_tenant_alone_holds_half_of_the_slots_and_each_other_finds_one_free() -> None:
    queue = queue_of(*(f"a{number}" for number in range(9)), slots=8)
    assert popped(queue) == ["a0", "a1", "a2", "a3"]
    queue.add("b0", "b")
    assert popped(queue) == ["b0"]
    many = queue_of(*(f"{tenant}{number}" for tenant in "abc" for number in range(9)), slots=8)
    assert Counter(key[0] for key in popped(many)) == {"a": 2, "b": 2, "c": 2}, "two stay free, which each holds"


def test_a_released_slot_goes_to_the_tenant_whose_turn_it_is() -> None:
    queue = queue_of("a0", "a1", "a2", "b0", "b1", slots=1)
    assert popped(queue) == ["a0"]
    queue.release("a")
    assert (popped(queue), queue.held("a"), queue.held("b")) == (["b0"], 0, 1)
    queue.release("b")
    assert popped(queue) == ["a1"]


def test_a_bound_for_each_tenant_holds_whatever_is_free() -> None:
    queue = queue_of(*(f"a{number}" for number in range(9)), "b0", slots=100, slots_each=3)
    assert popped(queue) == ["a0", "b0", "a1", "a2"]
    queue.release("a")
    assert popped(queue) == ["a3"]


def test_queues_beside_each_other_share_their_slots() -> None:
    queue = queue_of("a0", "a1", slots=2)
    urgent: FairQueue[str] = FairQueue(shares_with=queue)
    urgent.add("a2", "a")
    assert (popped(urgent), popped(queue), queue.in_flight) == (["a2"], [], 1)
    queue.release("a")
    assert popped(queue) == ["a0"]


@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefghijkl")), max_size=200),
)
def test_a_tenant_that_holds_nothing_gets_a_slot_while_one_is_free(slots: int, steps: list[tuple[bool, str]]) -> None:
    queue, held = queue_of(slots=slots), Counter[str]()
    for number, (adds, tenant) in enumerate(steps):
        if adds:
            queue.add(f"{tenant}{number}", tenant)
        elif held[tenant]:
            held[tenant] -= 1
            queue.release(tenant)
        for key in popped(queue):
            held[key[0]] += 1
        assert queue.in_flight == held.total() <= slots
        idle = [one for one in "abcdefghijkl" if queue.count(one) and not held[one]]
        assert not idle or held.total() == slots
        assert slots == 1 or max(held.values(), default=0) <= slots // 2 + slots % 2


def test_a_turn_passes_over_no_more_tenants_than_there_are_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queue_of(slots=8)
    for tenant in range(10_000):
        for number in range(3):
            queue.add(f"{tenant}/{number}", str(tenant))
    read = 0

    class Held(dict[str, int]):
        def get(self, key: str, default: int = 0) -> int:  # type: ignore[override]  # it counts and does no more
            nonlocal read
            read += 1
            return super().get(key, default)

    monkeypatch.setattr(queue._slots, "held", Held())
    for _ in range(1000):
        while (tenant := queue.turn()) is not None:
            queue.take(tenant)
        queue.release(next(iter(queue._slots.held)))
    assert read <= 1007 * (8 + 2)


class Holders:
    """Which names hold a slot, and which did, in their order."""

    def __init__(self, slots: int) -> None:
        self.semaphore = FairSemaphore(slots)
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.order: list[str] = []
        self.held: set[str] = set()

    async def come(self, *names: str) -> None:
        """Have holders wait, each of the tenant of its first letter."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._hold(name))
        await settled()

    async def _hold(self, name: str) -> None:
        async with self.semaphore.slot(name[0]):
            self.order.append(name)
            self.held.add(name)
            try:
                await self._ends[name].wait()
            finally:
                self.held.discard(name)

    def end(self, name: str) -> None:
        self._ends[name].set()

    async def leave(self, *names: str) -> None:
        for name in names:
            self.end(name)
        await settled()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_tenant_holds_half_of_a_semaphore_and_another_finds_the_rest_free() -> None:
    holders = Holders(4)
    await holders.come("a0", "a1", "a2", "a3")
    assert holders.held == {"a0", "a1"}
    await holders.come("b0")
    assert holders.held == {"a0", "a1", "b0"}
    await holders.leave("b0", "a0")
    assert holders.held == {"a1", "a2"}, "its own slot is for its next"


async def test_between_two_turns_of_a_tenant_the_others_have_theirs() -> None:
    holders = Holders(1)
    await holders.come("a0", "b0", "a1", "a2", "a3", "c0", "c1")
    for name in ("a0", "b0", "a1", "c0", "a2"):
        await holders.leave(name)
    assert holders.order == ["a0", "b0", "a1", "c0", "a2", "c1"]


async def test_a_holder_that_is_cancelled_while_it_waits_takes_no_slot() -> None:
    holders = Holders(1)
    await holders.come("a0", "a1", "a2")
    holders.end("a0")
    holders.tasks["a1"].cancel()  # a0 ends before a1 learns of it
    await settled()
    assert holders.held == {"a2"}


async def test_a_holder_that_is_cancelled_between_getting_a_slot_and_using_it_gives_it_back() -> None:
    holders = Holders(1)
    await holders.come("a0", "a1", "a2")
    holders.end("a0")
    while not holders.tasks["a0"].done():
        await asyncio.sleep(0)
    holders.tasks["a1"].cancel()
    await settled()
    assert (holders.order, holders.held) == (["a0", "a2"], {"a2"})


async def test_nothing_is_kept_of_tenants_that_hold_and_wait_for_nothing() -> None:
    holders = Holders(4)
    await holders.come("a0", "b0", "c0")
    await holders.leave("a0", "b0", "c0")
    queue = holders.semaphore._queue
    assert (queue._slots.held, queue.in_flight, len(queue), queue._lines) == ({}, 0, 0, {})
