"""The webhook's certificates: made, renewed in time, shared by replicas, reloaded while connections are served."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.errors import ClusterError, InputError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.host_load_settings import AdmissionSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.webhooks.admission.webhook import AdmissionWebhook
from cotide_operator.webhooks.serving.certificates import (
    AUTHORITY_LIFE,
    SERVING_LIFE,
    Pair,
    due,
    expires,
    make_authority,
    make_serving,
    names_in,
    read_certificates,
    signed_by,
)
from cotide_operator.webhooks.serving.served_certificate import serving_names
from cotide_operator.webhooks.serving.shared_certificate import Lives, SharedCertificate, StoredCertificate, renewed
from cotide_operator.webhooks.serving.tls import ServingContext
from cotide_sim.apiserver.http.faults import Fault
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.apiserver.testing import running_server

NAMES = serving_names("cotide-admission", "cotide-system")
SPACE = "/api/v1/namespaces/cotide-system"
SECRET = f"{SPACE}/secrets/cotide-admission-certificate"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)


class Clock:
    """A time of day that tests move."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


def trusts(bundle: bytes, pair: Pair, name: str = NAMES[0]) -> bool:
    """Return whether a client with this bundle would accept a server with this certificate, by a real handshake."""
    served, trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cadata=bundle.decode())
    context = ServingContext()
    context.use(pair, NOW)
    served = context.listening
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = served.wrap_bio(to_server, to_client, server_side=True)
    client = trusted.wrap_bio(to_client, to_server, server_hostname=name)
    try:
        for side in (client, server, client, server, client):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLCertVerificationError:
        return False
    return client.version() is not None


def test_a_fresh_pair_is_good_for_the_service_and_signed_by_its_authority() -> None:
    kept = renewed(None, NAMES, datetime.now(UTC))
    assert names_in(kept.certificate_pem) == {
        "cotide-admission.cotide-system.svc",
        "cotide-admission.cotide-system",
        "cotide-admission.cotide-system.svc.cluster.local",
        "localhost",
        "127.0.0.1",
        "::1",
    }
    assert signed_by(kept.certificate_pem, kept.bundle_pem)
    assert trusts(kept.bundle_pem, kept.serving)
    assert not trusts(kept.bundle_pem, kept.serving, "another.cotide-system.svc")
    stranger = make_authority(datetime.now(UTC))
    assert not signed_by(kept.certificate_pem, stranger.certificate_pem)
    assert not trusts(stranger.certificate_pem, kept.serving)


def test_a_certificate_is_due_at_two_thirds_of_its_life() -> None:
    # Valid from NOW - 5 min (an API server's clock may lag) to NOW + 90 d: due at -5 min + 2/3 x (90 d + 5 min).
    pair = make_serving(make_authority(NOW), NAMES, NOW)
    turn = NOW + 60 * DAY - timedelta(minutes=5) / 3
    assert expires(pair.certificate_pem) == NOW + SERVING_LIFE
    assert not due(pair.certificate_pem, turn - timedelta(seconds=1))
    assert due(pair.certificate_pem, turn + timedelta(seconds=1))


def test_nothing_is_renewed_before_it_is_due() -> None:
    kept = renewed(None, NAMES, NOW)
    assert renewed(kept, NAMES, NOW + 59 * DAY) is kept


def test_the_certificate_is_renewed_by_the_same_authority() -> None:
    kept = renewed(None, NAMES, NOW)
    after = renewed(kept, NAMES, NOW + 60 * DAY)
    assert (after.bundle_pem, after.authority_key_pem) == (kept.bundle_pem, kept.authority_key_pem)
    assert after.serving != kept.serving
    assert expires(after.certificate_pem) == NOW + 150 * DAY
    assert signed_by(after.certificate_pem, kept.bundle_pem)  # whoever trusted the old one trusts the new one


def test_a_new_authority_is_told_of_before_it_signs_what_is_served() -> None:
    lives = Lives(authority=300 * DAY, serving=90 * DAY)
    kept = renewed(None, NAMES, NOW, lives)
    authorities_due, late = NOW + 200 * DAY, NOW + 260 * DAY
    kept = renewed(kept, NAMES, authorities_due - 10 * DAY, lives)  # serving, renewed on day 190: due again on day 250
    first = renewed(kept, NAMES, authorities_due, lives)
    assert len(read_certificates(first.bundle_pem)) == 2
    assert first.serving == kept.serving  # nobody need trust the new authority yet
    second = renewed(first, NAMES, late, lives)
    assert second.bundle_pem == first.bundle_pem
    assert signed_by(second.certificate_pem, second.authority.certificate_pem)
    newest = read_certificates(second.bundle_pem)[0].public_bytes(serialization.Encoding.PEM)
    assert signed_by(second.certificate_pem, newest)


