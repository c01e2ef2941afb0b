"""Garbage collection of objects without an owner.

Called by `reactions` with every change (`note`) and when the loop is free (`collect`).

- background: an owner is gone: dependents with no remaining owner are deleted, others drop the reference;
- foreground: an owner waits (finalizer `foregroundDeletion`) until the dependents that block it are gone;
- orphan: an owner waits (finalizer `orphan`) until its dependents have dropped their reference.

Invariant: an object with one living owner is never deleted; the cost of a change is that of its own dependents.
"""

from __future__ import annotations

from cotide_sim.apiserver.cluster import Cluster
from cotide_sim.apiserver.storage.store import Change, Collection, Entry
from cotide_sim.apiserver.verbs.deleting import FOREGROUND, ORPHAN, DeleteOptions, delete, finish_deletion


class Garbage:
    """Handles owners and dependents."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._gone: set[str] = set()
        """uids of deleted owners."""
        self._waiting: set[str] = set()
        """uids of owners that wait for their dependents."""
        self._doubtful: set[str] = set()
        """uids of objects that were stored with owners which may not exist."""

    def note(self, collection: Collection, change: Change) -> bool:
        """Note the effect of a change on collection; return whether there is anything to do."""
        del collection
        new, old = change.new, change.old
        store = self._cluster.store
        work = False
        if new is None and old is not None:
            if old.uid in store.dependents:
                self._gone.add(old.uid)
                work = True
            if self._waiting.intersection(old.owners):
                work = True
            self._waiting.discard(old.uid)
        elif new is not None:
            if new.owners and (old is None or old.owners != new.owners):
                if not all(owner in store.by_uid for owner in new.owners):
                    self._doubtful.add(new.uid)
                    work = True
                if old is not None and self._waiting.intersection(old.owners):
                    work = True
            if b'"deletionTimestamp"' in new.raw and (b'"foregroundDeletion"' in new.raw or b'"orphan"' in new.raw):
                self._waiting.add(new.uid)
                work = True
        return work

    def collect(self) -> None:
        """Carry out the collection for the noted changes."""
        # Deleting a dependent may cause further work: it is noted in new sets and done in the same call.
        while self._gone or self._doubtful:
            gone, self._gone = self._gone, set()
            doubtful, self._doubtful = self._doubtful, set()
            for uid in gone:
                doubtful |= self._cluster.store.dependents.get(uid, set())
            for uid in doubtful:
                self._judge(uid)
        for uid in list(self._waiting):
            self._release(uid)
        if self._gone or self._doubtful:
            self.collect()

    def _judge(self, uid: str) -> None:
        store = self._cluster.store
        found = store.entry_of(uid)
        if found is None:
            return
        collection, entry = found
        if b'"deletionTimestamp"' in entry.raw:
            return
        dangling = {owner for owner in entry.owners if owner not in store.by_uid}
        if len(dangling) < len(entry.owners):
            if dangling:  # it lives on, without its deleted owners
                self._disown(collection, entry, dangling)
            return
        delete(self._cluster, collection.resource, entry, DeleteOptions())

    def _release(self, uid: str) -> None:
        found = self._cluster.store.entry_of(uid)
        if found is None:
            self._waiting.discard(uid)
            return
        collection, entry = found
        finalizers = entry.decode()["metadata"].get("finalizers") or []
        if "deletionTimestamp" not in entry.decode()["metadata"]:
            self._waiting.discard(uid)
            return
        dependents = [
            pair for pair in map(self._cluster.store.entry_of, self._cluster.store.dependents.get(uid, set())) if pair
        ]
        if ORPHAN in finalizers:
            for of, dependent in dependents:
                self._disown(of, dependent, {uid})
            self._take_off(collection, entry, ORPHAN)
        elif FOREGROUND in finalizers:
            blocking = False
            for of, dependent in dependents:
                obj = dependent.decode()
                blocks = any(
                    owner["uid"] == uid and owner.get("blockOwnerDeletion")
                    for owner in obj["metadata"]["ownerReferences"]
                )
                others = [owner for owner in dependent.owners if owner != uid and owner in self._cluster.store.by_uid]
                if others:
                    self._disown(of, dependent, {uid})
                    continue
                gone = False
                if "deletionTimestamp" not in obj["metadata"]:
                    policy = "Foreground" if dependent.uid in self._cluster.store.dependents else ""
                    _, gone = delete(self._cluster, of.resource, dependent, DeleteOptions(propagation=policy))
                blocking = blocking or (blocks and not gone)
            if not blocking:
                self._take_off(collection, entry, FOREGROUND)
        else:
            self._waiting.discard(uid)

    def _disown(self, collection: Collection, entry: Entry, owners: set[str]) -> None:
        obj = entry.decode()
        left = [
            reference
            for reference in obj["metadata"].get("ownerReferences") or ()
            if reference.get("uid") not in owners
        ]
        if left:
            obj["metadata"]["ownerReferences"] = left
        else:
            obj["metadata"].pop("ownerReferences", None)
        self._cluster.store.put(collection, obj, entry)

    def _take_off(self, collection: Collection, entry: Entry, finalizer: str) -> None:
        obj = entry.decode()
        left = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
        if left:
            obj["metadata"]["finalizers"] = left
        else:
            obj["metadata"].pop("finalizers", None)
        self._waiting.discard(entry.uid)
        if not finish_deletion(self._cluster, collection.resource, entry, obj):
            self._cluster.store.put(collection, obj, entry)
