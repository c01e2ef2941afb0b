"""The operator as a program beside an API server, embedded in this process or real, for benchmarks that run for long.

Used by `capacity_day`, `phased_hour` and `soak`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Protocol

import aiohttp

READY_SECONDS: Final = 180.0
"""Chosen: programs load within seconds on an idle machine, and within a minute where ten others share a core."""


class Reachable(Protocol):
    """An API server, as far as a program needs to know it."""

    def kubeconfig(self) -> str:
        """Return a kubeconfig's text."""


def free_port() -> int:
    """Return a port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def operator(
    folder: Path, server: Reachable, config: str, port: int, *, install_crds: bool = True
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run an operator; what it says is in ``operator.log`` of the folder."""
    kubeconfig, file, log = folder / "kubeconfig", folder / "cotide.yaml", folder / "operator.log"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(server.kubeconfig(), encoding="utf-8")
    file.write_text(config, encoding="utf-8")
    arguments = ["operator", "--kubeconfig", str(kubeconfig), "--config", str(file)]
    arguments += ["--install-crds"] if install_crds else []
    arguments += ["--metrics-port", str(port), "--log-level", "warning"]
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "cotide_cli", *arguments, stderr=sink)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 30)
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def until_ready(session: aiohttp.ClientSession, port: int, program: asyncio.subprocess.Process) -> None:
    """Wait until the operator is ready, or has ended."""
    async with asyncio.timeout(READY_SECONDS):
        while program.returncode is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.2)