def test_an_authority_that_ended_is_dropped_from_the_bundle() -> None:
    lives = Lives(authority=300 * DAY, serving=90 * DAY)
    kept = renewed(None, NAMES, NOW, lives)
    for day in range(0, 700, 5):
        kept = renewed(kept, NAMES, NOW + day * DAY, lives)
    assert len(read_certificates(kept.bundle_pem)) == 2


@given(days=st.lists(st.integers(1, 29), min_size=1, max_size=60))
def test_looked_at_often_enough_what_is_served_is_always_valid_and_was_trusted_one_look_earlier(
    days: list[int],
) -> None:
    # At most 29 days between looks, a third of 90 days less one: nothing can end between two of them.
    lives, now = Lives(authority=300 * DAY, serving=90 * DAY), NOW
    before = renewed(None, NAMES, now, lives)
    for step in days:
        now += step * DAY
        after = renewed(before, NAMES, now, lives)
        assert expires(after.certificate_pem) > now
        assert expires(after.bundle_pem) > now
        assert signed_by(after.certificate_pem, before.bundle_pem)
        before = after


@pytest.mark.parametrize("late", [91 * DAY, 250 * DAY, 4000 * DAY])
def test_what_nobody_renewed_in_time_is_made_anew_at_once(late: timedelta) -> None:
    after = renewed(renewed(None, NAMES, NOW), NAMES, NOW + late)
    assert expires(after.certificate_pem) == NOW + late + SERVING_LIFE
    assert signed_by(after.certificate_pem, after.bundle_pem)


def test_other_names_call_for_another_certificate() -> None:
    kept = renewed(None, ["old.cotide-system.svc"], NOW)
    after = renewed(kept, NAMES, NOW)
    assert set(NAMES) <= names_in(after.certificate_pem)
    assert after.bundle_pem == kept.bundle_pem


def test_an_authority_outlives_what_it_signed() -> None:
    # Renewed at 2/3 of its life, the last third must cover a whole serving certificate.
    assert AUTHORITY_LIFE / 3 > SERVING_LIFE


# ---- the Secret


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[ApiServer, KubeClient]]:
    async with running_server() as server, KubeClient(Credentials(server.url)) as client:
        await client.create("/api/v1/namespaces", {"metadata": {"name": "cotide-system"}})
        yield server, client


def shared(client: KubeClient, clock: Clock, lives: Lives = Lives()) -> SharedCertificate:  # noqa: B008 - frozen
    return SharedCertificate(
        client, "cotide-system", "cotide-admission-certificate", NAMES, now=clock, lives=lives
    )  # fmt: skip


async def test_the_first_replica_makes_the_secret_and_the_others_take_it() -> None:
    async with cluster() as (_, client):
        first = await shared(client, Clock()).look()
        assert await shared(client, Clock()).look() == first
        secret = await client.get(SECRET)
        assert secret["type"] == "kubernetes.io/tls"
        assert secret["data"].keys() == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
        assert base64.b64decode(secret["data"]["tls.crt"]) == first.certificate_pem


async def test_replicas_that_race_agree_on_what_one_of_them_wrote() -> None:
    async with cluster() as (_, client):
        clock = Clock()
        replicas = [shared(client, clock) for _ in range(4)]
        found = await asyncio.gather(*(one.look() for one in replicas))
        assert len(set(found)) == 1
        clock.now += 61 * DAY
        again = await asyncio.gather(*(one.look() for one in replicas))
        assert len(set(again)) == 1
        assert again[0].serving != found[0].serving


async def test_a_replica_that_always_loses_gives_up_until_its_next_look() -> None:
    async with cluster() as (server, client):
        server.faults.add(Fault(status=409, method="POST", path="secrets", count=-1))
        with pytest.raises(ClusterError, match="changed by others 5 times in a row"):
            await shared(client, Clock()).look()


@pytest.mark.parametrize("broken", ["", "bm90aGluZw==", "!"])
@pytest.mark.parametrize("field", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
async def test_a_secret_that_cant_be_used_is_made_anew(field: str, broken: str) -> None:
    async with cluster() as (_, client):
        keeper = shared(client, Clock())
        first = await keeper.look()
        await client.patch(SECRET, {"data": {field: broken}})
        second = await keeper.look()
        assert second != first
        assert signed_by(second.certificate_pem, second.bundle_pem)
        assert await keeper.look() == second


# ---- serving


async def served_to(port: int, bundle: bytes, name: str = NAMES[0]) -> bytes:
    """Return the certificate that a client of this bundle gets, as PEM; it refuses what it does not trust."""
    context = ssl.create_default_context(cadata=bundle.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return ssl.DER_cert_to_PEM_cert(found).encode()


def other_kind_of_key() -> Pair:
    """Return a self-signed certificate with an RSA key, as a user's own authority might make."""
    now = datetime.now(UTC)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - DAY).not_valid_after(now + DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAMES[0])]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate.public_bytes(pem), private)


