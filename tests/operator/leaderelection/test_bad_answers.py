"""An API server, or a proxy before it, that answers with something else than what was asked for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from scripted_server import answers, scripted_client

from cotide_core.errors import ClusterError
from cotide_operator.cache.object_cache import CustomObject, Metadata
from cotide_operator.config.settings import LeaderElectionSettings
from cotide_operator.controllers.status_writer import LastWritten, StatusWriter
from cotide_operator.leaderelection import lease as lease_module
from cotide_operator.leaderelection.lease import LeaderElector, LeadershipLost
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reporting import event_recorder
from cotide_operator.reporting.event_recorder import EventRecorder
from cotide_operator.scheduling.api_dispatcher import ApiDispatcher

SETTINGS = LeaderElectionSettings(
    namespace="default", lease_duration_seconds=15, renew_deadline_seconds=10, retry_period_seconds=2
)
FREE = {"metadata": {"name": "cotide-operator", "resourceVersion": "1"}, "spec": {"holderIdentity": ""}}


def page(text: bytes) -> Any:
    async def step(request: web.Request) -> web.Response:
        return web.Response(body=text, content_type="application/json")

    return step


ODD = {
    "a page": b"<html>login</html>",
    "nothing": b"",
    "a list": b"[]",
    "a number": b"7",
    "cut short": b'{"metadata": {',
    "deep": b'{"spec": ' + b"[" * 100_000,
    "odd metadata": b'{"metadata": 7}',
    "odd spec": b'{"metadata": {}, "spec": []}',
    "odd holder": b'{"metadata": {}, "spec": {"holderIdentity": 7}}',
    "odd annotations": b'{"metadata": {"annotations": []}, "spec": {}}',
}


async def nap(seconds: float) -> None:
    del seconds


@pytest.mark.parametrize("odd", ODD)
async def test_a_lease_answered_with_anything_else_is_asked_for_again(odd: str) -> None:
    async with scripted_client() as (server, client):
        server.then(page(ODD[odd]), answers(200, FREE), answers(200, {}))
        one = LeaderElector(client, SETTINGS, "one", sleep=nap)
        await one.acquire()
        assert one.leading
        assert [method for method, *_ in server.requests] == ["GET", "GET", "PUT"]


@pytest.mark.parametrize("odd", ODD)
async def test_a_renewal_answered_with_anything_else_is_repeated(odd: str) -> None:
    async with scripted_client() as (server, client):
        held = {**FREE, "spec": {"holderIdentity": "one"}}
        server.then(answers(200, FREE), answers(200, {}), page(ODD[odd]), answers(200, held), answers(200, {}))
        one = LeaderElector(client, SETTINGS, "one", sleep=nap)
        await one.acquire()
        assert not await one._renew()
        assert await one._renew()


@pytest.mark.parametrize(
    "answer",
    [
        {"metadata": {"resourceVersion": "2"}, "spec": {"holderIdentity": "two"}},
        {"metadata": {}, "spec": {"holderIdentity": "one"}},
    ],
    ids=["of another holder", "without a version"],
)
async def test_a_leader_reads_the_lease_again_after_a_renewal_that_shows_another(answer: dict[str, Any]) -> None:
    async with scripted_client() as (server, client):
        held = {"metadata": {"name": "cotide-operator", "resourceVersion": "3"}, "spec": {"holderIdentity": "one"}}
        server.then(answers(200, FREE), answers(200, answer), answers(200, held), answers(200, held))
        one = LeaderElector(client, SETTINGS, "one", sleep=nap)
        await one.acquire()
        await one._renew()
        assert [method for method, *_ in server.requests] == ["GET", "PUT", "GET", "PUT"]


async def test_a_renewal_that_gets_no_answer_has_the_time_that_is_left_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    waits: list[float] = []
    timeout = asyncio.timeout

    def noted(seconds: float) -> asyncio.Timeout:
        waits.append(seconds)
        return timeout(seconds)

    async def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def silent(*_: Any) -> Any:
        await asyncio.Event().wait()

    async with scripted_client() as (server, client):
        server.then(answers(200, FREE), answers(200, {}), answers(200, FREE))
        one = LeaderElector(client, SETTINGS, "one", sleep=pass_time, monotonic=lambda: now)
        await one.acquire()
        now = 7.75  # a nap of 2 s is next
        monkeypatch.setattr(lease_module.asyncio, "timeout", noted)
        monkeypatch.setattr(one, "_renew", silent)
        with pytest.raises(LeadershipLost, match="could not be renewed for 10 s"):
            await one.hold()
        monkeypatch.undo()
    assert waits == [0.25, 0.0]


async def test_a_status_answered_without_metadata_is_written_all_the_same() -> None:
    job = CustomObject(metadata=Metadata(name="j", namespace="ns", uid="u"))
    for answer in ({}, {"metadata": None}, {"metadata": {"resourceVersion": 7}}):
        async with scripted_client() as (server, client):
            server.then(answers(200, answer))
            kept = LastWritten("u", {})
            await StatusWriter(client, "jobs").write(job, kept, {"phase": "Running"})
            assert (kept.status, kept.version) == ({"phase": "Running"}, None)


async def test_a_status_answered_with_a_page_is_not_taken_for_written() -> None:
    job = CustomObject(metadata=Metadata(name="j", namespace="ns", uid="u"))
    async with scripted_client() as (server, client):
        server.then(page(ODD["a page"]))
        kept = LastWritten("u", {})
        with pytest.raises(ClusterError):
            await StatusWriter(client, "jobs").write(job, kept, {"phase": "Running"})
        assert kept.status == {}


async def test_an_event_answered_with_a_page_each_time_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "MAX_RETRIES", 0)
    async with scripted_client() as (server, client):
        server.then(page(ODD["a page"]))
        metrics = Metrics()
        recorder = EventRecorder(client, ApiDispatcher(lambda: False), metrics)
        recorder.failed("ns/p", "u", "0/1 nodes are available")
        for waiting in list(recorder._dispatcher._waiting.values()):
            await waiting.work(*waiting.arguments)
        assert metrics.registry.get_sample_value("cotide_events_dropped_total") == 1
