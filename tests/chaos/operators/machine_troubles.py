"""What goes wrong on the machine of an operator: its disk is full or read-only, names are not found, memory runs out.

Used inside the operator's process (`operator_child`), which is told by a file and a SIGHUP; a process that is started
while something is wrong finds the file. Names are looked up for each request and never kept, so that a second without
them is a long one. Invariant: told of nothing, it changes nothing but that.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
import signal
import socket
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Any, Final

import aiohttp
import aiohttp.connector

HOST: Final = "api.chaos.test"
"""How an operator names the API server where names can fail."""
MODELS: Final = "kept-models"
"""Name of the directory whose disk can fail, as `run_context` calls it."""
DISK: Final = {"full": errno.ENOSPC, "read-only": errno.EROFS}


class MachineTroubles:
    """What is wrong now, as the file says.

    Attributes
    ----------
    disk : "full", "read-only" or empty, of the disk under the ledger.
    models : the same of the one under models and what was learned.
    nameless : whether no name is found.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.disk, self.models, self.nameless = "", "", False
        self.read()

    def read(self) -> None:
        try:
            noted = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        self.disk, self.models, self.nameless = noted["disk"], noted["models"], noted["nameless"]

    def look_up(self) -> None:
        """Raise what a resolver says that reaches no name server."""
        if self.nameless:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    def refuse(self) -> None:
        """Raise what a disk says that takes nothing."""
        _refuse(self.disk)


def _refuse(says: str) -> None:
    if says:
        raise OSError(DISK[says], os.strerror(DISK[says]))


def install(troubles: MachineTroubles) -> None:
    """Let this process meet them."""
    _install_names(troubles)
    _install_disk(troubles)
    _install_models_disk(troubles)


def _install_names(troubles: MachineTroubles) -> None:
    resolve = socket.getaddrinfo

    def found(host: Any, *rest: Any, **more: Any) -> Any:
        if host != HOST:
            return resolve(host, *rest, **more)
        troubles.look_up()
        return resolve("127.0.0.1", *rest, **more)

    class Names(aiohttp.ThreadedResolver):
        async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> Any:
            if host != HOST:
                return await super().resolve(host, port, family)
            troubles.look_up()
            return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": socket.AF_INET, "proto": 0,
                     "flags": socket.AI_NUMERICHOST}]  # fmt: skip

    connector = aiohttp.TCPConnector.__init__

    @functools.wraps(connector)
    def opened(self: Any, **how: Any) -> None:
        connector(self, **{**how, "use_dns_cache": False, "resolver": Names()})

    socket.getaddrinfo = found
    aiohttp.TCPConnector.__init__ = opened  # type: ignore[method-assign]  # for this process


def _install_disk(troubles: MachineTroubles) -> None:
    from cotide_operator.observability import ledger_file

    class Disk(FileIO):
        """A file that is cut in the middle of a line when the disk is full."""

        _last = False

        def __init__(self, *how: Any) -> None:
            troubles.refuse()
            super().__init__(*how)

        def write(self, content: Any) -> int:
            if troubles.disk == "full" and not self._last and len(content) > 1:
                self._last = True
                return super().write(content[: len(content) // 2])
            troubles.refuse()
            self._last = False
            return super().write(content)

    ledger_file.FileIO = Disk  # type: ignore[misc]  # for this process


def _install_models_disk(troubles: MachineTroubles) -> None:
    """A full one takes every other directory, half of a file, and each renaming; a read-only one nothing."""
    made, written, renamed, removed = Path.mkdir, Path.write_bytes, Path.rename, shutil.rmtree
    tries = [0]

    def says(path: Any) -> str:
        return troubles.models if MODELS in Path(path).parts else ""

    def mkdir(self: Path, *how: Any, **more: Any) -> None:
        if says(self):
            tries[0] += 1
            if says(self) == "read-only" or tries[0] % 2:
                _refuse(says(self))
        made(self, *how, **more)

    def write_bytes(self: Path, data: Any) -> int:
        if says(self) == "full":
            written(self, bytes(data)[: len(data) // 2])
        _refuse(says(self))
        return written(self, data)

    def rename(self: Path, target: Any) -> Path:
        if says(self) == "read-only":
            _refuse("read-only")
        return renamed(self, target)

    def rmtree(path: Any, ignore_errors: bool = False, **more: Any) -> None:
        if says(path) == "read-only":
            if not ignore_errors:
                _refuse("read-only")
            return
        removed(path, ignore_errors, **more)

    Path.mkdir, Path.write_bytes, Path.rename = mkdir, write_bytes, rename  # type: ignore[method-assign]  # of this process
    shutil.rmtree = rmtree  # type: ignore[assignment]  # likewise


def run_out_of_memory(cpu_seconds: float) -> None:
    """End this process by SIGKILL once it has worked for so long: where it works most, there it asks for memory most.

    The moment lies between any two steps of the program, and not only where it waits.
    """

    def killed(_number: int, _frame: FrameType | None) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    signal.signal(signal.SIGPROF, killed)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
