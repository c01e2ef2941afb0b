"""OpenAPI: the part that kubectl needs to apply, explain and diff; the full schema of custom kinds.

Called by `fixed_paths`. Built-in kinds are open objects here (their fields are not described). Each patch operation
names its kind and accepts `fieldValidation`, which makes kubectl leave validation to the server (seen with kubectl
1.32).
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import orjson

from cotide_sim.apiserver.registry.resources import Json, Registry, Resource, ServedVersion

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_PATCHES: Final = (
    "application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json",
)  # fmt: skip


PROTOBUF_V2: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def _text(number: int, value: bytes) -> bytes:
    """Return a protobuf field of bytes; all of ours are shorter than 128."""
    return bytes([number << 3 | 2, len(value)]) + value


def _query(name: str, kind: str = "string") -> Json:
    return {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}


def _schema_name(group: str, version: str, kind: str) -> str:
    if not group:
        return f"io.k8s.api.core.{version}.{kind}"
    if "." not in group or group.endswith(".k8s.io"):
        return f"io.k8s.api.{group.removesuffix('.k8s.io').split('.')[0]}.{version}.{kind}"
    return f"{'.'.join(reversed(group.split('.')))}.{version}.{kind}"


def _metadata_schema() -> Json:
    text = {"type": "string"}
    words = {"type": "object", "additionalProperties": text}
    return {
        "description": "ObjectMeta is metadata that all persisted resources must have.",
        "type": "object",
        "properties": {
            "name": text, "generateName": text, "namespace": text, "uid": text, "resourceVersion": text,
            "generation": {"type": "integer", "format": "int64"}, "creationTimestamp": text, "deletionTimestamp": text,
            "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"}, "labels": words,
            "annotations": words, "finalizers": {"type": "array", "items": text},
            "ownerReferences": {"type": "array", "items": {"type": "object"}},
            "managedFields": {"type": "array", "items": {"type": "object"}},
        },
    }  # fmt: skip


class OpenApi:
    """Makes OpenAPI documents from the registry; each is made once per change of the registry."""

    def __init__(self, registry: Registry, version: str) -> None:
        self._registry, self._version = registry, version
        self._made: tuple[int, dict[str, Json]] = (-1, {})

    def version_two(self) -> Json:
        """Return `/openapi/v2`: empty, since version 3 has all that kubectl reads."""
        return {"swagger": "2.0", "info": self._info(), "paths": {}, "definitions": {}}

    def version_two_protobuf(self) -> bytes:
        """Return `/openapi/v2` as the protobuf that kubectl requests for an unserved kind.

        The numbers are those of gnostic's openapiv2 Document: swagger 1, info 2 (title 1, version 2), paths 8.
        """
        info = self._info()
        described = _text(1, info["title"].encode()) + _text(2, info["version"].encode())
        return _text(1, b"2.0") + _text(2, described) + _text(8, b"")

    def index(self) -> Json:
        """Return `/openapi/v3`: the documents, each with a hash that changes with it."""
        documents = self._documents()
        paths = {}
        for path, document in documents.items():
            digest = hashlib.sha256(orjson.dumps(document)).hexdigest()[:32].upper()
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return {"paths": paths}

    def document(self, path: str) -> Json | None:
        """Return the document of one group and version, or None."""
        return self._documents().get(path)

    def _info(self) -> Json:
        return {"title": "Cotide's embedded Kubernetes API", "version": self._version}

    def _documents(self) -> dict[str, Json]:
        if self._made[0] != self._registry.generation:
            documents: dict[str, Json] = {}
            for resource in self._registry:
                for served in resource.versions:
                    group_version = f"apis/{resource.group}/{served.name}" if resource.group else f"api/{served.name}"
                    document = documents.setdefault(group_version, {
                        "openapi": "3.0.0", "info": self._info(), "paths": {},
                        "components": {"schemas": {_META: _metadata_schema()}},
                    })  # fmt: skip
                    self._describe(document, resource, served, group_version)
            self._made = (self._registry.generation, documents)
        return self._made[1]

    def _describe(self, document: Json, resource: Resource, served: ServedVersion, group_version: str) -> None:
        kind = {"group": resource.group, "version": served.name, "kind": resource.kind}
        name = _schema_name(resource.group, served.name, resource.kind)
        document["components"]["schemas"][name] = _object_schema(resource, served, kind)
        reference = {"$ref": f"#/components/schemas/{name}"}
        base = f"/{group_version}/{'namespaces/{namespace}/' if resource.namespaced else ''}{resource.plural}"
        listed = {
            **_operation("list", kind, reference),
            "parameters": [_query("labelSelector"), _query("limit", "integer")],
        }
        created = {**_operation("post", kind, reference), "parameters": _write_parameters()}
        document["paths"][base] = {"get": listed, "post": created}
        one: dict[str, Any] = {"get": _operation("get", kind, reference)}
        for verb in ("put", "patch"):
            one[verb] = {**_operation(verb, kind, reference), "parameters": _write_parameters()}
        one["patch"]["requestBody"] = {"content": {media: {"schema": {"type": "object"}} for media in _PATCHES}}
        one["delete"] = _operation("delete", kind, reference)
        document["paths"][base + "/{name}"] = one


def _write_parameters() -> list[Json]:
    return [_query("dryRun"), _query("fieldManager"), _query("fieldValidation"), _query("force", "boolean")]


def _operation(action: str, kind: Json, reference: Json) -> Json:
    return {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
    }


def _object_schema(resource: Resource, served: ServedVersion, kind: Json) -> Json:
    schema: Json = {"type": "object", "description": f"{resource.kind} of {resource.api_version(served.name)}."}
    if served.schema is not None:
        # Shared with the registry and never changed: only the top level is copied.
        schema |= served.schema
    elif not resource.custom:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    text = {"type": "string"}
    schema["properties"] = {
        **(schema.get("properties") or {}),
        "apiVersion": {**text, "description": "Version of the schema of this object."},
        "kind": {**text, "description": "Name of the kind of this object."},
        "metadata": {"allOf": [{"$ref": f"#/components/schemas/{_META}"}], "description": "Standard metadata.",
                     "default": {}},
    }  # fmt: skip
    schema["x-kubernetes-group-version-kind"] = [kind]
    return schema
