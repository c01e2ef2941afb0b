"""The wire: sessions, one request with its safe retries, and the lines of a watch.

Used by `client.KubeClient` only, which knows the meaning of the requests. A request is tried again in three cases: the
server asked for that (429 with ``Retry-After``), the request never got there, or the caller declares a repetition
harmless. Everything else fails at once. Watches have a session of their own, so that they never take the connections of
requests.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from cotide_core.errors import ClusterError
from cotide_core.limits import LINE_BYTES
from cotide_kube.answer_bodies import counted, unpacked_body
from cotide_kube.answers import RETRY_AFTER_SECONDS, AnswerTooLargeError, ApiError, read_status, retry_after
from cotide_kube.backoff import Backoff
from cotide_kube.connection.faults import why_unreachable
from cotide_kube.connection.ramp import ConnectionRamp
from cotide_kube.credentials import Credentials

_LOG = logging.getLogger(__name__)

Lines = list[bytes]
JSON: Final = "application/json"
MAX_TRIES: Final = 5
"""First try included; chosen: with the default back-off a request gives up after about three seconds."""
UNENDED_BYTES: Final = 2 * LINE_BYTES
"""Of an unfinished line of a watch; the decoder measures a finished one (chosen)."""
_PASSING: Final = frozenset({500, 502, 503, 504})
"""Status codes that may change a moment later."""
Fence = Callable[[], None]
"""Raises a `ClusterError` when a request may not be sent (any more)."""
_FENCE: ContextVar[Fence | None] = ContextVar("fence", default=None)


class Request(NamedTuple):
    """A request to the server; the body as it is sent."""

    method: str
    path: str
    body: bytes | None = None
    params: Mapping[str, str] | None = None
    content_type: str = JSON


class Outcome(NamedTuple):
    """The answer that was kept."""

    code: int
    """0 where the request was held back here; then the body says why."""
    body: bytes
    retry_after_seconds: float | None
    uncertain: bool
    """Whether an earlier try may have been carried out although its answer was lost."""


class _Request(aiohttp.ClientRequest):
    """A request that checks its fence right before its first byte: it may have waited for a connection.

    A request with a body checks it twice. Before Python 3.12 aiohttp writes it, headers and all, in a task that begins
    one turn of the loop later. The process may pause for long in between.
    """

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        fence = _FENCE.get()
        if fence is not None:
            fence()
        return await super().send(conn)

    async def write_bytes(self, writer: Any, conn: Any, content_length: int | None = None) -> None:
        fence = _FENCE.get()
        if fence is not None:
            try:
                fence()
            except ClusterError as error:
                conn.protocol.set_exception(error)  # the waiting caller gets the error; nothing was written
                return
        await super().write_bytes(writer, conn, content_length)


class Transport:
    """Two aiohttp sessions and the retry rules.

    Parameters
    ----------
    credentials : Credentials
    max_connections : int
        Upper bound of concurrent requests.
    timeout_seconds : float
        For one try, from sending it to the last byte of the answer.
    rng : random.Random
        For jitter.
    asks_silence_again : bool
        Whether a try that got no answer in time is repeated.
    most_pause_seconds : float
        Longest pause that a ``Retry-After`` causes.
    """

    def __init__(
        self,
        credentials: Credentials,
        max_connections: int,
        timeout_seconds: float,
        backoff: Backoff,
        rng: random.Random,
        *,
        asks_silence_again: bool = True,
        most_pause_seconds: float = RETRY_AFTER_SECONDS,
    ) -> None:
        self.credentials = credentials
        self._asks_silence_again = asks_silence_again
        self._most_pause_seconds = most_pause_seconds
        self._max_connections = max_connections
        self._ramp = ConnectionRamp(max_connections)
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._backoff, self._rng = backoff, rng
        self._server = URL(credentials.server, encoded=True)
        self._session: aiohttp.ClientSession | None = None
        self._watch_session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Open both sessions; must be called inside the running event loop."""
        tls = self.credentials.ssl_context()
        self._session = _session(tls, self._max_connections)
        self._watch_session = _session(tls, 0)

    async def close(self) -> None:
        """Close all connections."""
        for session in (self._session, self._watch_session):
            if session is not None:
                await session.close()
        self._session = self._watch_session = None

    async def send(
        self,
        request: Request,
        *,
        may_repeat: bool,
        throttle_is_answer: bool = False,
        fence: Fence | None = None,
        fence_is_answer: bool = False,
        compressed: bool = False,
    ) -> Outcome:
        """Send until there is an answer to keep, by the rules in the module's docstring; raise if no answer came.

        ``fence`` is called before each try, at the last moment; its exception ends the request. With
        ``fence_is_answer`` the exception is an outcome of code 0, since only earlier tries may have been carried out.
        ``compressed`` allows the server to compress its answer.
        """
        _FENCE.set(fence)
        method, path, body, params, content_type = request
        session, url = self._opened(self._session), self._url(path, params)
        uncertain, refused_token, tries = False, False, 0
        while True:
            tries += 1
            wait: float | None = None
            try:
                async with (
                    self._ramp,
                    session.request(
                        method,
                        url,
                        data=body,
                        headers=self._headers(content_type if body is not None else None, compressed=compressed),
                        timeout=self._timeout,
                        proxy=self.credentials.proxy,
                        server_hostname=self.credentials.server_name,
                        auto_decompress=False,
                    ) as response,
                ):
                    answer, code = await unpacked_body(response), response.status
                    wait = retry_after(response.headers.get("Retry-After")) if code >= 400 else None
            except AnswerTooLargeError as error:
                raise ClusterError(f"{self.credentials.described} {error} ({method} {path})") from error
            except ClusterError as error:  # the fence's, or of a token that can't be read: nothing of this try was sent
                if not fence_is_answer:
                    raise
                return Outcome(0, str(error).encode(), None, uncertain)
            except (aiohttp.ClientError, OSError) as error:  # time-outs are OSErrors
                # Refused connections never carried the request; all others may have carried it out.
                sent = not isinstance(error, aiohttp.ClientConnectorError)
                uncertain = uncertain or sent
                silent = isinstance(error, TimeoutError) and not self._asks_silence_again
                hopeless = silent or isinstance(error, aiohttp.ClientSSLError)
                if hopeless or tries >= MAX_TRIES or (sent and not may_repeat):
                    raise self._unreachable(method, path, error) from error
                fault = self._why(error)
            else:
                if code == 401 and not refused_token:
                    # Tokens expire; a fresh one deserves exactly one more try.
                    refused_token = True
                    self.credentials.token.forget()
                    continue
                throttled = code == 429 and not throttle_is_answer
                passing = code in _PASSING and may_repeat
                if not (throttled or passing) or tries >= MAX_TRIES:
                    return Outcome(code, answer, wait, uncertain)
                uncertain = uncertain or passing
                fault = f"answered {code}"
            pause = self._backoff.wait_seconds(tries, self._rng)
            if wait is not None:
                pause = max(pause, min(wait, self._most_pause_seconds))
            _LOG.debug("%s %s: %s, trying again in %.1f s", method, path, fault, pause)
            await asyncio.sleep(pause)

    async def watch(self, path: str, params: Mapping[str, str], silence_seconds: float) -> AsyncIterator[Lines]:
        """Yield the complete lines of a watch as they come; lines that arrive together form one batch.

        Ends when the server closes the connection; a line cut off there is dropped.

        Raises
        ------
        ApiError
            When the server refuses the watch.
        ClusterError
            When the connection fails, a line does not end, or nothing came for ``silence_seconds``: the connection may
            be dead without a sign.
        """
        query = {**params, "watch": "true"}
        try:
            async with await self._open_watch(path, query, silence_seconds) as response:
                rest = b""
                async for chunk in response.content.iter_any():
                    lines = (rest + chunk).split(b"\n")
                    rest = lines.pop()
                    if len(rest) > UNENDED_BYTES:
                        raise ClusterError(f"watch {path}: a line goes on for more than {UNENDED_BYTES} bytes")
                    if whole := [line for line in lines if line]:
                        yield whole
        except AnswerTooLargeError as error:
            raise ClusterError(f"{self.credentials.described} {error} (watch {path})") from error
        except TimeoutError as error:
            raise ClusterError(f"watch {path}: nothing came for {silence_seconds:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ClusterError(f"watch {path}: {self._why(error)}") from error

    async def _open_watch(self, path: str, query: Mapping[str, str], silence_seconds: float) -> aiohttp.ClientResponse:
        session, url = self._opened(self._watch_session), self._url(path, query)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=silence_seconds)
        _FENCE.set(None)
        for last in (False, True):
            response = await session.get(
                url,
                headers=self._headers(None),
                timeout=timeout,
                proxy=self.credentials.proxy,
                server_hostname=self.credentials.server_name,
            )
            if response.status < 300:
                return response
            async with response:
                body = await counted(response.content)
            if response.status == 401 and not last:
                self.credentials.token.forget()
                continue
            reason = read_status(response.status, body)
            raise ApiError(response.status, *reason, f"watch {path}", self.credentials.described)
        raise AssertionError("unreachable: the last try returns or raises")

    def _opened(self, session: aiohttp.ClientSession | None) -> aiohttp.ClientSession:
        if session is None:
            raise ClusterError("the client is not open: use it as `async with KubeClient(...)`")
        return session

    def _url(self, path: str, params: Mapping[str, str] | None) -> URL:
        # Paths are built from names of the API, which need no quoting; only the query does.
        if not params and "?" not in path:  # As of bindings: a third of the time of parsing it whole.
            return self._server.with_path(f"{self._server.raw_path.rstrip('/')}{path}", encoded=True)
        query = f"{'&' if '?' in path else '?'}{urlencode(params)}" if params else ""
        return URL(f"{self.credentials.server}{path}{query}", encoded=True)

    def _headers(self, content_type: str | None, *, compressed: bool = False) -> dict[str, str]:
        headers = {} if content_type is None else {"Content-Type": content_type}
        if compressed:
            headers["Accept-Encoding"] = "gzip"
        if (authorization := self.credentials.token()) is not None:
            headers["Authorization"] = authorization
        return headers

    def _why(self, error: Exception) -> str:
        return why_unreachable(error, self.credentials.server, self._timeout.total)

    def _unreachable(self, method: str, path: str, error: Exception) -> ClusterError:
        return ClusterError(f"{self.credentials.described} is unreachable: {self._why(error)} ({method} {path})")


def _session(tls: ssl.SSLContext | None, limit: int) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        limit=limit, ssl=tls if tls is not None else True, keepalive_timeout=30, ttl_dns_cache=60
    )
    # An answer is compressed only at a request's wish, and no answer sets a cookie.
    headers = {"User-Agent": "cotide", "Accept": JSON, "Accept-Encoding": "identity"}
    cookies = aiohttp.DummyCookieJar()
    return aiohttp.ClientSession(connector=connector, headers=headers, cookie_jar=cookies, request_class=_Request)
