"""Operators as processes: started in milliseconds, killed, frozen, asked for their state.

The test's end of `operator_child`; one fork_server serves a whole test session. Invariant: no operator outlives the
fork_server, and the fork_server does not outlive the tests, however they end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

LOAD_SECONDS: Final = 300.0
"""Chosen: importing and compiling takes some seconds on an idle machine."""


@dataclass
class Birth:
    """How an operator is started."""

    server: str
    config: str
    kill_path: str = "bind"
    kill_at: int = 0
    broken: str = ""
    jump_seconds: list[float] = field(default_factory=list)
    """By how much its wall clock jumps at each SIGUSR2."""
    cpu_seconds: float = 0.0
    """After so much work its memory runs out; 0 is never."""
    skew: str = ""
    """Of which version it is; see `skewed`."""


def troubles_of(folder: Path, name: str) -> Path:
    """Return the file that tells the processes of a replica what is wrong with their machine."""
    return folder / f"{name}.troubles"


class Operator:
    """One operator process."""

    def __init__(self, fork_server: ForkServer, pid: int, birth: Birth, log: Path, state: Path) -> None:
        self._fork_server, self.pid, self.birth, self.log, self._state = fork_server, pid, birth, log, state

    @property
    def exit_code(self) -> int | None:
        """None while it lives; minus the signal's number when one ended it."""
        self._fork_server.listen()
        return self._fork_server.ended.get(self.pid)

    def send(self, number: signal.Signals) -> None:
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):  # it ended a moment ago, and nobody has told us yet
                os.kill(self.pid, number)

    def state(self) -> dict[str, Any]:
        """Return what it wrote last; see `operator_child.write_state`. Empty before it did."""
        try:
            found: dict[str, Any] = json.loads(self._state.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""


class ForkServer:
    """Starts operators; made by `open_fork_server`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), True)
        self._rest = b""
        self.ended: dict[int, int] = {}
        self._started: list[int] = []
        self._loaded = False
        self._births = 0

    def wait_until_loaded(self) -> None:
        while not self._loaded:
            self._read()

    def start(self, birth: Birth, folder: Path, name: str) -> Operator:
        """Fork an operator; its log and state go into the folder."""
        self._births += 1
        log, state = (folder / f"{name}-{self._births}.{kind}" for kind in ("log", "state"))
        spec = {**vars(birth), "log": str(log), "state": str(state), "troubles": str(troubles_of(folder, name))}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(spec).encode() + b"\n")
        self._process.stdin.flush()
        while not self._started:
            self._read()
        return Operator(self, self._started.pop(), birth, log, state)

    def listen(self) -> None:
        """Take in what the fork_server has said by now."""
        assert self._process.stdout is not None
        number = self._process.stdout.fileno()
        os.set_blocking(number, False)
        try:
            self._read()
        except BlockingIOError:
            pass
        finally:
            os.set_blocking(number, True)

    def _read(self) -> None:
        assert self._process.stdout is not None
        read = os.read(self._process.stdout.fileno(), 1 << 16)
        if not read:
            raise RuntimeError("the fork_server of the operators has ended")
        *lines, self._rest = (self._rest + read).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "started" in said:
                self._started.append(said["started"])
                self.ended.pop(said["started"], None)
            elif "ended" in said:
                self.ended[said["ended"]] = said["code"]
            else:
                self._loaded = True


@contextmanager
def open_fork_server(folder: Path) -> Iterator[ForkServer]:
    """Run a fork_server for the block."""
    program = Path(__file__).with_name("operator_child.py")
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with (folder / "fork_server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **threads, "KUBECONFIG": ""},
            start_new_session=True,
        )
    try:
        fork_server = ForkServer(process)
        fork_server.wait_until_loaded()
        yield fork_server
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
