"""One SQLite file that outlives the server: each object's latest JSON, and the version counter.

Called by the store (a listener notes each change), by `dispatch` and `reactions` (commit before an answer leaves), and
by the server at start. Invariants: an answered write survives the end of the process. The counter never goes back, and
a restart moves it on, so that watches from before must list again.

A write-ahead log with `synchronous=NORMAL`: the death of the process loses nothing, the death of the machine may lose
the last moments but never tears the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cotide_core.errors import InputError
from cotide_sim.apiserver.cluster import Cluster
from cotide_sim.apiserver.registry.resources import Json
from cotide_sim.apiserver.storage import deep_json
from cotide_sim.apiserver.storage.store import Change, Collection, Store

SCHEMA: Final = 1
_DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, json BLOB NOT NULL,
    PRIMARY KEY (resource, namespace, name)
) WITHOUT ROWID;
"""


class ObjectFile:
    """The file behind a server.

    Raises
    ------
    InputError
        When the path is not such a file, or another server has it open.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._dirty = False
        self._store: Store | None = None
        try:
            # Another thread works on deep documents while this one waits (`deep_json.on_a_large_stack`).
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=1.0, check_same_thread=False)
            self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.executescript(_TABLES)
            schema = self._number("schema", SCHEMA)
            if schema != SCHEMA:
                raise InputError(f"was written with schema {schema}, and this server reads {SCHEMA}", file=str(path))
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?)", (SCHEMA,))
        except sqlite3.Error as error:
            raise InputError(f"can't be used to keep objects: {error}", file=str(path), field="--data") from None

    def _number(self, key: str, default: int) -> int:
        row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return default if row is None else int(row[0])

    def next_version(self) -> int:
        """Return the first version of a restarted server: above all earlier ones."""
        newest = self._connection.execute("SELECT COALESCE(MAX(version), 0) FROM objects").fetchone()[0]
        return max(self._number("version", 0), int(newest)) + 1

    def restore(self, cluster: Cluster, serve: Callable[[Json], None]) -> None:
        """Fill the store; definitions come first, since they define the kinds."""
        store = cluster.store
        rows = "SELECT resource, version, json FROM objects WHERE resource {} ? ORDER BY resource, namespace, name"
        for comparison in ("=", "!="):
            for key, version, raw in self._connection.execute(rows.format(comparison), (_DEFINITIONS,)):
                resource = cluster.registry.get(key)
                if resource is None:
                    continue
                collection = store.collection(resource)
                entry = store.index(collection, _decoded(raw), raw, version)
                store.restore(collection, entry)
                if comparison == "=":
                    serve(entry.decode())

    def follow(self, store: Store) -> None:
        """Keep every change from now on."""
        self._store = store
        self._connection.execute("BEGIN")
        self._dirty = True
        store.listeners.append(self._changed)
        self.commit()

    def _changed(self, collection: Collection, change: Change) -> None:
        if not self._dirty:
            self._connection.execute("BEGIN")
            self._dirty = True
        new, old = change.new, change.old
        key = collection.resource.key
        if new is not None:
            self._connection.execute(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)",
                (key, new.namespace, new.name, new.version, new.raw),
            )
        elif old is not None:
            self._connection.execute(
                "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", (key, old.namespace, old.name)
            )

    def commit(self) -> None:
        """Make the last writes durable."""
        if self._dirty and self._store is not None:
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('version', ?)", (self._store.version,))
            self._connection.execute("COMMIT")
            self._dirty = False

    def close(self) -> None:
        """Close the file."""
        self.commit()
        self._connection.close()


def _decoded(raw: bytes) -> Json:
    value: Json = deep_json.loads(raw)
    return value
