"""``cotide operator`` as a user starts it: each mistake is one line and the right exit code; a signal ends it well."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cotide_sim.apiserver.testing import ThreadedServer, server_in_thread

DEADLINE_SECONDS = 30.0
HEAD = "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cotide_cli", "operator", *arguments]


def ended(*arguments: str) -> tuple[int, str]:
    """Run a command that should end by itself; return exit code and stderr."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=DEADLINE_SECONDS, env=environment, check=False
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def last_line(text: str) -> str:
    assert "Traceback" not in text
    return text.strip().splitlines()[-1]


@contextmanager
def running(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as sink, subprocess.Popen(command(*arguments), stderr=sink) as process:
        try:
            yield process
        finally:
            process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_ready(port: int, log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass  # not listening yet: the deadline decides
        finally:
            connection.close()
        time.sleep(0.05)
    pytest.fail(f"not ready in time:\n{log.read_text()}")


def wait_line(words: str, log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while words not in log.read_text():
        if time.monotonic() > deadline:
            pytest.fail(f"{words!r} was never said:\n{log.read_text()}")
        time.sleep(0.05)


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    with server_in_thread(token="right") as handle:
        yield handle


@pytest.fixture
def kubeconfig(server: ThreadedServer, tmp_path: Path) -> str:
    return str(server.write_kubeconfig(tmp_path / "kubeconfig"))


def test_a_wrong_key_is_a_usage_error_with_its_line(tmp_path: Path, kubeconfig: str) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(HEAD + "polcy: fifo\n")
    code, said = ended("--config", str(config), "--kubeconfig", kubeconfig)
    assert code == 2
    assert last_line(said).startswith(f"cotide: {config}:3: polcy: is not a setting")


def test_a_policy_that_is_not_there_is_a_usage_error_that_names_the_others(kubeconfig: str) -> None:
    code, said = ended("--policy", "clairvoyant", "--kubeconfig", kubeconfig)
    assert code == 2
    assert "policy: 'clairvoyant' is not there; this version has" in last_line(said)


def test_a_missing_kubeconfig_is_one_line(tmp_path: Path) -> None:
    code, said = ended("--kubeconfig", str(tmp_path / "none"))
    assert code in (1, 2)
    assert str(tmp_path / "none") in last_line(said)


def test_an_unreachable_server_is_one_line(tmp_path: Path, kubeconfig: str) -> None:
    text = Path(kubeconfig).read_text()
    port = next(part for part in text.split("http://127.0.0.1:")[1].split())
    dead = tmp_path / "dead"
    dead.write_text(text.replace(f":{port}", f":{free_port()}"))
    code, said = ended("--kubeconfig", str(dead), "--metrics-port", "0")
    assert code == 1
    assert "is unreachable" in last_line(said)


def test_a_refused_token_is_one_line_with_advice(tmp_path: Path, kubeconfig: str) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text(Path(kubeconfig).read_text().replace("right", "wrong"))
    code, said = ended("--kubeconfig", str(wrong), "--metrics-port", "0", "--install-crds")
    assert code == 1
    assert "401" in last_line(said)
    assert "check token" in last_line(said)


def test_a_port_in_use_is_one_line(kubeconfig: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, said = ended("--kubeconfig", kubeconfig, "--metrics-port", str(port))
    assert code == 2
    assert last_line(said) == f"cotide: --metrics-port: port {port} on 127.0.0.1 is in use; choose another one"


def test_without_its_resources_it_waits_says_so_once_and_goes_on_when_they_come(
    tmp_path: Path, server: ThreadedServer, kubeconfig: str
) -> None:
    waiting, installing = tmp_path / "waiting.log", tmp_path / "installing.log"
    port = free_port()
    with running(waiting, "--kubeconfig", kubeconfig, "--metrics-port", str(port)) as first:
        wait_line("custom resources of cotide.dev are not installed", waiting)
        # Another replica that may install them; the first one has been standing in line for the lease since.
        with running(installing, "--kubeconfig", kubeconfig, "--metrics-port", "0", "--install-crds") as second:
            wait_line("deciding with policy", installing)
            wait_ready(port, waiting)  # a standby that has listed everything is ready
            second.send_signal(signal.SIGTERM)
            assert second.wait(DEADLINE_SECONDS) == 0
        wait_line("deciding with policy", waiting)
        first.send_signal(signal.SIGTERM)
        assert first.wait(DEADLINE_SECONDS) == 0
    for log in (waiting, installing):
        text = log.read_text()
        assert last_line(text).endswith("stopped")
        assert text.count("are not installed") <= 1
        assert " ERROR " not in text
