"""Injected faults: answers of 409, 429 or 500, delays and dropped watches, for the tests of clients.

Called by `dispatch` before each request, by tests in the same process, and by `POST /_faults` where the server was
started with it. Invariant: without faults the cost is one attribute read per request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cotide_sim.apiserver.http.http_protocol import Request
from cotide_sim.apiserver.refusals import Refusal, bad_request

_REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired",
    422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Fault:
    """One planned fault.

    Parameters
    ----------
    status : int The HTTP status of the answer; 0 carries the request out (after the delay).
    delay_seconds : float Wait before the answer.
    method : str The affected verb, as in HTTP (``POST``); empty for all. ``WATCH`` affects only watches.
    path : str A regular expression that the path must contain; empty for all.
    count : int Number of affected requests; -1 for all.
    skip : int Number of matching requests that pass first.
    retry_after_seconds : int
        The Retry-After of a 429 or 503.
    """

    status: int = 0
    delay_seconds: float = 0.0
    method: str = ""
    path: str = ""
    count: int = 1
    skip: int = 0
    retry_after_seconds: int | None = None
    met: int = field(default=0)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Fault:
        """Return a fault from JSON.

        Raises
        ------
        Refusal
            400 for an unknown field or a wrong type.
        """
        known = {"status": int, "delay_seconds": (int, float), "method": str, "path": str, "count": int, "skip": int,
                 "retry_after_seconds": (int, type(None))}  # fmt: skip
        for key, value in given.items():
            if key not in known:
                raise bad_request(f"a fault has no {key!r}; it has {', '.join(known)}")
            if not isinstance(value, known[key]):  # type: ignore[arg-type] # a tuple or a type, as isinstance takes them
                raise bad_request(f"a fault's {key} can't be {value!r}")
        return cls(**given)

    def matches(self, request: Request) -> bool:
        """Return whether this fault affects a request."""
        watch = request.method == "GET" and request.query.get("watch") in ("true", "1")
        if self.method and self.method.upper() != ("WATCH" if watch and self.method != "GET" else request.method):
            return False
        return not self.path or re.search(self.path, request.path) is not None

    def refusal(self) -> Refusal | None:
        """Return the answer of this fault, or None when the request is carried out."""
        if not self.status:
            return None
        return Refusal(
            self.status,
            _REASONS.get(self.status, "Unknown"),
            f"injected fault: {self.status}",
            retry_after_seconds=self.retry_after_seconds,
        )


class Faults:
    """The planned faults, in the order of their trials."""

    def __init__(self) -> None:
        self._planned: list[Fault] = []
        self.active = False

    def add(self, fault: Fault) -> Fault:
        """Plan a fault; `met` of the returned object counts its effects."""
        self._planned.append(fault)
        self.active = True
        return fault

    def clear(self) -> None:
        """Remove all planned faults."""
        self._planned.clear()
        self.active = False

    def next_for(self, request: Request) -> Fault | None:
        """Return the fault for a request, or None."""
        for fault in self._planned:
            if fault.count == 0 or not fault.matches(request):
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.count -= fault.count > 0
            fault.met += 1
            return fault
        return None
