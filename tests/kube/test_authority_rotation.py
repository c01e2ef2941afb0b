"""The certificate authority of a cluster rotates while we run: its file is followed; a key that is locked is none."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from cotide_core.errors import ClusterError, InputError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials, FollowingContext


@asynccontextmanager
async def serving(authority: trustme.CA, port: int = 0) -> AsyncIterator[int]:
    """Answer each request with an empty object, under a certificate of an authority; yields the port."""

    async def answer(_request: web.BaseRequest) -> web.Response:
        return web.Response(body=b"{}")

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.05)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls, reuse_address=True)
    await site.start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def credentials(port: int, file: Path) -> Credentials:
    return Credentials(f"https://127.0.0.1:{port}", certificate_authority=file.read_bytes(), authority_file=file)


def pem(*authorities: trustme.CA) -> bytes:
    return b"".join(authority.cert_pem.bytes() for authority in authorities)


async def test_a_server_of_the_new_authority_is_trusted_once_the_file_names_it(tmp_path: Path) -> None:
    old, new, file = trustme.CA(), trustme.CA(), tmp_path / "ca.crt"
    file.write_bytes(pem(old))
    async with serving(old) as port:
        client = KubeClient(credentials(port, file))
        await client.__aenter__()
        assert await client.get("/x") == {}
    try:
        async with serving(new, port):
            with pytest.raises(ClusterError, match="its certificate is not trusted"):
                await client.get("/x")
            file.write_bytes(pem(old, new))
            assert await client.get("/x") == {}
    finally:
        await client.__aexit__(None, None, None)


@pytest.mark.parametrize("content", [b"", b"no certificate", b"\xff"])
async def test_a_file_that_is_broken_for_a_moment_changes_nothing(tmp_path: Path, content: bytes) -> None:
    authority, file = trustme.CA(), tmp_path / "ca.crt"
    file.write_bytes(pem(authority))
    async with serving(authority) as port:
        known = credentials(port, file)
        file.write_bytes(content)
        async with KubeClient(known) as client:
            assert await client.get("/x") == {}


def test_an_encrypted_key_is_refused_and_nobody_asked_for_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    client = trustme.CA().issue_cert("client")
    key = serialization.load_pem_private_key(client.private_key_pem.bytes(), password=None)
    secret = serialization.BestAvailableEncryption(b"secret")
    encrypted = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    load = ssl.SSLContext.load_cert_chain

    def asked(context: ssl.SSLContext, certificate: Any, key: Any, password: Any = None) -> None:
        assert password is not None, "without one OpenSSL asks at the terminal, and waits there"
        load(context, certificate, key, password)

    monkeypatch.setattr(FollowingContext, "load_cert_chain", asked, raising=False)
    certificate = client.cert_chain_pems[0].bytes()
    with pytest.raises(InputError, match="no matching PEM pair"):
        Credentials("https://127.0.0.1:1", client_certificate=certificate, client_key=encrypted).ssl_context()
    plain = client.private_key_pem.bytes()
    assert Credentials("https://127.0.0.1:1", client_certificate=certificate, client_key=plain).ssl_context()
