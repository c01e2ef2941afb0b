"""HTTP/1.1 on a bare asyncio protocol: requests in, answers and streams out.

Called by the event loop. It passes each request to the dispatcher, which answers at once (the store is in memory),
later (an injected delay), or as a stream (a watch). It has framing of its own, which is the largest cost of a small
request: a general server takes several times longer for the same bind. Invariants: answers leave in the order of the
requests; a request's body is bounded; a malformed request ends its connection with 400.

Source of the framing rules: RFC 9112.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import parse_qsl, unquote

if TYPE_CHECKING:
    from cotide_sim.apiserver.cluster import Reviews

HEAD_LIMIT: Final = 64 * 1024
BODY_LIMIT: Final = 3 * 1024 * 1024
"""A real API server refuses bodies over 3 MiB (its default maximum request size)."""

_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
_JOINED_BYTES: Final = 64 * 1024
"""Chosen: for smaller bodies a copy is cheaper than a second write."""
JSON_TYPE: Final = "application/json"


@dataclass(slots=True)
class Request:
    """One request, body included."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    reviews: Reviews | None = None
    """The answers of webhooks so far."""


@dataclass(slots=True)
class Answer:
    """A complete answer."""

    status: int
    body: bytes = b""
    content_type: str = JSON_TYPE
    headers: dict[str, str] = field(default_factory=dict)


class Exchange:
    """The answer side of one request: answer it once, or open a stream and close it."""

    __slots__ = ("_connection", "_done", "_streaming", "head_only", "keep_alive", "on_close")

    def __init__(self, connection: Connection, *, keep_alive: bool, head_only: bool) -> None:
        self._connection, self.keep_alive, self.head_only = connection, keep_alive, head_only
        self._done = False
        self._streaming = False
        self.on_close: Callable[[], None] | None = None
        """Called once when a stream ends, with any cause."""

    @property
    def done(self) -> bool:
        """Whether the answer is complete, or the client is gone."""
        return self._done

    def answer(self, answer: Answer) -> None:
        """Send the answer."""
        if self._done:
            return
        self._done = True
        head = b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n" % (
            answer.status,
            _REASONS.get(answer.status, b"Unknown"),
            answer.content_type.encode(),
            len(answer.body),
        )
        for name, value in answer.headers.items():
            head += b"%b: %b\r\n" % (name.encode(), value.encode())
        if not self.keep_alive:
            head += b"Connection: close\r\n"
        head += b"\r\n"
        if self.head_only:
            self._connection.send(head)
        elif len(answer.body) < _JOINED_BYTES:
            self._connection.send(head + answer.body)
        else:
            self._connection.send(head)
            self._connection.send(answer.body)
        self._connection.finished(self)

    def open_stream(self, content_type: str = JSON_TYPE) -> None:
        """Send the head of an answer of unknown length."""
        self._streaming = True
        self._connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n"
            b"Cache-Control: no-cache, private\r\n\r\n" % content_type.encode()
        )

    def write(self, data: bytes) -> None:
        """Send one chunk of a stream."""
        if data and not self._done:
            self._connection.send(b"%x\r\n%b\r\n" % (len(data), data))

    def backlog(self) -> int:
        """Return the number of bytes that wait for the client."""
        return self._connection.backlog()

    def close(self) -> None:
        """End a stream in good order."""
        if self._streaming and not self._done:
            self._done = True
            self._connection.send(b"0\r\n\r\n")
            self._ended()
            self._connection.finished(self)

    def abort(self) -> None:
        """Cut the connection, as a broken network would."""
        self._connection.abort()

    def lost(self) -> None:
        """Note that the client is gone."""
        if not self._done:
            self._done = True
            self._ended()

    def _ended(self) -> None:
        if self.on_close is not None:
            callback, self.on_close = self.on_close, None
            callback()


Dispatch = Callable[[Request, Exchange], None]


class Connections(set["Connection"]):
    """The open connections of one server."""

    closed = False
    """Whether the server has ended: a connection that was accepted before and starts only now is cut."""


