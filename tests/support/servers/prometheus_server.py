"""A real Prometheus of a test's own, for tests of what the operator reads from one.

Needs the ``prometheus`` binary (Debian's package of that name). The server listens on a loopback port of the system's
choosing, keeps its data in the test's directory and is ended by the test.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from repository import ROOT

PROMETHEUS = shutil.which("prometheus")
DEADLINE_SECONDS = 60.0
"""Chosen: generous, for machines that do other things as well."""

needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None, reason="needs the prometheus binary (Debian's package prometheus)"
)


async def until(what: str, check: Callable[[], Any]) -> None:
    """Wait on a condition with a deadline."""
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                found = check()
                if asyncio.iscoroutine(found):
                    found = await found
                if found:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"never came true: {what}")


class Prometheus:
    """A Prometheus server of our own; its targets are whatever ``targets`` was last given."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        rules = yaml.safe_load((ROOT / "deploy" / "monitoring" / "rules.yaml").read_text(encoding="utf-8"))["spec"]
        (directory / "rules.yaml").write_text(yaml.safe_dump(rules))
        self.targets()
        jobs = [
            {
                "job_name": "cotide",
                "honor_timestamps": True,
                "file_sd_configs": [{"files": [str(directory / "targets.json")]}],
            }
        ]
        pace = {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"}
        config = {"global": pace, "rule_files": [str(directory / "rules.yaml")], "scrape_configs": jobs}
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def targets(self, *ports: int) -> None:
        """Scrape these loopback ports from now on."""
        written = self.directory / "targets.new"
        written.write_text(json.dumps([{"targets": [f"127.0.0.1:{port}" for port in ports]}]))
        written.rename(self.directory / "targets.json")

    async def start(self) -> None:
        """Start at the port of the last time, at first at any."""
        assert PROMETHEUS is not None
        self._process = await asyncio.create_subprocess_exec(
            PROMETHEUS,
            f"--config.file={self.directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            stderr=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._follow(self._process))
        await until("Prometheus listens", lambda: self.port)
        await until("Prometheus is ready", self._ready)

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            found = re.search(rb'msg="Listening on" address=127\.0\.0\.1:(\d+)', line)
            if found:
                self.port = int(found[1])

    async def _ready(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/-/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def stop(self) -> None:
        """End it and wait for its end."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def get(self, path: str, **params: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}{path}", params=params) as answer:
            body = await answer.json()
            assert body["status"] == "success", body
            return body["data"]

    async def values(self, query: str) -> list[float]:
        return [float(one["value"][1]) for one in (await self.get("/api/v1/query", query=query))["result"]]


@asynccontextmanager
async def running_prometheus(directory: Path) -> AsyncIterator[Prometheus]:
    """Run one."""
    server = Prometheus(directory)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
