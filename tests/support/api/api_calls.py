"""Random sequences of API calls, and what a server's answers to them come to when names and times are taken out.

Called by the conformance test, which sends each sequence to the emulator and to a real server. A `Call` names objects
by letters; a `Caller` turns it into a request, with the versions and uids that *its* server gave.
"""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote

from call_tables import (
    BASES,
    CLUSTER_WIDE,
    CONTENT,
    DELETE,
    FIELD_SELECTORS,
    JSON_PATCH,
    KIND,
    LABEL_SELECTORS,
    LIST_QUERIES,
    MERGE,
    METADATA,
    MISTAKES,
    OWN_MERGE,
    PLAIN,
    SCALES,
    SHOW,
    STRATEGIC,
    Json,
)
from hypothesis import strategies as st


@dataclass(frozen=True)
class Call:
    """One request, in letters."""

    verb: str
    kind: str
    name: str = "a"
    how: str = "plain"
    version: str = "none"
    extra: str = ""


def _calls() -> st.SearchStrategy[Call]:
    kinds, names = st.sampled_from(sorted(BASES)), st.sampled_from(["a", "b"])
    versions = st.sampled_from(["none", "current", "first", "nonsense"])
    how = st.sampled_from

    def call(verb: str, hows: Any = ("plain",), kind: Any = kinds, extra: Any = ("",), version: Any = None) -> Any:
        return st.builds(
            Call,
            st.just(verb),
            kind,
            names,
            how(list(hows)),
            st.just("none") if version is None else version,
            st.sampled_from(list(extra)),
        )

    pods = st.just("pods")
    served = st.one_of(
        call("create", METADATA, extra=("", "", "dryRun=All", "dryRun=Some", "no kind", "other kind", "no json")),
        call("create"),
        call("get"),
        call("list", LABEL_SELECTORS, extra=["", *FIELD_SELECTORS]),
        call("pages", LIST_QUERIES),
        call("replace", METADATA, version=versions, extra=SHOW),
        call("merge", MERGE, extra=SHOW),
        *(call("merge", patches, kind=st.just(kind), extra=SHOW) for kind, patches in OWN_MERGE.items()),
        call("json", JSON_PATCH, extra=SHOW),
        call("strategic", STRATEGIC, extra=SHOW),
        call("apply", ("plain", "labelled", "annotated"), extra=("one", "two", "two force", "")),
        call("status", ("status", "label"), extra=SHOW),
        call("replace status", ("plain", "labelled"), version=versions, extra=SHOW),
        call("scale", SCALES, kind=st.sampled_from(["workloads", "workloads", "jobs"]), extra=SHOW),
        call("delete", DELETE),
        call("collection", ("app=x", "app=y"), extra=("", "", "at once", "for show", "nonsense")),
        call("bind", ("right uid", "wrong uid", "no uid", "no target"), kind=pods),
        # Refused options leave the condition DisruptionTarget on a real server's pod.
        call("evict", sorted(DELETE.keys() - {"nonsense", "two ways"}), kind=pods),
    )
    # The emulator keeps fields of built-in kinds that their types don't have: see docs/research/emulator.md.
    # Of two mistakes in one request, each server may speak of another one.
    return served.filter(
        lambda call: (
            (call.kind not in PLAIN or call.how not in ("spec", "status", "image"))
            and (call.kind not in PLAIN - {"configmaps"} or call.how != "data")
            and (call.kind not in PLAIN - {"configmaps"} or call.verb != "replace status")
            and (call.kind not in CLUSTER_WIDE or call.how != "elsewhere")  # refused or not there: who looks first
            and (call.kind != "events" or call.how not in UNCHECKED)
            and (call.kind != "leases" or call.verb != "replace" or call.how not in UNCHECKED)
            and (call.extra not in MISTAKES or call.how in ("plain", "labelled", "annotated", "finalized"))
        )
    )


def sequences() -> st.SearchStrategy[list[Call]]:
    """Return the sequences; most of their calls meet an object that is there."""
    begin = st.sampled_from([Call("create", kind, name, "labelled") for kind in BASES for name in "ab"])
    return st.builds(
        lambda first, rest: first + rest,
        st.lists(begin, min_size=1, max_size=3),
        st.lists(_calls(), min_size=3, max_size=14),
    )


