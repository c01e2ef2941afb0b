"""How a Prometheus is reached: token, certificates, names, and nothing that is sent elsewhere."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_stand_in import query_of, stand_in, vector

from cotide_operator.config.metric_settings import PrometheusSourceSettings
from cotide_operator.usage.prometheus_client import POSTED_ABOVE_CHARACTERS, Limits, PrometheusClient
from cotide_operator.usage.sources import SourceDown
from cotide_operator.webhooks.serving.certificates import Pair, make_authority, make_serving

LIMITS = Limits(1 << 20, 100)
NOW = datetime.now(UTC)
AUTHORITY = make_authority(NOW)


class Asked:
    """Notes what comes, and lets in who has the token, if one is wanted."""

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.requests: list[tuple[str, str, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        header = request.headers.get("Authorization", "")
        self.requests.append((request.method, await query_of(request), header))
        if self.token and header != f"Bearer {self.token}":
            return web.Response(status=401)
        return web.json_response(vector())


async def ask(client: PrometheusClient, query: str = "x") -> Any:
    return (await client.answer("/api/v1/query", {"query": query}, LIMITS))["status"]


def client(session: aiohttp.ClientSession, url: str, **settings: Any) -> PrometheusClient:
    return PrometheusClient(session, PrometheusSourceSettings.model_validate({"url": url, **settings}))


def written(folder: Path, name: str, pair: Pair) -> dict[str, str]:
    """Write a pair and return the settings that name it."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(pair.certificate_pem)
    key.write_bytes(pair.key_pem)
    return {"certificateFile": str(certificate), "keyFile": str(key)}


