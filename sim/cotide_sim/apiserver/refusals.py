"""The refusals: one exception, made by one function per reason, rendered as a Kubernetes `Status`.

Raised by every verb and validator of the emulator and turned into an HTTP answer in one place (`dispatch`). It
is an exception and not a value because it leaves a request from any depth; it never crosses a request.

Source of reasons and codes: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cotide_sim.apiserver.registry.resources import Resource

CauseReason = Literal[
    "FieldValueInvalid", "FieldValueRequired", "FieldValueNotSupported", "FieldValueForbidden", "FieldValueTooLong",
    "FieldValueDuplicate", "FieldValueTypeInvalid", "FieldManagerConflict", "DisruptionBudget", "NamespaceTerminating",
    "ResourceVersionTooLarge",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cause:
    """One fault of one field: its place, its kind, and the sentence."""

    field: str
    message: str
    reason: CauseReason = "FieldValueInvalid"


class Refusal(Exception):
    """A request that is answered with a `Status` of failure."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details = dict(details or {})
        self.retry_after_seconds = retry_after_seconds
        if retry_after_seconds is not None:
            self.details["retryAfterSeconds"] = retry_after_seconds

    def status(self) -> dict[str, Any]:
        """Return the `Status` object for a client."""
        answer: dict[str, Any] = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message,
        }  # fmt: skip
        answer |= {"reason": self.reason, "code": self.code}
        if self.details:
            answer["details"] = self.details
        return answer


def success(message: str = "", details: dict[str, Any] | None = None, code: int | None = None) -> dict[str, Any]:
    """Return the `Status` object of a request that succeeded without an object to show; a deletion's has no code."""
    answer: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if message:
        answer["message"] = message
    if details:
        answer["details"] = details
    if code is not None:
        answer["code"] = code
    return answer


def _named_details(resource: Resource, name: str) -> dict[str, Any]:
    return {"name": name, "kind": resource.plural} | ({"group": resource.group} if resource.group else {})


def not_found(resource: Resource, name: str) -> Refusal:
    """404: no such object."""
    return Refusal(404, "NotFound", f'{resource.qualified} "{name}" not found', details=_named_details(resource, name))


def no_such_path() -> Refusal:
    """404: no such resource or path."""
    return Refusal(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource, name: str) -> Refusal:
    """409: the name is taken."""
    return Refusal(
        409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', details=_named_details(resource, name)
    )


def conflict(resource: Resource, name: str, why: str) -> Refusal:
    """409: the object is not in the state that the request was made for."""
    return Refusal(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}',
        details=_named_details(resource, name),
    )


def stale(resource: Resource, name: str) -> Refusal:
    """409: another client wrote first."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def invalid(resource: Resource, name: str, causes: Sequence[Cause], *, kind: str = "") -> Refusal:
    """422: the object was understood and is wrong; every fault is named. ``kind`` is its claimed kind."""
    kind = kind or resource.kind
    faults = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    text = faults[0] if len(faults) == 1 else "[" + ", ".join(faults) + "]"
    return Refusal(
        422,
        "Invalid",
        f'{kind}{"." + resource.group if resource.group else ""} "{name}" is invalid: {text}',
        details={
            "name": name, "group": resource.group, "kind": kind,
            "causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes],
        },
    )  # fmt: skip


def bad_option(options: str, cause: Cause) -> Refusal:
    """422: an option of a request (``CreateOptions``, ``DeleteOptions``) is wrong."""
    return Refusal(
        422,
        "Invalid",
        f'{options}.meta.k8s.io "" is invalid: {cause.field}: {cause.message}',
        details={
            "group": "meta.k8s.io", "kind": options,
            "causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field}],
        },
    )  # fmt: skip


def bad_request(message: str) -> Refusal:
    """400: the request could not be understood."""
    return Refusal(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Cause] = ()) -> Refusal:
    """403: understood and never allowed."""
    details = _named_details(resource, name)
    if causes:
        details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    return Refusal(403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {why}', details=details)


def expired(message: str) -> Refusal:
    """410: the requested version or page is no longer kept."""
    return Refusal(410, "Expired", message)


def not_yet(message: str) -> Refusal:
    """504: a version that is still to come."""
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    return Refusal(504, "Timeout", f"Timeout: {message}", details=details, retry_after_seconds=1)


def unsupported_media(message: str) -> Refusal:
    """415: the body is in a format that is not read here."""
    return Refusal(415, "UnsupportedMediaType", message)


def method_not_allowed(verb: str) -> Refusal:
    """405: the resource has no such verb."""
    return Refusal(405, "MethodNotAllowed", f"the server does not allow {verb} on the requested resource")


def too_many(message: str, retry_after_seconds: int, causes: Sequence[Cause] = ()) -> Refusal:
    """429: come back later."""
    details = {"causes": [{"reason": c.reason, "message": c.message} for c in causes]} if causes else None
    return Refusal(429, "TooManyRequests", message, details=details, retry_after_seconds=retry_after_seconds)
