"""Bodies of requests to our HTTPS servers, within bounds: a client that sends slowly delays no other.

The servers of the admission webhook and of the extender use it; without a NetworkPolicy any client can reach them.
Invariant: the number of large bodies in memory is bounded, each has a time limit, and clients share the turns by their
addresses, as `fair_queue` describes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Final

from aiohttp import web

from cotide_operator.cache.fair_queue import FairSemaphore

SMALL_BODY: Final = 2**16
"""Bytes of a body that a connection buffers anyway, without a turn. Source: aiohttp's ``read_bufsize``."""
COMPRESSED: Final = "a compressed body is not read\n"


class RequestBodies:
    """Reads the bodies of one server.

    Parameters
    ----------
    most_bytes : limit of a body.
    at_once : large bodies in memory at the same time.
    seconds : of the wall, for one body from its turn on.
    """

    def __init__(self, most_bytes: int, at_once: int, seconds: float) -> None:
        self._most_bytes, self._seconds = most_bytes, seconds
        self._slots = FairSemaphore(at_once)

    @asynccontextmanager
    async def read(self, request: web.Request) -> AsyncIterator[bytes]:
        """Hold the body of a request.

        Raises
        ------
        web.HTTPRequestEntityTooLarge
            When it is larger than the limit; it is not read then.
        web.HTTPRequestTimeout
            When it does not arrive in time.
        web.HTTPUnsupportedMediaType
            When it is compressed: a few bytes on the wire could expand to any number in memory. API servers and
            kube-scheduler compress none.
        """
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise web.HTTPUnsupportedMediaType(text=COMPRESSED)
        length = request.content_length
        if length is not None and length > self._most_bytes:
            raise web.HTTPRequestEntityTooLarge(self._most_bytes, length)
        is_small = length is not None and length <= SMALL_BODY
        async with nullcontext() if is_small else self._slots.slot(request.remote or ""):
            try:
                async with asyncio.timeout(self._seconds):
                    body = await request.read()
            except TimeoutError:
                raise web.HTTPRequestTimeout from None
            yield body
