"""Bytes of the API to typed objects: list pages and watch lines.

Called by the reflector. The fast path decodes once, straight into the wanted type. Objects that this refuses are
tried again without their nulls (clients and custom resources may write ``labels: null`` for none), and one that
is still refused is handed back as `Malformed`, so that a single bad object never stops a stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

import msgspec

from cotide_kube.answers import Status

T = TypeVar("T")
ChangeKind = Literal["ADDED", "MODIFIED", "DELETED", "SYNCED"]


class ListMetadata(msgspec.Struct, rename="camel", frozen=True):
    """``metadata`` of a list or of a bookmark."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T]):
    metadata: ListMetadata = ListMetadata()
    items: list[T] = []


class _RawPage(msgspec.Struct):
    metadata: ListMetadata = ListMetadata()
    items: list[msgspec.Raw] | None = None


class _Line(msgspec.Struct, Generic[T]):
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


class _RawLine(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    metadata: ListMetadata = ListMetadata()


@dataclass(frozen=True, slots=True)
class Malformed:
    """An object, or a whole line, that could not be decoded.

    Attributes
    ----------
    fault : what is wrong with it, with the path of the field.
    key : namespace and name, as far as they could be read.
    resource_version : so that a watch can go on behind it; empty when unreadable.
    kind : what the watch said happened to it; empty in a list.
    """

    fault: str
    key: tuple[str, str] = ("", "")
    resource_version: str = ""
    kind: str = ""

    @property
    def name(self) -> str:
        """The key as ``namespace/name``."""
        return "/".join(part for part in self.key if part)


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The server says: you have seen everything up to this version."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchFailed:
    """The server ended the watch with a Status; 410 means that our version is too old."""

    code: int
    message: str


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """One chunk of a list."""

    items: list[T]
    malformed: list[Malformed]
    resource_version: str
    continue_token: str


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


class ObjectDecoder(Generic[T]):
    """Decodes list pages and watch lines of one type; holds the compiled decoders."""

    def __init__(self, object_type: type[T]) -> None:
        self._type = object_type
        # msgspec builds its decoders from types that only exist at run time, which mypy can't follow.
        self._page = msgspec.json.Decoder(_Page[object_type])  # type: ignore[valid-type]
        self._line = msgspec.json.Decoder(_Line[object_type])  # type: ignore[valid-type]
        self._raw_page = msgspec.json.Decoder(_RawPage)
        self._raw_line = msgspec.json.Decoder(_RawLine)

    def page(self, body: bytes) -> ListPage[T]:
        """Decode one chunk of a list.

        Raises
        ------
        msgspec.DecodeError
            When the body as a whole is no list.
        """
        try:
            page = self._page.decode(body)
            return ListPage(page.items, [], page.metadata.resource_version, page.metadata.continue_)
        except msgspec.ValidationError:
            raw = self._raw_page.decode(body)
        items: list[T] = []
        malformed: list[Malformed] = []
        for one in raw.items or ():
            decoded = self._tolerant(bytes(one))
            if isinstance(decoded, Malformed):
                malformed.append(decoded)
            else:
                items.append(decoded)
        return ListPage(items, malformed, raw.metadata.resource_version, raw.metadata.continue_)

    def line(self, line: bytes) -> tuple[ChangeKind, T] | Bookmark | WatchFailed | Malformed:
        """Decode one line of a watch; never raises."""
        try:
            event = self._line.decode(line)
            return event.type, event.object
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._odd_line(line)

    def _odd_line(self, line: bytes) -> tuple[ChangeKind, T] | Bookmark | WatchFailed | Malformed:
        try:
            raw = self._raw_line.decode(line)
            if raw.type == "BOOKMARK":
                return Bookmark(msgspec.json.decode(raw.object, type=_Bookmark).metadata.resource_version)
            if raw.type == "ERROR":
                status = msgspec.json.decode(raw.object, type=Status)
                code = 410 if status.reason in ("Expired", "Gone") else status.code or 0
                return WatchFailed(code, status.message or status.reason or "the watch failed")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Malformed(f"{error}: {line[:80]!r}")
        if raw.type not in ("ADDED", "MODIFIED", "DELETED"):
            return Malformed(f"unknown watch event type {raw.type!r}")
        decoded = self._tolerant(bytes(raw.object))
        if isinstance(decoded, Malformed):
            return replace(decoded, kind=raw.type)
        kind: ChangeKind = raw.type  # type: ignore[assignment]  # just checked against the three words
        return kind, decoded

    def _tolerant(self, body: bytes) -> T | Malformed:
        try:
            plain = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Malformed(str(error))
        try:
            return msgspec.convert(_without_nulls(plain), self._type)
        except msgspec.ValidationError as error:
            found = plain.get("metadata") if isinstance(plain, dict) else None
            metadata: dict[str, Any] = found if isinstance(found, dict) else {}
            key = (str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
            return Malformed(str(error), key, str(metadata.get("resourceVersion") or ""))
