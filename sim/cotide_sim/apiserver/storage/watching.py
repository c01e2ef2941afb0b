"""Watches: which watcher receives which change, as which event, and when a bookmark is due.

Called by dispatch (a new watch) and by the store (each change). A change is encoded once per event kind and shared by
all watchers; a watcher's lines are gathered and written once per turn of the event loop. Invariant: the seen and the
pending events of a watcher are exactly the changes since its start, in order. A watcher that cannot keep up is ended
(the client lists again), never thinned out.

A selector makes its own events: an object that starts to match is ADDED, one that stops is DELETED. A watch from a
future version receives no event before it, as with kube-apiserver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import orjson

from cotide_sim.apiserver.refusals import Refusal
from cotide_sim.apiserver.registry.resources import Json
from cotide_sim.apiserver.storage.selectors import Selection
from cotide_sim.apiserver.storage.store import Change, Collection, Entry, Store

BOOKMARK_SECONDS: Final = 20.0
"""Chosen below 60: kopf gives a silent watch up after 70 s (its `inactivity_timeout`)."""
LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Chosen: a watcher with more unsent bytes is ended, so that a stuck client cannot fill the memory."""

Render = Callable[[bytes], bytes]
"""Turns an object's stored JSON into the form that this watcher requested (another version, a table row)."""


class Sink(Protocol):
    """The connection that a watch is written to."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def close(self) -> None:
        """End the answer."""

    def backlog(self) -> int:
        """Return the number of bytes to send."""


def kind_of(selection: Selection, change: Change) -> str | None:
    """Return the event that a watcher with this selection sees, or None."""
    before, after = selection.matches(change.old), selection.matches(change.new)
    if after:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else None


def error_line(refusal: Refusal) -> bytes:
    """Return the event that ends a watch with a reason."""
    return b'{"type":"ERROR","object":%b}\n' % orjson.dumps(refusal.status())


class Watcher:
    """One open watch."""

    __slots__ = (
        "_after",
        "_allowance",
        "_loop",
        "_pending",
        "_scheduled",
        "bookmarks",
        "kind",
        "namespace",
        "render",
        "selection",
        "sink",
    )

    def __init__(
        self,
        sink: Sink,
        namespace: str | None,
        selection: Selection,
        *,
        kind: tuple[str, str],
        bookmarks: bool,
        render: Render | None,
        after: int = 0,
    ) -> None:
        self.sink, self.namespace, self.selection = sink, namespace, selection
        self.kind, self.bookmarks, self.render = kind, bookmarks, render
        self._pending: list[bytes] = []
        self._after = after
        self._allowance = LIMIT_BYTES
        self._scheduled = False
        self._loop = asyncio.get_running_loop()

    def see(self, change: Change) -> None:
        """Take in a change, if this watch shows it."""
        if change.version <= self._after:
            return
        selection = self.selection
        if selection.everything:
            kind: str | None = "DELETED" if change.new is None else "ADDED" if change.old is None else "MODIFIED"
        else:
            kind = kind_of(selection, change)
        if kind is None:
            return
        if self.render is None:
            self.push(change.line(kind))
        else:
            self.push(b'{"type":"%b","object":%b}\n' % (kind.encode(), self.render(change.shown(kind))))

    def show(self, entry: Entry) -> None:
        """Send an object that existed when the watch began."""
        raw = entry.raw if self.render is None else self.render(entry.raw)
        # The initial objects may be large and are no sign of a stuck client.
        self._allowance += len(raw)
        self.push(b'{"type":"ADDED","object":%b}\n' % raw)

    def bookmark(self, version: int, *, initial: bool = False) -> None:
        """Send the client the version up to which it knows everything."""
        if version <= self._after and not initial:
            return
        metadata: Json = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        api_version, kind = self.kind
        obj = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
        self.push(b'{"type":"BOOKMARK","object":%b}\n' % orjson.dumps(obj))

    def push(self, line: bytes) -> None:
        """Queue a line; all lines of one turn of the loop leave in one write."""
        self._pending.append(line)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write the queued lines."""
        self._scheduled = False
        if not self._pending:
            return
        data = b"".join(self._pending)
        self._pending.clear()
        if self.sink.backlog() > self._allowance:
            self.sink.close()
        else:
            self.sink.write(data)


class Watches:
    """All open watches, by collection and namespace."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, dict[str | None, set[Watcher]]] = {}
        store.listeners.append(self._changed)

    def __len__(self) -> int:
        return sum(len(group) for groups in self._open.values() for group in groups.values())

    def add(self, collection: Collection, watcher: Watcher) -> None:
        """Send changes to a watcher from now on."""
        groups = self._open.setdefault(collection.resource.key, {})
        groups.setdefault(watcher.namespace, set()).add(watcher)

    def drop(self, collection: Collection, watcher: Watcher) -> None:
        """Stop sending changes to a watcher."""
        group = self._open.get(collection.resource.key, {}).get(watcher.namespace)
        if group is not None:
            group.discard(watcher)

    def all(self) -> list[tuple[str, Watcher]]:
        """Return every open watch with the key of its collection."""
        return [(key, watcher) for key, groups in self._open.items() for group in groups.values() for watcher in group]

    def end(self, key: str) -> None:
        """End every watch of a resource that is no longer served."""
        for open_key, watcher in self.all():
            if open_key == key:
                watcher.flush()
                watcher.sink.close()

    def _changed(self, collection: Collection, change: Change) -> None:
        groups = self._open.get(collection.resource.key)
        if not groups:
            return
        entry = change.new or change.old
        assert entry is not None  # noqa: S101 - a change has at least one side
        for namespace in (None, entry.namespace):
            for watcher in groups.get(namespace, ()):
                watcher.see(change)
        change.forget_lines()


def replay(collection: Collection, watcher: Watcher, version: int) -> None:
    """Show a watcher the changes since the version it knows."""
    for change in collection.since(version):
        entry = change.new or change.old
        if entry is not None and watcher.namespace in (None, entry.namespace):
            watcher.see(change)
            change.forget_lines()
