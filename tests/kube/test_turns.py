"""Long work gives way: between its turns everything else in the loop has its own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Generator

import msgspec
import pytest

from cotide_core.queueing.stepwise import finished
from cotide_kube import decoding, turns
from cotide_kube.decoding import ObjectDecoder
from cotide_kube.objects import PodObject
from cotide_kube.turns import Turn, in_steps, in_turns


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


async def test_others_have_their_turn_between_the_steps_of_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    done: list[int] = []
    seen: list[int] = []

    def work() -> Generator[None, None, int]:
        for number in range(5):
            done.append(number)
            yield
        return sum(done)

    async def another() -> None:
        for _ in range(3):
            seen.append(len(done))
            await asyncio.sleep(0)

    other = asyncio.create_task(another())
    assert await in_steps(work()) == 10
    await other
    assert seen == [1, 2, 3], "each turn is over at once"
    assert finished(work()) == 20, "the same steps, and nobody else's turn: 0 to 4 once more"


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


def test_a_turn_by_what_its_thread_has_worked_asks_for_that_only_once_so_much_time_has_gone_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall, worked, asked = [100.0], [5.0], [0]

    def thread_time() -> float:
        asked[0] += 1
        return worked[0]

    monkeypatch.setattr(time, "perf_counter", lambda: wall[0])
    monkeypatch.setattr(time, "thread_time", thread_time)
    turn = Turn(2.0, time.thread_time)
    begun = asked[0]
    wall[0] = 101.9
    assert not turn.is_over
    assert asked[0] == begun
    wall[0], worked[0] = 150.0, 6.9  # it had to wait for a processor
    assert not turn.is_over
    worked[0] = 7.0
    assert turn.is_over


@pytest.mark.parametrize(("most", "piece"), [(1, 1), (1, 2), (1, 3), (1, 7), (decoding.PAGE_BYTES_AT_ONCE, 1)])
async def test_a_page_that_is_read_in_turns_is_the_page(monkeypatch: pytest.MonkeyPatch, most: int, piece: int) -> None:
    """Whatever is in its strings, and wherever it is cut; one object of it can't be read."""
    monkeypatch.setattr(decoding, "PAGE_BYTES_AT_ONCE", most)
    monkeypatch.setattr(decoding, "_PIECE_BYTES", piece)
    odd = ['}]"{[', "\\", '\\"', "\\\\\\", ""]
    pods = [{"metadata": {"name": f"p{n}", "annotations": {"a": text}}} for n, text in enumerate(odd)]
    items = [*pods, {"metadata": {"name": "bad", "labels": 3}}]
    body = json.dumps({"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": items}).encode()
    decoder = ObjectDecoder(PodObject)
    page = await decoder.page_in_turns(body)
    assert page == decoder.page(body)
    assert [item.metadata.annotations["a"] for item in page.items] == odd
    assert [one.name for one in page.malformed] == ["bad"]


async def test_a_page_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PAGE_BYTES_AT_ONCE", 1)
    with pytest.raises(msgspec.DecodeError):
        await ObjectDecoder(PodObject).page_in_turns(b'{"items": [{"metadata": {"name": "p"')
