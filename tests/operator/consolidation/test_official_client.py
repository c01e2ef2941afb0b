"""What the commands read through the official client when what answers is no API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml

from cotide_core.errors import ClusterError
from cotide_operator.clock import real_clock
from cotide_operator.consolidation import official_client
from cotide_operator.consolidation.official_client import OfficialClient
from cotide_operator.consolidation.watch_hands import WatchHands

PAGE = b"<html>maintenance</html>"
ODD_NODE = {"items": [{"metadata": {"name": ["n"]}}]}


@pytest.fixture
def answers() -> Iterator[dict[str, Any]]:
    """A server that answers 200 with what stands under the last part of a path, else with an empty list."""
    said: dict[str, Any] = {"over": Event()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = said.get(self.path.partition("?")[0].rpartition("/")[2], b'{"items": []}')
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            said["over"].wait(30)  # no answer, until the client has gone or the test is over
            self.close_connection = True

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    said["url"] = f"http://127.0.0.1:{server.server_address[1]}"
    yield said
    said["over"].set()
    server.shutdown()
    thread.join()
    server.server_close()


def kubeconfig(folder: Path, url: str) -> str:
    file = folder / "kubeconfig"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    file.write_text(yaml.safe_dump(config))
    return str(file)


@pytest.mark.parametrize("body", [PAGE, b"", b"[]", json.dumps(ODD_NODE).encode()])
async def test_an_answer_that_is_no_list_of_nodes_is_one_sentence(
    answers: dict[str, Any], tmp_path: Path, body: bytes
) -> None:
    """A load balancer's page with status 200, for example: a watch goes on with its next round."""
    answers["nodes"] = body
    path = kubeconfig(tmp_path, answers["url"])
    with pytest.raises(ClusterError, match="nodes"):
        OfficialClient(path).read()
    with pytest.raises(ClusterError, match="nodes"):
        await WatchHands(real_clock(), path).records()


def test_what_is_only_of_use_and_can_not_be_understood_is_left_out(answers: dict[str, Any], tmp_path: Path) -> None:
    answers["poddisruptionbudgets"] = PAGE
    picture = OfficialClient(kubeconfig(tmp_path, answers["url"])).read()
    assert any("poddisruptionbudgets are left out" in warning for warning in picture.warnings)


@pytest.mark.parametrize("hangs", [False, True])
async def test_an_eviction_without_an_answer_is_one_and_ends_in_its_time(
    answers: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    monkeypatch.setattr(official_client, "WRITE_SECONDS", 0.1)
    if not hangs:
        answers["over"].set()  # the connection is closed
    client = OfficialClient(kubeconfig(tmp_path, answers["url"]))
    assert await client.evict("default/p", "u") == 0
