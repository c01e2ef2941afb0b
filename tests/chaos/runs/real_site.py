"""Chaos on a real control plane: kube-apiserver and etcd are killed and started again, history is compacted.

One control plane serves a whole test session, one run after the other. The checker does not ask the API server, which
forgets what it showed when it dies: it watches etcd itself, every key from the run's first revision on (the server
writes JSON there, see `ReadablePlane`). Invariant: nothing of a run but its empty namespace is left to the next.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
from binaries import Binaries
from control_plane import ControlPlane
from invariant_checker import InvariantChecker
from processes import Pen

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials

PREFIXES: Final = {
    "/registry/pods/": "pods",
    "/registry/minions/": "nodes",
    "/registry/configmaps/": "configmaps",
    "/registry/cotide.dev/jobs/": "jobs",
}
_EVERYTHING: Final = base64.b64encode(b"\0").decode()
CAUGHT_UP_SECONDS: Final = 30.0


@contextmanager
def readable_plane(binaries: Binaries, folder: Path) -> Iterator[ControlPlane]:
    """Run etcd and kube-apiserver, which keeps its objects as JSON; without controllers: the environment stands for
    them."""
    with Pen(folder) as pen:
        plane = ControlPlane(binaries, folder, pen, storage_media="application/json")
        plane.start()
        yield plane


class RealSite:
    """One run's view of the control plane."""

    name = "real"

    def __init__(self, plane: ControlPlane, checker: InvariantChecker) -> None:
        self._plane, self._checker = plane, checker
        self._admin = plane.admin
        self._session: aiohttp.ClientSession
        self._watching: asyncio.Task[None] | None = None
        self._next = self.saved = 0
        self._data = plane.folder / "etcd"
        self._seen = asyncio.Condition()

    def credentials(self) -> Credentials:
        return self._admin

    async def start(self) -> None:
        self._session = aiohttp.ClientSession()
        self._next = await self._head() + 1
        self._watching = asyncio.ensure_future(self._watch())

    async def stop(self) -> None:
        """Stop watching; a watch that failed is an error of the run."""
        await self._unwatch()
        await self._session.close()

    async def _unwatch(self) -> None:
        assert self._watching is not None
        if self._watching.done():
            self._watching.result()
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    async def restart_api(self, down_seconds: float) -> None:
        """Kill kube-apiserver and start it again."""
        await asyncio.to_thread(self._plane.api_server.end)
        await asyncio.sleep(down_seconds)
        self._plane.start_api_server()
        await asyncio.to_thread(self._plane.wait_until_ready)

    async def restart_store(self, down_seconds: float) -> None:
        """Kill etcd and start it again on the same data."""
        await asyncio.to_thread(self._plane.etcd.end)
        await asyncio.sleep(down_seconds)
        self._plane.start_etcd()
        await asyncio.to_thread(self._plane.wait_until_ready)

    async def save(self, remember: Callable[[], None]) -> None:
        """Copy etcd's data while it is stopped and the API server stands still."""
        server = self._plane.api_server.pid
        os.kill(server, signal.SIGSTOP)
        try:
            self.saved = await self._head()
            async with asyncio.timeout(CAUGHT_UP_SECONDS), self._seen:
                await self._seen.wait_for(lambda: self._next > self.saved)
            remember()
            await asyncio.to_thread(self._plane.etcd.end)
            copy = self._plane.folder / "etcd-backup"
            await asyncio.to_thread(shutil.rmtree, copy, ignore_errors=True)
            await asyncio.to_thread(shutil.copytree, self._data, copy)
            self._plane.start_etcd()
        finally:
            os.kill(server, signal.SIGCONT)
        await asyncio.to_thread(self._plane.wait_until_ready)

    async def restore(self, rewind: Callable[[], Awaitable[None]]) -> None:
        """Put the copy back while both are away."""
        await asyncio.to_thread(self._plane.api_server.end)
        await asyncio.to_thread(self._plane.etcd.end)
        await self._unwatch()
        await rewind()
        self._next = self.saved + 1
        await asyncio.to_thread(shutil.rmtree, self._data)
        await asyncio.to_thread(shutil.copytree, self._plane.folder / "etcd-backup", self._data)
        self._plane.start_etcd()
        self._plane.start_api_server()
        self._watching = asyncio.ensure_future(self._watch())
        await asyncio.to_thread(self._plane.wait_until_ready)

    async def compact(self) -> None:
        """Throw away all history that the checker has seen."""
        head = await self._head()
        async with asyncio.timeout(CAUGHT_UP_SECONDS), self._seen:
            await self._seen.wait_for(lambda: self._next > head)
        try:
            await self._ask("kv/compaction", {"revision": str(head), "physical": True})
        except ClusterError as error:
            if "has been compacted" not in str(error):  # nothing was written since the last time
                raise

    async def _head(self) -> int:
        answer = await self._ask("kv/range", {"key": _EVERYTHING, "range_end": _EVERYTHING, "count_only": True})
        return int(answer["header"]["revision"])

    async def _ask(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._session.post(f"{self._plane.etcd_url}/v3/{what}", json=body) as response:
            found: dict[str, Any] = await response.json(content_type=None)
            if response.status != 200:
                raise ClusterError(f"etcd: {what}: {found}")
            return found

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError):  # etcd is being restarted
                await self._watch_once()
            await asyncio.sleep(0.05)

    async def _watch_once(self) -> None:
        wanted = {"key": _EVERYTHING, "range_end": _EVERYTHING, "start_revision": str(self._next), "prev_kv": True}
        timeout = aiohttp.ClientTimeout(total=None)
        url = f"{self._plane.etcd_url}/v3/watch"
        async with self._session.post(url, json={"create_request": wanted}, timeout=timeout) as response:
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    await self._take(json.loads(line)["result"])

    async def _take(self, result: dict[str, Any]) -> None:
        if result.get("canceled"):
            raise ClusterError(f"etcd ended the checker's watch: {result}")
        for event in result.get("events", ()):
            revision = int(event["kv"]["mod_revision"])
            if revision >= self._next - 1:
                self._show(event, revision)
            self._next = max(self._next, revision + 1)
        async with self._seen:
            self._seen.notify_all()

    def _show(self, event: dict[str, Any], revision: int) -> None:
        key = base64.b64decode(event["kv"]["key"]).decode()
        plural = next((plural for prefix, plural in PREFIXES.items() if key.startswith(prefix)), None)
        if plural is None:
            return
        gone = event.get("type") == "DELETE"
        old = _value(event.get("prev_kv"))
        self._checker.see(plural, revision, old, None if gone else _value(event["kv"]))


