"""Requests to an API server: one session, bounded connections, retries only where they are safe.

Used by the operator, the fake nodes and the command line. Bodies are encoded with orjson and sent as bytes, which is
two to three times as fast as the official clients. A request is tried again in three cases: the server asked for that
(429 with ``Retry-After``), the request never got there, or a repetition does no harm. The last are reads, replacements,
patches, deletions, and bindings and evictions that name the pod's uid. Everything else fails at once.
"""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncIterator, Mapping
from types import NoneType, TracebackType
from typing import Any, Final, Literal

import orjson

from cotide_core.errors import ClusterError
from cotide_kube.answers import RETRY_AFTER_SECONDS, Answer, ApiError, is_named, read_status
from cotide_kube.backoff import Backoff
from cotide_kube.credentials import Credentials
from cotide_kube.transport import JSON, Fence, Lines, Request, Transport

Object = dict[str, Any]
Objects = list[dict[str, Any]]
PatchKind = Literal["merge", "json", "strategic", "apply"]
PATCH_TYPES: Final[dict[str, str]] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
FIELD_MANAGER: Final = "cotide"
ANSWER_SECONDS: Final = 10.0
"""For one answer when a user waits at a terminal; chosen: a longer wait counts as lost."""
_READING: Final = frozenset({"GET", "HEAD"})
_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "PUT", "PATCH", "DELETE"})


