"""Certificates that change while connections are served: no restart, no failed review, no crash."""

from __future__ import annotations

import asyncio
import errno
import ssl
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from admission_scene import (
    DAY,
    NAMES,
    NOW,
    WEBHOOKS,
    Clock,
    Running,
    cluster,
    mount,
    other_kind_of_key,
    served_to,
    trusted,
)
from cryptography.hazmat.primitives import hashes, serialization

from cotide_core.errors import InputError
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.host_load_settings import AdmissionSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.webhooks.admission.webhook import AdmissionWebhook
from cotide_operator.webhooks.serving.certificates import (
    Pair,
    expires,
    make_authority,
    make_serving,
    read_certificates,
)
from cotide_operator.webhooks.serving.shared_certificate import Lives
from cotide_operator.webhooks.serving.tls import ServingContext
from cotide_sim.apiserver.http.faults import Fault


async def test_a_renewed_secret_is_served_without_a_restart_and_open_connections_go_on() -> None:
    # Made 20 minutes ago to live 30: still good for real handshakes, and due when the clock comes up to the present.
    clock = Clock(datetime.now(UTC) - timedelta(minutes=20))
    async with cluster() as (_, client):
        hooks = [{"name": "pods.cotide.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                  "clientConfig": {"url": "https://localhost/"}, "failurePolicy": "Ignore"}]  # fmt: skip
        await client.create(WEBHOOKS, {"metadata": {"name": "cotide-admission"}, "webhooks": hooks})
        async with Running(client, clock, lives=Lives(serving=timedelta(minutes=30))) as running:
            bundle = await trusted(client)
            before = await served_to(running.port, bundle)
            tls = ssl.create_default_context(cadata=bundle.decode())
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
                url = f"https://localhost:{running.port}/mutate-pods"
                assert (await session.post(url, data=b"{}")).status == 400
                clock.now += timedelta(minutes=20)
                await running.webhook.look()
                assert (await session.post(url, data=b"{}")).status == 400
            after = await served_to(running.port, await trusted(client))
            assert after != before
            gauge = "cotide_admission_certificate_expiry_timestamp_seconds"
            shown = running.metrics.registry.get_sample_value(gauge)
            assert shown == expires(after).timestamp() == int((clock.now + timedelta(minutes=30)).timestamp())
            malformed = {"outcome": "malformed"}
            assert running.metrics.registry.get_sample_value("cotide_admission_reviews_total", malformed) == 2


async def test_no_review_fails_while_certificate_and_authority_are_renewed() -> None:
    # Real handshakes need certificates that are good now. Begun an hour ago, with lives of 90 and 80 minutes: the
    # authority is due 8 minutes before now (-65 + 2/3 x 85), the certificate 2 minutes before (-65 + 2/3 x 95).
    present = datetime.now(UTC)
    clock = Clock(present - timedelta(minutes=60))
    lives = Lives(authority=timedelta(minutes=80), serving=timedelta(minutes=90))
    async with cluster() as (_, client), Running(client, clock, lives=lives) as running:
        hook = {"name": "pods.cotide.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"url": f"https://localhost:{running.port}/mutate-pods"}, "failurePolicy": "Fail",
                "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                           "resources": ["pods"]}]}  # fmt: skip
        await client.create(WEBHOOKS, {"metadata": {"name": "cotide-admission"}, "webhooks": [hook]})
        bundles, served = [], []
        for minutes in (60, 7, 1):
            clock.now = present - timedelta(minutes=minutes)
            await running.webhook.look()
            bundles.append(await trusted(client))
            served.append(await served_to(running.port, bundles[-1]))
            spec = {"containers": [{"name": "main", "image": "none"}]}
            await client.create("/api/v1/namespaces/default/pods", {"metadata": {"name": f"p{minutes}"}, "spec": spec})
    assert [len(read_certificates(bundle)) for bundle in bundles] == [1, 2, 2]
    assert served[0] == served[1] != served[2]


async def test_the_configuration_is_patched_only_when_it_must_be() -> None:
    async with cluster() as (server, client), Running(client, Clock(datetime.now(UTC))) as running:
        patches = server.faults.add(Fault(method="PATCH", path="mutatingwebhook", count=-1))  # counts, never strikes
        await running.webhook.look()  # none there yet: told in the log, served all the same
        hook = {"admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {"url": "https://localhost/"}}
        hooks = [{**hook, "name": f"{one}.cotide.dev"} for one in ("first.pods", "second.pods")]
        await client.create(WEBHOOKS, {"metadata": {"name": "cotide-admission"}, "webhooks": hooks})
        for _ in range(3):
            await running.webhook.look()
        assert patches.met == 1
        found = (await client.get(f"{WEBHOOKS}/cotide-admission"))["webhooks"]
        assert len({one["clientConfig"]["caBundle"] for one in found}) == 1


async def test_a_mounted_certificate_is_reloaded_even_when_its_kind_of_key_changes(tmp_path: Path) -> None:
    authority = make_authority(datetime.now(UTC))
    first = make_serving(authority, NAMES, datetime.now(UTC))
    second, bundle = other_kind_of_key()
    mount(tmp_path, first)
    async with cluster() as (server, client), Running(client, Clock(datetime.now(UTC)), tmp_path) as running:
        before = server.dispatcher.requests
        assert await served_to(running.port, authority.certificate_pem) == first.certificate_pem
        mount(tmp_path, second)
        await running.webhook.look()
        assert await served_to(running.port, bundle) == second.certificate_pem
        assert server.dispatcher.requests == before  # neither Secret nor configuration is ours then


def unusable() -> Iterable[Any]:
    authority = make_authority(NOW)
    other = make_serving(make_authority(NOW), NAMES, NOW)
    good = make_serving(authority, NAMES, NOW)
    old = make_serving(authority, NAMES, NOW - 100 * DAY)
    yield pytest.param(Pair(good.certificate_pem, other.key_pem), "key values mismatch", id="another key")
    yield pytest.param(Pair(b"nothing", good.key_pem), "holds no readable certificate", id="no certificate")
    yield pytest.param(Pair(good.certificate_pem, b"nothing"), "can't be used together", id="no key")
    yield pytest.param(old, "the certificate expired at 2026-11-11T12:00:00Z", id="expired")


@pytest.mark.parametrize(("bad", "sentence"), list(unusable()))
def test_a_certificate_that_cant_be_used_leaves_the_one_before_in_use(bad: Pair, sentence: str) -> None:
    context = ServingContext()
    good = make_serving(make_authority(NOW), NAMES, NOW)
    assert context.use(good, NOW)
    with pytest.raises(InputError, match=sentence):
        context.use(bad, NOW)
    assert context.pair == good
    assert not context.use(good, NOW)


async def test_a_full_disk_leaves_the_certificate_before_in_use_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(datetime.now(UTC))
    async with cluster() as (_, client), Running(client, clock) as running:
        before = running.port

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(tempfile, "mkdtemp", full)
        clock.now += 60 * DAY
        for _ in range(2):
            await running.webhook.look()
        assert running.port == before
        assert [line for line in caplog.messages if "temporary file: No space left on device" in line] == [
            "admission webhook: the certificate can't be loaded through a temporary file: No space left on device"
        ]


def test_an_encrypted_key_is_refused_and_nobody_asked_for_its_password() -> None:
    good = make_serving(make_authority(NOW), NAMES, NOW)
    key = serialization.load_pem_private_key(good.key_pem, password=None)
    secret = serialization.BestAvailableEncryption(b"secret")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    with pytest.raises(InputError, match="can't be used together"):
        ServingContext().use(Pair(good.certificate_pem, pem), NOW)


async def test_a_directory_without_a_certificate_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster() as (_, client):
        settings = AdmissionSettings(certificate_directory=tmp_path)
        webhook = AdmissionWebhook(settings, client, ObjectCache(), Metrics(), ("cotide",), now=Clock())
        for _ in range(3):
            await webhook.look()
        assert not webhook.listening
        assert [record.getMessage() for record in caplog.records] == [
            f"admission webhook: {tmp_path / 'tls.crt'}: can't be read: No such file or directory"
        ]


async def test_a_taken_port_is_told_by_the_setting_that_chose_it() -> None:
    async with cluster() as (_, client), Running(client, Clock(datetime.now(UTC))) as running:
        settings = AdmissionSettings(port=running.port)
        second = AdmissionWebhook(settings, client, ObjectCache(), Metrics(), ("cotide",))
        with pytest.raises(InputError, match=rf"admission.port: port {running.port} on 127.0.0.1 is in use"):
            await second.run("127.0.0.1")


async def test_a_server_that_refuses_the_secret_costs_one_line_and_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as (server, client):
        server.faults.add(Fault(status=403, path="secrets", count=-1))
        webhook = AdmissionWebhook(AdmissionSettings(), client, ObjectCache(), Metrics(), ("cotide",), now=Clock())
        for _ in range(3):
            await webhook.look()
        (line,) = [record.getMessage() for record in caplog.records]
        assert "403" in line
        assert "deploy/rbac" in line


async def test_clients_of_a_renewed_authority_are_let_in_without_a_restart_and_those_of_the_old_one_no_more(
    tmp_path: Path,
) -> None:
    now = datetime.now(UTC)
    old, new, ours = (make_authority(now) for _ in range(3))
    file = tmp_path / "clients.crt"
    file.write_bytes(old.certificate_pem)
    context, pair = ServingContext(file), make_serving(ours, NAMES, now)
    assert context.use(pair, now)
    server = await asyncio.start_server(answering, "127.0.0.1", 0, ssl=context.listening)
    port = server.sockets[0].getsockname()[1]
    try:
        assert await is_let_in(port, ours, old, tmp_path)
        assert not await is_let_in(port, ours, new, tmp_path)
        assert not context.use(pair, now)
        file.write_bytes(new.certificate_pem)
        assert context.use(pair, now)
        assert await is_let_in(port, ours, new, tmp_path)
        assert not await is_let_in(port, ours, old, tmp_path)
        file.unlink()
        with pytest.raises(InputError, match=r"clients.crt: can't be read: No such file"):
            context.use(pair, now)
        assert await is_let_in(port, ours, new, tmp_path), "what was in use stays in use"
    finally:
        server.close()


async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    del reader
    writer.write(b"welcome")
    writer.close()


async def is_let_in(port: int, ours: Pair, clients: Pair, directory: Path) -> bool:
    """Whether a client with a certificate of an authority is answered."""
    from cryptography import x509

    now = datetime.now(UTC)
    key = serialization.load_pem_private_key(clients.key_pem, password=None)
    issuer = read_certificates(clients.certificate_pem)[0]
    builder = x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(issuer.subject)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    certificate = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]  # a key of ours
    (directory / "client.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / "client.key").write_bytes(clients.key_pem)
    tls = ssl.create_default_context(cadata=ours.certificate_pem.decode())
    tls.load_cert_chain(directory / "client.crt", directory / "client.key")
    try:
        reader, writer = await asyncio.open_connection("localhost", port, ssl=tls)
        answer = await reader.read()
        writer.close()
    except (ssl.SSLError, ConnectionError):
        return False
    return answer == b"welcome"


def test_a_certificate_of_a_version_that_is_none_is_refused_in_a_sentence() -> None:
    good = make_serving(make_authority(NOW), NAMES, NOW)
    der = read_certificates(good.certificate_pem)[0].public_bytes(serialization.Encoding.DER)
    version = bytes.fromhex("a003020102")  # 3
    assert der.count(version) == 1
    broken = ssl.DER_cert_to_PEM_cert(der.replace(version, bytes.fromhex("a003020109"))).encode()
    with pytest.raises(InputError, match="holds no readable certificate"):
        ServingContext().use(Pair(broken, good.key_pem), NOW)