def mount(directory: Path, pair: Pair) -> None:
    (directory / "tls.crt").write_bytes(pair.certificate_pem)
    (directory / "tls.key").write_bytes(pair.key_pem)


class Running:
    """A webhook whose looks are taken by the test."""

    def __init__(self, client: KubeClient, clock: Clock, directory: Path | None = None, lives: Lives = Lives()) -> None:  # noqa: B008 - frozen
        self.telemetry = Metrics()
        settings = AdmissionSettings(certificate_directory=directory, port=free_port())
        self.webhook = AdmissionWebhook(
            settings, client, ObjectCache(), self.telemetry, "cotide", now=clock, lives=lives
        )
        self._running: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return self.webhook.server.port

    async def __aenter__(self) -> Running:
        self._running = asyncio.create_task(self.webhook.run("127.0.0.1"))
        async with asyncio.timeout(10):
            while not self.webhook.listening:
                await asyncio.sleep(0.01)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


def free_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


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
            shown = running.telemetry.registry.get_sample_value(gauge)
            assert shown == expires(after).timestamp() == int((clock.now + timedelta(minutes=30)).timestamp())
            malformed = {"outcome": "malformed"}
            assert running.telemetry.registry.get_sample_value("cotide_admission_reviews_total", malformed) == 2


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


async def trusted(client: KubeClient) -> bytes:
    (hook,) = (await client.get(f"{WEBHOOKS}/cotide-admission"))["webhooks"]
    return base64.b64decode(hook["clientConfig"]["caBundle"])


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
    first, second = make_serving(authority, NAMES, datetime.now(UTC)), other_kind_of_key()
    mount(tmp_path, first)
    async with cluster() as (server, client), Running(client, Clock(datetime.now(UTC)), tmp_path) as running:
        before = server.dispatcher.requests
        assert await served_to(running.port, authority.certificate_pem) == first.certificate_pem
        mount(tmp_path, second)
        await running.webhook.look()
        assert await served_to(running.port, second.certificate_pem) == second.certificate_pem
        assert server.dispatcher.requests == before  # neither Secret nor configuration is ours then


def unusable() -> Iterable[Any]:
    authority = make_authority(NOW)
    other = make_serving(make_authority(NOW), NAMES, NOW)
    good = make_serving(authority, NAMES, NOW)
    old = make_serving(authority, NAMES, NOW - 100 * DAY)
    yield pytest.param(Pair(good.certificate_pem, other.key_pem), "key values mismatch", id="another key")
    yield pytest.param(Pair(b"nothing", good.key_pem), "holds no certificate that can be read", id="no certificate")
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


async def test_a_directory_without_a_certificate_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster() as (_, client):
        settings = AdmissionSettings(certificate_directory=tmp_path)
        webhook = AdmissionWebhook(settings, client, ObjectCache(), Metrics(), "cotide", now=Clock())
        for _ in range(3):
            await webhook.look()
        assert not webhook.listening
        assert [record.getMessage() for record in caplog.records] == [
            f"admission webhook: {tmp_path / 'tls.crt'}: can't be read: No such file or directory"
        ]


async def test_a_taken_port_is_told_by_the_setting_that_chose_it() -> None:
    async with cluster() as (_, client), Running(client, Clock(datetime.now(UTC))) as running:
        settings = AdmissionSettings(port=running.port)
        second = AdmissionWebhook(settings, client, ObjectCache(), Metrics(), "cotide")
        with pytest.raises(InputError, match=rf"admission.port: port {running.port} on 127.0.0.1 is in use"):
            await second.run("127.0.0.1")


async def test_a_server_that_refuses_the_secret_costs_one_line_and_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as (server, client):
        server.faults.add(Fault(status=403, path="secrets", count=-1))
        webhook = AdmissionWebhook(AdmissionSettings(), client, ObjectCache(), Metrics(), "cotide", now=Clock())
        for _ in range(3):
            await webhook.look()
        (line,) = [record.getMessage() for record in caplog.records]
        assert "403" in line
        assert "deploy/rbac" in line


def test_what_is_kept_reads_back_as_it_was_written() -> None:
    kept = renewed(None, NAMES, NOW)
    assert StoredCertificate(kept.bundle_pem, kept.authority_key_pem, kept.certificate_pem, kept.key_pem) == kept
