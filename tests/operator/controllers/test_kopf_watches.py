"""Whatever ends kopf's watch of our objects, kopf lists them again and goes on."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from scripted_server import answers, lists, refuses, scripted_server, watches

from cotide_kube.credentials import Credentials
from cotide_operator.controllers.kopf_session import kopf_session

JOBS = "/apis/cotide.dev/v1alpha1/jobs"
ADDED = {"type": "ADDED", "object": {"metadata": {"name": "a"}}}
EXPIRED = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}


def failed(code: int) -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": "", "message": "no"}}


async def lines_of(*steps: Any) -> list[Any]:
    """Return what kopf reads of a watch, as it reads it."""
    async with scripted_server() as server, kopf_session(Credentials(server.url)).aiohttp_session as http:
        server.then(*steps)
        async with http.get(f"{server.url}{JOBS}", params={"watch": "true"}) as response:
            assert response.status == 200
            body = b"".join([chunk async for chunk in response.content.iter_chunked(1 << 20)])
    return [json.loads(line) for line in body.split(b"\n") if line]


@pytest.mark.parametrize("bad", [failed(500), failed(403), b"<html>hi</html>\n", b"\xff\n", b"[]\n", b'{"type": "AD'])
async def test_a_line_that_would_end_the_watch_for_good_becomes_an_old_version(bad: Any) -> None:
    assert await lines_of(watches(ADDED, bad)) == [ADDED, EXPIRED]


async def test_what_follows_such_a_line_is_not_read() -> None:
    assert await lines_of(watches(ADDED, failed(500), ADDED)) == [ADDED, EXPIRED]


async def test_other_lines_and_empty_ones_pass() -> None:
    old = failed(410)
    assert await lines_of(watches(ADDED, b"\n", {"type": "BOOKMARK", "object": {}}, old)) == [
        ADDED,
        {"type": "BOOKMARK", "object": {}},
        old,
    ]


@pytest.mark.parametrize("status", [400, 403, 404, 409, 410, 429, 500, 503])
async def test_a_refused_watch_becomes_an_old_version(status: int) -> None:
    assert await lines_of(refuses(status)) == [EXPIRED]


@pytest.mark.parametrize("step", [refuses(403), refuses(404), refuses(500), refuses(429), answers(200, [])])
async def test_a_list_that_fails_looks_like_a_broken_connection(step: Any) -> None:
    async with scripted_server() as server, kopf_session(Credentials(server.url)).aiohttp_session as http:
        server.then(step)
        with pytest.raises(aiohttp.ClientPayloadError):
            async with http.get(f"{server.url}{JOBS}", params={"limit": "500"}) as response:
                await response.json()


async def test_a_refusal_of_credentials_and_one_of_others_objects_stay_what_they_are() -> None:
    async with scripted_server() as server, kopf_session(Credentials(server.url)).aiohttp_session as http:
        server.then(refuses(401), refuses(401), refuses(403), lists(version="3"))
        async with http.get(f"{server.url}{JOBS}", params={"watch": "true"}) as watch:
            assert watch.status == 401
        async with http.get(f"{server.url}{JOBS}", params={"limit": "500"}) as listed:
            assert listed.status == 401
        async with http.get(f"{server.url}/api/v1/namespaces", params={"limit": "500"}) as others:
            assert others.status == 403
        async with http.get(f"{server.url}{JOBS}", params={"limit": "500"}) as listed:
            assert (await listed.json())["metadata"]["resourceVersion"] == "3"
