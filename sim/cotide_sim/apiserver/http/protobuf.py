"""The few protobuf bodies that kubectl sends with its typed client, converted to the same dicts as JSON.

Called by `dispatch` and `fixed_paths` for `application/vnd.kubernetes.protobuf`: kubectl 1.32 sends it for `create
namespace`, `create deployment`, `auth can-i`, `drain` and similar commands. Everything else must come as JSON (415).
Answers are always JSON, which every client of protobuf accepts.

Source of the envelope: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding; of the field
numbers: the published `generated.proto` files of k8s.io/api.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from cotide_sim.apiserver.refusals import bad_request, unsupported_media
from cotide_sim.apiserver.registry.resources import Json

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"

# A message is field number -> (name, type). Types: "text", "number", "flag", "bytes", "texts" (repeated), "map" (text
# to text), "blobs" (text to bytes), a message, or a list with one message (repeated).
_OWNER: Final[dict[int, tuple[str, Any]]] = {
    1: ("kind", "text"), 3: ("name", "text"), 4: ("uid", "text"), 5: ("apiVersion", "text"), 6: ("controller", "flag"),
    7: ("blockOwnerDeletion", "flag"),
}  # fmt: skip
_METADATA: Final[dict[int, tuple[str, Any]]] = {
    1: ("name", "text"), 2: ("generateName", "text"), 3: ("namespace", "text"), 5: ("uid", "text"),
    6: ("resourceVersion", "text"), 11: ("labels", "map"), 12: ("annotations", "map"),
    13: ("ownerReferences", [_OWNER]), 14: ("finalizers", "texts"),
}  # fmt: skip
_PRECONDITIONS: Final[dict[int, tuple[str, Any]]] = {1: ("uid", "text"), 2: ("resourceVersion", "text")}
_DELETE: Final[dict[int, tuple[str, Any]]] = {
    1: ("gracePeriodSeconds", "number"), 2: ("preconditions", _PRECONDITIONS), 3: ("orphanDependents", "flag"),
    4: ("propagationPolicy", "text"), 5: ("dryRun", "texts"),
}  # fmt: skip
_RESOURCE_ATTRIBUTES: Final[dict[int, tuple[str, Any]]] = {
    1: ("namespace", "text"), 2: ("verb", "text"), 3: ("group", "text"), 4: ("version", "text"),
    5: ("resource", "text"), 6: ("subresource", "text"), 7: ("name", "text"),
}  # fmt: skip
_WHOLE: Final = 0
"""In place of a field number (which start at 1): the name of a message with mandatory reading of all fields."""
_CONTAINER: Final[dict[int, tuple[str, Any]]] = {
    _WHOLE: ("Container", ""), 1: ("name", "text"), 2: ("image", "text"), 3: ("command", "texts"), 4: ("args", "texts"),
    5: ("workingDir", "text"), 14: ("imagePullPolicy", "text"),
    6: ("ports", [{1: ("name", "text"), 2: ("hostPort", "number"), 3: ("containerPort", "number"),
                   4: ("protocol", "text"), 5: ("hostIP", "text")}]),
}  # fmt: skip
_POD_TEMPLATE: Final[dict[int, tuple[str, Any]]] = {
    1: ("metadata", _METADATA),
    2: ("spec", {
        _WHOLE: ("PodSpec", ""), 2: ("containers", [_CONTAINER]), 3: ("restartPolicy", "text"),
        4: ("terminationGracePeriodSeconds", "number"), 5: ("activeDeadlineSeconds", "number"),
        6: ("dnsPolicy", "text"), 7: ("nodeSelector", "map"), 8: ("serviceAccountName", "text"),
        10: ("nodeName", "text"), 19: ("schedulerName", "text"), 24: ("priorityClassName", "text"),
    }),
}  # fmt: skip
_SELECTOR: Final[dict[int, tuple[str, Any]]] = {_WHOLE: ("LabelSelector", ""), 1: ("matchLabels", "map")}
_MESSAGES: Final[dict[str, dict[int, tuple[str, Any]]]] = {
    "Namespace": {1: ("metadata", _METADATA)},
    "ServiceAccount": {1: ("metadata", _METADATA)},
    "ConfigMap": {1: ("metadata", _METADATA), 2: ("data", "map"), 3: ("binaryData", "blobs"), 4: ("immutable", "flag")},
    "Secret": {
        1: ("metadata", _METADATA), 2: ("data", "blobs"), 3: ("type", "text"), 4: ("stringData", "map"),
        5: ("immutable", "flag"),
    },
    "PriorityClass": {
        1: ("metadata", _METADATA), 2: ("value", "number"), 3: ("globalDefault", "flag"), 4: ("description", "text"),
        5: ("preemptionPolicy", "text"),
    },
    "Deployment": {
        1: ("metadata", _METADATA),
        2: ("spec", {_WHOLE: ("DeploymentSpec", ""), 1: ("replicas", "number"), 2: ("selector", _SELECTOR),
                     3: ("template", _POD_TEMPLATE),
                     4: ("strategy", {_WHOLE: ("DeploymentStrategy", ""), 1: ("type", "text")})}),
    },
    "Job": {
        1: ("metadata", _METADATA),
        2: ("spec", {_WHOLE: ("JobSpec", ""), 1: ("parallelism", "number"), 2: ("completions", "number"),
                     6: ("template", _POD_TEMPLATE), 7: ("backoffLimit", "number")}),
    },
    "Eviction": {1: ("metadata", _METADATA), 2: ("deleteOptions", _DELETE)},
    "DeleteOptions": _DELETE,
    "SelfSubjectAccessReview": {
        1: ("metadata", _METADATA),
        2: ("spec", {1: ("resourceAttributes", _RESOURCE_ATTRIBUTES),
                     2: ("nonResourceAttributes", {1: ("path", "text"), 2: ("verb", "text")})}),
    },
    "SelfSubjectRulesReview": {1: ("metadata", _METADATA), 2: ("spec", {1: ("namespace", "text")})},
}  # fmt: skip


def decode(body: bytes) -> Json:
    """Return the object in a protobuf body.

    Raises
    ------
    Refusal
        400 when it is malformed, 415 when it holds a kind that is only read as JSON here.
    """
    if not body.startswith(_MAGIC):
        raise bad_request("the protobuf body lacks its prefix")
    try:
        envelope = _read(body[len(_MAGIC) :], {1: ("type", {1: ("apiVersion", "text"), 2: ("kind", "text")}),
                                               2: ("raw", "bytes")})  # fmt: skip
        kind = envelope.get("type", {}).get("kind", "")
        message = _MESSAGES.get(kind)
        if message is None:
            raise unsupported_media(f"a {kind or 'nameless kind'} is not read as protobuf here; send application/json")
        return {**envelope["type"], **_read(envelope.get("raw", b""), message)}
    except (IndexError, UnicodeDecodeError) as error:
        raise bad_request(f"the protobuf body is malformed: {error}") from None


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _read(data: bytes, message: dict[int, tuple[str, Any]]) -> Json:
    found: Json = {}
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        wire = tag & 7
        value: Any = None
        if wire == 0:
            value, position = _varint(data, position)
        elif wire == 2:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise IndexError("a field is longer than the body")
            value = data[position : position + length]
            position += length
        elif wire in (1, 5):
            position += 8 if wire == 1 else 4
        else:
            raise IndexError(f"wire type {wire} is not known")
        if _WHOLE in message and tag >> 3 not in message and value:
            where = f"field {tag >> 3} of a {message[_WHOLE][0]}"
            raise unsupported_media(f"{where} is not read as protobuf here; send application/json")
        if tag >> 3 in message and tag >> 3 != _WHOLE:
            name, kind = message[tag >> 3]
            _take(found, name, kind, value)
    return found


def _take(found: Json, name: str, kind: Any, value: Any) -> None:
    if isinstance(kind, dict):
        found[name] = _read(value, kind)
    elif isinstance(kind, list):
        found.setdefault(name, []).append(_read(value, kind[0]))
    elif kind == "number":
        found[name] = value - (1 << 64) if value >= 1 << 63 else value
    elif kind == "flag":
        found[name] = bool(value)
    elif kind == "bytes":
        found[name] = value
    elif kind == "texts":
        found.setdefault(name, []).append(value.decode())
    elif kind in ("map", "blobs"):
        pair = _read(value, {1: ("key", "text"), 2: ("value", "bytes")})
        item = pair.get("value", b"")
        text = item.decode() if kind == "map" else base64.b64encode(item).decode()
        found.setdefault(name, {})[pair.get("key", "")] = text
    elif value:
        # In protobuf an empty text means that a field is not set.
        found[name] = value.decode()
