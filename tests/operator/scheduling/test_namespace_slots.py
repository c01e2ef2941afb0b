"""Slots that namespaces take in turns."""

from __future__ import annotations

import asyncio

from cotide_operator.scheduling.namespace_slots import NamespaceSlots


class Holders:
    """Who holds a slot, and who did, in their order."""

    def __init__(self, slots: int) -> None:
        self._slots = NamespaceSlots(slots)
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.order: list[str] = []
        self.held: set[str] = set()

    async def come(self, *names: str) -> None:
        """Have holders wait, each in the namespace of its first letter."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._hold(name))
        await settled()

    async def _hold(self, name: str) -> None:
        async with self._slots.slot(name[0]):
            self.order.append(name)
            self.held.add(name)
            try:
                await self._ends[name].wait()
            finally:
                self.held.discard(name)

    async def leave(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
        await settled()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_namespace_holds_half_of_the_slots_and_another_finds_the_rest_free() -> None:
    holders = Holders(4)
    await holders.come("a0", "a1", "a2", "a3")
    assert holders.held == {"a0", "a1"}
    await holders.come("b0")
    assert holders.held == {"a0", "a1", "b0"}
    await holders.leave("a0")
    assert holders.held == {"a1", "a2", "b0"}, "its own slot is for its next"


async def test_between_two_turns_of_a_namespace_the_others_have_theirs() -> None:
    holders = Holders(2)
    await holders.come("a0", "b0", "a1", "a2", "a3", "c0", "c1")
    for name in ("a0", "b0", "a1", "c0"):
        await holders.leave(name)
    assert holders.order == ["a0", "b0", "a1", "c0", "a2", "c1"]


async def test_who_is_cancelled_while_he_waits_takes_no_slot_with_him() -> None:
    holders = Holders(1)
    await holders.come("a0", "a1", "a2")
    holders._ends["a0"].set()
    holders.tasks["a1"].cancel()  # a0 ends before a1 hears of it
    await settled()
    assert holders.held == {"a2"}


async def test_who_is_cancelled_between_getting_a_slot_and_using_it_takes_none_with_him() -> None:
    holders = Holders(1)
    await holders.come("a0", "a1", "a2")
    holders._ends["a0"].set()
    while not holders.tasks["a0"].done():
        await asyncio.sleep(0)
    holders.tasks["a1"].cancel()
    await settled()
    assert (holders.order, holders.held) == (["a0", "a2"], {"a2"})


async def test_nothing_is_kept_of_namespaces_that_hold_and_wait_for_nothing() -> None:
    holders = Holders(2)
    await holders.come("a0", "b0", "c0")
    await holders.leave("a0", "b0", "c0")
    assert (holders._slots._held, len(holders._slots._turns), holders._slots._free) == ({}, 0, 2)
