"""Bodies of an API server's answers, read and unpacked within `answers.ANSWER_BYTES`.

Called by `transport` and by kopf's session. A compressed answer of a few bytes on the wire may represent any number in
memory: a megabyte of gzip unpacks to a gibibyte. So the unpacked bytes are counted, like the received ones. Invariant:
at most `answers.ANSWER_BYTES` of an answer are held, received or unpacked.
"""

from __future__ import annotations

import asyncio
import io
import zlib
from typing import Final

import aiohttp

from cotide_kube.answers import ANSWER_BYTES, AnswerTooLargeError

_GZIP: Final = 16 + zlib.MAX_WBITS
_PACKED_AT_ONCE: Final = 4 * 1024
"""Input of one step of unpacking; chosen: the rest of a step is copied, so larger steps take longer."""
_UNPACKED_AT_ONCE: Final = 32 * 1024
"""Output of one step; chosen: zlib makes that much room at first. Larger output is joined from several pieces, which
left holes of 8 MiB in the memory of an operator among 50,000 pods.
"""
_ROOM_BEFOREHAND: Final = 64 << 20
"""Most room that is made for the stated size of an answer; chosen: a page of pods of 32 kB."""


async def unpacked_body(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer, unpacked in a thread, since it would otherwise hold up the event loop.

    Raises
    ------
    AnswerTooLargeError
        When it is larger than `ANSWER_BYTES`, or unpacks to more; the rest is left unread.
    aiohttp.ClientPayloadError
        When it can't be unpacked.
    """
    size = response.content_length
    if size is not None and size > ANSWER_BYTES:
        raise AnswerTooLargeError
    body = await (counted(response.content) if size is None else response.read())
    if response.headers.get("Content-Encoding", "identity") == "identity":
        return body
    try:
        return await asyncio.to_thread(unpacked, body)
    except (EOFError, zlib.error) as error:
        raise aiohttp.ClientPayloadError(f"its answer can't be unpacked: {error}") from error


async def counted(content: aiohttp.StreamReader) -> bytes:
    """Return a body as it comes, counted piece by piece: aiohttp may have unpacked it, each piece within a bound.

    Raises
    ------
    AnswerTooLargeError
        When it is larger than `ANSWER_BYTES`; the rest is left unread.
    """
    read = 0
    pieces: list[bytes] = []
    while read <= ANSWER_BYTES:
        if not (piece := await content.readany()):
            return b"".join(pieces)
        pieces.append(piece)
        read += len(piece)
    raise AnswerTooLargeError


def unpacked(body: bytes) -> bytes:
    """Return what gzip packed, in one part or, as a proxy may send it, in several.

    Room is made beforehand for the stated size of the answer, within a bound, since the statement may be false. Beyond
    it the room grows with the data. Joining pieces at the end takes a third longer and twice the memory.

    Raises
    ------
    AnswerTooLargeError
        When the result is larger than `ANSWER_BYTES`.
    EOFError, zlib.error
        When it is not gzip, or cut off.
    """
    room = io.BytesIO()
    expected = min(int.from_bytes(body[-4:], "little"), _ROOM_BEFOREHAND)
    if expected:
        room.seek(expected - 1)
        room.write(b"\0")
        room.seek(0)
    packed = memoryview(body)
    part = zlib.decompressobj(_GZIP)
    at = 0
    while at < len(packed):
        step = packed[at : at + _PACKED_AT_ONCE]
        if part.eof:
            if zeros := _zeros(step):
                at += zeros
                continue
            part = zlib.decompressobj(_GZIP)
        _unpack(part, step, room)
        at += len(step) - len(part.unused_data)
    if not part.eof:
        raise EOFError("it is cut off")
    room.truncate()
    return room.getvalue()


def _unpack(part: zlib._Decompress, step: memoryview, room: io.BytesIO) -> None:
    """Write what a step of a part unpacks to."""
    left: memoryview | bytes = step
    while not part.eof:
        found = part.decompress(left, _UNPACKED_AT_ONCE)
        room.write(found)
        if room.tell() > ANSWER_BYTES:
            raise AnswerTooLargeError(compressed=True)
        left = part.unconsumed_tail
        if not left and len(found) < _UNPACKED_AT_ONCE:
            return


def _zeros(text: memoryview) -> int:
    """Return the number of leading zeros: gzip may fill up its last block with them."""
    return len(text) - len(text.tobytes().lstrip(b"\0"))
