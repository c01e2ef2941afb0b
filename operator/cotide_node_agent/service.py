"""Runs the agent of one node until it is stopped: clock, API server, metrics, and the state after a failure.

::

    start: undo what a former agent left -> follow the API server -> ticks
    a tick fails:  undo everything (the kernel's defaults hold), log it once, try again with the next tick
    end, by SIGTERM or by an error: undo everything

Called by ``cotide node-agent``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import web

from cotide_core.errors import CotideError, InputError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials
from cotide_node_agent.agent import NodeAgent
from cotide_node_agent.control_law import LawSettings
from cotide_node_agent.group_files import open_group_files
from cotide_node_agent.metrics import AgentMetrics
from cotide_node_agent.pod_feed import PodFeed
from cotide_node_agent.undo_journal import UndoJournal

_LOG = logging.getLogger(__name__)

ALIVE_SECONDS: Final = 10.0
"""Without a tick for so long the agent is restarted; chosen: forty ticks."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The options of ``cotide node-agent``."""

    node: str
    kubeconfig: str | None = None
    mount: Path = Path("/sys/fs/cgroup")
    root: str = ""
    """The kubelet's ``cgroupRoot``."""
    processes: Path = Path("/proc")
    journal: Path = Path("/run/cotide/node-agent.json")
    interval_seconds: float = 0.25
    """Chosen: four ticks before a second is over."""
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 8081
    law: LawSettings = field(default_factory=LawSettings)


def undo_what_was_left(journal_file: Path) -> UndoJournal:
    """Restore what a former agent left changed and return an empty journal."""
    journal = UndoJournal(journal_file)
    left = journal.load()
    if left:
        back = journal.undo()
        _LOG.warning("restored %d files of a former agent that did not stop cleanly; %d were gone", back, left - back)
    else:
        _LOG.info("%s: no former agent left files to restore", journal_file)
    return journal


async def run(options: AgentOptions, stop: asyncio.Event) -> None:
    """Hold batch back on this node until stopped.

    Raises
    ------
    InputError
        When the metrics' port is taken, or the journal is invalid.
    ClusterError
        When the API server refuses what the agent must read.
    """
    journal = undo_what_was_left(options.journal)
    agent = NodeAgent(open_group_files(options.mount, options.root), journal, options.processes, options.law)
    metrics, ticked = AgentMetrics(options.node), [time.monotonic()]
    async with KubeClient(load_credentials(options.kubeconfig), read_only=True) as client:
        feed = PodFeed(client, options.node)
        server = await _serve(options, metrics, lambda: time.monotonic() - ticked[0] < ALIVE_SECONDS)
        tasks = [
            asyncio.create_task(feed.follow_pods()),
            asyncio.create_task(feed.follow_node()),
            asyncio.create_task(_tick_on(agent, feed, metrics, options.interval_seconds, ticked)),
        ]
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait({*tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                task.result()
        finally:
            for task in [*tasks, stopping]:
                task.cancel()
            await asyncio.gather(*tasks, stopping, return_exceptions=True)
            _LOG.info("the kernel's defaults hold again: %d files restored", agent.undo())
            await server.cleanup()


async def _tick_on(
    agent: NodeAgent, feed: PodFeed, metrics: AgentMetrics, interval: float, ticked: list[float]
) -> None:
    trouble = ""
    while True:
        started = time.monotonic()
        capacity = feed.capacity_cpus or float(os.cpu_count() or 1)
        try:
            reading = agent.tick(feed.batch, capacity, feed.published_cpus, started)
        except (CotideError, OSError, ValueError) as error:
            metrics.failures.inc()
            back = agent.undo()
            metrics.show_nothing(agent.changed_files)
            if str(error) != trouble:
                trouble = str(error)
                _LOG.warning("%s; the kernel's defaults hold, %d files restored", error, back)
        else:
            trouble = ""
            if reading is not None:
                metrics.show(reading)
        ticked[0] = time.monotonic()
        metrics.ticks.observe(ticked[0] - started)
        await asyncio.sleep(max(0.0, started + interval - ticked[0]))


async def _serve(options: AgentOptions, metrics: AgentMetrics, alive: Callable[[], bool]) -> web.AppRunner:
    async def show(_: web.Request) -> web.Response:
        kind = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=metrics.text(), headers=kind)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if alive() else web.Response(status=503, text="no tick\n")

    app = web.Application()
    app.router.add_get("/metrics", show)
    app.router.add_get("/healthz", healthz)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, options.metrics_host, options.metrics_port).start()
    except OSError as error:
        await runner.cleanup()
        where = f"port {options.metrics_port} on {options.metrics_host}"
        raise InputError(f"{where} can't be opened ({error.strerror})", field="--metrics-port") from error
    _LOG.info("metrics at http://%s:%d/metrics", options.metrics_host, runner.addresses[0][1])
    return runner
