"""Chaos on the emulator: a server of its own for each run, whose store tells the checker every change at once."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from invariant_checker import InvariantChecker

from cotide_kube.credentials import Credentials
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.apiserver.storage.store import Change, Collection

KINDS: Final = {"pods": "pods", "nodes": "nodes", "configmaps": "configmaps", "jobs.cotide.dev": "jobs"}


class EmulatedSite:
    """One emulated cluster, kept in a file, so that it can be restarted."""

    name = "emulated"

    def __init__(self, folder: Path, checker: InvariantChecker) -> None:
        self._file, self._checker = folder / "objects.sqlite", checker
        self._server = ApiServer(data=self._file)
        self._port = 0
        self._backup: tuple[int, list[tuple[str, str, str, int, bytes]]] = (0, [])

    def credentials(self) -> Credentials:
        return Credentials(f"http://127.0.0.1:{self._port}")

    async def start(self) -> None:
        await self._server.start()
        self._port = self._server.port
        self._server.cluster.store.listeners.append(self._changed)

    async def stop(self) -> None:
        await self._server.stop()

    async def restart_api(self, down_seconds: float) -> None:
        """Stop the server, and start another on the same file and port."""
        await self._server.stop()
        await asyncio.sleep(down_seconds)
        await self._begin_again()

    async def _begin_again(self) -> None:
        self._server = ApiServer(data=self._file, port=self._port)
        await self.start()
        pods = self._server.cluster.collection("pods")
        kept = {f"{entry.namespace}/{entry.name}": entry.uid for entry in pods.entries()}
        known = {key: pod.uid for key, pod in self._checker.pods.items()}
        if kept != known:
            self._checker.violations.append(f"the restarted server holds {kept}, its history has {known}")

    async def restart_store(self, down_seconds: float) -> None:
        """The emulator is its own store."""
        await self.restart_api(down_seconds)

    @property
    def saved(self) -> int:
        """The version of the backup."""
        return self._backup[0]

    async def save(self, remember: Callable[[], None]) -> None:
        """Keep every object as it is, and the version."""
        remember()
        store = self._server.cluster.store
        self._backup = (
            store.version,
            [
                (key, entry.namespace, entry.name, entry.version, entry.raw)
                for key, collection in store.collections.items()
                for entry in collection.entries()
            ],
        )

    async def restore(self, rewind: Callable[[], Awaitable[None]]) -> None:
        """Put the backup into the file while the server is away."""
        version, objects = self._backup
        await self._server.stop()
        await rewind()
        with contextlib.closing(sqlite3.connect(self._file)) as file, file:
            file.execute("DELETE FROM objects")
            file.executemany("INSERT INTO objects VALUES (?, ?, ?, ?, ?)", objects)
            file.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version,))
        await self._begin_again()

    async def compact(self) -> None:
        """Forget all history: who watches from before must list again."""
        store = self._server.cluster.store
        for collection in store.collections.values():
            collection.log.clear()
            collection.floor = store.version

    def _changed(self, collection: Collection, change: Change) -> None:
        plural = KINDS.get(collection.resource.key)
        if plural is None:
            return
        old = change.old.decode() if change.old is not None else None
        new = change.new.decode() if change.new is not None else None
        self._checker.see(plural, change.version, old, new)


@asynccontextmanager
async def emulated_site(folder: Path, checker: InvariantChecker) -> AsyncIterator[EmulatedSite]:
    site = EmulatedSite(folder, checker)
    await site.start()
    try:
        yield site
    finally:
        await site.stop()
