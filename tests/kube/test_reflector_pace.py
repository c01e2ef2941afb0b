"""Watches that end at once, or for good, are opened less and less often, and a later list gets over what ails them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from manifests import pod_manifest
from scripted_server import QUICK, ScriptedServer, answers, lists, refuses, scripted_client, watches

from cotide_kube import reflector as reflector_module
from cotide_kube import transport
from cotide_kube.answers import RETRY_AFTER_SECONDS, retry_after
from cotide_kube.client import KubeClient
from cotide_kube.objects import PodObject
from cotide_kube.reflector import RECONNECT, Reflector

Step = Callable[[web.Request], Any]


def pod(name: str, version: str) -> dict[str, Any]:
    """A pod of a version."""
    return pod_manifest(name, namespace="d", uid=f"u-{name}", resourceVersion=version)


def event(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": found}


def bookmark(version: str) -> dict[str, Any]:
    return event("BOOKMARK", {"metadata": {"resourceVersion": version}})


def failed(code: int) -> dict[str, Any]:
    return event("ERROR", {"kind": "Status", "code": code, "reason": "", "message": "no"})


class Broken(ScriptedServer):
    """Answers lists as ever, and every watch in one way; a step of the script comes first."""

    ailing: Step | None = None
    there = (pod("a", "7"),)

    async def handle(self, request: web.Request) -> Any:
        if self.steps or request.query.get("limit") == "1" or self.ailing is None:
            return await super().handle(request)
        self.requests.append((request.method, request.path, dict(request.query), b"", {}))
        if "watch" in request.query:
            return await self.ailing(request)
        return await lists(*self.there, version="7")(request)


def watch_versions(server: ScriptedServer) -> list[str]:
    return [query["resourceVersion"] for _, _, query, _, _ in server.requests if "watch" in query]


async def html(_request: web.Request) -> web.Response:
    return web.Response(text="<html>hi</html>\n" * 3, content_type="text/html")


AILMENTS: dict[str, Step] = {
    "closed": watches(),
    "too old": watches(failed(410)),
    "refused as too old": refuses(410, "Expired"),
    "failed": watches(failed(500)),
    "html": html,
    "junk version": watches(bookmark("abc")),
    "one event again and again": watches(event("MODIFIED", pod("a", "7"))),
    "aborted": watches(then="abort"),
    "forbidden": refuses(403, "Forbidden"),
    "bad request": refuses(400, "BadRequest"),
    "busy": refuses(429, "TooManyRequests", headers={"Retry-After": "3600"}),
    "broken": refuses(500),
}


async def waits_of(
    ailment: str, many: int, monkeypatch: pytest.MonkeyPatch, objects: int = 1
) -> tuple[list[float], Counter[str]]:
    """Return the first waits between watches that all end in one way, and how many lists and watches went out."""
    waits: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float, result: Any = None) -> Any:
        if seconds > 0:
            waits.append(seconds)
            if len(waits) == many:
                raise asyncio.CancelledError
        return await sleep(0, result)

    monkeypatch.setattr("scripted_server.ScriptedServer", Broken)
    async with scripted_client() as (server, client):
        server.ailing = AILMENTS[ailment]
        server.there = tuple(pod(f"p{number}", "7") for number in range(objects))
        monkeypatch.setattr(reflector_module.asyncio, "sleep", noted)
        following = Reflector(client, "/api/v1/pods", PodObject, rng=random.Random(1))
        with pytest.raises(asyncio.CancelledError):
            async for _ in following.batches():
                pass
        monkeypatch.setattr(reflector_module.asyncio, "sleep", sleep)
    return waits, Counter("watch" if "watch" in query else "list" for _, _, query, _, _ in server.requests)


@pytest.mark.parametrize("ailment", AILMENTS)
async def test_however_watches_end_the_waits_between_them_grow(ailment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, kinds = await waits_of(ailment, 12, monkeypatch)
    least = [min(RECONNECT.cap_seconds, RECONNECT.initial_seconds * RECONNECT.factor**n) / 2 for n in range(12)]
    assert all(wait >= at_least for wait, at_least in zip(waits, least, strict=True))
    assert kinds["watch"] <= 13
    assert kinds["list"] <= 13


@pytest.mark.parametrize("ailment", AILMENTS)
async def test_however_long_watches_fail_the_next_attempt_is_two_seconds_away_at_most(
    ailment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, _ = await waits_of(ailment, 40, monkeypatch)
    assert max(waits) <= 2.0
    assert min(waits[-10:]) >= 0.9, "some attempts in the row are still too soon"


@pytest.mark.parametrize(("pages", "most"), [(5, 5.0), (40, 30.0)])
async def test_a_collection_of_many_pages_is_asked_for_less_often(
    pages: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector_module, "OBJECTS_A_SECOND", 2)
    waits, _ = await waits_of("too old", 60, monkeypatch, objects=2 * pages)
    assert most / 2 <= min(waits[-10:])
    assert most * 0.9 <= max(waits) <= most


@pytest.mark.parametrize("what", ["a bookmark", "an event"])
async def test_a_version_that_is_no_number_is_passed_over(what: str) -> None:
    odd = bookmark("abc") if what == "a bookmark" else event("MODIFIED", pod("a", "abc"))
    async with scripted_client() as (server, client):
        server.then(lists(pod("a", "7"), version="7"), watches(odd), watches(event("ADDED", pod("b", "9"))))
        following = await until(client, 4 if what == "an event" else 3)
    assert watch_versions(server)[:2] == ["7", "7"]
    assert following.malformed == 1


async def test_an_earlier_bookmark_is_passed_over() -> None:
    async with scripted_client() as (server, client):
        server.then(lists(version="7"), watches(bookmark("3")), watches(event("ADDED", pod("b", "9"))))
        await until(client, 2)
    assert watch_versions(server)[:2] == ["7", "7"]


@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_a_lasting_refusal_of_a_watch_leads_to_a_new_list(status: int) -> None:
    async with scripted_client() as (server, client):
        server.then(lists(version="7"), refuses(status), refuses(status), lists(pod("b", "9"), version="9"))
        server.then(watches(event("ADDED", pod("c", "10"))))
        following = await until(client, 4)
    assert following.lists == 2
    assert watch_versions(server) == ["7", "7", "9"]


@pytest.mark.parametrize(("status", "level"), [(410, "INFO"), (403, "WARNING")])
async def test_only_the_first_line_of_a_trouble_is_logged_and_an_old_version_is_none_to_warn_of(
    status: int, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "cotide_kube.reflector")
    async with scripted_client() as (server, client):
        again = [lists(version="8")] if status == 410 else []
        server.then(lists(version="7"), refuses(status), *again, refuses(status), lists(version="9"))
        await until(client, 2 + len(again))
    assert [record.levelname for record in caplog.records] == [level]


@pytest.mark.parametrize("then", ["close", "abort"])
async def test_a_watch_that_lasted_is_none_of_the_fruitless_ones_however_it_ended(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector_module, "STEADY_SECONDS", 0.0)
    async with scripted_client() as (server, client):
        server.at = "9"
        server.then(lists(pod("a", "7"), version="7"), watches(event("MODIFIED", pod("a", "8"))))
        server.now = [pod("a", "8")]
        server.then(watches(then=then), refuses(403), refuses(403), lists(pod("a", "8"), version="9"))
        await until(client, 4)
    assert watch_versions(server) == ["7", "8", "8", "8"]


async def test_an_event_of_an_earlier_version_is_where_the_watch_goes_on() -> None:
    async with scripted_client() as (server, client):
        server.then(lists(version="7"), watches(event("ADDED", pod("a", "5"))), watches(event("ADDED", pod("b", "9"))))
        await until(client, 3)
    assert watch_versions(server)[:2] == ["7", "5"]


async def test_a_list_of_many_pages_pauses_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float, result: Any = None) -> Any:
        waits.append(seconds)
        return await sleep(0, result)

    async with scripted_client() as (server, client):
        server.then(lists(pod("a", "1"), token="t"), lists(pod("b", "2"), version="2"))
        monkeypatch.setattr(reflector_module.asyncio, "sleep", noted)
        await until(client, 3)
        monkeypatch.undo()
    assert set(waits) <= {0}


async def test_a_busy_server_is_asked_for_no_list() -> None:
    async with scripted_client() as (server, client):
        server.then(lists(version="7"), *[refuses(429), refuses(503)] * 3, watches(event("ADDED", pod("b", "9"))))
        following = await until(client, 2)
    assert following.lists == 1


async def until(client: KubeClient, changes: int) -> Reflector[PodObject]:
    """Follow until so many changes came."""
    following = Reflector(client, "/api/v1/pods", PodObject, backoff=QUICK, rng=random.Random(1))
    seen = 0
    async with asyncio.timeout(20.0):
        async for _ in following:
            seen += 1
            if seen == changes:
                break
    return following


@pytest.mark.parametrize(("most", "asked"), [(None, "3600"), (0.5, "3600"), (None, "inf"), (None, "1e999")])
async def test_a_server_that_asks_to_stay_away_is_asked_again_within_a_bound(
    most: float | None, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def noted(seconds: float) -> None:
        waits.append(seconds)

    options = {} if most is None else {"most_pause_seconds": most}
    async with scripted_client(**options) as (server, client):
        server.then(refuses(429, "TooManyRequests", headers={"Retry-After": asked}), answers(200, {"metadata": {}}))
        monkeypatch.setattr(transport.asyncio, "sleep", noted)
        await client.get("/api/v1/pods/a")
        monkeypatch.undo()
    assert 0.0 < waits[-1] <= (most or RETRY_AFTER_SECONDS)


@pytest.mark.parametrize("header", ["inf", "nan", "-inf", "1e999", "Wed, 21 Oct 2026 07:28:00 GMT", ""])
def test_a_wait_that_is_no_finite_number_is_none(header: str) -> None:
    assert retry_after(header) is None
