"""The official Kubernetes client, for uses without need of throughput: the commands connect and read with it.

Called by `consolidation.official_client` and `explain.reader`. The operator itself does not use it. Loading this client
takes 0.3 s of cpu and 29 MB before the first list and in every replica; our own reading of a kubeconfig takes 0.05 s
(measured). It also posts half as many bindings a second. A command that waits for one answer pays no more than for our
own client, since the HTTP library of that takes as long to load.

Invariant: every failure is a `ClusterError`, and a file that is no kubeconfig, or is missing, an `InputError`. Each is
one sentence that names the server or the file. Answers are the server's own bytes.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from urllib3 import HTTPHeaderDict, HTTPResponse, Retry
from urllib3.exceptions import HTTPError, MaxRetryError, NewConnectionError, SSLError
from urllib3.exceptions import TimeoutError as HTTPTimeoutError

from cotide_core.errors import ClusterError, InputError
from cotide_kube.answers import ANSWER_BYTES, AnswerTooLargeError, ApiError, is_named, read_status
from cotide_kube.connection.faults import why_unreachable
from cotide_kube.credentials import NO_CLUSTER, SERVICE_ACCOUNT
from cotide_kube.decoding import UNREADABLE
from cotide_kube.kubeconfig import check_size, expanded, read

READ_SECONDS: Final = 10.0
"""Longest silence of a server during a read; chosen: a user waits at a terminal."""
WRITE_SECONDS: Final = 30.0
"""Longest silence during a write, since admission webhooks take part: by default each has 10 s."""
TRIES_MORE: Final = 3
"""Tries when a server closed the connection or asks for a repetition (chosen: urllib3's own default)."""
RETRY_AFTER_SECONDS: Final = 10
"""Longest pause that a server may ask for by ``Retry-After``; chosen as `READ_SECONDS`."""
_PIECE_BYTES: Final = 1 << 20


class _Tries(Retry):
    """Repeats as urllib3 does, except after failures that a repetition would not change: silence, bad TLS, a closed
    port.
    """

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: Any = None,
        error: Exception | None = None,
        _pool: Any = None,
        _stacktrace: Any = None,
    ) -> _Tries:
        """Return the remaining tries, or raise the error."""
        if isinstance(error, HTTPTimeoutError | NewConnectionError | SSLError):
            raise MaxRetryError(_pool, url or "", error) from error
        return super().increment(method, url, response, error, _pool, _stacktrace)


