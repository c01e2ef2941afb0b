"""Automatic consequences of changes. Kinds come and go with their definitions, namespaces get their default service
account and are emptied, disruption budgets count, old events expire.

Called by the store (a listener) and by the server's timer. It replaces the few controllers that clients of a cluster
rely on. Invariant: a reaction that writes runs after the change that caused it, never inside it. Only the objects of a
kind with a deleted definition go along with it at once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from cotide_sim.apiserver.cluster import Cluster
from cotide_sim.apiserver.controllers.disruption import BudgetCounter
from cotide_sim.apiserver.controllers.garbage import Garbage
from cotide_sim.apiserver.registry.custom_kinds import resource_of
from cotide_sim.apiserver.registry.resources import Json
from cotide_sim.apiserver.storage.store import Change, Collection
from cotide_sim.apiserver.verbs.deleting import DeleteOptions, delete, empty_namespace

_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_BUDGETS = "poddisruptionbudgets.policy"
_PRIORITIES = "priorityclasses.scheduling.k8s.io"


COUNT_SECONDS: Final = 0.2
"""Chosen: the least time between two counts of all budgets, since a count looks at every pod of a namespace."""


class Reactions:
    """Notes the consequences of a change, and carries them out when the loop is free."""

    def __init__(self, cluster: Cluster, soon: Callable[[Callable[[], None]], None]) -> None:
        self._cluster, self._soon = cluster, soon
        self._due = False
        self._garbage = Garbage(cluster)
        self._leaving: set[str] = set()
        """Terminating namespaces."""
        self._budgets: set[str] = set()
        """Namespaces with disruption budgets to recount."""
        self._counter = BudgetCounter(cluster)
        self._counted_at = -COUNT_SECONDS
        self._counting = False
        self._written: deque[tuple[float, str, str, int]] = deque()
        """The time, key and version of each write of an event; oldest first."""
        self.clock: Callable[[], float] = time.monotonic
        self.after: Callable[[], None] = lambda: None
        """Called after reactions wrote, so that persistence commits."""
        cluster.store.listeners.append(self._changed)

    def _changed(self, collection: Collection, change: Change) -> None:
        key = collection.resource.key
        new, old = change.new, change.old
        wanted = self._garbage.note(collection, change)
        if key == "pods":
            entry = new or old
            if entry is not None and entry.namespace in self._with_budgets():
                self._budgets.add(entry.namespace)
                wanted = True
        elif key == "events":
            if new is not None:
                self._written.append((self.clock(), new.namespace, new.name, new.version))
        elif key == "namespaces":
            wanted = self._namespace_changed(change) or wanted
        elif key == _DEFINITIONS:
            self._definition_changed(change)
        elif key == _BUDGETS:
            if new is not None:
                self._budgets.add(new.namespace)
                wanted = True
        elif key == _PRIORITIES:
            self.read_default_priority()
        if new is None and old is not None and old.namespace in self._leaving:
            wanted = True
        if wanted and not self._due:
            self._due = True
            self._soon(self._run)

    def _with_budgets(self) -> dict[str, object]:
        collection = self._cluster.store.collections.get(_BUDGETS)
        return collection.spaces if collection is not None else {}  # type: ignore[return-value] # only its keys are read

    def _namespace_changed(self, change: Change) -> bool:
        if change.new is None:
            if change.old is not None:
                self._leaving.discard(change.old.name)
            return False
        if change.new.fields[0] == "Terminating":
            self._leaving.add(change.new.name)
            return True
        if change.old is None:
            name = change.new.name
            self._soon(lambda: self._give_service_account(name))
        return False

    def _give_service_account(self, namespace: str) -> None:
        accounts = self._cluster.collection("serviceaccounts")
        if self._cluster.namespace(namespace) is None or accounts.get(namespace, "default") is not None:
            return
        account: Json = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {
                "name": "default", "namespace": namespace, "uid": self._cluster.new_uid(),
                "creationTimestamp": self._cluster.timestamp(),
            },
        }  # fmt: skip
        self._cluster.store.put(accounts, account, None)
        self.after()

    def _definition_changed(self, change: Change) -> None:
        if change.new is not None:
            self.serve(change.new.decode())
        elif change.old is not None:
            definition = change.old.decode()
            self.withdraw(definition)

    def serve(self, definition: Json) -> None:
        """Serve the kind of a definition from now on."""
        resource = resource_of(definition)
        self._cluster.registry.add(resource)
        known = self._cluster.store.collections.get(resource.key)
        if known is not None:
            self._cluster.store.reindex(known, resource)

    def withdraw(self, definition: Json) -> None:
        """Delete the objects of a kind, and serve it no longer."""
        resource = resource_of(definition)
        collection = self._cluster.store.collections.get(resource.key)
        if collection is not None:
            self._cluster.store.discard(collection)
        self._cluster.watches.end(resource.key)
        self._cluster.registry.remove(resource.group, resource.plural)

    def read_default_priority(self) -> None:
        """Find the default priority class of pods."""
        self._cluster.priority_default = ("", 0)
        for entry in self._cluster.collection(_PRIORITIES).entries():
            if b'"globalDefault":true' in entry.raw:
                obj = entry.decode()
                self._cluster.priority_default = (entry.name, obj.get("value", 0))

    def _run(self) -> None:
        self._due = False
        self._garbage.collect()
        self._count_budgets()
        for namespace in sorted(self._leaving):
            empty_namespace(self._cluster, namespace)
        self.after()

    def _count_budgets(self) -> None:
        """Count again, but not more often than a real disruption controller would."""
        if not self._budgets:
            return
        wait = self._counted_at + COUNT_SECONDS - self.clock()
        if wait > 0:
            if not self._counting:
                self._counting = True
                self._cluster.later(wait, self._run)
            return
        self._counting = False
        self._counted_at = self.clock()
        budgets, self._budgets = self._budgets, set()
        for namespace in budgets:
            self._counter.refresh(namespace)

    def expire_events(self) -> None:
        """Delete the events with a last write older than the server's limit."""
        oldest = self.clock() - self._cluster.settings.event_ttl_seconds
        collection = self._cluster.collection("events")
        while self._written and self._written[0][0] < oldest:
            _, namespace, name, version = self._written.popleft()
            entry = collection.get(namespace, name)
            # An event that was written again is further back in the queue, with its newer version.
            if entry is not None and entry.version == version:
                delete(self._cluster, collection.resource, entry, DeleteOptions())
        self.after()

    def note_restored_events(self) -> None:
        """Restart the lifetime of events that were read from a file."""
        now = self.clock()
        entries = self._cluster.collection("events").entries()
        self._written.extend((now, entry.namespace, entry.name, entry.version) for entry in entries)
