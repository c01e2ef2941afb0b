"""The demo's child processes: each one is a `cotide` command, as a user would start it by hand.

Called by `stage`. A child's log goes to a file of its own; a child that ends unasked is an error that quotes the end of
that log. Invariant: no child outlives the `async with` block that started it, nor this process, whatever ends it (see
`parent_watch`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cotide_cli.parent_watch import PIPE_VARIABLE
from cotide_core.errors import ClusterError

STOP_SECONDS: Final = 8.0
"""Chosen: seconds that a child may take to end after SIGTERM before it is killed."""
POLL_SECONDS: Final = 0.05
"""Chosen: seconds between two checks of a condition on a child."""


class Child:
    """One `cotide` command in a process of its own.

    Parameters
    ----------
    name : str
        Its name in errors, and the log's file name.
    arguments : sequence of str
        The command line after ``cotide``.
    log_directory : Path
        Where ``<name>.log`` is written (appended: a policy's operator follows another's).
    """

    def __init__(self, name: str, arguments: Sequence[str], log_directory: Path) -> None:
        self.name = name
        self.log = log_directory / f"{name}.log"
        self._arguments = tuple(arguments)
        self._process: asyncio.subprocess.Process | None = None
        self._held: int | None = None
        """This process's end of the pipe that the child watches."""

    async def __aenter__(self) -> Self:
        watched, held = os.pipe()
        self._held = held  # not inherited: it closes when this process ends, and with it the children do
        with self.log.open("ab") as log, os.fdopen(watched, "rb") as pipe:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "cotide_cli",
                *self._arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C reaches the demo alone, which then stops its children in order.
                start_new_session=True,
                pass_fds=(pipe.fileno(),),
                env={**os.environ, PIPE_VARIABLE: str(pipe.fileno())},
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        try:
            await self.stop()
        finally:
            if self._held is not None:
                os.close(self._held)
                self._held = None

    async def stop(self) -> None:
        """Send the child SIGTERM, and kill it when it does not end."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def check(self) -> None:
        """Raise `ClusterError` when the child has ended on its own."""
        if self._process is not None and self._process.returncode is not None:
            raise ClusterError(
                f"the demo's {self.name} ended with exit code {self._process.returncode}; its log ends with:\n"
                f"{self.tail()}"
            )

    def tail(self, lines: int = 12) -> str:
        """Return the last lines of the child's log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    async def until(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait until a condition on the child holds.

        Raises
        ------
        ClusterError
            When the child ends first, or the time is over.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not condition():
            self.check()
            if loop.time() > deadline:
                raise ClusterError(f"the demo's {self.name} took over {seconds:g} s until {what}; log:\n{self.tail()}")
            await asyncio.sleep(POLL_SECONDS)
