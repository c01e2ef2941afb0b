"""The contents of a request: the object or list that its URL names, the options in its query, the object in its body.

Called by `dispatch`. Pure reading; every error is a `Refusal` that names the parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import yaml

from cotide_sim.apiserver.cluster import WriteOptions
from cotide_sim.apiserver.http import protobuf
from cotide_sim.apiserver.http.http_protocol import Request
from cotide_sim.apiserver.refusals import Cause, Refusal, bad_option, bad_request, no_such_path, unsupported_media
from cotide_sim.apiserver.registry.event_views import view_for
from cotide_sim.apiserver.registry.resources import Json, Registry, Resource, ServedVersion
from cotide_sim.apiserver.verbs.writing import decode_json

_NEEDS_A_CONTAINER: Final = frozenset({"log", "exec", "attach", "portforward", "ephemeralcontainers"})

_MAX_DIGITS: Final = 18


@dataclass(slots=True)
class Target:
    """The object or list that a URL names."""

    resource: Resource
    version: ServedVersion
    namespace: str | None
    name: str
    subresource: str

    @property
    def space(self) -> str:
        """The namespace as a key of the store."""
        return self.namespace or ""


def flag(query: dict[str, str], name: str) -> bool:
    """Return a yes-or-no parameter."""
    return query.get(name) in ("true", "1", "True")


def is_number(text: str) -> bool:
    """Whether a text is a whole number, >= 0, within int64 (up to 18 digits)."""
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def number(query: dict[str, str], name: str) -> int:
    """Return a whole-number parameter; 0 when it is absent."""
    text = query.get(name) or "0"
    if not is_number(text):
        raise bad_request(f'invalid value for the query parameter {name}: "{text}" is not a whole number')
    return int(text)


def target_of(registry: Registry, path: str) -> Target:
    """Return the target of a URL.

    Raises
    ------
    Refusal
        404 for a path that names nothing.
    """
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise no_such_path()
    namespace = None
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    found = registry.find(group, version, rest[0])
    if found is None or len(rest) > 3 or (namespace is not None and not found[0].namespaced):
        raise no_such_path()
    resource, served = found
    name, subresource = (rest[1] if len(rest) > 1 else ""), (rest[2] if len(rest) > 2 else "")
    if resource.key == "events.events.k8s.io":
        stored = registry.get("events")
        assert stored is not None  # noqa: S101 - a built-in kind
        resource = view_for(stored, resource)
    if resource.key == "pods" and subresource in _NEEDS_A_CONTAINER:
        raise Refusal(501, "NotImplemented", f"pods/{subresource} is not served: this emulator runs no containers")
    if subresource and subresource not in resource.subresources:
        raise no_such_path()
    if name and resource.namespaced and namespace is None:
        raise no_such_path()
    return Target(resource, served, namespace, name, subresource)


def write_options(request: Request) -> WriteOptions:
    """Return the options in the query of a write."""
    query = request.query
    if not query:
        return WriteOptions(reviews=request.reviews)
    dry = query.get("dryRun", "")
    if dry not in ("", "All"):
        text = f'Unsupported value: ["{dry}"]: supported values: "All"'
        kind = {"POST": "CreateOptions", "PUT": "UpdateOptions"}.get(request.method, "PatchOptions")
        raise bad_option(kind, Cause("dryRun", text, "FieldValueNotSupported"))
    strictness = query.get("fieldValidation") or "Warn"
    if strictness not in ("Strict", "Warn", "Ignore"):
        raise bad_request(f'fieldValidation: Unsupported value: "{strictness}"')
    return WriteOptions(
        dry_run=dry == "All",
        manager=query.get("fieldManager") or request.headers.get("user-agent", "unknown").split("/")[0] or "unknown",
        force=flag(query, "force"),
        strictness=strictness,
        reviews=request.reviews,
    )


def object_in(request: Request) -> Json:
    """Return the object in a body of JSON, YAML or (a few kinds) protobuf."""
    kind = request.headers.get("content-type", "application/json").split(";")[0].strip()
    if "yaml" in kind:
        value = yaml_in(request.body)
    elif kind in ("application/json", "", "*/*", "text/plain"):
        value = decode_json(request.body) if request.body else {}
    elif kind == protobuf.MEDIA_TYPE:
        value = protobuf.decode(request.body)
    else:
        raise unsupported_media(f"the body of the request was in an unknown format: {kind}; send application/json")
    if not isinstance(value, dict):
        raise bad_request("the object provided is not a JSON object")
    return value


def yaml_in(body: bytes) -> Any:
    """Return the value in a body of YAML or JSON."""
    if body.lstrip().startswith(b"{"):
        return decode_json(body)
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise bad_request(f"the object provided can't be read as YAML: {' '.join(str(error).split())}") from None


def check_version_match(match: str, version: str, token: str) -> None:
    """Refuse invalid combinations of a list's version options, as a real server does.

    Source: ValidateListOptions in
    https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apimachinery/pkg/apis/meta/internalversion/validation/validation.go
    """
    field, forbidden = "resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden"
    if token:
        text = f"{forbidden} when continue is provided"
    elif not version:
        text = f"{forbidden} unless resourceVersion is provided"
    elif match not in ("Exact", "NotOlderThan"):
        raise bad_option("ListOptions", Cause(field, f'Unsupported value: "{match}"', "FieldValueNotSupported"))
    elif match == "Exact" and version == "0":
        text = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    else:
        return
    raise bad_option("ListOptions", Cause(field, text, "FieldValueForbidden"))
