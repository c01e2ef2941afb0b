"""Files that may be packed by gzip, bzip2 or xz: recognised by their first bytes, whatever the name, and unpacked in
steps.

Called by the readers of logs and ledgers. First step of the flow: bytes of a file to bytes of its text. Invariants: a
read unpacks no more than it returns, so that the reader's own bound holds for every file. An xz file that needs more
than `MAX_XZ_MEMORY` to unpack is damaged in the sense of `DAMAGED`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import Final

GZIP: Final = b"\x1f\x8b"
BZIP2: Final = b"BZh"
XZ: Final = b"\xfd7zXZ\x00"
"""First bytes: RFC 1952; the bzip2 manual; the .xz file format, section 2.1.1.1."""
MAX_XZ_MEMORY: Final = 256 << 20
"""Bytes that xz may take to unpack. Chosen: ``xz -9`` asks for 65 MiB (its manual)."""
STEP_BYTES: Final = 64 << 10
"""Packed bytes read at a time; chosen."""


class DamagedError(Exception):
    """A packed file that can't be unpacked from here on."""


DAMAGED: Final = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, DamagedError)
"""What a read raises where a packed file is damaged or cut off."""


def open_bytes(path: Path) -> io.BufferedReader:
    """Open a file, unpacked where it is packed.

    Raises
    ------
    OSError
        When it can't be read.
    """
    plain = path.open("rb")
    try:
        begins = plain.peek(len(XZ))[: len(XZ)]
    except OSError:
        plain.close()
        raise
    if begins.startswith(GZIP):
        return io.BufferedReader(_Owning(gzip.GzipFile(fileobj=plain), plain))
    if begins.startswith(BZIP2):
        return io.BufferedReader(_Owning(bz2.BZ2File(plain), plain))
    if begins.startswith(XZ):
        return io.BufferedReader(_Xz(plain))
    return plain


class _Owning(io.RawIOBase):
    """An unpacked stream that closes the file below it; one read is one step of it."""

    def __init__(self, unpacked: gzip.GzipFile | bz2.BZ2File, plain: io.BufferedReader) -> None:
        self._unpacked, self._plain = unpacked, plain

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: WriteableBuffer
        # Not a longer read: that would lose what comes before the damage of a damaged file.
        try:
            data = self._unpacked.read1(len(buffer))
        except OSError as error:
            # bz2 raises a bare OSError for invalid data; one of the file itself has a number.
            if error.errno is None and not isinstance(error, gzip.BadGzipFile):
                raise DamagedError(str(error)) from error
            raise
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._unpacked.close()
        self._plain.close()
        super().close()


class _Xz(io.RawIOBase):
    """The streams of an xz file, one after another, in bounded memory, which `lzma.LZMAFile` has no argument for."""

    def __init__(self, plain: io.BufferedReader) -> None:
        self._plain = plain
        self._unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: WriteableBuffer
        data = b""
        while not data:
            packed = b""
            if self._unpacker.eof:
                packed = (self._unpacker.unused_data or self._plain.read(STEP_BYTES)).lstrip(b"\x00")
                if not packed:
                    return 0
                self._unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_XZ_MEMORY)
            elif self._unpacker.needs_input:
                packed = self._plain.read(STEP_BYTES)
                if not packed:
                    raise EOFError("the file ends before its end marker was reached")
            data = self._unpacker.decompress(packed, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._plain.close()
        super().close()
