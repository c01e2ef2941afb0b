"""From a request to its answer: authentication, faults, the URL, the verb.

Called by the HTTP protocol for every request; the only place where a `Refusal` becomes an HTTP answer. Position in the
flow: protocol -> here -> verb -> store -> watchers. A request is answered within the call, unless a fault delays it or
it is a watch.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from cotide_sim.apiserver.admission.admission import Consult
from cotide_sim.apiserver.admission.admission_reviews import Call, Reviewed
from cotide_sim.apiserver.cluster import Cluster, Reviews, WriteOptions
from cotide_sim.apiserver.http.faults import Faults
from cotide_sim.apiserver.http.http_protocol import Answer, Exchange, Request
from cotide_sim.apiserver.http.request_reading import (
    Target,
    check_version_match,
    flag,
    is_number,
    number,
    object_in,
    target_of,
    write_options,
    yaml_in,
)
from cotide_sim.apiserver.http.tables import Tables
from cotide_sim.apiserver.patch.json_patch import json_patch
from cotide_sim.apiserver.patch.merge_patch import merge_patch
from cotide_sim.apiserver.patch.server_side_apply import apply
from cotide_sim.apiserver.patch.strategic_patch import strategic_patch
from cotide_sim.apiserver.refusals import (
    Cause,
    Refusal,
    bad_option,
    bad_request,
    expired,
    method_not_allowed,
    success,
    unsupported_media,
)
from cotide_sim.apiserver.registry.resources import Json
from cotide_sim.apiserver.storage import deep_json
from cotide_sim.apiserver.storage.selectors import Selection
from cotide_sim.apiserver.storage.store import Entry
from cotide_sim.apiserver.storage.watching import Watcher, error_line, replay
from cotide_sim.apiserver.verbs import deleting, pod_subresources, writing
from cotide_sim.apiserver.verbs.reading import Lists, Page, list_body
from cotide_sim.apiserver.verbs.scaling import change_scale, scale_of

log = logging.getLogger(__name__)

REVIEW_ROUNDS: Final = 100
"""Most rounds of webhook calls for a request; chosen far above any usual number of webhooks."""
SHOWN_WHEN_GONE: Final = frozenset(
    {"pods", "resourcequotas", "serviceaccounts", "services", "persistentvolumes", "persistentvolumeclaims"}
    | {"podtemplates", "storageclasses.storage.k8s.io", "csinodes.storage.k8s.io", "csidrivers.storage.k8s.io"}
    | {"volumeattachments.storage.k8s.io"}
)
"""Kinds with the deleted object as the answer of a deletion; others answer with a Status (ReturnDeletedObject of
Kubernetes' registries).
"""
Fixed = Callable[[Request], Answer | None]
"""Answers the paths that are not resources (discovery, health, OpenAPI); None for paths that it does not know."""


class Dispatcher:
    """Answers requests on a cluster."""

    def __init__(self, cluster: Cluster, faults: Faults, fixed: Fixed, token: str = "") -> None:
        self._cluster, self._faults, self._fixed = cluster, faults, fixed
        self._authorization = f"Bearer {token}".encode() if token else b""
        self._lists = Lists(cluster)
        self._tables = Tables(cluster)
        self._room = deep_json.Room()
        self.after_write: Callable[[], None] = lambda: None
        """Called before the answer of a write is sent, so that persistence commits."""
        self.consult: Callable[[Sequence[Call], Callable[[dict[bytes, Reviewed]], None]], None]
        """Calls webhooks and returns their answers; set by the server."""
        self.requests = 0

    def __call__(self, request: Request, exchange: Exchange) -> None:
        """Answer one request."""
        self.requests += 1
        try:
            if self._authorization:
                self._authenticate(request)
            if self._faults.active and (fault := self._faults.next_for(request)) is not None:
                if fault.delay_seconds > 0:
                    self._cluster.later(fault.delay_seconds, lambda: self._guarded(request, exchange, fault.refusal()))
                    return
                if (refusal := fault.refusal()) is not None:
                    raise refusal
        except Refusal as refusal:
            exchange.answer(refused(refusal))
            return
        self._guarded(request, exchange, None)

    def _guarded(self, request: Request, exchange: Exchange, fault: Refusal | None) -> None:
        if exchange.done:
            return
        try:
            if fault is not None:
                raise fault
            answer = self._room.carry_out(lambda: self._answer(request, exchange))
        except Consult as wanted:
            self._consult(wanted, request, exchange)
            return
        except Refusal as refusal:
            answer = refused(refusal)
        except Exception:  # a bug of the emulator must end one request, not the server; it is logged in full
            log.exception("the request %s %s met a fault of the emulator", request.method, request.path)
            answer = refused(Refusal(500, "InternalError", "the emulator has a fault; its log has the details"))
        if answer is not None:
            if request.method != "GET":
                self.after_write()
            exchange.answer(answer)

    def _consult(self, wanted: Consult, request: Request, exchange: Exchange) -> None:
        """Call webhooks, and run the request again from its beginning when they have answered."""

        reviews = request.reviews = request.reviews or Reviews()
        reviews.given = reviews.given or wanted.given
        reviews.rounds += 1

        def resume(answers: dict[bytes, Reviewed]) -> None:
            reviews.answers |= answers
            self._guarded(request, exchange, None)

        if reviews.rounds > REVIEW_ROUNDS:
            exchange.answer(refused(Refusal(500, "InternalError", "the object kept changing while webhooks saw it")))
            return
        self.consult(wanted.calls, resume)

    def _authenticate(self, request: Request) -> None:
        if request.path in ("/healthz", "/livez", "/readyz"):
            return
        given = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, self._authorization):
            raise Refusal(401, "Unauthorized", "Unauthorized")

    def _answer(self, request: Request, exchange: Exchange) -> Answer | None:
        fixed = self._fixed(request)
        if fixed is not None:
            return fixed
        target = target_of(self._cluster.registry, request.path)
        match request.method:
            case "GET":
                if target.name:
                    return self._get(request, target)
                watches = flag(request.query, "watch")
                if not watches:
                    return self._list(request, target)
                self._watch(request, exchange, target)
                return None
            case "POST":
                return self._post(request, target)
            case "PUT":
                return self._put(request, target)
            case "PATCH":
                return self._patch(request, target)
            case "DELETE":
                return self._delete(request, target)
        raise method_not_allowed(request.method)

    # ---- reads

    def _get(self, request: Request, target: Target) -> Answer:
        entry = self._cluster.find(target.resource, target.space, target.name)
        if target.subresource == "scale":
            return _json(scale_of(target.resource, entry.decode()))
        if target.subresource not in ("", "status", "resize"):
            raise method_not_allowed("GET")
        return self._shown(request, target, entry.raw)

    def _shown(self, request: Request, target: Target, raw: bytes, status: int = 200) -> Answer:
        table = self._tables.wanted(request)
        if table:
            return Answer(status, self._tables.one(target.resource, target.version, raw, table))
        return Answer(status, self._as_served(target, raw))

    def _as_served(self, target: Target, raw: bytes) -> bytes:
        convert = target.resource.converter(target.version.name)
        return raw if convert is None else convert(raw)

    def _selection(self, request: Request, target: Target) -> Selection:
        query = request.query
        return Selection(target.resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))

    def _list(self, request: Request, target: Target) -> Answer:
        query = request.query
        wanted = query.get("resourceVersion", "")
        if wanted and not is_number(wanted):
            raise bad_request(f'resourceVersion: Invalid value: "{wanted}"')
        match = query.get("resourceVersionMatch", "")
        if match:
            check_version_match(match, wanted, query.get("continue", ""))
        page = self._lists.page(
            target.resource,
            target.namespace,
            self._selection(request, target),
            limit=number(query, "limit"),
            token=query.get("continue", ""),
            exactly=int(wanted) if match == "Exact" else None,
        )
        table = self._tables.wanted(request)
        if table:
            return Answer(200, self._tables.many(target.resource, target.version, page, table))
        convert = target.resource.converter(target.version.name)
        items = [entry.raw for entry in page.entries]
        if convert is not None:
            items = [convert(raw) for raw in items]
        return Answer(200, list_body(target.resource, target.version.name, page, items))

    def _watch(self, request: Request, exchange: Exchange, target: Target) -> None:
        query, resource = request.query, target.resource
        collection = self._cluster.store.collection(resource)
        selection = self._selection(request, target)
        table = self._tables.wanted(request)
        render = self._tables.renderer(resource, target.version, table) if table else None
        since = query.get("resourceVersion", "")
        if since and not is_number(since):
            raise bad_request(f'resourceVersion: Invalid value: "{since}"')
        seconds = number(query, "timeoutSeconds")  # before the answer begins, since a refusal is impossible afterwards
        initial = flag(query, "sendInitialEvents")
        version = self._cluster.store.version
        known = int(since or 0)
        watcher = Watcher(
            exchange,
            target.namespace,
            selection,
            kind=(resource.api_version(target.version.name), resource.kind),
            bookmarks=flag(query, "allowWatchBookmarks"),
            render=render or resource.converter(target.version.name),
            after=0 if initial else known,
        )
        exchange.open_stream()
        if not initial and known and known < collection.floor:
            exchange.write(error_line(expired(f"too old resource version: {known} ({collection.floor})")))
            exchange.close()
            return
        if initial or not known:
            if query.get("sendInitialEvents") != "false":
                for entry in self._lists.select(resource, target.namespace, selection):
                    watcher.show(entry)
            if initial:
                watcher.bookmark(version, initial=True)
        else:
            replay(collection, watcher, known)
        self._cluster.watches.add(collection, watcher)
        exchange.on_close = lambda: self._cluster.watches.drop(collection, watcher)
        if seconds:
            self._cluster.later(seconds, lambda: _end(watcher))

    # ---- writes

    def _written(self, request: Request, target: Target, raw: bytes, options: WriteOptions, status: int) -> Answer:
        answer = self._shown(request, target, raw, status)
        for warning in options.warnings:
            # One header line for all: RFC 9110 allows joining a list with commas.
            quoted = '299 - "' + warning.replace("\\", "\\\\").replace('"', '\\"') + '"'
            before = answer.headers.get("Warning")
            answer.headers["Warning"] = f"{before}, {quoted}" if before else quoted
        return answer

    def _post(self, request: Request, target: Target) -> Answer:
        cluster, resource, options = self._cluster, target.resource, write_options(request)
        body = object_in(request)
        if target.subresource == "binding":
            pod_subresources.bind(cluster, resource, target.space, target.name, body, options)
            return Answer(201, _BOUND)
        if target.subresource == "eviction":
            pod_subresources.evict(cluster, resource, target.space, target.name, body, dry_run=options.dry_run)
            return Answer(201, _BOUND)
        if target.name:
            raise method_not_allowed("POST")
        if resource.namespaced and target.namespace is None:
            raise bad_request("an object of a namespaced kind is created in a namespace")
        body = resource.to_storage(target.version.name, body)
        raw = writing.create(cluster, resource, target.version.name, target.space, body, options)
        return self._written(request, target, raw, options, 201)

    def _put(self, request: Request, target: Target) -> Answer:
        cluster, resource, options = self._cluster, target.resource, write_options(request)
        if not target.name:
            raise method_not_allowed("PUT")
        body = object_in(request)
        if target.subresource == "scale":
            return _json(change_scale(cluster, resource, target.version.name, target.space, target.name, body, options))
        body = resource.to_storage(target.version.name, body)
        made = not target.subresource and writing.made_by_replacing(cluster, resource, target.space, target.name)
        raw = writing.replace(
            cluster, resource, target.version.name, target.space, target.name, body, target.subresource, options
        )
        return self._written(request, target, raw, options, 201 if made else 200)

    def _patch(self, request: Request, target: Target) -> Answer:
        cluster, resource, options = self._cluster, target.resource, write_options(request)
        if not target.name:
            raise method_not_allowed("PATCH")
        kind = request.headers.get("content-type", "").split(";")[0].strip()
        change: Callable[[Json], Any]
        match kind:
            case "application/merge-patch+json":
                body = writing.decode_json(request.body)
                change = lambda obj: merge_patch(obj, body)  # noqa: E731 - four one-line ways to patch, side by side
            case "application/json-patch+json":
                body = writing.decode_json(request.body)
                change = lambda obj: json_patch(obj, body)  # noqa: E731 - as above
            case "application/strategic-merge-patch+json":
                if resource.custom:
                    raise unsupported_media(
                        "the body of the request was in an unknown format - accepted media types include: "
                        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
                    )
                body = writing.decode_json(request.body)
                change = lambda obj: strategic_patch(obj, body)  # noqa: E731 - as above
            case "application/apply-patch+yaml" | "application/apply-patch+json":
                if not request.query.get("fieldManager"):
                    text = "Required value: is required for apply patch"
                    raise bad_option("PatchOptions", Cause("fieldManager", text, "FieldValueRequired"))
                raw, status = apply(
                    cluster, resource, target.version.name, target.space, target.name, yaml_in(request.body),
                    target.subresource, options,
                )  # fmt: skip
                return self._written(request, target, raw, options, status)
            case _:
                raise unsupported_media(f"the patch is in an unknown format: {kind or 'no content type'}")
        if target.subresource == "scale":
            scale = change(scale_of(resource, cluster.find(resource, target.space, target.name).decode()))
            version, space, name = target.version.name, target.space, target.name
            return _json(change_scale(cluster, resource, version, space, name, scale, options, patched=True))
        raw = writing.patch(
            cluster, resource, target.version.name, target.space, target.name, change, target.subresource, options
        )
        return self._written(request, target, raw, options, 200)

    def _delete(self, request: Request, target: Target) -> Answer:
        cluster, resource = self._cluster, target.resource
        if target.subresource:
            raise method_not_allowed("DELETE")
        options = deleting.DeleteOptions.read(object_in(request), request.query)
        if not target.name:
            selection = self._selection(request, target)
            if cluster.admission is not None:
                doomed = self._lists.select(resource, target.namespace, selection)
                self._release(request, target, doomed, dry_run=options.dry_run)
            gone = deleting.delete_collection(cluster, resource, target.namespace, selection, options)
            return Answer(200, list_body(resource, target.version.name, Page([], cluster.store.version), gone))
        entry = cluster.find(resource, target.space, target.name)
        self._release(request, target, [entry], dry_run=options.dry_run)
        raw, gone_now = deleting.delete(cluster, resource, entry, options)
        if gone_now and resource.key not in SHOWN_WHEN_GONE:
            details = {"name": entry.name, "kind": resource.plural, "uid": entry.uid}
            return _json(success(details=details | ({"group": resource.group} if resource.group else {})))
        return self._shown(request, target, raw)

    def _release(self, request: Request, target: Target, entries: Sequence[Entry], *, dry_run: bool) -> None:
        """Show webhooks all objects of a deletion, before any is deleted."""
        admission = self._cluster.admission
        if admission is None:
            return
        calls: list[Call] = []
        options = WriteOptions(dry_run=dry_run, reviews=request.reviews)
        for entry in entries:
            try:
                admission.release(target.resource, target.version.name, entry, options)
            except Consult as wanted:
                calls += wanted.calls
        if calls:
            raise Consult(calls)


_BOUND = orjson.dumps(success(code=201))


def _end(watcher: Watcher) -> None:
    watcher.flush()
    watcher.sink.close()


def _json(value: Json, status: int = 200) -> Answer:
    return Answer(status, deep_json.dumps(value))


def refused(refusal: Refusal) -> Answer:
    """Return the HTTP answer of a refusal."""
    answer = Answer(refusal.code, orjson.dumps(refusal.status()))
    if refusal.retry_after_seconds is not None:
        answer.headers["Retry-After"] = str(refusal.retry_after_seconds)
    return answer
