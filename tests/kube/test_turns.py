"""Long work gives way: between its turns everything else in the loop has its own."""

from __future__ import annotations

import asyncio

import pytest

from cotide_kube import turns
from cotide_kube.turns import Turn, in_turns


async def test_others_have_their_turn_while_many_items_are_worked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    done: list[int] = []
    seen: list[int] = []

    async def another() -> None:
        for _ in range(3):
            seen.append(len(done))
            await asyncio.sleep(0)

    def work(item: int) -> int:
        done.append(item)
        return 2 * item

    other = asyncio.create_task(another())
    assert await in_turns(work, range(100)) == [2 * number for number in range(100)]
    await other
    assert seen == [0, 1, 2], "each turn is over at once"


async def test_a_turn_ends_when_its_time_is_over_and_begins_anew_after_the_pause() -> None:
    now = [10.0]
    turn = Turn(2.0, lambda: now[0])
    passed: list[float] = []

    async def another() -> None:
        passed.append(now[0])

    other = asyncio.create_task(another())
    now[0] = 11.9
    await turn.give_way()
    assert not passed, "it may go on"
    now[0] = 12.0
    await turn.give_way()
    assert passed == [12.0]
    assert not turn.is_over
    await other