def serving(folder: Path, *names: str, wants_clients: bool = False) -> ssl.SSLContext:
    files = written(folder, "server", make_serving(AUTHORITY, names, NOW))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["certificateFile"], files["keyFile"])
    if wants_clients:
        context.load_verify_locations(cadata=AUTHORITY.certificate_pem.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def authority(folder: Path, pair: Pair = AUTHORITY) -> str:
    path = folder / "ca.crt"
    path.write_bytes(pair.certificate_pem)
    return str(path)


async def test_a_token_is_sent_and_read_again_when_it_was_replaced(tmp_path: Path) -> None:
    asked, token = Asked("first"), tmp_path / "token"
    token.write_text("first\n")
    async with stand_in(asked.answer) as url, aiohttp.ClientSession() as session:
        asking = client(session, url, bearer_token_file=token)
        assert await ask(asking) == "success"
        token.write_text("second\n")
        asked.token = "second"
        assert await ask(asking) == "success"
        assert [header for _, _, header in asked.requests] == ["Bearer first", "Bearer first", "Bearer second"]
        asked.token = "third"
        with pytest.raises(SourceDown, match="answers 401"):
            await ask(asking)


@pytest.mark.parametrize(
    ("contents", "words"),
    [(None, "can't be read"), (b"a\nHost: b", "holds no token"), (b"\xff\xfe", "bearerTokenFile")],
)
async def test_a_token_that_is_none_is_named(contents: bytes | None, words: str, tmp_path: Path) -> None:
    asked, token = Asked(), tmp_path / "token"
    if contents is not None:
        token.write_bytes(contents)
    async with stand_in(asked.answer) as url, aiohttp.ClientSession() as session:
        with pytest.raises(SourceDown, match=words):
            await ask(client(session, url, bearer_token_file=token))
    assert asked.requests == []


async def test_a_server_that_is_not_there_is_told_in_words_and_not_in_those_of_a_library() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(SourceDown) as raised:
            await ask(client(session, "https://127.0.0.1:1", tls={"serverName": "prometheus"}))
    nothing_listens = "nothing listens there (connection refused); check that it runs, and its address and port"
    assert str(raised.value) == f"https://127.0.0.1:1/api/v1/query can't be reached: {nothing_listens}"


async def test_an_authority_of_ones_own_is_trusted_and_no_other(tmp_path: Path) -> None:
    async with (
        stand_in(Asked().answer, serving(tmp_path, "127.0.0.1")) as url,
        aiohttp.ClientSession() as session,
    ):
        with pytest.raises(
            SourceDown, match=r"can't be reached: its certificate is not trusted: .*; check tls\.caFile$"
        ):
            await ask(client(session, url))
        stranger = authority(tmp_path, make_authority(NOW))
        asking = client(session, url, tls={"caFile": stranger})
        with pytest.raises(SourceDown, match="can't be reached"):
            await ask(asking)
        authority(tmp_path)  # replaced in place
        assert await ask(asking) == "success"
        (tmp_path / "ca.crt").unlink()
        with pytest.raises(SourceDown, match=r"metricsSource\.prometheus\.tls: .*ca\.crt: No such file"):
            await ask(asking)


async def test_another_name_is_expected_where_it_is_configured(tmp_path: Path) -> None:
    async with (
        stand_in(Asked().answer, serving(tmp_path, "prometheus.monitoring.svc")) as url,
        aiohttp.ClientSession() as session,
    ):
        trust = {"caFile": authority(tmp_path)}
        with pytest.raises(SourceDown, match=r"can't be reached: .*; check the address, or set tls\.serverName$"):
            await ask(client(session, url, tls=trust))
        assert await ask(client(session, url, tls={**trust, "serverName": "prometheus.monitoring.svc"})) == "success"


async def test_a_server_that_asks_for_a_certificate_gets_ours(tmp_path: Path) -> None:
    async with (
        stand_in(Asked().answer, serving(tmp_path, "127.0.0.1", wants_clients=True)) as url,
        aiohttp.ClientSession() as session,
    ):
        trust = {"caFile": authority(tmp_path)}
        with pytest.raises(SourceDown, match="can't be reached"):
            await ask(client(session, url, tls=trust))
        own = written(tmp_path, "client", AUTHORITY)
        assert await ask(client(session, url, tls={**trust, **own})) == "success"
        Path(own["keyFile"]).write_text("no key")
        with pytest.raises(SourceDown, match=r"metricsSource\.prometheus\.tls: .*no matching PEM pair"):
            await ask(client(session, url, tls={**trust, **own}))


async def test_a_redirection_is_not_followed_with_the_token(tmp_path: Path) -> None:
    elsewhere = Asked()
    (tmp_path / "token").write_text("secret")
    async with stand_in(elsewhere.answer) as other, aiohttp.ClientSession() as session:

        async def answer(request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{other}/api/v1/query?query=x"})

        async with stand_in(answer) as url:
            with pytest.raises(SourceDown, match="answers 307"):
                await ask(client(session, url, bearer_token_file=tmp_path / "token"))
    assert elsewhere.requests == []


async def test_a_long_query_is_posted() -> None:
    asked = Asked()
    async with stand_in(asked.answer) as url, aiohttp.ClientSession() as session:
        for query in ("x", "y" * (POSTED_ABOVE_CHARACTERS + 1)):
            assert await ask(client(session, url), query) == "success"
    assert [(method, query) for method, query, _ in asked.requests] == [("GET", "x"), ("POST", "y" * 4001)]


async def test_headers_of_the_configuration_go_with_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str | None, ...]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(tuple(request.headers.get(name) for name in ("X-Scope-OrgID", "X-Key", "X-Pass")))
        return web.json_response(vector())

    key = tmp_path / "key"
    key.write_text("first\n")
    monkeypatch.setenv("COTIDE_TEST_PASS", "open sesame")
    headers = {"X-Scope-OrgID": "team-a", "X-Key": {"file": str(key)}, "X-Pass": {"env": "COTIDE_TEST_PASS"}}
    async with stand_in(answer) as url, aiohttp.ClientSession() as session:
        asking = client(session, url, headers=headers)
        await ask(asking)
        key.write_text("second, longer\n")
        await ask(asking)
    assert seen == [("team-a", "first", "open sesame"), ("team-a", "second, longer", "open sesame")]


@pytest.mark.parametrize(
    ("header", "contents", "words"),
    [
        ({"file": "key"}, None, "headers.X-Key: .*key: No such file"),
        ({"file": "key"}, "top\nsecret", "headers.X-Key: .*key holds no value"),
        ({"env": "COTIDE_TEST_ABSENT"}, None, "headers.X-Key: environment variable COTIDE_TEST_ABSENT holds no value"),
    ],
)
async def test_a_header_without_a_value_is_named_and_its_secret_is_not(
    header: dict[str, str], contents: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if contents is not None:
        (tmp_path / "key").write_text(contents)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(SourceDown, match=words) as raised:
            await ask(client(session, "http://127.0.0.1:1", headers={"X-Key": header}))
    assert "secret" not in str(raised.value)


def test_settings_show_no_value_of_a_header() -> None:
    settings = PrometheusSourceSettings.model_validate({"url": "http://p", "headers": {"X-Scope-OrgID": "team-a"}})
    assert "team-a" not in repr(settings)
    assert "team-a" not in settings.model_dump_json()
