"""Universal Binary JSON to plain values and arrays: xgboost's model format.

Called by `boosted_trees`, so that a process that only forecasts need not load xgboost. That import brings scipy,
scikit-learn and pandas with it: 130 MiB and more than a second. Source: the draft 12 of ubjson.org, as far as xgboost
writes it; arrays of one numeric type become numpy arrays. Invariant: any other bytes raise ValueError.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

DEEPEST: Final = 64
"""Largest depth of nested containers (chosen: a model has eight)."""
_NUMBERS: Final = {b"i": ">i1", b"U": ">u1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8"}
_SINGLE: Final = {
    b"i": struct.Struct(">b"),
    b"U": struct.Struct(">B"),
    b"I": struct.Struct(">h"),
    b"l": struct.Struct(">i"),
    b"L": struct.Struct(">q"),
    b"d": struct.Struct(">f"),
    b"D": struct.Struct(">d"),
}
_WORDS: Final = {b"Z": None, b"T": True, b"F": False}


def decode(document: bytes) -> Any:
    """Return the value of a document.

    Raises
    ------
    ValueError
        When the bytes are no document, or go on after its value.
    """
    reader = _Reader(document)
    value = reader.value(reader.take(1), 0)
    if reader.offset != len(document):
        raise ValueError(f"{len(document) - reader.offset} bytes too many")
    return value


class _Reader:
    """A position in a document."""

    def __init__(self, document: bytes) -> None:
        self._document = document
        self.offset = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        end = self.offset + count
        if count < 0 or end > len(self._document):
            raise ValueError(f"it ends within a value at byte {self.offset}")
        taken = self._document[self.offset : end]
        self.offset = end
        return taken

    def value(self, marker: bytes, depth: int) -> Any:
        """Return the value of the marker that was just read."""
        if depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} containers within each other")
        if marker in _SINGLE:
            form = _SINGLE[marker]
            return form.unpack(self.take(form.size))[0]
        if marker == b"S":
            return self._text()
        if marker == b"{":
            return self._object(depth)
        if marker == b"[":
            return self._array(depth)
        if marker in _WORDS:
            return _WORDS[marker]
        raise ValueError(f"nothing is marked {marker!r} (byte {self.offset - 1})")

    def _text(self) -> str:
        return self.take(self._count()).decode()

    def _count(self) -> int:
        marker = self.take(1)
        count = self.value(marker, 0) if marker in (b"i", b"U", b"I", b"l", b"L") else -1
        if count < 0:
            raise ValueError(f"no length at byte {self.offset}")
        return int(count)

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._document[self.offset : self.offset + 1] != b"}":
            key = self._text()
            found[key] = self.value(self.take(1), depth + 1)
        self.offset += 1
        return found

    def _array(self, depth: int) -> Any:
        marker = self.take(1)
        if marker == b"$":
            kind = self.take(1)
            if kind not in _NUMBERS or self.take(1) != b"#":
                raise ValueError(f"an array of {kind!r} (byte {self.offset})")
            form = np.dtype(_NUMBERS[kind])
            return np.frombuffer(self.take(self._count() * form.itemsize), form).astype(form.newbyteorder("="))
        if marker == b"#":
            # Each value has at least a marker, so that a wrong length meets the end before a huge list is made.
            return [self.value(self.take(1), depth + 1) for _ in range(self._count())]
        values = []
        while marker != b"]":
            values.append(self.value(marker, depth + 1))
            marker = self.take(1)
        return values
