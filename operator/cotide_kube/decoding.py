"""Bytes of the API to typed objects: list pages and watch lines.

Called by the reflector. The fast path decodes once, straight into the wanted type. Refused objects are tried again
without their nulls (clients and custom resources may write ``labels: null`` for none). An object that is still refused
is returned as `Malformed`, so that a single bad object never stops a stream. Anything nested deeper than `limits.DEPTH`
is cut before decoding: key and version of the object are read, whatever else it holds. Invariant: nothing here raises
because of one object, and the time is linear in its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
import numpy as np

from cotide_core.errors import ClusterError
from cotide_core.limits import DEPTH, LINE_BYTES, NAME_CHARACTERS
from cotide_kube.answers import Status
from cotide_kube.turns import Turn, in_turns

T = TypeVar("T")
ChangeKind = Literal["ADDED", "MODIFIED", "DELETED", "SYNCED"]


class ListMetadata(msgspec.Struct, rename="camel", frozen=True):
    """``metadata`` of a list or of a bookmark."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T]):
    items: list[T]
    """Always present: an answer without it comes from another server, and is no empty cluster."""
    metadata: ListMetadata = ListMetadata()


class _RawPage(msgspec.Struct):
    items: list[msgspec.Raw] | None
    metadata: ListMetadata = ListMetadata()


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
    fault : the fault, with the path of the field.
    key : namespace and name, as far as they could be read.
    resource_version : so that a watch can continue after it; empty when unreadable.
    kind : the type of the watch event; empty in a list.
    uid : as far as it could be read.
    """

    fault: str
    key: tuple[str, str] = ("", "")
    resource_version: str = ""
    kind: str = ""
    uid: str = ""

    @property
    def name(self) -> str:
        """The key as ``namespace/name``."""
        return "/".join(part for part in self.key if part)


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The server's mark: everything up to this version has been sent."""

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


PAGE_BYTES_AT_ONCE: Final = 4 * 1024 * 1024
"""Of a page of a list that are searched in one go for its objects; chosen: some 5 ms. A page of the largest pods is far
larger.
"""
_PIECE_BYTES: Final = 256 * 1024
"""Of a larger one; chosen: some 3 ms."""
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)
"""What a decoder raises for bytes that it can't read: a whole number of too many digits is a ValueError."""


class _Bare(msgspec.Struct):
    """The needed facts about an object that can't be read."""

    metadata: dict[str, Any] = {}


def without_nulls(value: Any) -> Any:
    """Return plain data without its nulls: clients and custom resources may write ``labels: null`` for none.

    Raises
    ------
    RecursionError
        When it is nested too deep.
    """
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


_QUOTE: Final = 2
_MARKS: Final = bytes(
    {ord("{"): 1, ord("["): 1, ord("}"): 255, ord("]"): 255, ord('"'): _QUOTE}.get(n, 0) for n in range(256)
)
"""For each byte of JSON: by how much it nests deeper (255 is -1), or that it is a quote."""