class Connection(asyncio.Protocol):
    """One client connection: a small machine that waits for a head, then for a body, then for the answer.

    ::

        head --(complete)--> body --(complete)--> busy --(answered)--> head
    """

    def __init__(self, dispatch: Dispatch, connections: Connections) -> None:
        self._dispatch, self._connections = dispatch, connections
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._chunks = bytearray()
        """The received chunks of a body."""
        self._busy: Exchange | None = None
        self._head: tuple[Request, bool, int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        if self._connections.closed:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End; an open stream is notified."""
        del exc
        self._connections.discard(self)
        self._transport = None
        if self._busy is not None:
            self._busy.lost()

    def data_received(self, data: bytes) -> None:
        """Take bytes in, and handle each complete request."""
        self._buffer += data
        self._advance()

    def send(self, data: bytes) -> None:
        """Write to the client, if it is still connected."""
        if self._transport is not None:
            self._transport.write(data)

    def backlog(self) -> int:
        """Return the number of bytes that the transport holds back."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    def shut(self) -> None:
        """End the connection: a stream in good order, anything else after its sent data."""
        if self._busy is not None:
            self._busy.close()
        if self._transport is not None:
            self._transport.close()

    def finished(self, exchange: Exchange) -> None:
        """Go on to the next request."""
        if self._busy is exchange:
            self._busy = None
        if not exchange.keep_alive:
            if self._transport is not None:
                self._transport.close()
        elif self._buffer and self._transport is not None:
            asyncio.get_running_loop().call_soon(self._advance)

    def _advance(self) -> None:
        while self._busy is None and self._transport is not None:
            if self._head is None and not self._read_head():
                return
            assert self._head is not None  # noqa: S101 - `_read_head` has just set it
            request, keep_alive, length = self._head
            body = self._take_chunked() if length < 0 else self._take(length)
            if body is None:
                return
            self._head = None
            request.body = body
            exchange = Exchange(self, keep_alive=keep_alive, head_only=request.method == "HEAD")
            self._busy = exchange
            if exchange.head_only:
                request.method = "GET"
            self._dispatch(request, exchange)

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_LIMIT:
                self._refuse(431, b"request head too large")
            return False
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        try:
            method, target, protocol = lines[0].split(" ")
            headers = {}
            for line in lines[1:]:
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            chunked = "chunked" in headers.get("transfer-encoding", "").lower()
            length = -1 if chunked else int(headers.get("content-length") or 0)
        except ValueError:
            self._refuse(400, b"malformed request")
            return False
        if length > BODY_LIMIT or (length < 0 and not chunked):
            self._refuse(413, b"request body too large")
            return False
        wants = headers.get("connection", "").lower()
        keep_alive = "close" not in wants and (protocol == "HTTP/1.1" or "keep-alive" in wants)
        path, _, query = target.partition("?")
        if "%" in path:
            path = unquote(path)
        request = Request(method, path, dict(parse_qsl(query, keep_blank_values=True)) if query else {}, headers, b"")
        if "100-continue" in headers.get("expect", "").lower():
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._head = (request, keep_alive, length)
        return True

    def _take(self, length: int) -> bytes | None:
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _take_chunked(self) -> bytes | None:
        while True:
            end = self._buffer.find(b"\r\n")
            if end < 0:
                self._wait_for_chunk()
                return None
            try:
                size = int(bytes(self._buffer[:end]).split(b";")[0], 16)
            except ValueError:
                self._refuse(400, b"malformed chunk")
                return None
            if len(self._chunks) + size > BODY_LIMIT or size < 0:
                self._refuse(413, b"request body too large")
                return None
            if size > 0 and len(self._buffer) < end + 2 + size + 2:
                return None
            if size == 0:
                trailer_end = self._buffer.find(b"\r\n", end + 2)
                while trailer_end > end + 2:
                    end, trailer_end = trailer_end, self._buffer.find(b"\r\n", trailer_end + 2)
                if trailer_end < 0:
                    self._wait_for_chunk()
                    return None
                del self._buffer[: end + 4]
                body, self._chunks = bytes(self._chunks), bytearray()
                return body
            self._chunks += self._buffer[end + 2 : end + 2 + size]
            del self._buffer[: end + 2 + size + 2]

    def _wait_for_chunk(self) -> None:
        """Wait for the end of a line, or of the trailers: both count as a head, with its bound."""
        if len(self._buffer) > HEAD_LIMIT:
            self._refuse(431, b"chunk head too large")

    def _refuse(self, status: int, message: bytes) -> None:
        self.send(
            b"HTTP/1.1 %d %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
            % (status, _REASONS[status], len(message), message)
        )
        if self._transport is not None:
            self._transport.close()
