"""Lists: selected, cut into pages, and consistent across pages.

Called by `dispatch`. A list in pages keeps its snapshot (a list of shared entries, no copies) for its next page, so
that all pages show the state of one version. Invariant: the pages of a list together are the list.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import orjson

from cotide_sim.apiserver.cluster import Cluster
from cotide_sim.apiserver.refusals import bad_request, expired, not_yet
from cotide_sim.apiserver.registry.resources import Resource
from cotide_sim.apiserver.storage.selectors import Selection
from cotide_sim.apiserver.storage.store import Entry

KEPT_SNAPSHOTS: Final = 64
"""Chosen: number of kept snapshots of unfinished lists; beyond it the oldest expires (410)."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, or all of it."""

    entries: list[Entry]
    version: int
    token: str = ""
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class _Snapshot:
    resource: str
    entries: list[Entry]
    version: int


class Lists:
    """Answers lists, and keeps the snapshots of those that are read page by page."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._snapshots: OrderedDict[int, _Snapshot] = OrderedDict()
        self._numbers = itertools.count(1)

    def page(
        self,
        resource: Resource,
        namespace: str | None,
        selection: Selection,
        *,
        limit: int = 0,
        token: str = "",
        exactly: int | None = None,
    ) -> Page:
        """Return a list's first page (the whole list without a limit) or the page of a token.

        Parameters
        ----------
        exactly : int, optional The version to list; the present one by default.

        Raises
        ------
        Refusal
            400 for a broken token, 410 when its snapshot or that version is no longer kept, 504 for a future version.
        """
        if token:
            return self._next(resource, token, limit)
        version = self._cluster.store.version
        if exactly is None or exactly == version:
            entries = self.select(resource, namespace, selection)
        else:
            entries, version = self._as_of(exactly, resource, namespace, selection), exactly
        if not limit or len(entries) <= limit:
            return Page(entries, version)
        number = next(self._numbers)
        self._snapshots[number] = _Snapshot(resource.key, entries, version)
        if len(self._snapshots) > KEPT_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return Page(entries[:limit], version, _token(number, limit, version), len(entries) - limit)

    def select(self, resource: Resource, namespace: str | None, selection: Selection) -> list[Entry]:
        """Return the selected objects by key."""
        collection = self._cluster.store.collection(resource)
        if selection.space is not None and namespace is None:
            namespace = selection.space
        if selection.name is not None and (namespace is not None or not resource.namespaced):
            found = collection.get(namespace or "", selection.name)
            return [found] if found is not None and selection.matches(found) else []
        entries = collection.entries(namespace, node=selection.node)
        return entries if selection.everything else [entry for entry in entries if selection.matches(entry)]

    def _as_of(self, version: int, resource: Resource, namespace: str | None, selection: Selection) -> list[Entry]:
        collection, now = self._cluster.store.collection(resource), self._cluster.store.version
        if version > now:
            raise not_yet(f"Too large resource version: {version}, current: {now}")
        if version < collection.floor:
            raise expired("The resourceVersion for the provided list is too old.")
        entries = collection.as_of(version)
        return [entry for entry in entries if namespace in (None, entry.namespace) and selection.matches(entry)]

    def _next(self, resource: Resource, token: str, limit: int) -> Page:
        try:
            found = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            if not all(type(number) is int and number >= 0 for number in found):
                raise ValueError(found)
            number, start, version = found
        except (binascii.Error, ValueError, TypeError):
            raise bad_request("continue key is not valid: it was not made by this server") from None
        snapshot = self._snapshots.get(number)
        if snapshot is None or snapshot.version != version or snapshot.resource != resource.key:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. You must start a "
                "new list without the continue parameter."
            )
        end = start + limit if limit else len(snapshot.entries)
        remaining = len(snapshot.entries) - end
        if remaining <= 0:
            # Read to its end: a snapshot keeps objects alive that may have been replaced since.
            del self._snapshots[number]
            return Page(snapshot.entries[start:], snapshot.version)
        self._snapshots.move_to_end(number)
        return Page(snapshot.entries[start:end], snapshot.version, _token(number, end, snapshot.version), remaining)


def _token(number: int, start: int, version: int) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([number, start, version])).decode().rstrip("=")


def list_body(resource: Resource, version: str, page: Page, items: list[bytes]) -> bytes:
    """Return the JSON of a list."""
    metadata: dict[str, object] = {"resourceVersion": str(page.version)}
    if page.token:
        metadata["continue"] = page.token
        metadata["remainingItemCount"] = page.remaining
    head = orjson.dumps({"kind": resource.list_kind, "apiVersion": resource.api_version(version), "metadata": metadata})
    return b'%b,"items":[%b]}' % (head[:-1], b",".join(items))
