"""The paths that are not resources: discovery, OpenAPI, version, health, metrics, access reviews, faults.

Called by `dispatch` before it reads a URL as a resource.
"""

from __future__ import annotations

import hmac
import platform
from typing import Any, Final

import orjson

from cotide_sim.apiserver.cluster import Cluster
from cotide_sim.apiserver.http import protobuf
from cotide_sim.apiserver.http.discovery import REVIEWS, TOKEN_REVIEWS, Discovery
from cotide_sim.apiserver.http.faults import Fault, Faults
from cotide_sim.apiserver.http.http_protocol import Answer, Request
from cotide_sim.apiserver.http.openapi import PROTOBUF_V2, OpenApi
from cotide_sim.apiserver.refusals import Refusal, bad_request, success
from cotide_sim.apiserver.registry.resources import Json
from cotide_sim.apiserver.verbs.writing import decode_json

_HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})
_REVIEWED: Final = ("/apis/authorization.k8s.io/v1/", "/apis/authentication.k8s.io/v1/")
ADMINISTRATOR: Final = {"username": "cotide-emulator-admin", "groups": ["system:masters", "system:authenticated"]}
"""The user of the server's token; without a token, the user of every request."""
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class FixedPaths:
    """Answers paths that are not resources."""

    def __init__(self, cluster: Cluster, faults: Faults, *, fault_endpoint: bool, token: str = "") -> None:
        self._cluster, self._faults, self._fault_endpoint = cluster, faults, fault_endpoint
        self._token = token
        self._discovery = Discovery(cluster.registry)
        self._openapi = OpenApi(cluster.registry, cluster.settings.version)
        self.writes = 0

    def __call__(self, request: Request) -> Answer | None:
        """Return the answer of a fixed path, or None for any other."""
        path = request.path
        # Nearly every request is for a resource: the depth of its path shows it.
        if path.startswith("/api/v1/") or (path.startswith("/apis/") and path.count("/") > 3):
            if request.method == "POST" and path.startswith(_REVIEWED):
                return self._review(path.rpartition("/")[2], request)
            return None
        path = path.rstrip("/") or "/"
        if path in _HEALTH or path.startswith(("/livez/", "/readyz/", "/healthz/")):
            return Answer(200, b"ok", "text/plain; charset=utf-8")
        if path == "/_faults" and self._fault_endpoint:
            return self._plan_faults(request)
        if request.method != "GET":
            return None
        if path == "/metrics":
            return Answer(200, self._metrics(), "text/plain; version=0.0.4; charset=utf-8")
        return self._document(path, request)

    def _document(self, path: str, request: Request) -> Answer | None:
        discovery = self._discovery
        if path == "/openapi/v2" and "proto-openapi.spec.v2" in request.headers.get("accept", ""):
            return Answer(200, self._openapi.version_two_protobuf(), PROTOBUF_V2)
        if path in ("/api", "/apis") and "apidiscovery.k8s.io;v=v2;" in request.headers.get("accept", "") + ";":
            return Answer(200, orjson.dumps(discovery.aggregated(core=path == "/api")), _AGGREGATED)
        parts = path.strip("/").split("/")
        found: Json | None = None
        match parts:
            case ["api"]:
                found = discovery.legacy_versions()
            case ["apis"]:
                found = discovery.group_list()
            case ["api", version]:
                found = discovery.resource_list("", version)
            case ["apis", group]:
                found = discovery.group(group)
            case ["apis", group, version]:
                found = discovery.resource_list(group, version)
            case ["version"]:
                found = self._version()
            case ["openapi", "v2"]:
                found = self._openapi.version_two()
            case ["openapi", "v3"]:
                found = self._openapi.index()
            case ["openapi", "v3", *rest]:
                found = self._openapi.document("/".join(rest))
            case [""]:
                found = {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2",
                                   "/openapi/v3", "/readyz", "/version"]}  # fmt: skip
        return None if found is None else Answer(200, orjson.dumps(found))

    def _version(self) -> Json:
        version = self._cluster.settings.version
        major, minor = version.lstrip("v").split(".")[:2]
        return {
            "major": major, "minor": minor, "gitVersion": f"{version}+cotide", "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "none",
            "platform": f"linux/{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(platform.machine(), platform.machine())}",
        }  # fmt: skip

    def _metrics(self) -> bytes:
        store = self._cluster.store
        lines = [
            "# HELP apiserver_storage_objects Number of stored objects.",
            "# TYPE apiserver_storage_objects gauge",
            *(
                f'apiserver_storage_objects{{resource="{key}"}} {collection.count}'
                for key, collection in sorted(store.collections.items())
            ),
            "# HELP apiserver_longrunning_requests Open watches.",
            "# TYPE apiserver_longrunning_requests gauge",
            f"apiserver_longrunning_requests {len(self._cluster.watches)}",
            "# HELP apiserver_current_resource_version The version of the last change.",
            "# TYPE apiserver_current_resource_version counter",
            f"apiserver_current_resource_version {store.version}",
        ]
        return ("\n".join(lines) + "\n").encode()

    def _review(self, plural: str, request: Request) -> Answer | None:
        kind = (REVIEWS if "authorization" in request.path else TOKEN_REVIEWS).get(plural)
        if kind is None:
            return None
        if request.headers.get("content-type", "").startswith(protobuf.MEDIA_TYPE):
            review: Any = protobuf.decode(request.body)
        else:
            review = decode_json(request.body)
        if not isinstance(review, dict):
            raise bad_request("the object provided is not a JSON object")
        if plural == "tokenreviews":
            status: Json = self._token_review(review)
        elif plural == "selfsubjectrulesreviews":
            everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
            status = {"resourceRules": everything, "nonResourceRules": [], "incomplete": False}
        else:
            if plural == "subjectaccessreviews":
                _check_subject(review)
            # Everything is allowed here: RBAC objects are stored and never enforced.
            status = {"allowed": True, "reason": "the emulator allows everything"}
        return Answer(201, orjson.dumps({"kind": kind, **review, "status": status}))

    def _token_review(self, review: Json) -> Json:
        spec = review.get("spec")
        given = spec.get("token") if isinstance(spec, dict) else None
        if not isinstance(given, str) or not given:
            raise Refusal(422, "Invalid", "TokenReview.authentication.k8s.io is invalid: spec.token: Required value")
        known = not self._token or hmac.compare_digest(given.encode(), self._token.encode())
        return {"authenticated": True, "user": ADMINISTRATOR} if known else {"error": "the token is unknown"}

    def _plan_faults(self, request: Request) -> Answer:
        if request.method == "DELETE":
            self._faults.clear()
        elif request.method == "POST":
            given = decode_json(request.body)
            if not isinstance(given, dict):
                raise bad_request("a fault is a JSON object")
            if given.pop("drop_watches", False):
                for _, watcher in self._cluster.watches.all():
                    watcher.sink.close()
            if given:
                self._faults.add(Fault.read(given))
        return Answer(200, orjson.dumps(success()))


def _check_subject(review: Json) -> None:
    spec = review.get("spec")
    if not isinstance(spec, dict) or not (spec.get("user") or spec.get("groups")):
        words = 'spec.user: Invalid value: "": at least one of user or group must be specified'
        raise Refusal(422, "Invalid", f"SubjectAccessReview.authorization.k8s.io is invalid: {words}")
    if ("resourceAttributes" in spec) == ("nonResourceAttributes" in spec):
        words = "spec.resourceAttributes: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise Refusal(422, "Invalid", f"SubjectAccessReview.authorization.k8s.io is invalid: {words}")
