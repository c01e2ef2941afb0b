"""The server's view of a kind: its names, its scope, its subresources and its columns; and the registry of kinds.

Called by discovery, by dispatch (URL to resource), by the tables and by the verbs. `builtins` fills the registry;
CustomResourceDefinitions add and remove kinds while the server runs. Invariant: a (group, plural) has one `Resource`
and one collection in the store, for all its served versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cotide_sim.apiserver.storage import deep_json

Json = dict[str, Any]
"""A decoded JSON object."""

METADATA_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
}
"""Every kind can be selected by these; both are already keys of the store, so they are answered from there."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`: the source of its value, and whether it appears without `-o wide`."""

    name: str
    value: Callable[[Json], Any]
    type: str = "string"
    priority: int = 0
    description: str = ""
    format: str = ""


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """One version of a kind: its schema (custom kinds only) and its columns."""

    name: str
    columns: tuple[Column, ...] = ()
    schema: Json | None = None
    has_status: bool = True
    deprecated: bool = False


@dataclass(eq=False, slots=True)
class Resource:
    """One (group, plural) as the server serves it.

    Parameters
    ----------
    selectable : mapping of str to path Field selectors beyond the name and namespace, in the order of their values in
        an `Entry`.
    has_status : bool Whether status is written separately, through the `/status` subresource.
    """

    group: str
    plural: str
    kind: str
    versions: tuple[ServedVersion, ...]
    singular: str = ""
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    selectable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    has_status: bool = False
    custom: bool = False
    list_kind: str = ""
    scale_paths: Json | None = None
    stored_as: str = ""
    """The key of another resource that provides the objects (events.k8s.io shows core events)."""

    def __post_init__(self) -> None:
        self.singular = self.singular or self.kind.lower()
        self.list_kind = self.list_kind or self.kind + "List"
        if self.has_status:
            self.subresources = self.subresources | {"status"}

    @property
    def key(self) -> str:
        """The name of its collection: ``pods`` or ``jobs.cotide.dev``."""
        return self.stored_as or self.qualified

    @property
    def qualified(self) -> str:
        """The plural with its group, as in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_version(self) -> str:
        """The apiVersion of stored objects."""
        return self.api_version(self.versions[0].name)

    def api_version(self, version: str) -> str:
        """Return ``group/version``, or the bare version of the core group."""
        return f"{self.group}/{version}" if self.group else version

    def served(self, version: str) -> ServedVersion | None:
        """Return one of its versions, or None."""
        return next((candidate for candidate in self.versions if candidate.name == version), None)

    def shown_as(self, version: str, obj: Json) -> Json:
        """Return a stored object as one of its versions, in place; versions differ only in their name."""
        obj["apiVersion"] = self.api_version(version)
        return obj

    def to_storage(self, version: str, obj: Json) -> Json:
        """Return an object of one version in the stored form, except for its apiVersion."""
        del version
        return obj

    def converter(self, version: str) -> Callable[[bytes], bytes] | None:
        """Return a function from stored JSON to a version's, or None where both are the same."""
        if self.api_version(version) == self.storage_version:
            return None
        return lambda raw: deep_json.dumps(self.shown_as(version, deep_json.loads(raw)))


class Registry:
    """All resources that the server knows, by (group, plural)."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], tuple[Resource, ServedVersion]] = {}
        self._by_key: dict[str, Resource] = {}
        self.generation = 0
        """Grows with each change, so that discovery and OpenAPI documents can be cached."""

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_key.values())

    def add(self, resource: Resource) -> Resource:
        """Serve a resource, in place of an earlier one with its group and plural."""
        self.remove(resource.group, resource.plural)
        self._by_key[resource.qualified] = resource
        for version in resource.versions:
            self._by_path[resource.group, version.name, resource.plural] = (resource, version)
        self.generation += 1
        return resource

    def remove(self, group: str, plural: str) -> None:
        """Stop serving a resource."""
        old = self._by_key.pop(f"{plural}.{group}" if group else plural, None)
        if old is not None:
            for version in old.versions:
                self._by_path.pop((group, version.name, plural), None)
            self.generation += 1

    def find(self, group: str, version: str, plural: str) -> tuple[Resource, ServedVersion] | None:
        """Return the resource of a URL, or None."""
        return self._by_path.get((group, version, plural))

    def get(self, key: str) -> Resource | None:
        """Return a resource by its key (``pods``, ``jobs.cotide.dev``), or None."""
        return self._by_key.get(key)

    def groups(self) -> dict[str, list[str]]:
        """Return each named group with its versions, preferred first."""
        found: dict[str, list[str]] = {}
        for resource in self._by_key.values():
            versions = found.setdefault(resource.group, [])
            versions.extend(v.name for v in resource.versions if v.name not in versions)
        return found