def connect(kubeconfig: str | None = None, context: str | None = None, *, retries: bool = True) -> Any:
    """Return the official client's `ApiClient`, by a kubeconfig or from inside a cluster.

    Parameters
    ----------
    retries : whether its HTTP library repeats up to three times by itself, each time with a time-out of its own.

    Raises
    ------
    ClusterError
        When there is no usable configuration.
    InputError
        When the file named is no kubeconfig.
    """
    from kubernetes import client
    from kubernetes import config as untyped

    config: Any = untyped
    configuration: Any = client.Configuration()
    configuration.retries = _Tries(TRIES_MORE, retry_after_max=RETRY_AFTER_SECONDS) if retries else False
    named, context = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config", context or None
    for part in named.split(os.pathsep):
        check_size(expanded(part))
    try:
        api = config.new_client_from_config(config_file=kubeconfig, context=context, client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        if kubeconfig is not None or context is not None or expanded(named).exists():
            _blame(named, context)
            raise ClusterError(f"the kubeconfig can't be used: {error}") from error
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException as inside:
            raise InputError(NO_CLUSTER.format(looked_at=named)) from inside
        named, api = "", client.ApiClient(configuration)
    except Exception as error:  # its reader checks nothing: any error comes from the content of the file
        _blame(named, context)
        raise ClusterError(f"the kubeconfig can't be read: {' '.join(str(error).split())}") from error
    origin = f"kubeconfig {named}" if named else "in-cluster service account"
    server = f"the API server {configuration.host} ({origin}{f', context {context}' if context else ''})"
    api.rest_client.request = partial(_answer, api.rest_client.request, server)
    return api


def _blame(named: str, context: str | None) -> None:
    """Read a kubeconfig with our own reader, which raises and names the wrong field; several files are not checked."""
    if os.pathsep not in named:
        read(expanded(named), context)


def _answer(request: Callable[..., Any], server: str, method: str, url: str, **how: Any) -> Any:
    """Return the answer of one request, read to its end.

    Raises
    ------
    ClusterError
        When there is none; a refusal is one, too.
    """
    from kubernetes.client.exceptions import ApiException

    what = f"{method} /{url.partition('://')[2].partition('/')[2].partition('?')[0]}"
    try:
        answer = request(method, url, **how)
        answer.response = _whole(answer.response, (what, server))
    except AnswerTooLargeError as error:
        raise ClusterError(f"{server} {error} ({what})") from error
    except (HTTPError, OSError, ApiException) as error:
        if getattr(error, "status", None):  # 0 where TLS failed
            raise
        seconds = how.get("_request_timeout")
        raise ClusterError(f"{server} is unreachable: {why_unreachable(error, url, seconds)} ({what})") from error
    return answer


class _Headers(HTTPHeaderDict):
    """Headers of an answer: all that the official client's errors keep of it.

    Attributes
    ----------
    asked : the request, and the server.
    """

    asked: tuple[str, ...] = ()


def _whole(response: Any, asked: tuple[str, str]) -> HTTPResponse:
    """Return a response with its body already read: reading it waits no more.

    Raises
    ------
    AnswerTooLargeError
        When it is larger than `ANSWER_BYTES`; the rest is left unread.
    """
    pieces: list[bytes] = []
    left = ANSWER_BYTES
    try:
        for piece in response.stream(_PIECE_BYTES):
            pieces.append(piece)
            left -= len(piece)
            if left < 0:
                raise AnswerTooLargeError
    except BaseException:
        response.close()
        raise
    response.release_conn()
    headers = _Headers(response.headers)
    headers.asked = asked
    return HTTPResponse(
        io.BytesIO(b"".join(pieces)),
        headers,
        response.status,
        reason=response.reason,
        preload_content=False,
        decode_content=False,  # that has been done
    )


def namespace_of(kubeconfig: str | None = None, context: str | None = None) -> str:
    """Return the namespace of a context, or of the pod around us; ``default`` where none is named."""
    from kubernetes import config as untyped

    config: Any = untyped
    try:
        contexts, current = config.list_kube_config_contexts(config_file=kubeconfig)
    except Exception:  # noqa: BLE001 - no kubeconfig, or one that `connect` has refused in words
        own: Path = SERVICE_ACCOUNT / "namespace"
        return own.read_text(encoding="utf-8").strip() if own.exists() else "default"
    chosen = next((entry for entry in contexts if entry["name"] == context), current)
    return str((chosen.get("context") or {}).get("namespace") or "default")


def ask(call: Callable[..., Any], *args: Any, seconds: float = READ_SECONDS, **kwargs: Any) -> bytes:
    """Return the bytes of an answer.

    Parameters
    ----------
    seconds : longest silence of the server; `WRITE_SECONDS` where something is written.

    Raises
    ------
    ApiError
        When the API server refuses.
    ClusterError
        When it can't be reached.
    """
    from kubernetes.client.exceptions import ApiException

    try:
        return bytes(call(*args, **kwargs, _preload_content=False, _request_timeout=seconds).data)
    except ApiException as error:
        status = int(error.status or 0)
        body = error.body.encode() if isinstance(error.body, str) else b""
        raise ApiError(status, *read_status(status, body), *getattr(error.headers, "asked", ())) from error


def object_in(body: bytes) -> dict[str, Any]:
    """Return the object that an API server sent; of a list its items are objects with a name.

    Raises
    ------
    ClusterError
        When the answer is invalid: a proxy's page with status 200, for example.
    """
    try:
        answer: Any = msgspec.json.decode(body)
    except UNREADABLE as error:
        raise ClusterError(f"the API server's answer can't be read: {error}; is it one?") from error
    if not isinstance(answer, dict) or not isinstance(items := answer.get("items") or [], list):
        raise ClusterError("the API server's answer is no object of Kubernetes; is it one?")
    if not all(isinstance(answer.get(part), dict | None) for part in ("metadata", "spec")):
        raise ClusterError("the API server's answer is no object of Kubernetes; is it one?")
    if not all(map(is_named, items)):
        raise ClusterError("the API server's answer is no list of objects of Kubernetes; is it one?")
    return answer


def list_in(body: bytes) -> tuple[list[dict[str, Any]], str]:
    """Return the objects of a page of a list that an API server sent, and the mark of the next page; empty for none.

    Raises
    ------
    ClusterError
        When it is invalid; an answer without ``items`` is invalid, not an empty list.
    """
    page = object_in(body)
    after = (page.get("metadata") or {}).get("continue") or ""
    if "items" not in page or not isinstance(after, str):
        raise ClusterError("the API server's answer is no list of objects of Kubernetes; is it one?")
    return page["items"] or [], after
