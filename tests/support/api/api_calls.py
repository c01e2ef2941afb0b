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
    # The emulator keeps fields of built-in kinds that their types don't have: see docs/emulator.md.
    # Of two mistakes in one request, each server may speak of another one.
    return served.filter(
        lambda call: (
            (call.kind != "configmaps" or call.how not in ("spec", "status", "image"))
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


@dataclass
class Caller:
    """Sends calls to one server, in one namespace."""

    url: str
    namespace: str
    context: ssl.SSLContext | None = None
    versions: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    uids: dict[tuple[str, str], str] = field(default_factory=dict)
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
            return self._pages(f"{BASES[call.kind]}/namespaces/{self.namespace}/{call.kind}?{call.how}")
        code, body = self.send(*self._request(call))
        code = 400 if code == 500 and not body.get("reason") else code
        meta = body.get("metadata") or {}
        if code < 300 and meta.get("uid") and meta.get("resourceVersion"):
            key = call.kind, meta["name"]
            self.versions.setdefault(key, []).append(meta["resourceVersion"])
            self.uids[key] = meta["uid"]
        return code, comes_to(body, self.namespace)

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
        """Return the events of a kind since a version, by namespace."""
        path = f"{BASES[kind]}/{kind}?watch=1&resourceVersion={since}&timeoutSeconds={seconds}"
        _, body = self.send("GET", path)
        lines = body["text"].splitlines() if "text" in body else [json.dumps(body)] if body else []
        found: dict[str, list[tuple[str, Json]]] = {}
        for line in lines:
            event = json.loads(line)
            space = event["object"]["metadata"].get("namespace", "")
            seen = found.setdefault(space, [])
            now = event["type"], comes_to(event["object"], space)
            # A write that changes nothing compared here may be one or none.
            if not (seen and now[0] == "MODIFIED" and seen[-1][1] == now[1]):
                seen.append(now)
        return found

    def _request(self, call: Call) -> tuple[str, str, Any, str]:  # noqa: PLR0912 - one branch a verb
        collection = f"{BASES[call.kind]}/namespaces/{self.namespace}/{call.kind}"
        path, key = f"{collection}/{call.name}", (call.kind, call.name)
        plain = "application/json"
        show = f"?{call.extra}" if call.extra == "dryRun=All" else ""
        match call.verb:
            case "create":
                query = f"?{call.extra}" if call.extra.startswith("dryRun") else ""
                body: Any = self._body(call)
                if call.extra == "no kind" and call.kind != "jobs":  # a custom object without one: see docs/emulator.md
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
                seen = self.versions.get(key, ["1"])
                version = {"current": seen[-1], "first": seen[0], "nonsense": "abc"}.get(call.version)
                if version is not None:
                    body["metadata"]["resourceVersion"] = version
                return "PUT", (f"{path}/status" if call.verb == "replace status" else path) + show, body, plain
            case "merge":
                return "PATCH", path + show, MERGE[call.how], "application/merge-patch+json"
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
        metadata = {"name": call.name, **METADATA[call.how]}
        return {
            "apiVersion": version,
            "kind": kind,
            "metadata": {key: value for key, value in metadata.items() if value is not None},
            **json.loads(json.dumps(CONTENT[call.kind])),
        }

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
    if meta.get("deletionTimestamp"):
        kept["going"] = True
    spec = body.get("spec")
    if isinstance(spec, dict) and "containers" in spec:
        spec = {key: spec.get(key) for key in POD_KEPT}
        spec["containers"] = [
            {key: one.get(key) for key in ("name", "image", "resources")} for one in spec["containers"]
        ]
    phase = (body.get("status") or {}).get("phase") if isinstance(body.get("status"), dict) else body.get("status")
    found = {"metadata": kept, "spec": spec, "data": body.get("data"), "phase": phase}
    return {key: value for key, value in found.items() if value}