class KubeClient:
    """A Kubernetes API client; use it as an async context manager.

    Parameters
    ----------
    credentials : Credentials
        Server and identity.
    max_connections : int
        Upper bound of concurrent requests; watches have connections of their own.
    timeout_seconds : float
        For one try of one request, from sending it to the last byte of the answer.
    seed : int
        Of the jitter.
    read_only : bool
        Whether every request that writes is refused here, before it is sent; no `unfenced` changes that.
    asks_silence_again : bool
        Whether a try without an answer in time is repeated; false when a user waits at a terminal.
    most_pause_seconds : float
        Longest pause that a server causes by ``Retry-After``.

    Attributes
    ----------
    fence : callable, optional
        Called before each try of each request that writes; raises `ClusterError` when writing is no longer allowed.
    """

    def __init__(
        self,
        credentials: Credentials,
        max_connections: int = 64,
        *,
        timeout_seconds: float = 30.0,
        backoff: Backoff | None = None,
        seed: int | None = None,
        read_only: bool = False,
        asks_silence_again: bool = True,
        most_pause_seconds: float = RETRY_AFTER_SECONDS,
    ) -> None:
        self.credentials = credentials
        self.fence: Fence | None = None
        self._read_only = read_only
        self._transport = Transport(
            credentials,
            max_connections,
            timeout_seconds,
            backoff or Backoff(),
            random.Random(seed),
            asks_silence_again=asks_silence_again,
            most_pause_seconds=most_pause_seconds,
        )

    async def __aenter__(self) -> KubeClient:
        self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    @property
    def _fence(self) -> Fence | None:
        return _no_writes if self._read_only else self.fence

    def unfenced(self) -> KubeClient:
        """Return a client over the same connections without this one's fence on writes."""
        other = copy.copy(self)
        other.fence = None
        return other

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        *,
        idempotent: bool | None = None,
        compressed: bool = False,
    ) -> bytes:
        """Send one request and return the body of a 2xx answer.

        Parameters
        ----------
        method, path : as ``GET`` and ``/api/v1/pods``; the path may carry its own query.
        body : bytes are sent as they are, anything else as JSON.
        idempotent : whether it may be sent twice; by default all methods but POST may.
        compressed : whether the server may compress its answer: worth it from a megabyte on.

        Raises
        ------
        ApiError
            When the server refuses it.
        ClusterError
            When no answer comes.
        """
        raw = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        may_repeat = method in _IDEMPOTENT if idempotent is None else idempotent
        fence = None if method in _READING else self._fence
        asked = Request(method, path, raw, params, content_type)
        outcome = await self._transport.send(asked, may_repeat=may_repeat, fence=fence, compressed=compressed)
        if outcome.code < 300:
            return outcome.body
        reason = read_status(outcome.code, outcome.body)
        raise ApiError(outcome.code, *reason, f"{method} {path}", self.credentials.described)

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Object:
        """Return one object."""
        return self._loads(await self.request("GET", path, params=params))

    async def create(self, path: str, body: Object, params: Mapping[str, str] | None = None) -> Object:
        """Create an object in the collection at ``path`` and return it as stored."""
        return self._loads(await self.request("POST", path, body, params))

    async def replace(self, path: str, body: Object, params: Mapping[str, str] | None = None) -> Object:
        """Replace an object; a stale ``resourceVersion`` in it is refused with 409."""
        return self._loads(await self.request("PUT", path, body, params))

    async def patch(
        self, path: str, patch: Any, kind: PatchKind = "merge", params: Mapping[str, str] | None = None
    ) -> Object:
        """Patch an object and return it; ``apply`` takes over fields of other managers.

        A JSON patch is only repeated after a lost answer when it carries a ``test``: adding to a list twice would add
        twice.
        """
        if kind == "apply":
            params = {"fieldManager": FIELD_MANAGER, "force": "true", **(params or {})}
        may_repeat = kind != "json" or any(step.get("op") == "test" for step in patch)
        body = await self.request("PATCH", path, patch, params, PATCH_TYPES[kind], idempotent=may_repeat)
        return self._loads(body)

    async def patch_blindly(self, path: str, patch: Any, kind: PatchKind = "merge") -> None:
        """Patch an object without reading the result, which may be unreadable."""
        params = {"fieldManager": f"{FIELD_MANAGER}-aside", "force": "true"} if kind == "apply" else None
        await self.request("PATCH", path, patch, params, PATCH_TYPES[kind], idempotent=kind != "json")

    async def delete(
        self, path: str, *, grace_seconds: int | None = None, uid: str | None = None, propagation: str | None = None
    ) -> Object:
        """Delete an object; with ``uid`` only that one object. Raises `ApiError` 404 when it is gone already."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if propagation is not None:
            options["propagationPolicy"] = propagation
        return self._loads(await self.request("DELETE", path, options))

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Answer:
        """Bind a pod to a node; the server adds the annotations to the pod in the same write.

        From Kubernetes 1.35 on it adds the labels, too (``PodTopologyLabelsAdmission``); older servers ignore them.

        Safe to repeat, because it names the uid. A try may have lost its answer. After that, a 409 which states that
        the pod already is on this very node is our own success.
        """
        metadata: Object = {"name": name, "namespace": namespace, "uid": uid}
        if annotations:
            metadata["annotations"] = dict(annotations)
        if labels:
            metadata["labels"] = dict(labels)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        answer = await self._answer(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body)
        if answer.code == 409 and answer.uncertain and f'already assigned to node "{node}"' in answer.message:
            return Answer(201)
        return answer

    async def evict(self, namespace: str, name: str, uid: str = "", grace_seconds: int | None = None) -> Answer:
        """Evict a pod; 429 means that a disruption budget forbids it now."""
        options: Object = {}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        metadata = {"name": name, "namespace": namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        return await self._answer(path, body, may_repeat=bool(uid), throttle_is_answer=True)

    async def _answer(
        self, path: str, body: Object, *, may_repeat: bool = True, throttle_is_answer: bool = False
    ) -> Answer:
        """POST, and turn every outcome into a value."""
        raw = orjson.dumps(body)
        try:
            outcome = await self._transport.send(
                Request("POST", path, raw),
                may_repeat=may_repeat,
                throttle_is_answer=throttle_is_answer,
                fence=self._fence,
                fence_is_answer=True,
            )
        except ClusterError as error:
            return Answer(0, "Unreachable", str(error), uncertain=True)
        if outcome.code == 0:
            return Answer(0, "HeldBack", outcome.body.decode(), uncertain=outcome.uncertain)
        if outcome.code < 300:
            if outcome.body[:1] != b"{":  # a proxy's page: the server's objects show whether the write happened
                return Answer(0, "Unreadable", "the answer is no object of Kubernetes", uncertain=True)
            return Answer(outcome.code, uncertain=outcome.uncertain)
        reason, message = read_status(outcome.code, outcome.body)
        return Answer(outcome.code, reason, message, outcome.retry_after_seconds, outcome.uncertain)

    async def list(self, path: str, params: Mapping[str, str] | None = None, chunk: int = 500) -> Objects:
        """Return all objects of a collection, fetched in chunks.

        A list with a continuation that grew too old (410) is read again in one piece.

        Raises
        ------
        ClusterError
            When the answer is no list of objects; an answer without ``items`` is invalid, not an empty list.
        """
        query = {"limit": str(chunk), **(params or {})}
        items: Objects = []
        while True:
            try:
                page = await self.get(path, query)
            except ApiError as error:
                if error.status != 410 or "continue" not in query:
                    raise
                query, items = dict(params or {}), []
                continue
            found = page.get("items") or []  # null is how Go writes none
            if "items" not in page or not all(map(is_named, found)):
                raise ClusterError(f"the answer of {self.credentials.described} to GET {path} is no list of objects")
            items.extend(found)
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return items
            if not isinstance(token, str) or token == query.get("continue"):
                raise ClusterError(f"{self.credentials.described} repeats the same page of {path} without end")
            query["continue"] = token

    def _loads(self, body: bytes) -> Object:
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise self._odd(body, "is no JSON") from error
        if not isinstance(found, dict):
            raise self._odd(body, "is no object")
        for part, kinds in _PARTS.items():
            if not isinstance(found.get(part), kinds):
                raise self._odd(body, f"has an odd {part}")
        return found

    def _odd(self, body: bytes, what: str) -> ClusterError:
        return ClusterError(f"the answer of {self.credentials.described} {what}: {body[:80]!r}")

    def watch(self, path: str, params: Mapping[str, str], silence_seconds: float) -> AsyncIterator[Lines]:
        """Yield the complete lines of a watch as they come: see `transport.Transport.watch`."""
        return self._transport.watch(path, params, silence_seconds)


_PARTS: dict[str, tuple[type, ...]] = {
    "metadata": (dict, NoneType),
    "spec": (dict, NoneType),
    "status": (dict, str, NoneType),  # the ``status`` of a Status is a word
    "items": (list, NoneType),
}
"""The caller may rely on this: a proxy's page or a broken server is an error here, not a surprise there."""


def _no_writes() -> None:
    raise ClusterError("nothing is written: this client only reads")
