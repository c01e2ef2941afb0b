"""What an API server's answer may take of memory, as it comes and unpacked."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable

import pytest
from aiohttp import web
from scripted_server import scripted_client

from cotide_core.errors import ClusterError
from cotide_kube import answer_bodies, answers
from cotide_kube.answer_bodies import unpacked
from cotide_kube.answers import AnswerTooLargeError
from cotide_kube.reflector import Reflector

MEBIBYTE = 1 << 20


@pytest.fixture
def two_mebibytes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (answers, answer_bodies):
        monkeypatch.setattr(module, "ANSWER_BYTES", 2 * MEBIBYTE)


def compressed(body: bytes, status: int = 200) -> Callable[..., object]:
    async def step(_: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        return web.Response(body=body, status=status, headers=headers)

    return step


@pytest.mark.parametrize(
    "parts",
    [
        [b""],
        [b"aaaa", b"", b"bb"],
        [b"x" * MEBIBYTE],
        [b"x" * (MEBIBYTE + 1), b"y" * (MEBIBYTE - 1)],
        [bytes(range(256)) * 400],
    ],
    ids=["empty", "three parts", "a step to the byte", "beside a step", "longer than what is fed at once"],
)
@pytest.mark.parametrize("between", [b"", b"\0" * 40_000], ids=["at once", "behind zeros"])
def test_what_is_unpacked_is_what_was_packed(parts: list[bytes], between: bytes) -> None:
    assert unpacked(between.join(map(gzip.compress, parts)) + between) == b"".join(parts)


@pytest.mark.parametrize("cut", [0, 1, 10, -9, -1])
def test_what_is_cut_off_is_an_error_and_not_less(cut: int) -> None:
    with pytest.raises((EOFError, zlib.error)):
        unpacked(gzip.compress(b"abc" * 1000)[:cut])


def test_what_follows_the_last_part_is_an_error() -> None:
    with pytest.raises(zlib.error):
        unpacked(gzip.compress(b"abc") + b"no gzip at all")


def test_what_is_too_large_counts_over_all_parts(two_mebibytes_at_most: None) -> None:
    assert len(unpacked(gzip.compress(bytes(2 * MEBIBYTE)))) == 2 * MEBIBYTE
    with pytest.raises(AnswerTooLargeError):
        unpacked(gzip.compress(bytes(MEBIBYTE)) * 2 + gzip.compress(b"1"))


def lying(size: int) -> bytes:
    """Return gzip of 64 MiB that says at its end that it unpacks to another size."""
    return gzip.compress(bytes(64 * MEBIBYTE))[:-4] + size.to_bytes(4, "little")


@pytest.mark.parametrize("body", [gzip.compress(bytes(64 * MEBIBYTE)), lying(100)], ids=["honest", "lying"])
async def test_few_bytes_that_unpack_to_many_are_an_error_that_names_the_server(
    body: bytes, two_mebibytes_at_most: None
) -> None:
    async with scripted_client() as (server, client):
        server.then(compressed(body))
        message = (
            rf"the API server {re.escape(server.url)} .*sends a compressed answer that unpacks to more than 2 MiB, "
            r"which is the most that is read.* without a proxy between.*\(GET /api/v1/pods\)"
        )
        with pytest.raises(ClusterError, match=message):
            await client.request("GET", "/api/v1/pods", compressed=True)
        assert len(server.requests) == 1, "asked again it would be the same"


async def test_a_refused_watch_is_not_unpacked_without_end(two_mebibytes_at_most: None) -> None:
    async with scripted_client() as (server, client):
        server.then(compressed(gzip.compress(bytes(64 * MEBIBYTE)), status=403))
        with pytest.raises(ClusterError, match=r"the API server .* sends an answer of more than 2 MiB.*watch /api"):
            async for _ in client.watch("/api/v1/pods", {}, 10.0):
                pass


async def test_a_reflector_waits_for_a_server_that_sends_too_much(
    two_mebibytes_at_most: None, caplog: pytest.LogCaptureFixture
) -> None:
    from cotide_kube.backoff import Backoff
    from cotide_kube.objects import PodObject

    quick = Backoff(initial_seconds=0.001, cap_seconds=0.002)
    good = b'{"metadata":{"resourceVersion":"1"},"items":[]}'
    async with scripted_client() as (server, client):
        server.then(compressed(lying(100)), compressed(gzip.compress(good)))
        async for change in Reflector(client, "/api/v1/pods", PodObject, backoff=quick):
            assert change.kind == "SYNCED"
            break
    assert [record.levelname for record in caplog.records if "unpacks to more than 2 MiB" in record.message] == [
        "WARNING"
    ]
