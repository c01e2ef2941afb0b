"""Commands on an API server that hangs: Ctrl-C and SIGTERM end them within seconds, a second one at once."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from command_files import CONFIG, PLACEMENT
from official_calls import READY, make_node, official_api

from cotide_cli.stopping import UNDO_SECONDS
from cotide_sim.apiserver.http.faults import Fault
from cotide_sim.apiserver.testing import ThreadedServer

SOON = UNDO_SECONDS + 20.0
"""Within which a process of a busy machine has ended, which may take seconds; one request may take two minutes."""


class Hanging:
    """Accepts connections and never answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.asked = threading.Event()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._open.append(self._socket.accept()[0])
                self.asked.set()

    def close(self) -> None:
        for one in (self._socket, *self._open):
            one.close()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    server = Hanging()
    yield server
    server.close()


@contextlib.contextmanager
def command(arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command that heeds Ctrl-C; who runs these tests in the background of a script has it ignored."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        running = subprocess.Popen([sys.executable, "-m", "cotide_cli", *arguments], stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, inherited)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def until(true: Any) -> None:
    end = time.monotonic() + 60.0
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def kubeconfig(directory: Path, url: str) -> Path:
    path = directory / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "cotide", "cluster": {"server": url}}],
                "users": [{"name": "cotide", "user": {}}],
                "contexts": [{"name": "cotide", "context": {"cluster": "cotide", "user": "cotide"}}],
                "current-context": "cotide",
            }
        )
    )
    return path


def arguments_of(name: str, directory: Path) -> list[str]:
    if name == "capacity":
        (directory / "config.yaml").write_text(CONFIG)
        return ["capacity", "--apply", "--config", str(directory / "config.yaml")]
    if name == "place":
        (directory / "place.yaml").write_text(PLACEMENT)
        (directory / "demand.csv").write_text("all\n100\n100\n")
        (directory / "prices.csv").write_text("east\n1\n1\n")
        files = [str(directory / one) for one in ("place.yaml", "demand.csv", "prices.csv")]
        return ["place", files[0], "--demand", files[1], "--prices", files[2], "--watch"]
    if name == "profile":
        load = ["--load-command", "echo {rate}", "--rates", "100", "--job", "sort=sort", "--limit-ms", "1"]
        return ["profile", "active", *load, "--node", "n0", "--image", "i", "--out", str(directory / "campaign")]
    return ["consolidate", *name.split()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["--watch", "--watch --apply", "--apply", "--undo", "capacity", "place", "profile"])
def test_what_waits_for_an_api_server_that_hangs_ends_within_seconds(
    name: str, number: int, hanging: Hanging, tmp_path: Path
) -> None:
    path = kubeconfig(tmp_path, hanging.url)
    with command([*arguments_of(name, tmp_path), "--kubeconfig", str(path)]) as running:
        until(lambda: hanging.asked.is_set() or running.poll() is not None)
        running.send_signal(number)
        _, said = running.communicate(timeout=SOON)
    watching = "--watch" in name or name == "place"
    assert running.returncode == (0 if watching else 128 + number), said
    assert said.decode().strip() == ("" if watching else "cotide: interrupted")


@pytest.fixture
def core(server: ThreadedServer) -> Iterator[Any]:
    """Two nodes; the pod of the emptier one is made again by nobody, so that its drain goes on until it is stopped."""
    with official_api(server.url) as api:
        made = kubernetes.client.CoreV1Api(api)
        owner = made.create_namespaced_config_map("default", {"metadata": {"name": "owner"}}).metadata
        controller = {
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid, "controller": True,
        }  # fmt: skip
        for node, cpu in (("n0", "100m"), ("n1", "600m")):
            make_node(made, node)
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
            metadata = {"name": f"on-{node}", "ownerReferences": [controller]}
            made.create_namespaced_pod("default", {"metadata": metadata, "spec": {"containers": [container]}})
            target = {"metadata": {"name": f"on-{node}"}, "target": {"kind": "Node", "name": node}}
            made.create_namespaced_pod_binding(f"on-{node}", "default", target, _preload_content=False)
            running = {"phase": "Running", "conditions": READY}
            made.patch_namespaced_pod_status(f"on-{node}", "default", {"status": running})
        yield made


QUICKLY = ["consolidate", "--apply", "--minimum-age", "0"]
WATCHING = [*QUICKLY, "--watch", "--stable", "0", "--interval", "1"]


def cordoned(core: Any) -> bool:
    spec = core.read_node("n0").spec
    return spec is not None and bool(spec.unschedulable)


@pytest.mark.parametrize("arguments", [QUICKLY, WATCHING], ids=["once", "watching"])
def test_a_node_that_can_not_be_uncordoned_is_told_and_a_second_signal_ends_it_at_once(
    arguments: list[str], server: ThreadedServer, core: Any, tmp_path: Path
) -> None:
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    with command([*arguments, "--kubeconfig", str(path)]) as running:
        until(lambda: cordoned(core))
        fault = server.call(lambda: server.server.faults.add(Fault(delay_seconds=600.0, count=-1)))
        running.send_signal(signal.SIGINT)
        until(lambda: fault.met > 0)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=SOON)
    server.call(server.server.faults.clear)
    assert running.returncode == 130
    assert "cotide: ended without waiting for calls that do not answer; " in said.decode()
    assert "the next run" in said.decode().splitlines()[-1]
    assert cordoned(core)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("arguments", [QUICKLY, WATCHING], ids=["once", "watching"])
def test_a_cordon_that_is_on_its_way_is_undone_after_it_was_carried_out(
    arguments: list[str], number: int, server: ThreadedServer, core: Any, tmp_path: Path
) -> None:
    path = server.write_kubeconfig(tmp_path / "kubeconfig")
    late = Fault(delay_seconds=1.0, method="PATCH", path="/nodes/n0")
    server.call(lambda: server.server.faults.add(late))
    with command([*arguments, "--kubeconfig", str(path)]) as running:
        until(lambda: late.met > 0)
        running.send_signal(number)
        _, said = running.communicate(timeout=SOON)
    assert running.returncode == (0 if "--watch" in arguments else 128 + number), said
    assert "n0: uncordoned again" in said.decode()
    assert not cordoned(core)
