"""A webhook whose looks, clock and certificates are the test's; handshakes as a client of a bundle makes them."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from control_plane import free_port

from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.host_load_settings import AdmissionSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.webhooks.admission.webhook import AdmissionWebhook
from cotide_operator.webhooks.serving.certificates import (
    Pair,
)
from cotide_operator.webhooks.serving.served_certificate import serving_names
from cotide_operator.webhooks.serving.shared_certificate import Lives, SharedCertificate
from cotide_operator.webhooks.serving.tls import ServingContext
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


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[ApiServer, KubeClient]]:
    async with running_server() as server, KubeClient(Credentials(server.url)) as client:
        await client.create("/api/v1/namespaces", {"metadata": {"name": "cotide-system"}})
        yield server, client


def shared(client: KubeClient, clock: Clock, lives: Lives = Lives()) -> SharedCertificate:  # noqa: B008 - frozen
    return SharedCertificate(
        client, "cotide-system", "cotide-admission-certificate", NAMES, now=clock, lives=lives
    )  # fmt: skip


async def served_to(port: int, bundle: bytes, name: str = NAMES[0]) -> bytes:
    """Return the certificate that a client of this bundle gets, as PEM; it refuses what it does not trust."""
    context = ssl.create_default_context(cadata=bundle.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return ssl.DER_cert_to_PEM_cert(found).encode()


def other_kind_of_key() -> tuple[Pair, bytes]:
    """Return a certificate with an RSA key, and the authority that signed it: a user's own, not ours."""
    own = trustme.CA(key_type=trustme.KeyType.RSA)
    made = own.issue_cert(NAMES[0], key_type=trustme.KeyType.RSA)
    return Pair(made.cert_chain_pems[0].bytes(), made.private_key_pem.bytes()), own.cert_pem.bytes()


def mount(directory: Path, pair: Pair) -> None:
    (directory / "tls.crt").write_bytes(pair.certificate_pem)
    (directory / "tls.key").write_bytes(pair.key_pem)


class Running:
    """A webhook whose looks are taken by the test."""

    def __init__(self, client: KubeClient, clock: Clock, directory: Path | None = None, lives: Lives = Lives()) -> None:  # noqa: B008 - frozen
        self.metrics = Metrics()
        settings = AdmissionSettings(certificate_directory=directory, port=free_port())
        self.webhook = AdmissionWebhook(
            settings, client, ObjectCache(), self.metrics, ("cotide",), now=clock, lives=lives
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


async def trusted(client: KubeClient) -> bytes:
    (hook,) = (await client.get(f"{WEBHOOKS}/cotide-admission"))["webhooks"]
    return base64.b64decode(hook["clientConfig"]["caBundle"])