class TooOld(Exception):
    """A server does not keep the version that was asked for any more."""


@dataclass
class Caller:
    """Sends calls to one server, in one namespace."""

    url: str
    namespace: str
    context: ssl.SSLContext | None = None
    versions: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    uids: dict[tuple[str, str], str] = field(default_factory=dict)
    seen: list[tuple[str, str, str, Json]] = field(default_factory=list)
    """Of each answer with an object: its version, kind and name, and what it comes to."""
    _connection: http.client.HTTPConnection | None = None

    def send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Json]:
        """Send one request; returns the code and the body."""
        raw = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        if self._connection is None:
            host = self.url.partition("//")[2]
            self._connection = (
                http.client.HTTPSConnection(host, timeout=30, context=self.context)
                if self.context is not None
                else http.client.HTTPConnection(host, timeout=30)
            )
        self._connection.request(method, path, raw, {"Content-Type": kind, "Accept": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, {"text": text.decode(errors="replace")}

    def answer(self, call: Call) -> tuple[int, Json]:
        """Carry a call out and return the code and what its answer comes to."""
        if call.verb == "pages":
            return self._pages(f"{self._collection(call.kind)}?{call.how}")
        code, body = self.send(*self._request(call))
        code = 400 if code == 500 and not body.get("reason") else code
        meta = body.get("metadata") or {}
        if code < 300 and meta.get("uid") and meta.get("resourceVersion"):
            key = call.kind, meta["name"].removeprefix(f"{self.namespace}-")
            self.versions.setdefault(key, []).append(meta["resourceVersion"])
            self.uids[key] = meta["uid"]
            if call.verb != "scale" and call.extra != "dryRun=All":
                state = comes_to({**body, "kind": ""}, self.namespace)
                self.seen.append((meta["resourceVersion"], call.kind, meta["name"], state))
        return code, comes_to(body, self.namespace)

    def _collection(self, kind: str) -> str:
        return f"{BASES[kind]}/{kind}" if kind in CLUSTER_WIDE else f"{BASES[kind]}/namespaces/{self.namespace}/{kind}"

    def clear(self) -> None:
        """Delete what is left of this namespace's objects that are in none: others' lists show them."""
        for kind in CLUSTER_WIDE:
            for item in self.send("GET", self._collection(kind))[1]["items"]:
                name = item["metadata"]["name"]
                if name.startswith(f"{self.namespace}-"):
                    path = f"{self._collection(kind)}/{name}"
                    self.send("DELETE", path)
                    self.send("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")

    def _pages(self, path: str) -> tuple[int, Json]:
        """Read a list to its end, page by page."""
        pages: list[Json] = []
        code, body = self.send("GET", path)
        while True:
            metadata = body.get("metadata") or {}
            pages.append({**comes_to(body, self.namespace), "left": metadata.get("remainingItemCount")})
            token = metadata.get("continue")
            if code >= 300 or not token:
                return code, {"pages": pages}
            code, body = self.send("GET", f"{path}&continue={token}")

    def watched(self, kind: str, since: str, seconds: int) -> dict[str, list[tuple[str, Json]]]:
        """Return the events of a kind since a version, by namespace; by a connection of its own."""
        apart = Caller(self.url, self.namespace, self.context)
        path = f"{BASES[kind]}/{kind}?watch=1&resourceVersion={since}&timeoutSeconds={seconds}"
        _, body = apart.send("GET", path)
        lines = body["text"].splitlines() if "text" in body else [json.dumps(body)] if body else []
        found: dict[str, list[tuple[str, Json]]] = {}
        last: dict[tuple[str, str], Json] = {}
        for line in lines:
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise TooOld(event["object"].get("message", ""))
            metadata = event["object"]["metadata"]
            space = metadata["name"].partition("-")[0] if kind in CLUSTER_WIDE else metadata.get("namespace", "")
            seen = found.setdefault(space, [])
            now = event["type"], comes_to(event["object"], space)
            # A write that changes nothing compared here may be one or none.
            if now[0] != "MODIFIED" or last.get((space, metadata["name"])) != now[1]:
                seen.append(now)
            last[space, metadata["name"]] = now[1]
        return found

    def resumed(self, index: int, seconds: int) -> list[tuple[str, Json]]:
        """Return what a watch sees of this namespace from the version of the ``index``-th answer on; by a connection of
        its own."""
        since, kind, _, _ = self.seen[index]
        known = {name: state for _, other, name, state in self.seen[: index + 1] if other == kind}
        apart = Caller(self.url, self.namespace, self.context)
        path = f"{self._collection(kind)}?watch=1&resourceVersion={since}&timeoutSeconds={seconds}"
        _, body = apart.send("GET", path)
        lines = body["text"].splitlines() if "text" in body else [json.dumps(body)] if body else []
        found: list[tuple[str, Json]] = []
        for line in lines:
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise TooOld(event["object"].get("message", ""))
            name = event["object"]["metadata"]["name"]
            if kind in CLUSTER_WIDE and not name.startswith(f"{self.namespace}-"):
                continue
            now = comes_to({**event["object"], "kind": ""}, self.namespace)
            # As above: a write that changes nothing compared here may be one or none.
            if event["type"] != "MODIFIED" or known.get(name) != now:
                found.append((event["type"], now))
            known[name] = now
        return found

    def _request(self, call: Call) -> tuple[str, str, Any, str]:  # noqa: PLR0912 - one branch a verb
        collection = self._collection(call.kind)
        path, key = f"{collection}/{self._name(call)}", (call.kind, call.name)
        plain = "application/json"
        show = f"?{call.extra}" if call.extra == "dryRun=All" else ""
        match call.verb:
            case "create":
                query = f"?{call.extra}" if call.extra.startswith("dryRun") else ""
                body: Any = self._body(call)
                if call.extra == "no kind" and call.kind not in CUSTOM:  # see docs/research/emulator.md
                    del body["kind"]
                elif call.extra == "other kind":
                    body["kind"] = "Secret"
                elif call.extra == "no json":
                    body = "{"
                return "POST", collection + query, body, plain
            case "get":
                return "GET", path, None, plain
            case "list":
                fields = f"&fieldSelector={quote(call.extra)}" if call.extra else ""
                return "GET", f"{collection}?labelSelector={quote(call.how)}{fields}", None, plain
            case "replace" | "replace status":
                body = self._body(call)
                if call.verb == "replace status":
                    body["status"] = {"phase": "Running"}
                if call.kind in FOLLOWED and call.version in ("current", "first"):  # by a controller, in one of them
                    now = self.send("GET", path)[1].get("metadata") or {}
                    self.versions[key] = [now.get("resourceVersion", "1")]
                seen = self.versions.get(key, ["1"])
                version = {"current": seen[-1], "first": seen[0], "nonsense": "abc"}.get(call.version)
                if version is not None:
                    body["metadata"]["resourceVersion"] = version
                return "PUT", (f"{path}/status" if call.verb == "replace status" else path) + show, body, plain
            case "merge":
                patch = OWN_MERGE.get(call.kind, {}).get(call.how) or MERGE[call.how]
                return "PATCH", path + show, patch, "application/merge-patch+json"
            case "json":
                return "PATCH", path + show, JSON_PATCH[call.how], "application/json-patch+json"
            case "strategic":
                return "PATCH", path + show, STRATEGIC[call.how], "application/strategic-merge-patch+json"
            case "apply":
                manager, _, force = call.extra.partition(" ")
                query = f"?fieldManager={manager}" if manager else "?"
                return (
                    "PATCH",
                    path + query + ("&force=true" if force else ""),
                    self._body(call),
                    "application/apply-patch+yaml",
                )
            case "status":
                return "PATCH", f"{path}/status{show}", MERGE[call.how], "application/merge-patch+json"
            case "scale":
                scale = f"{path}/scale{show}"
                if call.how == "read":
                    return "GET", scale, None, plain
                return "PATCH", scale, SCALES[call.how], "application/merge-patch+json"
            case "delete":
                return "DELETE", path, self._delete_options(call), plain
            case "collection":
                options = self._delete_options(replace(call, how=call.extra)) if call.extra else None
                return "DELETE", f"{collection}?labelSelector={quote(call.how)}", options, plain
            case "bind":
                uid = {"right uid": self.uids.get(key, ""), "wrong uid": "1"}.get(call.how, "")
                target = {} if call.how == "no target" else {"target": {"kind": "Node", "name": "n1"}}
                metadata = {"name": call.name, **({"uid": uid} if uid else {})}
                return (
                    "POST",
                    f"{path}/binding",
                    {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, **target},
                    plain,
                )
            case "evict":
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": call.name}}
                return "POST", f"{path}/eviction", {**body, "deleteOptions": self._delete_options(call)}, plain
        raise AssertionError(call.verb)

    def _body(self, call: Call) -> Json:
        version, kind = KIND[call.kind]
        metadata = {"name": self._name(call), **METADATA[call.how]}
        if call.kind in CLUSTER_WIDE and metadata.get("generateName"):
            metadata["generateName"] = f"{self.namespace}-g-"
        return {
            "apiVersion": version,
            "kind": kind,
            "metadata": {key: value for key, value in metadata.items() if value is not None},
            **json.loads(json.dumps(CONTENT[call.kind]).replace("THE SPACE", self.namespace)),
        }

    def _name(self, call: Call) -> str:
        return f"{self.namespace}-{call.name}" if call.kind in CLUSTER_WIDE else call.name

    def _delete_options(self, call: Call) -> Json:
        uid = self.uids.get((call.kind, call.name), "none")
        return json.loads(
            json.dumps({"apiVersion": "v1", "kind": "DeleteOptions", **DELETE[call.how]}).replace("THE UID", uid)
        )  # type: ignore[no-any-return]


META_KEPT: Final = (
    "name",
    "labels",
    "annotations",
    "finalizers",
    "generation",
    "deletionGracePeriodSeconds",
    "generateName",
    "ownerReferences",
)
UNCHECKED: Final = frozenset(
    {"bad label", "bad finalizer", "two controllers", "owner without uid", "owner without kind"}
)
"""Metadata that a real server lets Events have, and of Leases made by a replacement calls a bad request, in which the
emulator refuses fields (422): nobody gives them any."""
CUSTOM: Final = frozenset({"jobs", "workloads"})
"""Kinds of ours: the emulator takes one that does not say its kind."""
FOLLOWED: Final = frozenset({"poddisruptionbudgets"})
"""Kinds whose status the emulator keeps, where a real server leaves that to a controller that does not run."""
NODE_KEPT: Final = ("unschedulable", "providerID")
"""Of a node's spec: a real server taints each new one, and a controller takes that off when it is ready."""
EVENT_KEPT: Final = ("reason", "message", "count", "involvedObject", "type")
POD_KEPT: Final = (
    "nodeName",
    "schedulerName",
    "containers",
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "priority",
)


def comes_to(body: Json, namespace: str) -> Json:
    """Return what of an answer two servers must agree in."""
    if "items" in body:
        return {"items": [comes_to({**item, "kind": ""}, namespace) for item in body["items"]]}
    if body.get("kind") == "Status" and body.get("code") == 500 and not body.get("reason"):
        # An error of the real server's storage that reaches its client as it is; the emulator calls it a bad request.
        return {"status": "Failure", "reason": "BadRequest", "code": 400}
    if body.get("kind") == "Status":
        return {"status": body.get("status"), "reason": body.get("reason"), "code": body.get("code")}
    meta = body.get("metadata") or {}
    kept = {key: meta[key] for key in META_KEPT if meta.get(key)}
    if kept.get("generateName"):
        kept["name"] = "generated"
        kept["generateName"] = kept["generateName"].removeprefix(f"{namespace}-")
    kept["name"] = kept.get("name", "").removeprefix(f"{namespace}-")
    if meta.get("deletionTimestamp"):
        kept["going"] = True
    spec = body.get("spec")
    if isinstance(spec, dict) and "containers" in spec:
        spec = {key: spec.get(key) for key in POD_KEPT}
        spec["containers"] = [
            {key: one.get(key) for key in ("name", "image", "resources")} for one in spec["containers"]
        ]
    if "involvedObject" in body:
        spec = {key: body[key] for key in EVENT_KEPT if body.get(key)}
        spec["involvedObject"] = {**spec["involvedObject"], "namespace": None}
    if isinstance(spec, dict) and "providerID" in spec:
        spec = {key: spec.get(key) for key in NODE_KEPT}
    phase = (body.get("status") or {}).get("phase") if isinstance(body.get("status"), dict) else body.get("status")
    found = {"metadata": kept, "spec": spec, "data": body.get("data"), "phase": phase}
    return {key: value for key, value in found.items() if value}
