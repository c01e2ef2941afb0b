"""``cotide operator`` as a program of its own, for tests whose event loop may serve the API meanwhile.

Called by end-to-end tests. Invariant: what a block started has ended when the block is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
from control_plane import free_port
from servers import Server

HEAD: Final = "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n"
END_SECONDS: Final = 120.0
"""Chosen: how long a program may take to end by itself on a machine that does other things as well."""


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cotide_cli", "operator", *arguments]


async def ended(*arguments: str) -> tuple[int, str]:
    """Run an operator that should end by itself; return exit code and stderr."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*_command(*arguments), stdout=pipe, stderr=pipe, env=environment)
    try:
        out, said = await asyncio.wait_for(process.communicate(), END_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert out == b""
    assert process.returncode is not None
    return process.returncode, said.decode()


class Running:
    """An operator that runs."""

    def __init__(self, server: Server, process: asyncio.subprocess.Process, log: Path, port: int) -> None:
        self._server, self._process, self.log, self.port = server, process, log, port

    def text(self) -> str:
        """Return what it said."""
        return self.log.read_text()

    async def until_said(self, words: str) -> None:
        await self._server.until(f"{self.log.name} says {words!r}", lambda: words in self.text() or self._gone())
        assert words in self.text()

    async def until_ready(self) -> None:
        async def ready() -> bool:
            self._gone()
            with contextlib.suppress(aiohttp.ClientError):
                async with aiohttp.ClientSession() as session, session.get(f"{self.url}/readyz") as answer:
                    return answer.status == 200
            return False

        await self._server.until(f"{self.log.name} is ready", ready)

    @property
    def url(self) -> str:
        """Where metrics and health are."""
        return f"http://127.0.0.1:{self.port}"

    async def metric(self, line: str) -> float:
        """Return a value of its metrics page; 0 where there is none."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as answer:
            found = [one for one in (await answer.text()).splitlines() if one.startswith(f"{line} ")]
        return float(found[0].rpartition(" ")[2]) if found else 0.0

    async def end(self, number: signal.Signals) -> int:
        """Signal it and return its exit code."""
        self._process.send_signal(number)
        return await asyncio.wait_for(self._process.wait(), END_SECONDS)

    def _gone(self) -> bool:
        assert self._process.returncode is None, self.text()
        return False


@asynccontextmanager
async def running(
    server: Server, log: Path, *arguments: str, through: Sequence[str] = (), **how: Any
) -> AsyncIterator[Running]:
    """Run an operator, with its metrics on a free port; what it says goes to a file.

    ``through`` is a command that starts another, ``how`` what the process is started with.
    """
    port = free_port()
    with log.open("wb") as sink:
        command = [*through, *_command(*arguments, "--metrics-port", str(port))]
        process = await asyncio.create_subprocess_exec(*command, stderr=sink, **how)
    try:
        yield Running(server, process, log, port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
