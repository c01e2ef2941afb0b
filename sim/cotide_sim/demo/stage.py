"""Sets the demo's stage: models, API server and fake nodes, each as a user would start it by hand.

Called by `demo_command`. Shared parts are made once (models, interference, server, nodes); `act` makes the parts of one
policy (its operator, its ledger). Invariant: when the block is left, every process it started has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotide_core.errors import ClusterError
from cotide_core.units import counted
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials
from cotide_operator.clock import ScaledClock
from cotide_sim.demo.options import DemoOptions
from cotide_sim.demo.preparation import Prepared
from cotide_sim.demo.processes import Child

NODE_CORES: Final = 8
"""Chosen: a common size of a virtual machine; the plans are made for it."""
NODE_MEMORY: Final = "32Gi"
START_SECONDS: Final = 60.0
"""Chosen: wall-clock limit for a server to answer."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that the policies share."""

    options: DemoOptions
    prepared: Prepared
    workspace: Path
    kubeconfig: Path
    client: KubeClient
    clock: ScaledClock
    metrics_url: str
    server: Child
    nodes: Child

    def check(self) -> None:
        """Raise `ClusterError` when a shared process has ended on its own."""
        self.server.check()
        self.nodes.check()


@asynccontextmanager
async def raised(options: DemoOptions, prepared: Prepared, workspace: Path, say: Say) -> AsyncIterator[Stage]:
    """Start the API server and the fake nodes, and stop them at the end."""
    kubeconfig = workspace / "kubeconfig"
    clock = ScaledClock(origin_seconds=float(int(time.time())), speed=options.speed)
    metrics_port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        server = Child("apiserver", ["apiserver", "--port", "0", "--kubeconfig-out", str(kubeconfig)], workspace)
        await stack.enter_async_context(server)
        await server.until(kubeconfig.exists, "its kubeconfig was there", START_SECONDS)
        client = await stack.enter_async_context(KubeClient(load_credentials(str(kubeconfig))))
        say(f"API server is up; look around with: kubectl --kubeconfig {kubeconfig} get nodes,pods,cjob,cwl -A")
        nodes = Child(
            "nodes",
            [
                "nodes",
                "--kubeconfig", str(kubeconfig),
                "--count", str(options.nodes),
                "--cpu", str(NODE_CORES),
                "--memory", NODE_MEMORY,
                "--speed", f"{clock.speed:g}",
                "--origin-seconds", f"{clock.origin_seconds:.0f}",
                "--interference", str(prepared.interference_file),
                "--metrics-port", str(metrics_port),
            ],
            workspace,
        )  # fmt: skip
        await stack.enter_async_context(nodes)
        await _until_registered(client, nodes, options.nodes)
        say(f"{counted(options.nodes, 'fake node')} ready, {clock.speed:g} times as fast as the wall clock")
        url = f"http://127.0.0.1:{metrics_port}/metrics"
        yield Stage(options, prepared, workspace, kubeconfig, client, clock, url, server, nodes)


async def _until_registered(client: KubeClient, nodes: Child, count: int) -> None:
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while True:
        nodes.check()
        with contextlib.suppress(ApiError):
            if len(await client.list("/api/v1/nodes")) >= count:
                return
        if asyncio.get_running_loop().time() > deadline:
            raise ClusterError(f"the fake nodes did not register within {START_SECONDS:g} s; log:\n{nodes.tail()}")
        await asyncio.sleep(0.1)


def free_port() -> int:
    """Return a port of loopback that was free a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def say_to_stderr(text: str) -> None:
    """Print progress where it does not mix with data."""
    print(f"demo: {text}", file=sys.stderr, flush=True)
