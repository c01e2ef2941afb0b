"""Meters make load and measure latency: a process that prints one JSON line, Cotide's or the user's own.

Used by `campaign`. A load command has ``{rate}``, ``{seconds}`` and ``{warm_up}`` put in and ends with a line such as
``{"p95_ms": 4.2, "requests_per_second": 999, "requests": 9990}``; all but the first may be missing. Cotide's generators
(`tcp_load`, `http_load`) are such commands, which also print the rest of `open_loop.LoadReport`. Invariant: an answer
without a positive p95 is an error that quotes it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from cotide_core.errors import InputError

GRACE_SECONDS: Final = 60.0
"""Seconds that a load command may take beyond warm-up and window: filling a cache, connecting (chosen)."""
GENERATORS: Final = {
    "memcached": "cotide_lab.profile.tcp_load",
    "tcp": "cotide_lab.profile.tcp_load",
    "http": "cotide_lab.profile.http_load",
    "https": "cotide_lab.profile.http_load",
}
QUOTED: Final = 300
"""Characters of a broken answer that an error quotes (chosen)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Values of a load command for one window; nan and 0 for missing ones."""

    p95_milliseconds: float
    achieved_rate: float
    requests: int
    seconds: float
    cut: bool
    lag_milliseconds: float
    kernel_share: float = math.nan
    reading_lag_milliseconds: float = math.nan


class LoadCommand:
    """Measures by a command.

    Parameters
    ----------
    command : a shell command of the user's, or the address of a target that Cotide's generators support.
    request : of a ``tcp`` target: the text that is sent; its answer is one line.
    cores : cores of the command; empty for all.
    """

    def __init__(self, command: str, *, request: str = r"PING\r\n", cores: Sequence[int] = ()) -> None:
        scheme = command.partition("://")[0]
        self._cores = tuple(cores)
        self._field = "--load-command"
        if "://" in command and "{" not in command and " " not in command:
            self._field = "--target"
            address_of(command)
            sent = ["--request", request] if scheme == "tcp" else []
            ours = [sys.executable, "-m", GENERATORS[scheme], "--target", command, *sent]
            command = f"exec {shlex.join(ours)} --rate {{rate}} --seconds {{seconds}} --warm-up {{warm_up}}"
            command += " --harm-ms {harm_ms} --seed {seed}"
        elif "{rate}" not in command:
            raise InputError(f"{command!r} has no {{rate}}, so that every window would be the same", field=self._field)
        self._command = command

    def measure(self, rate: float, warm_up: float, seconds: float, harm_milliseconds: float, seed: int) -> Reading:
        """Measure one window; blocks.

        Raises
        ------
        InputError
            When the command fails, takes too long, or prints no p95.
        """
        parts = {"rate": f"{rate:g}", "seconds": f"{seconds:g}", "warm_up": f"{warm_up:g}"}
        parts |= {"harm_ms": f"{harm_milliseconds:g}", "seed": str(seed)}
        command = self._command
        for name, value in parts.items():
            command = command.replace(f"{{{name}}}", value)
        started: list[subprocess.Popen[str]] = []
        found: list[subprocess.CompletedProcess[str] | Exception] = []
        patience = warm_up + seconds + GRACE_SECONDS
        thread = threading.Thread(target=self._run, args=(command, patience, started, found), daemon=True)
        thread.start()
        try:
            thread.join()
        except BaseException:  # a signal to end: no caller waits for the window
            for process in started:
                _end(process, signal.SIGTERM)
            raise
        done = found[0]
        if isinstance(done, subprocess.TimeoutExpired):
            raise InputError(f"took over {done.timeout:g} s", field=self._field)
        if isinstance(done, Exception):
            raise done
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()[-QUOTED:]
            raise InputError(f"failed with exit code {done.returncode}: {said}", field=self._field)
        return self._reading(done.stdout, seconds)

    def _run(self, command: str, timeout: float, started: list[Any], found: list[Any]) -> None:
        """Run the command, in a thread that is bound to its cores."""
        if self._cores:
            os.sched_setaffinity(0, self._cores)
        try:
            # The user's own command, as the user typed it.
            with subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                start_new_session=True,
            ) as process:  # fmt: skip
                started.append(process)
                try:
                    stdout, stderr = process.communicate(timeout=timeout)
                except subprocess.TimeoutExpired as error:
                    _end(process, signal.SIGKILL)
                    found.append(error)
                else:
                    found.append(subprocess.CompletedProcess(command, process.returncode, stdout, stderr))
        except OSError as error:
            found.append(error)

    def _reading(self, stdout: str, seconds: float) -> Reading:
        lines = [line for line in stdout.splitlines() if line.strip()] or [""]
        # A container runtime may print that the container is deleted after its end.
        last = next((line for line in reversed(lines) if line.lstrip().startswith("{")), lines[-1])
        try:
            said = json.loads(last)
            p95 = float(said["p95_ms"])
            lag, lasted = float(said.get("lag_ms", math.nan)), float(said.get("seconds", seconds))
            share, reading = _or_nan(said, "kernel_share"), _or_nan(said, "reading_lag_ms")
            rate, requests = float(said.get("requests_per_second", math.nan)), int(said.get("requests", 0))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            message = f'the last line is {last[:QUOTED]!r}, not such as {{"p95_ms": 4.2}}'
            raise InputError(message, field=self._field) from None
        if not (math.isfinite(p95) and p95 > 0 and math.isfinite(lasted) and lasted > 0):
            raise InputError(f"a p95 of {p95:g} ms over {lasted:g} s is not a measurement", field=self._field)
        if math.isinf(rate) or math.isinf(lag):  # neither JSON nor the journal has such a number
            raise InputError(f"{rate:g} requests/s, {lag:g} ms late, is not a measurement", field=self._field)
        return Reading(p95, rate, requests, lasted, said.get("cut") is True, lag, share, reading)


def _or_nan(said: dict[str, Any], key: str) -> float:
    """Return a number that may be missing or null."""
    return math.nan if said.get(key) is None else float(said[key])


def _end(process: subprocess.Popen[str], how: signal.Signals) -> None:
    """End a load command and its child processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, how)


def address_of(target: str) -> tuple[str, int]:
    """Return host and port of a target.

    Raises
    ------
    InputError
        When it is not an address that can be measured.
    """
    try:
        parts = urlsplit(target)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError as error:
        raise InputError(f"{target!r} is not an address: {error}", field="--target") from error
    if parts.scheme not in GENERATORS or not parts.hostname or port is None:
        known = ", ".join(f"{scheme}://HOST:PORT" for scheme in GENERATORS)
        raise InputError(f"{target!r} is none of {known}", field="--target")
    return parts.hostname, port
