"""Answers of an API server: refusals as values, faults as one shallow error.

Made by `client.KubeClient`; read by its callers. `ApiError` is a `ClusterError`, so that an unexpected one still ends
as one clear line for the user.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Final

import msgspec

from cotide_core.errors import ClusterError

ANSWER_BYTES: Final = 512 << 20
"""Of one answer, both received and unpacked. Chosen: a page of 500 objects of a MiB each, or 100,000 pods of 5 kB in
one piece.
"""

RETRY_AFTER_SECONDS: Final = 2.0
"""Longest wait that a ``Retry-After`` causes. API servers ask for 1 s (priority and fairness, and requests in flight).
A server between the two may ask for an hour, and the operator would do nothing in that time. Chosen: after a throttle a
pod is bound within 5 s.
"""


class Status(msgspec.Struct, rename="camel", frozen=True):
    """The API's ``Status`` object, as far as we read it."""

    reason: str | None = None
    message: str | None = None
    code: int | None = None


_STATUS = msgspec.json.Decoder(Status)


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a binding or an eviction; never an exception.

    Attributes
    ----------
    code : HTTP status; 0 when no answer came.
    reason : the API's reason (``Conflict``, ``NotFound``, ``TooManyRequests``); empty on success.
    message : the API's sentence.
    retry_after_seconds : the wait that the server asked for, if any.
    uncertain : whether a try of this request got no answer, or a passing fault instead, and so may have been carried
        out, or may still be.
    """

    code: int
    reason: str = ""
    message: str = ""
    retry_after_seconds: float | None = None
    uncertain: bool = False

    @property
    def ok(self) -> bool:
        """Whether the server carried the request out."""
        return 200 <= self.code < 300


class AnswerTooLargeError(ClusterError):
    """An answer larger than `ANSWER_BYTES`; the code that catches it puts the server's name before these words.

    Parameters
    ----------
    compressed : whether it came compressed, and is as large only when unpacked.
    """

    def __init__(self, *, compressed: bool = False) -> None:
        most = f"more than {ANSWER_BYTES >> 20} MiB, which is the most that is read; is it one?"
        advice = " (ask the server without a proxy between: a few bytes that unpack to so much are no list)"
        super().__init__(
            f"sends a compressed answer that unpacks to {most}{advice}" if compressed else f"sends an answer of {most}"
        )


class ApiError(ClusterError):
    """The API server answered a request with a refusal.

    Parameters
    ----------
    status : int
        HTTP status.
    reason : str
        The API's reason, as ``NotFound``.
    message : str
        The API's sentence.
    request : str
        Method and path, for the reader.
    server : str
        The answering server, as a sentence names it. Added when identity or rights are refused: another kubeconfig or
        context may name another server.
    """

    def __init__(self, status: int, reason: str, message: str, request: str = "", server: str = "") -> None:
        self.status, self.reason, self.message, self.request = status, reason, message, request
        advice = {
            401: " (the credentials are not accepted: check token or certificate)",
            403: " (grant this user or service account the right: see deploy/rbac)",
        }.get(status, "")
        what = f"{request}: " if request else ""
        if advice and server:
            what = f"{server} refuses {request}: " if request else f"{server} refuses: "
        super().__init__(f"{what}{status} {reason}: {message}{advice}")


def read_status(code: int, body: bytes) -> tuple[str, str]:
    """Return reason and message of a refusal, even if it is no ``Status`` (for example a proxy's page)."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = Status()
    try:
        phrase = HTTPStatus(code).phrase
    except ValueError:
        phrase = f"status {code}"
    message = status.message or body[:200].decode("utf-8", "replace").strip() or phrase
    return status.reason or phrase.replace(" ", ""), message


def retry_after(header: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, or None; the API server only sends whole seconds."""
    try:
        seconds = float(header) if header else math.nan
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def is_named(item: object) -> bool:
    """Return whether an item of a list is an object of Kubernetes: every such object has a name."""
    return isinstance(item, dict) and isinstance(metadata := item.get("metadata"), dict) and bool(metadata.get("name"))
