"""The server as a process: its file, its certificates, its command line."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotide_core.errors import InputError
from cotide_sim.apiserver.http.kubeconfig import write_kubeconfig
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.apiserver.testing import running_server, server_in_thread, server_process

MAPS = "/api/v1/namespaces/default/configmaps"


def ask(url: str, method: str = "GET", body: Any = None, context: ssl.SSLContext | None = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}, method=method)  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:  # noqa: S310 - loopback
        return json.load(answer)


def test_objects_survive_a_killed_server_and_versions_grow(tmp_path: Path) -> None:
    file = tmp_path / "objects.db"
    crd = {
        "metadata": {"name": "gadgets.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Cluster",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        },
    }
    with server_process("--data", str(file)) as first:
        ask(f"{first.url}/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "POST", crd)
        gadget = ask(f"{first.url}/apis/example.dev/v1/gadgets", "POST", {"metadata": {"name": "g"}})
        made = ask(f"{first.url}{MAPS}", "POST", {"metadata": {"name": "kept"}, "data": {"a": "b"}})
        ask(f"{first.url}{MAPS}", "POST", {"metadata": {"name": "gone"}})
        ask(f"{first.url}{MAPS}/gone", "DELETE")
        version = int(ask(f"{first.url}{MAPS}")["metadata"]["resourceVersion"])
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait(10)
    with server_process("--data", str(file)) as second:
        listed = ask(f"{second.url}{MAPS}")
        assert listed["items"] == [made]
        assert int(listed["metadata"]["resourceVersion"]) > version
        assert ask(f"{second.url}/apis/example.dev/v1/gadgets/g") == gadget
        event = ask(f"{second.url}{MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=1")
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        with pytest.raises(InputError, match="can't be used to keep objects"):
            ApiServer(data=file)


async def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("these are notes, not objects\n" * 100)
    with pytest.raises(InputError, match=r"notes\.txt.*can't be used to keep objects"):
        ApiServer(data=file)


def test_tls_server_is_trusted_through_its_kubeconfig() -> None:
    with server_in_thread(tls=True, token="secret") as server:
        config = yaml.safe_load(server.kubeconfig())
        import base64

        authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        token = config["users"][0]["user"]["token"]
        answer = ask(f"{server.url}/api/v1/namespaces", context=context, Authorization=f"Bearer {token}")
        assert "default" in [item["metadata"]["name"] for item in answer["items"]]
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            ask(f"{server.url}/version", context=ssl.create_default_context())


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cotide_cli", "apiserver", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


async def test_port_in_use_and_open_addresses_are_refused_in_one_line() -> None:
    async with running_server() as server:
        taken = run_command("--port", str(server.port))
    assert (taken.returncode, taken.stdout) == (2, "")
    assert (
        taken.stderr
        == f"cotide: --port: port {server.port} on 127.0.0.1 is in use; choose another (0 lets the system choose)\n"
    )
    exposed = run_command("--host", "0.0.0.0", "--port", "0")  # noqa: S104 - it must be refused
    assert exposed.returncode == 2
    assert "give --expose and --token" in exposed.stderr
    assert "Traceback" not in exposed.stderr


def test_sigterm_ends_the_server_and_its_watches_in_good_order() -> None:
    with server_process() as server:
        assert server.kubeconfig_path.stat().st_mode & 0o777 == 0o600
        with urllib.request.urlopen(f"{server.url}{MAPS}?watch=1", timeout=10) as watch:  # noqa: S310 - loopback
            server.process.terminate()
            assert watch.read() == b""
        assert server.process.wait(10) == 0


def test_a_kubeconfig_is_written_to_a_pipe_or_behind_a_link_and_takes_the_place_of_neither(tmp_path: Path) -> None:
    plain, link, pipe = tmp_path / "plain", tmp_path / "link", tmp_path / "pipe"
    plain.write_text("before")
    link.symlink_to(plain)
    write_kubeconfig(link, "config")
    assert link.is_symlink()
    assert plain.read_text() == "config"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_kubeconfig(pipe, "config")
    assert os.read(reader, 100) == b"config"
    assert pipe.is_fifo()
    os.close(reader)
