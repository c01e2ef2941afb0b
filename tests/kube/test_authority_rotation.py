"""The certificate authority of a cluster rotates while we run: its file is followed."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials


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
    return b"".join(one.cert_pem.bytes() for one in authorities)


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
