"""Queries a Prometheus over HTTP: with its credentials, its trusted certificates and the limits of an answer.

Called by `prometheus`. Token, certificates and secret headers are files that are replaced in place, as in projected
volumes. The token is read again once a minute and when the server refuses it, the others when a file changes.
Invariant: an answer is read up to its limit; there the connection is closed.

Source: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec

from cotide_core.errors import CotideError
from cotide_kube.connection.faults import TrustSettings, why_unreachable
from cotide_kube.credentials import Credentials, FileToken
from cotide_operator.config.metric_settings import HeaderSettings, PrometheusSourceSettings, is_header_value
from cotide_operator.usage.sources import THREAD_ABOVE_BYTES, SourceDown

REFUSALS: Final = (400, 422, 503)
"""Statuses of Prometheus for a query that it can't parse, run, or end in time: an answer with the reason."""
POSTED_ABOVE_CHARACTERS: Final = 4000
"""Length of a query above which it is posted; chosen: proxies take lines of 8 kB, and quoting can double it."""
SECRET_BYTES: Final = 1 << 20
"""Limit of a token, certificate or key file: the size of a Secret."""
_TLS: Final = TrustSettings("tls.caFile", "tls.serverName", "a certificate or key of tls")
_SERIES: Final = b'"metric"'
"""Occurs once in each series of an answer; in a label's value its quotes would be escaped."""


class AnswerTooLarge(SourceDown):
    """An answer was cut off at its limit."""


class Limits(NamedTuple):
    """Limits of one answer."""

    bytes: int
    series: int


class PrometheusClient:
    """Sends requests to one Prometheus.

    Parameters
    ----------
    session : its timeout holds for each request.
    settings : url, token and certificates.
    """

    def __init__(self, session: aiohttp.ClientSession, settings: PrometheusSourceSettings) -> None:
        self._session = session
        self._url = settings.url
        self._tls = settings.tls
        self._extra = {name: _Header(name, header) for name, header in settings.headers.items()}
        self._token = FileToken(settings.bearer_token_file) if settings.bearer_token_file is not None else None
        self._context: ssl.SSLContext | None = None
        self._files: tuple[object, ...] = ()

    async def answer(self, path: str, parameters: Mapping[str, str], limits: Limits) -> dict[str, Any]:
        """Return the decoded answer to a query.

        Raises
        ------
        AnswerTooLarge
            When it has more bytes or series than the limits.
        SourceDown
            When no answer comes in time, or the answer is not from Prometheus.
        """
        refused, body = await self._send(path, parameters, limits)
        if refused and self._token is not None:
            self._token.forget()
            refused, body = await self._send(path, parameters, limits)
        if refused:
            raise SourceDown(f"{self._url}{path} answers 401: it does not accept the credentials")
        return await asyncio.to_thread(_decoded, body) if len(body) > THREAD_ABOVE_BYTES else _decoded(body)

    async def _send(self, path: str, parameters: Mapping[str, str], limits: Limits) -> tuple[bool, bytes]:
        """Return whether the credentials were refused, and the body."""
        url = f"{self._url}{path}"
        posted = len(parameters.get("query", "")) > POSTED_ABOVE_CHARACTERS
        # Not compressed: a few bytes on the wire could expand to any size in memory.
        extra = {name: header.text() for name, header in self._extra.items()}
        headers = {"Accept-Encoding": "identity", **extra, **self._authorization()}
        try:
            async with self._session.request(
                "POST" if posted else "GET",
                url,
                params=None if posted else parameters,
                data=parameters if posted else None,
                headers=headers,
                ssl=self._trust() or True,
                server_hostname=self._tls.server_name,
                allow_redirects=False,  # the token is for this url
            ) as response:
                if response.status == 401:
                    return True, b""
                if response.status != 200 and response.status not in REFUSALS:
                    raise SourceDown(f"{url} answers {response.status} {response.reason}")
                return False, await _read(response, limits)
        except TimeoutError as error:
            raise SourceDown(f"{url} does not answer in time") from error
        except aiohttp.ClientError as error:
            raise SourceDown(f"{url} can't be reached: {why_unreachable(error, url, trust=_TLS)}") from error

    def _authorization(self) -> dict[str, str]:
        if self._token is None:
            return {}
        try:
            header = self._token() or ""
        except (CotideError, UnicodeDecodeError) as error:
            raise SourceDown(f"metricsSource.prometheus.bearerTokenFile: {error}") from error
        if not header.isascii() or not header.isprintable() or len(header) > SECRET_BYTES:
            self._token.forget()
            raise SourceDown("metricsSource.prometheus.bearerTokenFile: holds no token: one line of plain characters")
        return {"Authorization": header}

    def _trust(self) -> ssl.SSLContext | None:
        """Return the TLS settings of an https source, made again after a change of its files."""
        if not self._url.startswith("https:"):
            return None
        paths = (self._tls.ca_file, self._tls.certificate_file, self._tls.key_file)
        try:
            files = tuple(None if path is None else _version(path) for path in paths)
            if self._context is None or files != self._files:
                authority, certificate, key = (None if path is None else _contents(path) for path in paths)
                credentials = Credentials(
                    self._url,
                    "metricsSource.prometheus.tls",
                    certificate_authority=authority,
                    client_certificate=certificate,
                    client_key=key,
                )
                self._context, self._files = credentials.ssl_context(), files
        except OSError as error:
            raise SourceDown(f"metricsSource.prometheus.tls: {error.filename}: {error.strerror}") from error
        except CotideError as error:
            raise SourceDown(str(error)) from error
        return self._context


class _Header:
    """The value of one header of the configuration; no message holds it."""

    def __init__(self, name: str, settings: HeaderSettings) -> None:
        self._field = f"metricsSource.prometheus.headers.{name}"
        self._settings = settings
        self._version: object = None
        self._text = ""

    def text(self) -> str:
        """Return the current value.

        Raises
        ------
        SourceDown
            When the file or the variable has no value; the error names it.
        """
        settings = self._settings
        if settings.value is not None:
            return settings.value.get_secret_value()
        if settings.file is not None:
            where, found = str(settings.file), self._of_file(settings.file)
        else:
            name = settings.env or ""
            where, found = f"environment variable {name}", os.environ.get(name, "").strip()
        if not is_header_value(found):
            raise SourceDown(f"{self._field}: {where} holds no value: one line of plain characters")
        return found

    def _of_file(self, path: Path) -> str:
        try:
            version = _version(path)
            if version != self._version:
                self._text, self._version = _contents(path).decode("utf-8", "replace").strip(), version
        except OSError as error:
            raise SourceDown(f"{self._field}: {path}: {error.strerror}") from error
        return self._text


def _version(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _contents(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(SECRET_BYTES)


async def _read(response: aiohttp.ClientResponse, limits: Limits) -> bytes:
    """Return the body; stop reading at its limits."""
    pieces: list[bytes] = []
    size = series = 0
    rest = b""
    async for piece in response.content.iter_any():
        size += len(piece)
        seen = rest + piece
        series += seen.count(_SERIES)
        rest = seen[1 - len(_SERIES) :]
        if size > limits.bytes or series > limits.series:
            response.close()
            what = f"{limits.series} series" if series > limits.series else f"{limits.bytes} bytes"
            raise AnswerTooLarge(f"the answer has more than {what}")
        pieces.append(piece)
    return b"".join(pieces)


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:  # a number of too many digits is a ValueError
        raise SourceDown("the answer is not JSON: is this a Prometheus?") from error
    if not isinstance(answer, dict):
        raise SourceDown("the answer is not what Prometheus sends")
    return answer
