"""A registry of images on loopback, from which container runtimes pull as they do anywhere else.

::

    with registry({"x": oci_image(...)}) as url:
        ...                                     # containerd has url as its mirror of docker.io

Called by `node_server`. It serves what the OCI distribution specification 1.1 calls pull: manifests and blobs. What it
does not have is answered with 404, as by any registry.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import images

PATHS = re.compile(r"/v2/library/(?P<name>[^/]+)/(?P<kind>manifests|blobs)/(?P<reference>[^/?]+)(\?.*)?")


@contextmanager
def registry(held: Mapping[str, images.OciImage]) -> Iterator[str]:
    """Serve images by name, under any tag; yields the url."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def log_message(self, *_: Any) -> None:
            """Say nothing: the runtime's log tells what it pulled."""

        def _answer(self, *, with_body: bool) -> None:
            found = content_of(held, self.path)
            content = b"{}" if found is None else found[1]
            self.send_response(404 if found is None and self.path.rstrip("/") != "/v2" else 200)
            if found is not None:
                digest, content = found
                described = digest in {one.digest for one in held.values()}
                self.send_header("Content-Type", images.MANIFEST if described else "application/octet-stream")
                self.send_header("Docker-Content-Digest", digest)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if with_body:
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def content_of(held: Mapping[str, images.OciImage], path: str) -> tuple[str, bytes] | None:
    """Return digest and content of what a path asks for; None where there is no such thing."""
    asked = PATHS.fullmatch(path)
    image = held.get(asked["name"]) if asked is not None else None
    if asked is None or image is None:
        return None
    digest = asked["reference"]
    if asked["kind"] == "manifests" and not digest.startswith("sha256:"):
        digest = image.digest
    return (digest, image.blobs[digest]) if digest in image.blobs else None
