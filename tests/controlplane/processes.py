"""Programs that end with the test that started them, by their ids, however that test ends.

Called by `control_plane` and by tests that start an operator. A guard, a process of its own, is told each id; when our
end of its pipe closes, for whatever reason (SIGKILL included), it kills what is still on its list.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

GUARD: Final = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
alive = set()
for line in sys.stdin:
    (alive.add if line[0] == "+" else alive.discard)(int(line[1:]))
for number in alive:
    try:
        os.kill(number, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""
END_SECONDS: Final = 30.0
"""Chosen: how long a killed process may take to be gone."""


class Process:
    """One program that was started, with its log."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path, pen: Pen) -> None:
        self._popen, self.log, self._pen = popen, log, pen

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._popen.poll()

    def text(self) -> str:
        """Return what it wrote."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL, seconds: float = END_SECONDS) -> int:
        """Signal it, wait, and return its exit code; what does not go is killed."""
        if self._popen.poll() is None:
            self._popen.send_signal(number)
        try:
            code = self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            code = self._popen.wait(END_SECONDS)
        self._pen.forget(self)
        return code


class Pen:
    """Starts programs and, as a context manager, ends them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Process] = []
        self._guard: subprocess.Popen[str] | None = None
        self._count = 0

    def __enter__(self) -> Pen:
        # In a session of its own: a signal to our whole group must not end the guard along with us.
        self._guard = subprocess.Popen(
            [sys.executable, "-c", GUARD], stdin=subprocess.PIPE, text=True, start_new_session=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._running.copy()):
            process.end()
        assert self._guard is not None
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(END_SECONDS)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Process:
        """Start a program; what it writes goes into a log of its own."""
        self._count += 1
        log = self._folder / f"{self._count:02}-{name}.log"
        with log.open("wb") as sink:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # a Ctrl-C is for us: we end it
            )
        process = Process(popen, log, self)
        self._note(f"+{popen.pid}")
        self._running.append(process)
        return process

    def forget(self, process: Process) -> None:
        if process in self._running:
            self._running.remove(process)
            self._note(f"-{process.pid}")

    def _note(self, line: str) -> None:
        assert self._guard is not None
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{line}\n")
        self._guard.stdin.flush()
