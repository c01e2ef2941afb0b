"""How many requests to an API server are under way at a time."""

import asyncio
from contextlib import suppress

import pytest

from cotide_kube.connection import ramp as connection_ramp
from cotide_kube.connection.ramp import ANSWERS_A_CONNECTION, FIRST, ConnectionRamp

HOUR = 3600.0


class Requests:
    """Requests through one ramp, which end when the test lets them."""

    def __init__(self, ramp: ConnectionRamp) -> None:
        self.ramp, self.under_way, self.most = ramp, 0, 0
        self.ends: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self, count: int) -> None:
        for _ in range(count):
            end = asyncio.Event()
            self.ends.append(end)
            self.tasks.append(asyncio.create_task(self._one(end)))
        await settled()

    async def _one(self, end: asyncio.Event) -> None:
        async with self.ramp:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                await end.wait()
            finally:
                self.under_way -= 1

    async def finish(self) -> None:
        for end in self.ends:
            end.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def settled() -> None:
    for _ in range(500):
        await asyncio.sleep(0)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_ramp, "PATIENCE_SECONDS", HOUR)


@pytest.mark.usefixtures("patient")
async def test_a_burst_uses_the_first_connections_while_answers_are_quick() -> None:
    requests = Requests(ConnectionRamp(64))
    await requests.begin(60)
    assert requests.under_way == FIRST
    await requests.finish()
    assert requests.most == FIRST
    assert all(task.done() and task.exception() is None for task in requests.tasks)


async def test_slow_answers_open_connections_up_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_ramp, "PATIENCE_SECONDS", 0.0)
    requests = Requests(ConnectionRamp(FIRST * 4))
    await requests.begin(100)
    while requests.ramp.bound < FIRST * 4:
        await asyncio.sleep(0)
    await settled()
    assert requests.under_way == 100  # from there on the connector counts
    await requests.finish()


@pytest.mark.usefixtures("patient")
async def test_a_cancelled_request_gives_its_turn_on() -> None:
    requests = Requests(ConnectionRamp(64))
    await requests.begin(FIRST + 2)
    waits, begun = requests.tasks[FIRST], requests.tasks[0]
    waits.cancel()
    begun.cancel()
    with suppress(asyncio.CancelledError):
        await waits
    await settled()
    assert requests.under_way == FIRST
    await requests.finish()
    await requests.begin(FIRST)
    assert not any(task.done() for task in requests.tasks[-FIRST:])
    await requests.finish()


async def test_after_a_rest_the_bound_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_ramp, "PATIENCE_SECONDS", 0.0)
    requests = Requests(ConnectionRamp(FIRST * 2))
    await requests.begin(FIRST + 1)
    while requests.ramp.bound == FIRST:
        await asyncio.sleep(0)
    await requests.finish()
    assert requests.ramp.bound == FIRST * 2
    monkeypatch.setattr(connection_ramp, "FORGET_SECONDS", -1.0)
    await requests.begin(1)
    assert requests.ramp.bound == FIRST
    await requests.finish()


@pytest.mark.usefixtures("patient")
async def test_a_long_burst_opens_connections_one_by_one() -> None:
    ramp, total = ConnectionRamp(64), FIRST + 10 * ANSWERS_A_CONNECTION
    requests = Requests(ramp)
    await requests.begin(total)
    for end in requests.ends[: 3 * ANSWERS_A_CONNECTION]:
        end.set()
    await settled()
    assert requests.under_way == ramp.bound == FIRST + 3
    await requests.finish()
