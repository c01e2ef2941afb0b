"""kopf's connections to the API server: our own sessions, which cut objects that are nested too deep to read.

`kopf_handlers` calls it when kopf logs in, in kopf's own loop. An API server takes ten thousand levels, but Python's
json, which kopf uses, ends at a thousand: one such object would end kopf. Levels below `limits.DEPTH` become null on
their way to kopf; the reflector hands the whole object to the quarantine.

kopf reopens an ended watch at once, hundreds of times a second when a server ends each at once. It also sleeps for as
long as a ``Retry-After`` asks. Here both are bounded as in the reflector.

After some errors, kopf ends the watch of a collection permanently, and goes on without it. These are a refusal, a line
that it can't read, and any stream failure except an old version. So each of these becomes an old version, after which
kopf lists again. When a list fails, kopf receives a broken connection, and asks again.

kopf begins with discovery: a bad answer there ends kopf, and an answer without our resources leaves them unwatched.
They are installed before kopf starts, so either is a passing fault. kopf receives a broken connection, and asks again.

Invariants: kopf reads only JSON of bounded depth and size. Lists and watches of a collection keep their pace. No answer
ends a watch.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from itertools import takewhile
from typing import Any, Final

import aiohttp
import kopf
import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from cotide_core.errors import ClusterError
from cotide_core.limits import DEPTH
from cotide_kube.answer_bodies import counted
from cotide_kube.answers import RETRY_AFTER_SECONDS, AnswerTooLargeError, retry_after
from cotide_kube.credentials import Credentials
from cotide_kube.decoding import shallow
from cotide_kube.reflector import RECONNECT, STEADY_SECONDS
from cotide_operator.apis.names import GROUP, VERSION

_OURS: Final = f"/apis/{GROUP}/{VERSION}"
_DISCOVERY: Final = re.compile(r"/api(?:/[^/]+)?$|/apis(?:/[^/]+/[^/]+)?$")
"""The end of the paths by which kopf discovers resources; a proxy's own path may stand before it."""
_REPEATED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
"""Refusals after which kopf repeats a request by itself, as after each failure of the server."""
_DISCOVERED: Final = frozenset({"jobs", "workloads"})
"""Plural names of the resources that kopf watches."""
_EXPIRED: Final = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
"""The only error of a watch after which kopf lists again; after any other it never watches that collection again."""
_IN_A_LINE: Final = DEPTH + 1
_IN_A_LIST: Final = DEPTH + 2


class _Failure(msgspec.Struct):
    """The decoded part of an object in a line that reports a failure."""

    code: int = 0


class _Line(msgspec.Struct):
    """The decoded part of a line of a watch."""

    type: str
    object: msgspec.Raw


def _is_sound(line: bytes) -> bool:
    """Whether kopf goes on after a line of a watch: it can be read, and reports no failure except an old version."""
    if not line.strip():
        return True
    try:
        read = msgspec.json.decode(line, type=_Line)
        return read.type != "ERROR" or msgspec.json.decode(read.object, type=_Failure).code == HTTPStatus.GONE
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


class _Versioned(msgspec.Struct):
    """What kopf reads of a version of a group."""

    version: str


class _Group(msgspec.Struct, rename="camel"):
    """What kopf reads of a group."""

    name: str
    versions: list[_Versioned]
    preferred_version: _Versioned


class _Resource(msgspec.Struct, rename="camel"):
    """What kopf reads of a resource."""

    name: str
    kind: str
    singular_name: str
    namespaced: bool
    verbs: list[str] | None = None
    short_names: list[str] = []  # a struct copies it
    categories: list[str] = []


class _Core(msgspec.Struct):
    """What kopf reads at ``/api``."""

    versions: list[str]


class _Groups(msgspec.Struct):
    """What kopf reads at ``/apis``."""

    groups: list[_Group]


class _Resources(msgspec.Struct):
    """What kopf reads at a version of a group."""

    resources: list[_Resource] = []


def _is_discovered(path: str, body: bytes) -> bool:
    """Whether kopf can go on from an answer to discovery: it can be read, and has our resources where they belong."""
    try:
        if path == "/api":
            return bool(msgspec.json.decode(body, type=_Core).versions)
        if path == "/apis":
            groups = msgspec.json.decode(body, type=_Groups).groups
            return any(group.name == GROUP and _Versioned(VERSION) in group.versions for group in groups)
        resources = msgspec.json.decode(body, type=_Resources).resources
        watched = {resource.name for resource in resources if "watch" in (resource.verbs or ())}
        return path != _OURS or watched >= _DISCOVERED
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


class WatchPace:
    """Delays a list or watch of a collection that begins soon after the last one: longer each time, see `reflector`."""

    def __init__(self) -> None:
        self._rng = random.Random()
        self._last: dict[tuple[str, bool], tuple[float, int]] = {}
        """Start of the last request on the loop's clock, and the number of early ones in a row, by path and whether it
        is a watch."""

    async def hold(self, method: str, url: URL) -> None:
        """Return when this request may be sent."""
        is_watch = "watch" in url.query
        if method != "GET" or not (is_watch or "limit" in url.query) or "continue" in url.query:
            return
        loop, key = asyncio.get_running_loop(), (url.path, is_watch)
        began, early = self._last.get(key, (float("-inf"), 0))
        early = early + 1 if loop.time() - began < STEADY_SECONDS else 0
        if early:
            await asyncio.sleep(RECONNECT.wait_seconds(early, self._rng))
        self._last[key] = loop.time(), early

    def trace(self) -> aiohttp.TraceConfig:
        """Return a trace that makes a session call `hold` before each request."""
        config = aiohttp.TraceConfig()

        async def begin(_session: Any, _context: Any, request: aiohttp.TraceRequestStartParams) -> None:
            await self.hold(request.method, request.url)

        config.on_request_start.append(begin)
        return config