class _Nesting:
    """Finds where JSON is nested deeper than some levels. It takes the text in one or several pieces, none of them
    ending in the middle of an escape. Needs no stack.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._level = 0
        self._inside = 0
        """1 while a string continues beyond the last piece."""

    def take(self, text: bytes) -> tuple[list[int], list[int]]:
        """Return where objects and lists of one level too many begin in this piece, and where they end."""
        # Escapes are blanked out first, so that each remaining quote begins or ends a string. In JSON a backslash
        # occurs in strings only.
        plain = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        marks = np.frombuffer(plain.translate(_MARKS), np.int8)
        offsets = np.flatnonzero(marks)  # a tenth of the bytes, as a rule
        found = marks[offsets]
        quotes = np.cumsum(found == _QUOTE) + self._inside
        outside = ((quotes & 1) == 0) & (found != _QUOTE)
        offsets, steps = offsets[outside], found[outside]
        levels = np.cumsum(steps, dtype=np.int64) + self._level
        if quotes.size:
            self._inside = int(quotes[-1]) & 1
        if levels.size:
            self._level = int(levels[-1])
        begins = offsets[(steps > 0) & (levels == self._depth + 1)]
        ends = offsets[(steps < 0) & (levels == self._depth)]
        return begins.tolist(), ends.tolist()


def shallow(text: bytes, depth: int = DEPTH) -> bytes:
    """Return JSON with each object or list that is nested deeper replaced by null. Needs no stack.

    Parameters
    ----------
    text : JSON, or other text, which then is returned as something that is no JSON either.
    """
    begins, ends = _Nesting(depth).take(text)
    return _cut(text, begins, ends) if begins else text


def _cut(text: bytes, begins: list[int], ends: list[int]) -> bytes:
    pieces, kept_from = [], 0
    for begin, end in zip(begins, ends, strict=False):
        pieces += [text[kept_from:begin], b"null"]
        kept_from = end + 1
    return b"".join([*pieces, text[kept_from:]])


class ObjectDecoder(Generic[T]):
    """Decodes list pages and watch lines of one type; holds the compiled decoders.

    Parameters
    ----------
    object_type : the struct to decode into.
    most_bytes : for types that hold plain data of any shape: larger objects, and those that are nested deeper than
        `limits.DEPTH`, are handed back as `Malformed` before they are decoded. None for types with known fields, where
        unread fields cost nothing.
    """

    def __init__(self, object_type: type[T], most_bytes: int | None = None) -> None:
        self._type = object_type
        self._most_bytes = most_bytes
        # msgspec builds its decoders from types that only exist at run time, which mypy can't follow.
        self._page = msgspec.json.Decoder(_Page[object_type])  # type: ignore[valid-type]
        self._line = msgspec.json.Decoder(_Line[object_type])  # type: ignore[valid-type]
        self._object = msgspec.json.Decoder(object_type)
        self._raw_page = msgspec.json.Decoder(_RawPage)
        self._raw_line = msgspec.json.Decoder(_RawLine)

    def page(self, body: bytes) -> ListPage[T]:
        """Decode one chunk of a list.

        Raises
        ------
        msgspec.DecodeError
            When the body as a whole is no list.
        """
        if self._most_bytes is None:  # otherwise each object is measured by itself
            try:
                page = self._page.decode(body)
                return ListPage(page.items, [], page.metadata.resource_version, page.metadata.continue_)
            except UNREADABLE as error:
                if type(error) is msgspec.DecodeError:
                    raise
        raw = self._raw_items(body)
        return self._listed([self._one(bytes(item)) for item in raw.items or ()], raw)

    async def page_in_turns(self, body: bytes) -> ListPage[T]:
        """Decode one chunk of a list, each object in its turn: takes twice as long, and never holds up the event loop.

        Raises
        ------
        msgspec.DecodeError
            When the body as a whole is no list.
        """
        if len(body) <= PAGE_BYTES_AT_ONCE:
            raw = self._raw_items(body)
            return self._listed(await in_turns(self._quickly, raw.items or ()), raw)
        begins, ends = await _items(body)
        raw = self._raw_page.decode(_cut(body, begins, ends))
        if len(raw.items or ()) != len(begins):  # another part of the list is nested: no API server writes that
            return self.page(body)
        found = await in_turns(lambda span: self._quickly(body[span[0] : span[1] + 1]), zip(begins, ends, strict=False))
        return self._listed(found, raw)

    def _listed(self, decoded: list[T | Malformed], raw: _RawPage) -> ListPage[T]:
        items = [item for item in decoded if not isinstance(item, Malformed)]
        malformed = [item for item in decoded if isinstance(item, Malformed)]
        return ListPage(items, malformed, raw.metadata.resource_version, raw.metadata.continue_)

    def _quickly(self, raw: msgspec.Raw | bytes) -> T | Malformed:
        if self._most_bytes is None:
            try:
                return self._object.decode(raw)
            except UNREADABLE:
                pass
        return self._one(bytes(raw))

    def _raw_items(self, body: bytes) -> _RawPage:
        try:
            return self._raw_page.decode(body)
        except RecursionError:  # skipping an object takes as much stack as reading it
            return self._raw_page.decode(shallow(body, _PAGE_DEPTH))

    def line(self, line: bytes) -> tuple[ChangeKind, T] | Bookmark | WatchFailed | Malformed:
        """Decode one line of a watch; never raises."""
        if len(line) > LINE_BYTES:
            return Malformed(f"a line of {len(line)} bytes, at most {LINE_BYTES} are read: {line[:80]!r}")
        try:
            if self._most_bytes is not None and self._is_too_much(line, _LINE_DEPTH):
                return self._odd_line(line)
            event = self._line.decode(line)
            return event.type, event.object
        except UNREADABLE:
            return self._odd_line(line)

    def _odd_line(self, line: bytes) -> tuple[ChangeKind, T] | Bookmark | WatchFailed | Malformed:
        try:
            try:
                raw = self._raw_line.decode(line)
            except RecursionError:
                raw = self._raw_line.decode(
                    shallow(line, _LINE_DEPTH + 1)
                )  # one more: it is still recognised as too deep
            if raw.type == "BOOKMARK":
                return Bookmark(msgspec.json.decode(raw.object, type=_Bookmark).metadata.resource_version)
            if raw.type == "ERROR":
                status = msgspec.json.decode(raw.object, type=Status)
                code = 410 if status.reason in ("Expired", "Gone") else status.code or 0
                return WatchFailed(code, status.message or status.reason or "the watch failed")
        except UNREADABLE as error:
            return Malformed(f"{error}: {line[:80]!r}")
        if raw.type not in ("ADDED", "MODIFIED", "DELETED"):
            return Malformed(f"unknown watch event type {raw.type[:80]!r}")
        decoded = self._one(bytes(raw.object))
        if isinstance(decoded, Malformed):
            return replace(decoded, kind=raw.type)
        kind: ChangeKind = raw.type  # type: ignore[assignment]  # just checked against the three words
        return kind, decoded

    def _is_too_much(self, text: bytes, depth: int) -> bool:
        if self._most_bytes is not None and len(text) > self._most_bytes:
            return True
        return text.count(b"{") + text.count(b"[") > depth and shallow(text, depth) is not text

    def _one(self, body: bytes) -> T | Malformed:
        """Decode one object that the fast path refused."""
        if self._most_bytes is not None and len(body) > self._most_bytes:
            fault = f"has {len(body)} bytes as JSON, at most {self._most_bytes} are read"
            return _malformed(fault, shallow(body, _BARE_DEPTH))
        cut = shallow(body)
        if cut is not body:
            return _malformed(f"is nested deeper than {DEPTH} levels", cut)
        try:
            return msgspec.convert(without_nulls(msgspec.json.decode(body)), self._type)
        except UNREADABLE as error:
            return _malformed(str(error), body)


def read_metadata(body: bytes) -> dict[str, Any]:
    """Return the metadata of one object, however deep the rest of it is nested.

    Raises
    ------
    ClusterError
        When it is no object.
    """
    try:
        return msgspec.json.decode(shallow(body, _BARE_DEPTH), type=_Bare).metadata
    except UNREADABLE as error:
        raise ClusterError(f"the API server's answer is no object: {body[:80]!r}") from error


async def _items(body: bytes) -> tuple[list[int], list[int]]:
    """Return where the objects of a page begin and end."""
    nesting, turn = _Nesting(2), Turn()  # the page, and the list in it
    begins: list[int] = []
    ends: list[int] = []
    start = 0
    while start < len(body):
        await turn.give_way()
        stop = min(start + _PIECE_BYTES, len(body))
        while stop < len(body) and body[stop - 1] == ord("\\"):  # an escape stays in one piece
            stop += 1
        found = nesting.take(body[start:stop])
        begins += [start + offset for offset in found[0]]
        ends += [start + offset for offset in found[1]]
        start = stop
    return begins, ends


_PAGE_DEPTH: Final = DEPTH + 3
"""Levels of a page of a list: the page, its items, and one more, so that what is cut is still known as too deep."""
_LINE_DEPTH: Final = DEPTH + 1
_BARE_DEPTH: Final = 2
"""The object and its metadata."""


def _malformed(fault: str, body: bytes) -> Malformed:
    """Return the known facts about an object that can't be read."""
    try:
        metadata = msgspec.json.decode(body, type=_Bare).metadata
    except UNREADABLE:
        return Malformed(fault)
    key = (_text(metadata.get("namespace")), _text(metadata.get("name")))
    return Malformed(fault, key, _text(metadata.get("resourceVersion")), uid=_text(metadata.get("uid")))


def _text(value: object) -> str:
    return value[:NAME_CHARACTERS] if isinstance(value, str) else ""
