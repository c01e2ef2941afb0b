"""An API server of fixed objects, one of each collection: what it has is sent as it is, however odd."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KUBECONFIG = {
    "users": [{"name": "cotide", "user": {}}],
    "contexts": [{"name": "cotide", "context": {"cluster": "cotide", "user": "cotide"}}],
    "current-context": "cotide",
}


class ObjectServer(ThreadingHTTPServer):
    """Answers each GET of a collection with its object in a list, and of anything below it with the object itself.

    Attributes
    ----------
    objects : by path of the collection, over all namespaces.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, Any] = {}

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that names this server."""
        cluster = {"name": "cotide", "cluster": {"server": f"http://127.0.0.1:{self.server_port}"}}
        path.write_text(json.dumps(KUBECONFIG | {"clusters": [cluster]}))
        return path

    def answer(self, path: str) -> tuple[int, Any]:
        """Return status and body of a GET."""
        if path in self.objects:
            return 200, {"metadata": {"resourceVersion": "9"}, "items": [self.objects[path]]}
        whole = path.replace("/namespaces/default", "", 1)
        if whole in self.objects:
            return 200, {"metadata": {"resourceVersion": "9"}, "items": [self.objects[whole]]}
        for collection in (path.rpartition("/")[0], whole.rpartition("/")[0]):
            if collection in self.objects:
                return 200, self.objects[collection]
        return 404, {"kind": "Status", "reason": "NotFound", "message": "there is none"}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that has gone."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ObjectServer
    wbufsize = -1  # head and body in one: a client would wait 40 ms for what comes behind

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, found = self.server.answer(self.path.partition("?")[0])
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - the library's names

    def log_message(self, *about: object) -> None:
        """Keep the test's output clean."""


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    """Run one in a thread."""
    with ObjectServer() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        try:
            yield running
        finally:
            running.shutdown()
