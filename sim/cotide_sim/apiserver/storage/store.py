"""The storage of objects: encoded bytes with a slim index, one growing version, and a bounded log of changes.

Called by the verbs (`put`, `remove`), by lists and by watches. Position in the flow: a verb decodes, decides and passes
the new object to the store. The store assigns its resourceVersion, encodes it once, and notifies the listeners (watch
fan-out, persistence, reactions). Invariants: resourceVersion grows by one with every change. An `Entry` is immutable,
so that lists, logs and watchers share it without copying. The cost of a write does not depend on the number of objects.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from cotide_sim.apiserver.registry.resources import Json, Resource
from cotide_sim.apiserver.storage import deep_json

LOG_EVENTS: Final = 20_000
"""Changes kept per resource for watches that resume. Chosen: five minutes (etcd's usual span) at 66 writes/s."""
LOG_BYTES: Final = 24 * 1024 * 1024
"""Bytes kept alive by one resource's log alone. Chosen, so that a busy server stays small."""

_NO_LABELS: Final[dict[str, str]] = {}


class Entry:
    """One version of one object: the data for selectors, indexes and collectors, and its JSON."""

    __slots__ = ("fields", "labels", "name", "namespace", "owners", "raw", "uid", "version")

    def __init__(
        self,
        namespace: str,
        name: str,
        uid: str,
        version: int,
        labels: dict[str, str],
        fields: tuple[str, ...],
        owners: tuple[str, ...],
        raw: bytes,
    ) -> None:
        self.namespace, self.name, self.uid, self.version = namespace, name, uid, version
        self.labels, self.fields, self.owners, self.raw = labels, fields, owners, raw

    def decode(self) -> Json:
        """Return a fresh copy of the object."""
        value: Json = deep_json.loads(self.raw)
        return value


class Change:
    """One step of one object: from nothing, to nothing, or from one entry to the next."""

    __slots__ = ("_lines", "new", "old", "version")

    def __init__(self, version: int, old: Entry | None, new: Entry | None) -> None:
        self.version, self.old, self.new = version, old, new
        self._lines: dict[str, bytes] | None = None

    def line(self, kind: str) -> bytes:
        """Return the watch event as a JSON line; encoded once for all watchers that see it as this kind."""
        if self._lines is None:
            self._lines = {}
        line = self._lines.get(kind)
        if line is None:
            self._lines[kind] = line = b'{"type":"%b","object":%b}\n' % (kind.encode(), self.shown(kind))
        return line

    def shown(self, kind: str) -> bytes:
        """Return the object in an event of this kind: a deleted one is its last state at this version."""
        if kind != "DELETED":
            assert self.new is not None  # noqa: S101 - only a deletion has no new state
            return self.new.raw
        assert self.old is not None  # noqa: S101 - what is deleted has existed
        return at_version(self.old, self.version)

    def forget_lines(self) -> None:
        """Drop the encoded events when all watchers had them; the log keeps entries only."""
        self._lines = None


def at_version(entry: Entry, version: int) -> bytes:
    """Return an entry's JSON with another resourceVersion.

    The first occurrence is the object's own: `encode` writes metadata before any field that could hold a second one,
    and resourceVersion before annotations; inside a string the quotes would be escaped.
    """
    return entry.raw.replace(b'"resourceVersion":"%d"' % entry.version, b'"resourceVersion":"%d"' % version, 1)


def encode(obj: Json) -> bytes:
    """Encode an object with apiVersion, kind and metadata in front (see `at_version`)."""
    ordered = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": obj["metadata"]}
    ordered.update(obj)
    return deep_json.dumps(ordered)


def _at(obj: Json, path: tuple[str, ...]) -> str:
    value: Any = obj
    for step in path:
        if not isinstance(value, dict):
            return ""
        value = value.get(step)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


class Collection:
    """All objects of one resource, with the log of their changes."""

    def __init__(self, resource: Resource, floor: int) -> None:
        self.resource = resource
        self.spaces: dict[str, dict[str, Entry]] = {}
        self.log: deque[Change] = deque()
        self.floor = floor
        """The oldest version at which a watch can resume."""
        self.count = 0
        self._log_bytes = 0
        names = list(resource.selectable)
        self._node_field = names.index("spec.nodeName") if "spec.nodeName" in names else None
        self._by_node: dict[str, dict[tuple[str, str], Entry]] = {}

    def get(self, namespace: str, name: str) -> Entry | None:
        """Return one object, or None."""
        return self.spaces.get(namespace, {}).get(name)

    def entries(self, namespace: str | None = None, *, node: str | None = None) -> list[Entry]:
        """Return the objects of a namespace (or of all, or of one node) in the order of a list: by key."""
        if node is not None and self._node_field is not None:
            found: Iterable[Entry] = self._by_node.get(node, {}).values()
            if namespace is not None:
                found = [entry for entry in found if entry.namespace == namespace]
            return sorted(found, key=lambda entry: (entry.namespace, entry.name))
        if namespace is not None:
            space = self.spaces.get(namespace, {})
            return [space[name] for name in sorted(space)]
        return [space[name] for key in sorted(self.spaces) for space in (self.spaces[key],) for name in sorted(space)]

    def since(self, version: int) -> Iterator[Change]:
        """Return the logged changes after a version, oldest first."""
        newest: list[Change] = []
        for change in reversed(self.log):
            if change.version <= version:
                break
            newest.append(change)
        return reversed(newest)

    def as_of(self, version: int) -> list[Entry]:
        """Return the objects at a version, not before the `floor`, in the order of a list."""
        found = {(entry.namespace, entry.name): entry for entry in self.entries()}
        for change in reversed(self.log):
            if change.version <= version:
                break
            if change.old is not None:
                found[change.old.namespace, change.old.name] = change.old
            elif change.new is not None:
                del found[change.new.namespace, change.new.name]
        return [found[key] for key in sorted(found)]

    def record(self, change: Change) -> None:
        """Update the indexes and the log by one change."""
        old, new = change.old, change.new
        if old is not None:
            self._take_out(old)
        if new is not None:
            self._put_in(new)
        self.log.append(change)
        self._log_bytes += len(old.raw) if old is not None else 0
        while len(self.log) > LOG_EVENTS or self._log_bytes > LOG_BYTES:
            gone = self.log.popleft()
            self.floor = gone.version
            self._log_bytes -= len(gone.old.raw) if gone.old is not None else 0

    def _put_in(self, entry: Entry) -> None:
        space = self.spaces.get(entry.namespace)
        if space is None:
            space = self.spaces[entry.namespace] = {}
        space[entry.name] = entry
        self.count += 1
        if self._node_field is not None and (node := entry.fields[self._node_field]):
            self._by_node.setdefault(node, {})[entry.namespace, entry.name] = entry

    def _take_out(self, entry: Entry) -> None:
        space = self.spaces[entry.namespace]
        del space[entry.name]
        self.count -= 1
        if not space:
            del self.spaces[entry.namespace]
        if self._node_field is not None and (node := entry.fields[self._node_field]):
            on_node = self._by_node[node]
            del on_node[entry.namespace, entry.name]
            if not on_node:
                del self._by_node[node]


Listener = Callable[[Collection, Change], None]


class Store:
    """Every collection, the one version counter, and the index of owners."""

    def __init__(self, version: int = 1) -> None:
        self.version = version
        self._floors: dict[str, int] = {}
        self._first = version
        self.collections: dict[str, Collection] = {}
        self.listeners: list[Listener] = []
        self.by_uid: dict[str, tuple[Collection, str, str]] = {}
        self.dependents: dict[str, set[str]] = {}
        """uid of an owner to the uids of its dependents."""

    def collection(self, resource: Resource) -> Collection:
        """Return the collection of a resource, made on first use."""
        found = self.collections.get(resource.key)
        if found is None:
            floor = self._floors.get(resource.key, self._first)
            found = self.collections[resource.key] = Collection(resource, floor)
        return found

    def discard(self, collection: Collection) -> None:
        """Forget a kind's objects and log, because it is no longer served; its past cannot be watched any more."""
        for entry in collection.entries():
            self.remove(collection, entry)
        self._floors[collection.resource.key] = self.version
        self.collections.pop(collection.resource.key, None)

    def entry_of(self, uid: str) -> tuple[Collection, Entry] | None:
        """Return the object that has a uid, or None."""
        location = self.by_uid.get(uid)
        if location is None:
            return None
        collection, namespace, name = location
        entry = collection.get(namespace, name)
        return None if entry is None else (collection, entry)

    def put(self, collection: Collection, obj: Json, old: Entry | None) -> Entry:
        """Store an object (its metadata complete except for resourceVersion) and notify the listeners."""
        self.version += 1
        # First in metadata, so that `at_version` finds it before any user's text.
        obj["metadata"] = {"resourceVersion": "", **obj["metadata"]}
        obj["metadata"]["resourceVersion"] = str(self.version)
        entry = self.index(collection, obj, encode(obj), self.version)
        self._record(collection, Change(self.version, old, entry))
        return entry

    def index(self, collection: Collection, obj: Json, raw: bytes, version: int) -> Entry:
        """Make the entry of an object; also used when objects are read back from a file."""
        metadata = obj["metadata"]
        labels: dict[str, str] = metadata.get("labels") or _NO_LABELS
        return Entry(
            sys.intern(metadata.get("namespace", "")),
            metadata["name"],
            metadata["uid"],
            version,
            {sys.intern(key): sys.intern(value) for key, value in labels.items()} if labels else _NO_LABELS,
            tuple([sys.intern(_at(obj, path)) for path in collection.resource.selectable.values()]),
            tuple([owner["uid"] for owner in metadata.get("ownerReferences") or ()]),
            raw,
        )

    def reindex(self, collection: Collection, resource: Resource) -> None:
        """Take in a kind's new description; its objects are indexed again where the selectable fields changed."""
        changed = collection.resource.selectable != resource.selectable
        collection.resource = resource
        if changed:
            for space in collection.spaces.values():
                for name, entry in space.items():
                    space[name] = self.index(collection, entry.decode(), entry.raw, entry.version)
            collection.log.clear()
            collection.floor = self.version

    def remove(self, collection: Collection, entry: Entry) -> int:
        """Forget an object, notify the listeners, and return the version of the deletion."""
        self.version += 1
        self._record(collection, Change(self.version, entry, None))
        return self.version

    def restore(self, collection: Collection, entry: Entry) -> None:
        """Take in an object read from a file, without a change."""
        collection.record(Change(entry.version, None, entry))
        collection.log.clear()
        self._link(collection, None, entry)

    def _record(self, collection: Collection, change: Change) -> None:
        collection.record(change)
        self._link(collection, change.old, change.new)
        for listener in self.listeners:
            listener(collection, change)

    def _link(self, collection: Collection, old: Entry | None, new: Entry | None) -> None:
        if new is None and old is not None:
            self.by_uid.pop(old.uid, None)
        elif new is not None and old is None:
            self.by_uid[new.uid] = (collection, new.namespace, new.name)
        before, after = (old.owners if old else ()), (new.owners if new else ())
        if before == after:
            return
        for owner in before:
            named = self.dependents.get(owner)
            if named is not None and old is not None:
                named.discard(old.uid)
                if not named:
                    del self.dependents[owner]
        if new is not None:
            for owner in after:
                self.dependents.setdefault(owner, set()).add(new.uid)
