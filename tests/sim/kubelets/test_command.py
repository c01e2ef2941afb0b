"""`cotide nodes` as a process of its own, started and ended as a user does it."""

import asyncio
import signal
import sys
from contextlib import asynccontextmanager

import pytest

from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials, StaticToken
from cotide_sim.apiserver.server import ApiServer


@asynccontextmanager
async def nodes(*arguments):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cotide_cli",
        "nodes",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def outcome(*arguments):
    async with nodes(*arguments) as process, asyncio.timeout(30):
        output, errors = await process.communicate()
        return process.returncode, output.decode(), errors.decode()


@asynccontextmanager
async def server_with_kubeconfig(tmp_path):
    async with ApiServer(token="sesame") as server:
        path = tmp_path / "kubeconfig"
        path.write_text(server.kubeconfig())
        yield server, path


async def test_the_command_registers_nodes_says_where_metrics_are_and_ends_on_sigterm(tmp_path):
    async with server_with_kubeconfig(tmp_path) as (server, kubeconfig):
        arguments = ("--kubeconfig", str(kubeconfig), "--count", "2", "--metrics-port", "0", "--cleanup")
        async with nodes(*arguments, "--taint", "a=b:NoSchedule") as process, asyncio.timeout(30):
            line = (await process.stdout.readline()).decode()
            assert line.startswith("http://127.0.0.1:")
            assert line.endswith("/metrics\n")
            token = StaticToken("Bearer sesame")
            async with KubeClient(Credentials(server.url, token=token)) as client:
                found = await client.list("/api/v1/nodes")
                assert [one["metadata"]["name"] for one in found] == ["fake-0", "fake-1"]
                assert found[0]["spec"]["taints"] == [{"key": "a", "value": "b", "effect": "NoSchedule"}]
                process.send_signal(signal.SIGTERM)
                _, errors = await process.communicate()
                assert process.returncode == 0
                assert b"Traceback" not in errors
                assert await client.list("/api/v1/nodes") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cpu", "lots"), "--cpu: 'lots' is not a quantity"),
        (("--memory", "0"), "--memory: 0 must be above 0"),
        (("--speed", "0"), "--speed: 0 is not a speed-up"),
        (("--speed", "inf"), "--speed: inf is not a speed-up"),
        (("--origin-seconds", "nan"), "--origin-seconds: nan is not an epoch second"),
        (("--taint", "a"), "--taint: 'a' is not a taint"),
        (("--label", "a"), "--label: 'a' is not a label"),
        (("--name-prefix", "Node_"), "--name-prefix: 'Node_'"),
        (("--interference", "absent.json"), "absent.json: --interference: can't be read"),
        (("--kubeconfig", "absent"), "absent: the kubeconfig does not exist"),
    ],
)
async def test_bad_input_is_one_line_and_exit_2(arguments, said):
    code, output, errors = await outcome(*arguments)
    assert (code, output) == (2, "")
    assert said in errors
    assert errors.count("\n") == 1


async def test_an_unreachable_server_is_one_line_and_exit_1(tmp_path):
    async with server_with_kubeconfig(tmp_path) as (_, kubeconfig):
        pass
    code, _, errors = await outcome("--kubeconfig", str(kubeconfig), "--log-level", "error")
    assert code == 1
    assert "is unreachable" in errors
    assert errors.count("\n") == 1


async def test_a_refused_token_is_one_line_and_exit_1(tmp_path):
    async with server_with_kubeconfig(tmp_path) as (_, kubeconfig):
        kubeconfig.write_text(kubeconfig.read_text().replace("sesame", "wrong"))
        code, _, errors = await outcome("--kubeconfig", str(kubeconfig), "--log-level", "error")
        assert code == 1
        assert "credentials are not accepted" in errors
        assert errors.count("\n") == 1
