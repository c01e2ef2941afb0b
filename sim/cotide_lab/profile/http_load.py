"""An open-loop load generator for HTTP: one GET for each arrival, whether or not earlier ones were answered.

Run by `meters` as a process of its own (``python -m cotide_lab.profile.http_load``). Prints one JSON line
(`open_loop.LoadReport`), or one sentence on stderr and exit code 1. Invariant: latency counts from when a request was
due, so that waiting for a free connection, or for this process itself, is part of it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Final

import aiohttp
import click
import numpy as np

from cotide_lab.profile.open_loop import LoadReport, arrivals, report

DRAIN_SECONDS: Final = 1.0
"""Seconds to wait for answers after the last request (chosen)."""
LATE_SHARE: Final = 0.05
"""When more than this share is above the harm, the p95 is above the harm."""
FAILED_SHARE: Final = 0.01
"""Above this share of refused or failed requests, a window gives no latency (chosen)."""


class Refused(Exception):
    """The server does not meet the conditions of a measurement; one sentence."""


class _Window:
    """The requests of a window, as they are answered."""

    def __init__(self, warm_up: float, harm: float, expected: int) -> None:
        self.warm_up, self.harm = warm_up, harm
        self.allowed = LATE_SHARE * expected
        self.latency: dict[int, float] = {}
        self.failed, self.late, self.lag, self.sent = 0, 0, 0.0, 0
        self.fault = ""

    def answered(self, number: int, due: float, took: float) -> None:
        self.latency[number] = took
        self.late += due >= self.warm_up and took > self.harm


async def measure(target: str, rate: float, warm_up: float, seconds: float, *, harm: float, seed: int) -> LoadReport:
    """Measure one window."""
    due = arrivals(rate, warm_up + seconds, seed)
    inside = due >= warm_up
    if not inside.any():
        raise Refused(f"no request is due within {seconds:g} s at {rate:g}/s: the window is too short")
    loop, window = asyncio.get_running_loop(), _Window(warm_up, harm, int(inside.sum()))
    tasks: set[asyncio.Task[None]] = set()
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await _get(session, target)  # a wrong address is reported at once, not once for each request
        begin = loop.time()
        for number, moment in enumerate(due.tolist()):
            if (pause := begin + moment - loop.time()) > 0:
                await asyncio.sleep(pause)
            if window.late > window.allowed:
                break
            window.lag += max(0.0, loop.time() - begin - moment)
            window.sent += 1
            task = loop.create_task(_one(session, target, window, number, moment, begin))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        cut = window.late > window.allowed
        if tasks and not cut:
            await asyncio.wait(tasks, timeout=DRAIN_SECONDS)
        end = loop.time() - begin
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if window.failed > FAILED_SHARE * window.sent:
        raise Refused(f"{window.failed} of {window.sent} requests failed: {window.fault}")
    asked = np.flatnonzero(inside[: window.sent])
    missing = [number for number in asked.tolist() if number not in window.latency]
    found = np.array([window.latency.get(number, end - due[number]) for number in asked.tolist()])
    lasted = max(end - warm_up, 1e-3) if cut else seconds
    return report(found, len(missing), lasted, window.lag / max(1, window.sent), cut=cut)


async def _one(
    session: aiohttp.ClientSession, target: str, window: _Window, number: int, due: float, begin: float
) -> None:
    loop = asyncio.get_running_loop()
    try:
        await _get(session, target)
    except (Refused, aiohttp.ClientError, OSError) as error:
        window.failed += 1
        window.fault = str(error) or type(error).__name__
    window.answered(number, due, loop.time() - begin - due)


async def _get(session: aiohttp.ClientSession, target: str) -> None:
    async with session.get(target) as answer:
        await answer.read()
        if answer.status >= 400:
            raise Refused(f"answered {answer.status}")


@click.command()
@click.option("--target", required=True)
@click.option("--rate", type=float, required=True)
@click.option("--seconds", type=float, required=True)
@click.option("--warm-up", type=float, default=0.0)
@click.option("--harm-ms", type=float, default=float("inf"))
@click.option("--seed", type=int, default=0)
def main(target: str, rate: float, seconds: float, warm_up: float, harm_ms: float, seed: int) -> None:
    """Measure the p95 latency of GET TARGET at RATE requests a second."""
    try:
        found = asyncio.run(measure(target, rate, warm_up, seconds, harm=harm_ms / 1000.0, seed=seed))
    except (Refused, aiohttp.ClientError, OSError) as error:
        click.echo(f"{target}: {error}", err=True)
        sys.exit(1)
    click.echo(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