def _value(pair: dict[str, Any] | None) -> dict[str, Any] | None:
    if not pair or "value" not in pair:
        return None
    found: dict[str, Any] = json.loads(base64.b64decode(pair["value"]))
    return found


@asynccontextmanager
async def real_site(plane: ControlPlane, checker: InvariantChecker, namespace: str) -> AsyncIterator[RealSite]:
    """Watch the plane for one run, and take away afterwards what it made."""
    site = RealSite(plane, checker)
    await site.start()
    try:
        yield site
    finally:
        await site.stop()
        async with KubeClient(plane.admin) as client:
            await clean(client, namespace)


async def clean(client: KubeClient, namespace: str) -> None:
    """Delete the Jobs, pods and nodes of a run."""
    at_once = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    for plural in ("jobs", "workloads"):
        await client.request("DELETE", f"/apis/cotide.dev/v1alpha1/namespaces/{namespace}/{plural}", at_once)
    await client.request("DELETE", f"/api/v1/namespaces/{namespace}/pods", at_once)
    for pod in await client.list(f"/api/v1/namespaces/{namespace}/pods"):  # of a run that was not clean
        with contextlib.suppress(ApiError):
            path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
            await client.patch(path, {"metadata": {"finalizers": None}})
    for node in await client.list("/api/v1/nodes"):
        if node["metadata"]["name"].startswith(f"{namespace}-"):
            await client.delete(f"/api/v1/nodes/{node['metadata']['name']}")
