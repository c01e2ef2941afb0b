"""``cotide operator`` as a user starts it: each mistake is one line and the right exit code; a signal ends it well."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

from control_plane import free_port
from programs import HEAD, ended, running
from servers import Server

from cotide_kube.client import KubeClient


def last_line(text: str) -> str:
    assert "Traceback" not in text
    return text.strip().splitlines()[-1]


async def test_a_wrong_key_is_a_usage_error_with_its_line(tmp_path: Path, server: Server) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(HEAD + "polcy: fifo\n")
    code, said = await ended("--config", str(config), "--kubeconfig", str(server.kubeconfig(tmp_path)))
    assert code == 2
    assert last_line(said).startswith(f"cotide: {config}:3: polcy: is not a setting")


async def test_a_policy_that_is_not_there_is_a_usage_error_that_names_the_others(
    tmp_path: Path, server: Server
) -> None:
    code, said = await ended("--policy", "clairvoyant", "--kubeconfig", str(server.kubeconfig(tmp_path)))
    assert code == 2
    assert "policy: there is no 'clairvoyant'; there are qpsm" in last_line(said)


async def test_a_missing_kubeconfig_is_one_line(tmp_path: Path) -> None:
    code, said = await ended("--kubeconfig", str(tmp_path / "none"))
    assert code in (1, 2)
    assert str(tmp_path / "none") in last_line(said)


async def test_an_unreachable_server_is_one_line(tmp_path: Path, server: Server) -> None:
    dead = server.kubeconfig(tmp_path, url=f"http://127.0.0.1:{free_port()}")
    code, said = await ended("--kubeconfig", str(dead), "--metrics-port", "0")
    assert code == 1
    assert "is unreachable" in last_line(said)


async def test_a_refused_token_is_one_line_with_advice(tmp_path: Path, server: Server) -> None:
    wrong = server.kubeconfig(tmp_path, token="wrong")
    code, said = await ended("--kubeconfig", str(wrong), "--metrics-port", "0", "--install-crds")
    assert code == 1
    assert "401" in last_line(said)
    assert "check token" in last_line(said)


async def test_a_port_in_use_is_one_line(tmp_path: Path, server: Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, said = await ended("--kubeconfig", str(server.kubeconfig(tmp_path)), "--metrics-port", str(port))
    assert code == 2
    assert last_line(said) == f"cotide: --metrics-port: port {port} on 127.0.0.1 is in use; choose another one"


async def test_without_its_resources_it_waits_says_so_once_and_goes_on_when_they_come(
    tmp_path: Path, server: Server
) -> None:
    async with KubeClient(server.credentials) as client:
        await server.until_no_definitions(client)
    kubeconfig = str(server.kubeconfig(tmp_path))
    async with running(server, tmp_path / "waiting.log", "--kubeconfig", kubeconfig) as first:
        await first.until_said("custom resources of cotide.dev are not installed")
        # Another replica, which may install them. Who of the two leads is the lease's to say.
        async with running(server, tmp_path / "installing.log", "--kubeconfig", kubeconfig, "--install-crds") as second:
            both = {first: second, second: first}
            leader = await server.until(
                "one of the two decides", lambda: next((one for one in both if "deciding with" in one.text()), None)
            )
            standby = both[leader]
            await standby.until_said("standing by")
            await standby.until_ready()  # a standby that has listed everything is ready
            assert "deciding with" not in standby.text()
            assert await leader.end(signal.SIGTERM) == 0
            await standby.until_said("deciding with policy")
            assert await standby.end(signal.SIGTERM) == 0
    for one in (first, second):
        text = one.text()
        assert last_line(text).endswith("stopped")
        assert text.count("are not installed") <= 1
        assert " ERROR " not in text
