"""The state that the verbs share: the store, the registry of kinds, the open watches, the clock and the settings.

Made by the server; passed to every verb as its first argument. Invariant: this module does not know HTTP.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from cotide_sim.apiserver.refusals import not_found
from cotide_sim.apiserver.registry.resources import Json, Registry, Resource
from cotide_sim.apiserver.storage.store import Collection, Entry, Store
from cotide_sim.apiserver.storage.watching import Watches

if TYPE_CHECKING:
    from cotide_sim.apiserver.admission.admission_reviews import Reviewed

_NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: without vowels and look-alikes, as in Kubernetes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the emulated cluster.

    Parameters
    ----------
    event_ttl_seconds : float
        Events older than this are deleted; a real API server's default is one hour.
    bookmark_seconds : float Period of an open watch's bookmarks.
    version : str
        The Kubernetes version that `/version` claims.
    """

    event_ttl_seconds: float = 3600.0
    bookmark_seconds: float = 20.0
    version: str = "v1.32.0"


@dataclass(slots=True)
class Reviews:
    """The known answers of a request that waited for webhooks, for its next run."""

    answers: dict[bytes, Reviewed] = field(default_factory=dict)
    """By question."""
    given: Json = field(default_factory=dict)
    """Name, uid and time that the server first gave a new object, which keeps them."""
    rounds: int = 0


@dataclass(slots=True)
class WriteOptions:
    """The query parameters of a write."""

    dry_run: bool = False
    manager: str = "unknown"
    force: bool = False
    applies: bool = False
    """Whether it is a server-side apply, which sets the owners of fields itself."""
    strictness: str = "Warn"
    warnings: list[str] = field(default_factory=list)
    reviews: Reviews | None = None


class WriteReview(Protocol):
    """The interface of `admission.Admission` for the verbs."""

    def mutate(self, write: Write, subresource: str) -> Json | None:
        """Return a write's object after the changes of webhooks, or None without changes."""
        ...

    def validate(self, write: Write, subresource: str) -> None:
        """Show every webhook a write's final form."""
        ...

    def release(self, resource: Resource, version: str, entry: Entry, options: WriteOptions) -> None:
        """Show webhooks a deletion."""
        ...


class Cluster:
    """The emulated cluster: data and the few services that all verbs need."""

    def __init__(self, store: Store, registry: Registry, settings: Settings | None = None) -> None:
        self.store, self.registry = store, registry
        self.settings = settings or Settings()
        self.watches = Watches(store)
        self.later: Callable[[float, Callable[[], None]], None] = lambda _seconds, _call: None
        """Runs a call after some seconds; the server sets it to its event loop's."""
        self.admission: WriteReview | None = None
        """The webhooks; None where there are none."""
        self.priority_default: tuple[str, int] = ("", 0)
        self._stamp: tuple[int, str] = (0, "")

    def timestamp(self) -> str:
        """Return the time of day as Kubernetes writes it, in whole seconds."""
        second = int(time.time())
        if self._stamp[0] != second:
            self._stamp = (second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        return self._stamp[1]

    def new_uid(self) -> str:
        """Return a fresh uid."""
        return str(uuid.UUID(bytes=os.urandom(16), version=4))

    def name_suffix(self) -> str:
        """Return the five letters that follow a generateName."""
        return "".join(_NAME_LETTERS[byte % len(_NAME_LETTERS)] for byte in os.urandom(5))

    def collection(self, key: str) -> Collection:
        """Return the collection of a kind that is always served."""
        resource = self.registry.get(key)
        if resource is None:
            raise KeyError(key)
        return self.store.collection(resource)

    def find(self, resource: Resource, namespace: str, name: str) -> Entry:
        """Return one object.

        Raises
        ------
        Refusal
            404 when there is none.
        """
        entry = self.store.collection(resource).get(namespace, name)
        if entry is None:
            raise not_found(resource, name)
        return entry

    def namespace(self, name: str) -> Entry | None:
        """Return a namespace, or None."""
        return self.collection("namespaces").get("", name)

    def write(self, resource: Resource, obj: Json, old: Entry | None) -> Entry:
        """Store an object."""
        return self.store.put(self.store.collection(resource), obj, old)


@dataclass(slots=True)
class Write:
    """One write on its way to the store, in the form that the rules of its kind take; `old` is None for a new
    object.
    """

    cluster: Cluster
    resource: Resource
    version: str
    obj: Json
    old: Json | None
    options: WriteOptions
