"""Whatever ends kopf's watch of our objects, kopf lists them again and goes on."""

from __future__ import annotations

import gzip
import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from scripted_server import answers, lists, refuses, scripted_server, watches

from cotide_core.errors import ClusterError
from cotide_kube import answer_bodies
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


async def test_a_refusal_of_credentials_stays_what_it_is() -> None:
    async with scripted_server() as server, kopf_session(Credentials(server.url)).aiohttp_session as http:
        server.then(refuses(401), refuses(401), lists(version="3"))
        async with http.get(f"{server.url}{JOBS}", params={"watch": "true"}) as watch:
            assert watch.status == 401
        async with http.get(f"{server.url}{JOBS}", params={"limit": "500"}) as listed:
            assert listed.status == 401
        async with http.get(f"{server.url}{JOBS}", params={"limit": "500"}) as listed:
            assert (await listed.json())["metadata"]["resourceVersion"] == "3"


def group(name: str, version: str) -> dict[str, Any]:
    versioned = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [versioned], "preferredVersion": versioned}


def resources(*names: str) -> dict[str, Any]:
    one = {"singularName": "", "kind": "K", "namespaced": True, "verbs": ["list", "watch"]}
    return {"kind": "APIResourceList", "resources": [{"name": name, **one} for name in names]}


OURS = "/apis/cotide.dev/v1alpha1"
OTHERS = "/apis/apiextensions.k8s.io/v1"
BAD_PAGE = watches(b"<html>hi</html>")
GROUPS = {"groups": [group("cotide.dev", "v1alpha1"), group("apps", "v1")]}


async def discovered(path: str, step: Any) -> Any:
    async with scripted_server() as server, kopf_session(Credentials(server.url)).aiohttp_session as http:
        server.then(step)
        async with http.get(f"{server.url}{path}") as response:
            return await response.json()


@pytest.mark.parametrize(
    ("path", "step"),
    [
        *[(path, step) for path in ("/api", "/apis", OURS) for step in (BAD_PAGE, answers(200, []), refuses(404))],
        ("/api", answers(200, {})),
        ("/apis", answers(200, {})),
        ("/apis", answers(200, {"groups": [group("apps", "v1")]})),
        ("/apis", answers(200, {"groups": [group("cotide.dev", "v9")]})),
        ("/apis", answers(200, {"groups": [{"name": "cotide.dev"}]})),
        (OURS, answers(200, {})),
        (OURS, answers(200, resources("jobs"))),
        (OTHERS, BAD_PAGE),
        (OTHERS, refuses(400)),
    ],
)
async def test_a_discovery_that_shows_too_little_looks_like_a_broken_connection(path: str, step: Any) -> None:
    """kopf repeats its request after that; any other failure ends it, and what is not shown is never watched."""
    with pytest.raises(aiohttp.ClientConnectionError):
        await discovered(path, step)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/api", {"versions": ["v1"]}),
        ("/apis", GROUPS),
        (OURS, resources("jobs", "workloads", "jobs/status")),
        (OTHERS, resources("customresourcedefinitions")),
    ],
)
async def test_a_discovery_that_shows_our_resources_passes(path: str, found: dict[str, Any]) -> None:
    assert await discovered(path, answers(200, found)) == found


@pytest.mark.parametrize(
    ("path", "status"), [(OTHERS, 404), *[("/apis", status) for status in (401, 403, 429, 500, 503)]]
)
async def test_a_refusal_of_discovery_after_which_kopf_goes_on_stays_what_it_is(path: str, status: int) -> None:
    async with scripted_server() as server, kopf_session(Credentials(server.url)).aiohttp_session as http:
        server.then(refuses(status))
        async with http.get(f"{server.url}{path}") as refused:
            assert refused.status == status


async def test_the_answer_to_a_write_that_cannot_be_read_is_empty() -> None:
    """kopf loses the event of an object, and nothing else."""
    async with scripted_server() as server, kopf_session(Credentials(server.url)).aiohttp_session as http:
        server.then(BAD_PAGE)
        async with http.post(f"{server.url}/api/v1/namespaces/a/events", json={}) as response:
            assert await response.json() == {}


async def test_kopf_reads_no_answer_that_unpacks_to_more_than_one_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    async def packed(_: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(bytes(64 << 20)), headers={"Content-Encoding": "gzip"})

    monkeypatch.setattr(answer_bodies, "ANSWER_BYTES", 2 << 20)
    async with scripted_server() as server, kopf_session(Credentials(server.url)).aiohttp_session as http:
        server.then(packed)
        message = f"the API server sends an answer of more than .*GET {server.url}/apis/cotide.dev"
        async with http.get(f"{server.url}/apis/cotide.dev/v1alpha1/jobs") as response:
            with pytest.raises(ClusterError, match=message):
                await response.json()