class _ShallowStream:
    """A response's content with cut lines and a bounded size; all else is the content's own.

    Parameters
    ----------
    asked : method and URL of the request.
    """

    def __init__(self, content: aiohttp.StreamReader, asked: str) -> None:
        self._content, self._asked = content, asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def read(self) -> bytes:
        """Return the whole content.

        Raises
        ------
        ClusterError
            When it is larger than an answer may be; kopf's own session lets the server compress what it sends.
        """
        try:
            return await counted(self._content)
        except AnswerTooLargeError as error:
            raise ClusterError(f"the API server {error} ({self._asked})") from error

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines, up to the first that would end kopf's watch permanently."""
        rest = b""
        async for chunk in self._content.iter_chunked(size):
            whole, newline, rest = (rest + chunk).rpartition(b"\n")
            if newline:
                lines = whole.split(b"\n")
                sound = list(takewhile(_is_sound, lines))
                yield b"".join(shallow(line, _IN_A_LINE) + b"\n" for line in sound)
                if len(sound) < len(lines):
                    yield _EXPIRED
                    return
        if rest.strip():  # an incomplete line
            yield _EXPIRED


class _Refused:
    """The content of an answer that refuses a watch."""

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield the only line."""
        del size
        yield _EXPIRED


class _ShallowResponse(aiohttp.ClientResponse):
    """A response that contains JSON for kopf."""

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        """The headers, with a ``Retry-After`` within our bound."""
        found: CIMultiDictProxy[str] = super().headers
        return _soon(found) if self.status == HTTPStatus.TOO_MANY_REQUESTS else found

    async def json(self, *, encoding: str | None = None, loads: Callable[[str], Any] | None = None, **_: Any) -> Any:
        """Return the body, cut by depth."""
        del encoding
        text = shallow(await self.read(), _IN_A_LIST).decode("utf-8", "replace")
        try:
            found = (loads or json.loads)(text) if text.strip() else None
        except ValueError:
            if self.method != "GET" and self.status < HTTPStatus.BAD_REQUEST:
                return {}  # of a write kopf uses nothing that must be there
            if not self._is_list:
                raise
            found = None
        if self._is_list and not isinstance(found, dict):
            raise aiohttp.ClientPayloadError(f"the list at {self.url} can't be read")
        return found

    @property
    def _is_list(self) -> bool:
        return self.method == "GET" and "limit" in self.url.query

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Begin to read. Cut the stream, and read an answer to discovery as a whole."""
        await super().start(connection)
        if self.status >= HTTPStatus.BAD_REQUEST and self.status != HTTPStatus.UNAUTHORIZED:
            if "watch" in self.url.query:
                self.close()
                self.status, self.content = HTTPStatus.OK, _Refused()  # type: ignore[assignment]  # behaves as one
                return self
            if self._is_list:
                self.close()
                raise aiohttp.ClientPayloadError(f"{self.url} was answered with {self.status}")
        self.content = _ShallowStream(self.content, f"{self.method} {self.url}")  # type: ignore[assignment]  # behaves as one
        discovery = _DISCOVERY.search(self.url.path) if self.method == "GET" and not self.url.query else None
        if discovery is not None and self.status not in _REPEATED and self.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            await self._check_discovery(discovery[0])
        return self

    async def _check_discovery(self, path: str) -> None:
        if self.status == HTTPStatus.NOT_FOUND and path not in ("/api", "/apis", _OURS):
            return  # the last resource of another group is gone, which kopf expects
        body = await self.read()
        if self.status >= HTTPStatus.BAD_REQUEST or not _is_discovered(path, body):
            raise aiohttp.ClientConnectionError(
                f"{self.url} was answered with {self.status}, and not with our resources"
            )


def _soon(headers: CIMultiDictProxy[str]) -> CIMultiDictProxy[str]:
    """Return headers with a ``Retry-After`` that kopf can read and that is within our bound."""
    asked = retry_after(headers.get("Retry-After"))
    bounded = CIMultiDict(headers)
    # Without the header kopf reads an unbounded figure in the body.
    seconds = RETRY_AFTER_SECONDS if asked is None else min(asked, RETRY_AFTER_SECONDS)
    bounded["Retry-After"] = str(math.ceil(seconds))
    return CIMultiDictProxy(bounded)


def kopf_session(credentials: Credentials) -> kopf.AiohttpSession:
    """Return our credentials in kopf's form; call it in the loop that will use them."""
    tls = credentials.ssl_context()
    header = credentials.token()
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=tls if tls is not None else True),
        headers={"Authorization": header} if header else None,
        proxy=credentials.proxy,
        response_class=_ShallowResponse,
        trace_configs=[WatchPace().trace()],
    )
    return kopf.AiohttpSession(
        server=credentials.server, default_namespace=credentials.namespace, aiohttp_session=session
    )
