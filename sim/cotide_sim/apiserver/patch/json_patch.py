"""JSON patch (RFC 6902), by the library `jsonpatch`, with the texts of a Kubernetes API server.

Called by `dispatch` and `admission` for `application/json-patch+json`. Pure; changes its target in place. The caller
passes a private copy, so a patch that fails half-way does no harm. The library's ``test`` compares as Python does,
where 1, True and 1.0 are equal; here it compares as JSON does.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import jsonpatch
from jsonpointer import JsonPointerException, resolve_pointer

from cotide_sim.apiserver.refusals import Refusal, bad_request
from cotide_sim.apiserver.storage import deep_json

MAX_OPERATIONS: Final = 10_000
MAX_COPIED_BYTES: Final = 3 * 1024 * 1024
"""Each copy can double an object: 30 operations would make a gigabyte of a byte. Both as on a real server
(maxJSONPatchOperations and JSONPatchMaxCopyBytes of k8s.io/apiserver)."""


def json_patch(target: Any, operations: Any) -> Any:
    """Return the target with all operations applied in order.

    Raises
    ------
    Refusal
        400 when the patch is malformed; 413 when it has too many operations; 422 when a path is missing, a test fails
        or copies grow beyond `MAX_COPIED_BYTES`.
    """
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise bad_request("a JSON patch must be a list of operations")
    for operation in operations:
        for field in ("path", "from"):
            pointer = operation.get(field, "")
            if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
                raise bad_request(f"invalid JSON pointer: {pointer!r}")
    if len(operations) > MAX_OPERATIONS:
        words = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise Refusal(413, "RequestEntityTooLarge", words)
    copied = 0
    try:
        for operation in operations:
            if operation.get("op") == "copy" and "from" in operation:
                copied += len(deep_json.dumps(resolve_pointer(target, operation["from"])))
                if copied > MAX_COPIED_BYTES:
                    raise jsonpatch.JsonPatchException(
                        f"Unable to complete the copy, the accumulated size increase of copy is {copied}, "
                        f"exceeding the limit {MAX_COPIED_BYTES}"
                    )
            target = _Patch([operation]).apply(target, in_place=True)
        return target
    # A path into a plain value is a TypeError of the library, and removing the document itself a KeyError.
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, KeyError) as error:
        raise Refusal(
            422, "Invalid", f"the server rejected our request due to an error in our request: {error}"
        ) from error


class _Test(jsonpatch.TestOperation):
    def apply(self, obj: Any) -> Any:
        if "value" not in self.operation:
            raise jsonpatch.InvalidJsonPatch("The operation does not contain a 'value' member")
        if not _same(self.pointer.resolve(obj), self.operation["value"]):
            raise jsonpatch.JsonPatchTestFailed(f"testing value {self.location} failed")
        return obj


class _Patch(jsonpatch.JsonPatch):
    operations = MappingProxyType({**jsonpatch.JsonPatch.operations, "test": _Test})


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
