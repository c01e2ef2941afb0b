"""Whatever holds the deciding loop, the lease is renewed; unless it holds it for good."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_server import answers, refuses, scripted_server

from cotide_kube.credentials import Credentials
from cotide_operator import assembly
from cotide_operator.assembly import Operator
from cotide_operator.config.settings import LeaderElectionSettings
from cotide_operator.leaderelection import lease_thread
from cotide_operator.leaderelection.lease import LeadershipLost, awake_and_asleep
from cotide_operator.leaderelection.lease_thread import LeaseThread
from cotide_operator.task_supervisor import TaskSupervisor

SETTINGS = LeaderElectionSettings(
    enabled=True, namespace="default", lease_duration_seconds=3.0, renew_deadline_seconds=2.0, retry_period_seconds=0.2
)


def electing(monkeypatch: pytest.MonkeyPatch) -> tuple[LeaseThread, list[tuple[float, str]]]:
    """A candidate whose lease is always to be had, and when and where it was renewed."""
    lease = LeaseThread(Credentials("http://127.0.0.1:1"), SETTINGS, "me", timeout_seconds=1.0)
    renewals: list[tuple[float, str]] = []

    async def granted() -> bool:
        lease.elector._renewed = awake_and_asleep()
        renewals.append((time.monotonic(), threading.current_thread().name))
        return True

    monkeypatch.setattr(lease.elector, "_renew", granted)
    return lease, renewals


async def test_a_block_longer_than_the_lease_does_not_lose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lease, renewals = electing(monkeypatch)
    await lease.start()
    try:
        await lease.acquire()
        holding = asyncio.create_task(lease.hold())
        await asyncio.sleep(0)
        begun = time.monotonic()
        while time.monotonic() - begun < 2 * SETTINGS.renew_deadline_seconds:  # decides, and gives way to nobody
            pass
        lease.permit()
        during = [at for at, thread in renewals if at > begun and thread == "lease"]
        assert len(during) >= 5
        holding.cancel()
    finally:
        await lease.stop()


async def test_a_loop_that_hangs_for_good_loses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_thread, "HUNG_SECONDS", 0.5)
    monkeypatch.setattr(lease_thread, "SIGN_SECONDS", 1000.0)  # it never comes to give the next sign
    lease, _ = electing(monkeypatch)
    await lease.start()
    try:
        await lease.acquire()
        with pytest.raises(LeadershipLost):
            await lease.hold()
        with pytest.raises(LeadershipLost):
            lease.permit()
    finally:
        await lease.stop()


async def test_what_is_learned_reaches_the_lease_and_a_failure_of_it_costs_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lease_thread, "SIGN_SECONDS", 0.0)
    lease, _ = electing(monkeypatch)
    lease.elector.backoffs = "as the last leader left it"
    words: list[str | None] = [None, "first", "second"]
    seen: list[str] = []

    def learned() -> str | None:
        seen.append(lease.backoffs)
        return words.pop(0)  # and then there is nothing to take, which raises

    await lease.start()
    try:
        await lease.acquire()
        holding = asyncio.create_task(lease.hold(learned))
        while len(seen) < 6:
            await asyncio.sleep(0)
        assert seen[:4] == ["as the last leader left it", "as the last leader left it", "first", "second"]
        assert "the nodes that refused pods are not written on the lease" in caplog.text
        lease.permit()
        assert not holding.done()
        holding.cancel()
    finally:
        await lease.stop()


def test_a_thread_that_hangs_holds_up_no_process_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    lease, _ = electing(monkeypatch)
    assert lease._thread.daemon


async def test_the_thread_ends_with_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    lease, _ = electing(monkeypatch)
    await lease.start()
    await lease.stop()
    assert not [thread for thread in threading.enumerate() if thread is lease._thread]


async def test_the_connections_of_the_thread_are_closed_with_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    lease, _ = electing(monkeypatch)
    closed: list[str] = []
    leave = lease._client.__aexit__

    async def noted(*error: Any) -> None:
        closed.append(threading.current_thread().name)
        await leave(*error)

    monkeypatch.setattr(lease._client, "__aexit__", noted)
    await lease.start()
    await lease.stop()
    assert closed == ["lease"]


async def test_nothing_is_left_pending_when_it_stops_in_the_middle(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lease, _ = electing(monkeypatch)
    await lease.start()
    await lease.acquire()
    holding = asyncio.create_task(lease.hold())
    await asyncio.sleep(0)
    asked = threading.Event()

    async def unanswered() -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr(lease.elector, "_renew", unanswered)
    await asyncio.to_thread(asked.wait, 10.0)
    holding.cancel()  # of which the thread hears only in its own time
    await lease.stop()
    assert not asyncio.all_tasks(lease._loop)
    await asyncio.gather(holding, return_exceptions=True)
    del lease, holding
    gc.collect()
    assert "destroyed" not in caplog.text


async def test_an_operator_that_is_told_to_stop_while_it_stands_by_gives_back_what_it_may_have_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    stop = asyncio.Event()

    async def acquire() -> None:
        stop.set()  # while its request is on its way
        await asyncio.Event().wait()

    async def note(what: str) -> None:
        said.append(what)

    lease = SimpleNamespace(
        start=lambda: note("start"), acquire=acquire, withdraw=lambda: note("withdraw"), permit=lambda: None
    )
    monkeypatch.setattr(assembly, "LeaseThread", lambda *_, **__: lease)
    monkeypatch.setattr(assembly.preflight, "await_namespace", lambda *_: note("namespace"))
    settings = SimpleNamespace(leader_election=SETTINGS)
    operator: Any = SimpleNamespace(settings=settings, client=SimpleNamespace(), _credentials=None)
    async with TaskSupervisor() as supervisor:
        await Operator._elect(operator, supervisor, stop)
    assert said == ["namespace", "start", "withdraw"]


async def test_a_server_that_asks_to_stay_away_for_an_hour_is_asked_again_within_the_deadline() -> None:
    async with scripted_server() as server:
        away = {"Retry-After": "3600"}
        server.then(refuses(404), answers(201, {}), *[refuses(429, "TooManyRequests", headers=away)] * 3)
        server.then(*[answers(200, {"metadata": {}, "spec": {"holderIdentity": "me"}})] * 1000)
        settings = SETTINGS.model_copy(update={"lease_duration_seconds": 30.0, "renew_deadline_seconds": 20.0})
        lease = LeaseThread(Credentials(server.url), settings, "me", timeout_seconds=5.0)
        await lease.start()
        try:
            async with asyncio.timeout(15.0):
                await lease.acquire()
                holding = asyncio.create_task(lease.hold())
                while len(server.requests) < 8:
                    await asyncio.sleep(0.01)
            assert lease.leading
            holding.cancel()
        finally:
            await lease.stop()
