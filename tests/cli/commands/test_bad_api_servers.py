"""What answers is no API server: each command that asks one ends with one sentence and exit code 1."""

from __future__ import annotations

import gzip
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from command_files import CONFIG, PLACEMENT

from cotide_cli import main
from cotide_kube import answer_bodies, answers, official

KUBECONFIG = {
    "users": [{"name": "cotide", "user": {}}],
    "contexts": [{"name": "cotide", "context": {"cluster": "cotide", "user": "cotide"}}],
    "current-context": "cotide",
}
FILES = {
    "config.yaml": CONFIG,
    "place.yaml": PLACEMENT,
    "demand.csv": "all\n9\n9\n",
    "prices.csv": "east\n1\n1\n",
}
COMMANDS = {
    "nodes": "nodes --count 1",
    "explain-pod": "explain pod a",
    "explain-job": "explain job a",
    "consolidate": "consolidate",
    "consolidate-undo": "consolidate --undo",
    "consolidate-watch": "consolidate --watch --rounds 2",
    "whatif": "whatif --each-node",
    "capacity": "capacity --config config.yaml",
    "capacity-apply": "capacity --apply --config config.yaml",
    "place": "place place.yaml --demand demand.csv --prices prices.csv",
    "place-apply": "place place.yaml --demand demand.csv --prices prices.csv --apply",
    "profile": "profile active --load-command {rate} --rates 1 --job a=b --limit-ms 1 --node n --image i --out none",
}
ANSWERS = {
    "empty object": b"{}",
    "empty list": b"[]",
    "null": b"null",
    "nothing": b"",
    "null items": b'{"items":[null]}',
    "texts as items": b'{"items":["a"]}',
    "numbers as items": b'{"items":[1]}',
    "items without metadata": b'{"items":[{}]}',
    "items without names": b'{"items":[{"metadata":{}}]}',
    "a page that leads to itself": b'{"metadata":{"continue":"x"},"items":[]}',
    "a page that leads to a number": b'{"metadata":{"continue":5},"items":[]}',
    "deeply nested": b'{"items":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a page of the web": b"<html>Sign in</html>",
    "no text": bytes(range(128, 256)),
}


class Scripted(ThreadingHTTPServer):
    """Answers everything with the same bytes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.body, self.chunks, self.encoding = 200, b"", 0, ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that has gone."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        if self.server.encoding:
            self.send_header("Content-Encoding", self.server.encoding)
        if not self.server.chunks:
            self.send_header("Content-Length", str(len(self.server.body)))
            self.end_headers()
            self.wfile.write(self.server.body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(self.server.chunks):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(self.server.body), self.server.body))
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - the library's names

    def log_message(self, *about: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with Scripted() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def said(server: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Run a command; return its exit code, and what it said on stderr."""
    monkeypatch.chdir(tmp_path)
    server.status, server.chunks, server.encoding = 200, 0, ""
    for name, text in FILES.items():
        Path(name).write_text(text)
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(KUBECONFIG | {"clusters": [{"name": "cotide", "cluster": {"server": server.url}}]}))

    def run(command: str) -> tuple[int, list[str]]:
        monkeypatch.setattr(sys, "argv", ["cotide", *COMMANDS[command].split(), "--kubeconfig", str(path)])
        with pytest.raises(SystemExit) as caught:
            main.main()
        assert isinstance(caught.value.code, int)
        # A bar of progress leaves an empty line behind.
        return caught.value.code, list(filter(None, capfd.readouterr().err.splitlines()))

    return run


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_answer_of_an_api_server_is_one_sentence(
    command: str, answer: bytes, server: Scripted, said: Any
) -> None:
    server.body = answer
    code, lines = said(command)
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith("cotide: ")


@pytest.mark.parametrize("chunks", [0, 3], ids=["with its length", "in chunks"])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_that_is_far_too_large_is_not_read(
    command: str, chunks: int, server: Scripted, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (answers, answer_bodies, official):
        monkeypatch.setattr(module, "ANSWER_BYTES", 2 << 20)
    server.chunks, server.body = chunks, b" " * ((1 if chunks else 3) << 20)
    code, lines = said(command)
    assert (code, len(lines)) == (1, 1)
    assert f"the API server {server.url} (kubeconfig " in lines[0]
    assert "sends an answer of more than 2 MiB, which is the most that is read; is it one?" in lines[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_few_bytes_that_unpack_to_many_are_not_unpacked(
    command: str, server: Scripted, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (answers, answer_bodies, official):
        monkeypatch.setattr(module, "ANSWER_BYTES", 2 << 20)
    server.encoding, server.body = "gzip", gzip.compress(b" " * (64 << 20))  # which nobody asked for
    code, lines = said(command)
    assert (code, len(lines)) == (1, 1)
    assert f"the API server {server.url} (kubeconfig " in lines[0]
    assert "more than 2 MiB, which is the most that is read; is it one?" in lines[0]


@pytest.mark.parametrize(("status", "hint"), [(401, "are not accepted"), (403, "grant this user")])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_refusal_names_the_server(command: str, status: int, hint: str, server: Scripted, said: Any) -> None:
    server.status, server.body = status, b'{"kind":"Status","reason":"Words","message":"no"}'
    code, lines = said(command)
    assert (code, len(lines)) == (1, 1)
    assert f"the API server {server.url} (kubeconfig " in lines[0]
    assert f": {status} Words: no (" in lines[0]
    assert hint in lines[0]
