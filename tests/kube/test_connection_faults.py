"""A server that can't be reached: one sentence with its address and what to check, soon, by either client."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cotide_core.errors import ClusterError, InputError
from cotide_kube import official
from cotide_kube.client import KubeClient
from cotide_kube.connection.faults import why_unreachable
from cotide_kube.credentials import load_credentials

DAY = datetime.timedelta(days=1)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def certificate(folder: Path, address: str = "127.0.0.1", ends: datetime.timedelta = DAY) -> Path:
    """Write a certificate that signs itself, with its key; returns its file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * DAY)
        .not_valid_after(now + ends)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / f"{address}{ends.days}.pem"
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(built.public_bytes(serialization.Encoding.PEM) + pem)
    return file


@contextlib.contextmanager
def listening(speak: Callable[[socket.socket], object], tls: Path | None = None) -> Iterator[str]:
    """Serve each connection by a function; yields host and port."""
    server, taken = socket.create_server(("127.0.0.1", 0)), []
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)

    def accept() -> None:
        while True:
            try:
                one = server.accept()[0]
            except OSError:
                return
            taken.append(one)
            with contextlib.suppress(OSError):
                if context is not None:
                    one = context.wrap_socket(one, server_side=True)
                    taken.append(one)
                speak(one)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
        for one in taken:
            one.close()


def close(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()  # with a reset, as of an https server that is spoken to plainly


def greet(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"SSH-2.0-OpenSSH_9\r\n")
    connection.close()


def cut(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(ANSWER.replace(b"Length: 2", b"Length: 9"))
    connection.close()


def plainly(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    connection.close()


def kubeconfig(folder: Path, server: str, authority: Path | None = None) -> Path:
    cluster = {"server": server, **({"certificate-authority": str(authority)} if authority else {})}
    file = folder / "kubeconfig"
    file.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "mine", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "mine",
            }
        )
    )
    return file


async def said_by_both(file: Path) -> tuple[str, str]:
    """Return what the official client says of a request, and what ours does."""
    from kubernetes import client

    with pytest.raises(ClusterError) as caught:
        official.ask(client.CoreV1Api(official.connect(str(file))).list_node, seconds=0.2)
    with pytest.raises(ClusterError) as ours:
        async with KubeClient(load_credentials(str(file)), timeout_seconds=0.2) as one:
            await one.create("/api/v1/nodes", {})  # is tried once
    return str(caught.value), str(ours.value)


@pytest.mark.parametrize(
    ("speak", "scheme", "words"),
    [
        (close, "http", "it closed the connection without an answer; does it want https://?"),
        (reset, "http", "it closed the connection without an answer; does it want https://?"),
        (greet, "http", "what answers there speaks no HTTP; check the address and port"),
        (cut, "http", "its answer broke off"),
        (lambda _: None, "http", "no answer within 0.2 s; check that it runs, and what is between it and us"),
        (plainly, "https", "it speaks no TLS there; is it an http:// server?"),
    ],
)
async def test_a_server_that_does_not_answer_as_it_should_is_named_with_what_to_check(
    speak: Callable[[socket.socket], object], scheme: str, words: str, tmp_path: Path
) -> None:
    with listening(speak) as address:
        file = kubeconfig(tmp_path, f"{scheme}://{address}")
        for said in await said_by_both(file):
            assert said.startswith(f"the API server {scheme}://{address} (kubeconfig {file}")
            assert f" is unreachable: {words} (" in said


async def test_a_port_where_nothing_listens_is_named_without_words_for_programmers(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # taken, so that nobody else listens there
        server = f"http://127.0.0.1:{closed.getsockname()[1]}"
        for said in await said_by_both(kubeconfig(tmp_path, server)):
            assert f"the API server {server} (kubeconfig {tmp_path}/kubeconfig" in said
            assert "nothing listens there (connection refused); check that it runs, and its address and port" in said


@pytest.mark.parametrize(
    ("address", "ends", "known", "words"),
    [
        ("127.0.0.1", -DAY, True, "certificate has expired; check the server's certificate and the clocks"),
        ("192.0.2.1", DAY, True, "check the address, or set tls-server-name"),
        ("127.0.0.1", DAY, False, "check the certificate-authority of the kubeconfig"),
    ],
)
async def test_a_certificate_that_is_not_trusted_says_why(
    address: str, ends: datetime.timedelta, known: bool, words: str, tmp_path: Path
) -> None:
    shown = certificate(tmp_path, address, ends)
    with listening(plainly, shown) as server:
        file = kubeconfig(tmp_path, f"https://{server}", shown if known else None)
        for said in await said_by_both(file):
            assert f"https://{server}" in said
            assert "its certificate is not trusted: " in said
            assert words in said
            assert "_ssl.c" not in said


def test_silence_is_not_asked_again_and_a_closed_connection_is(tmp_path: Path) -> None:
    from kubernetes import client

    asked: list[bytes] = []

    def speak(connection: socket.socket) -> None:
        asked.append(connection.recv(65536))
        if silent:
            return
        connection.sendall(ANSWER if len(asked) > 1 else b"")
        connection.close()

    with listening(speak) as address:
        nodes = client.CoreV1Api(official.connect(str(kubeconfig(tmp_path, f"http://{address}")))).list_node
        silent = False
        assert official.ask(nodes, seconds=5.0) == b"{}"
        asked.clear()
        silent = True
        with pytest.raises(ClusterError, match="no answer within"):
            official.ask(nodes, seconds=0.2)
        assert len(asked) == 1


def test_an_error_that_says_nothing_is_named() -> None:
    assert why_unreachable(ValueError(), "http://a") == "ValueError"
    assert why_unreachable(OSError(113, "x"), "http://a") == "no route to host"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"items": 1}', b'{"items": [1]}', b'{"items": [{}]}'])
def test_an_answer_that_no_api_server_gives_is_one_sentence(body: bytes) -> None:
    with pytest.raises(ClusterError, match="the API server's answer"):
        official.object_in(body)


@pytest.mark.parametrize("context", [None, "mine"])
def test_a_kubeconfig_that_is_not_there_is_the_user_s_mistake(context: str | None, tmp_path: Path) -> None:
    for reads in (official.connect, load_credentials):
        with pytest.raises(InputError, match=f"{tmp_path}/none: the kubeconfig does not exist"):
            reads(f"{tmp_path}/none", context)


def test_a_context_or_a_file_that_the_kubeconfig_names_in_vain_is_the_user_s_mistake(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "https://127.0.0.1:1", tmp_path / "ca.crt")
    for reads in (official.connect, load_credentials):
        with pytest.raises(InputError, match=r"certificate-authority: the file .*ca\.crt can't be read"):
            reads(str(file))
        with pytest.raises(InputError, match=r"contexts: 'other' was asked for, .* \(there are: mine\)"):
            reads(str(file), "other")


async def test_who_waits_at_a_terminal_waits_for_one_answer_only(tmp_path: Path) -> None:
    asked: list[bytes] = []
    with listening(lambda connection: asked.append(connection.recv(65536))) as address:
        credentials = load_credentials(str(kubeconfig(tmp_path, f"http://{address}")))
        async with KubeClient(credentials, timeout_seconds=0.2, asks_silence_again=False) as client:
            with pytest.raises(ClusterError, match="no answer within"):
                await client.get("/api/v1/nodes")
    assert len(asked) == 1
