"""The server for tests and benchmarks: in the same event loop, in a thread, or in a process of its own.

Called by tests of all packages. Invariant: everything that a block started has ended when the block is left.

::

    async with running_server() as server: ...            # same loop; server.cluster and server.faults at hand
    with server_in_thread() as handle: ...                # handle.url, handle.kubeconfig(), handle.call(...)
    with server_process("--token", "x") as handle: ...    # handle.url, handle.kubeconfig_path
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from cotide_sim.apiserver.server import ApiServer

START_SECONDS: Final = 20.0
"""Chosen: time for a server's answer before a test fails."""

T = TypeVar("T")


@asynccontextmanager
async def running_server(**options: Any) -> AsyncIterator[ApiServer]:
    """Run a server in the caller's event loop; options are those of `ApiServer`."""
    server = ApiServer(**options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@dataclass(frozen=True, slots=True)
class ThreadedServer:
    """A server with its loop in another thread."""

    server: ApiServer
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        """The address for clients."""
        return self.server.url

    def kubeconfig(self) -> str:
        """Return the text of a kubeconfig."""
        return self.server.kubeconfig()

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the kubeconfig to a file and return its path."""
        path.write_text(self.kubeconfig())
        return path

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the server's loop and return its result (faults, counts, dropped watches)."""

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(START_SECONDS)


@contextmanager
def server_in_thread(**options: Any) -> Iterator[ThreadedServer]:
    """Run a server in a thread of its own, for clients that block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="apiserver", daemon=True)
    thread.start()
    try:
        server = ApiServer(**options)
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(START_SECONDS)
        try:
            yield ThreadedServer(server, loop)
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(START_SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(START_SECONDS)
        loop.close()


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server in a process of its own."""

    url: str
    kubeconfig_path: Path
    process: subprocess.Popen[str]


@contextmanager
def server_process(*arguments: str) -> Iterator[ServerProcess]:
    """Run `cotide apiserver` with these arguments; it chooses its port."""
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        command = [sys.executable, "-m", "cotide_cli", "apiserver", "--port", "0", "--kubeconfig-out", str(kubeconfig)]
        with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own command
            try:
                yield ServerProcess(_first_url(process), kubeconfig, process)
            finally:
                process.terminate()
                try:
                    process.wait(START_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()


def _first_url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None  # noqa: S101 - opened as a pipe
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        if not line:
            break
        if line.startswith("http"):
            return line.strip()
    raise RuntimeError(f"the server did not start (exit code {process.poll()})")
