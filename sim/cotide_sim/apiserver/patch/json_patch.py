"""JSON patch.

Called by `writing` for `application/json-patch+json`. Pure; changes its target in place (the caller hands in a copy
that nobody else sees, so a patch that fails half-way does no harm). Law: the result is that of RFC 6902.
"""

from __future__ import annotations

import copy
from typing import Any

from cotide_sim.apiserver.refusals import Refusal, bad_request


def _unprocessable(message: str) -> Refusal:
    return Refusal(422, "Invalid", f"the server rejected our request due to an error in our request: {message}")


def json_patch(target: Any, operations: Any) -> Any:
    """Return the target with all operations applied in order.

    Raises
    ------
    Refusal
        400 when the patch is malformed; 422 when a path is missing or a test fails.
    """
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise bad_request("a JSON patch must be a list of operations")
    document = target
    for operation in operations:
        document = _apply(document, operation)
    return document


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise bad_request(f"invalid JSON pointer: {text!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    kind = operation.get("op")
    path = _pointer(operation.get("path"))
    if kind in ("add", "replace", "test") and "value" not in operation:
        raise _unprocessable(f"the {kind} operation on {operation.get('path')!r} has no value")
    match kind:
        case "add":
            return _add(document, path, operation["value"])
        case "remove":
            return _remove(document, path)
        case "replace":
            if not path:
                return operation["value"]
            _read(document, path)
            return _replace(document, path, operation["value"])
        case "move":
            source = _pointer(operation.get("from"))
            if path[: len(source)] == source and path != source:
                raise _unprocessable(f"cannot move {operation.get('from')!r} into itself")
            value = _read(document, source)
            return document if path == source else _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, copy.deepcopy(_read(document, _pointer(operation.get("from")))))
        case "test":
            if not _same(_read(document, path), operation["value"]):
                raise _unprocessable(f"testing value {operation.get('path')} failed")
            return document
        case _:
            raise _unprocessable(f"unknown JSON patch operation: {kind!r}")


def _same(left: Any, right: Any) -> bool:
    # Python holds True == 1; JSON does not.
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _index(step: str, length: int) -> int:
    if not step.isascii() or not step.isdigit() or (len(step) > 1 and step[0] == "0") or int(step) >= length:
        raise _unprocessable(f"the array has no index {step!r}")
    return int(step)


def _step(value: Any, step: str, path: list[str]) -> Any:
    if isinstance(value, dict):
        if step not in value:
            raise _unprocessable(f"the document has no /{'/'.join(path)}")
        return value[step]
    if isinstance(value, list):
        return value[_index(step, len(value))]
    raise _unprocessable(f"/{'/'.join(path)} leads into a plain value")


def _read(document: Any, path: list[str]) -> Any:
    for step in path:
        document = _step(document, step, path)
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _read(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(last, len(parent) + 1), value)
    else:
        raise _unprocessable(f"/{'/'.join(path)} leads into a plain value")
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    parent, last = _read(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    else:
        parent[_index(last, len(parent))] = value
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    parent, last = _read(document, path[:-1]), path[-1]
    _step(parent, last, path)
    if isinstance(parent, dict):
        del parent[last]
    else:
        del parent[_index(last, len(parent))]
    return document
