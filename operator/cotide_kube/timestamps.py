"""RFC 3339 times of the Kubernetes API to seconds since the epoch and back; the one place for it.

Called by the reflector's users, by the fake nodes and by all code that writes a time into an object. Times of the API
are UTC; ``Time`` fields carry whole seconds, ``MicroTime`` fields (leases, events) six decimals.

Source: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cotide_core.errors import InputError
from cotide_core.limits import MAX_EPOCH, TIMESTAMP_CHARACTERS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_timestamp(text: str) -> float:
    """Return seconds since the epoch of an RFC 3339 time such as ``2026-11-20T13:00:00Z``.

    Raises
    ------
    InputError
        When the text is no time, or carries no zone.
    """
    if len(text) > TIMESTAMP_CHARACTERS:
        raise InputError(f"{text[:16]!r}... is not a time: it has {len(text)} characters")
    return _parsed(text)


@lru_cache(maxsize=8192)
def _parsed(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{text!r} is not a time (write for example 2026-11-20T13:00:00Z)") from error
    if moment.tzinfo is None:
        raise InputError(f"{text!r} names no time zone (end it with Z)")
    return (moment - _EPOCH) / timedelta(seconds=1)


@lru_cache(maxsize=1024)
def _whole(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_timestamp(seconds: float) -> str:
    """Write seconds since the epoch as a ``Time``: whole seconds, cut off rather than rounded, as the API does.

    Times before 1970 or after the year 9999 become the first or the last second of that range.

    Raises
    ------
    InputError
        If the value is no number.
    """
    return _whole(math.floor(_writable(seconds)))


def format_micro_timestamp(seconds: float) -> str:
    """Write seconds since the epoch as a ``MicroTime`` with six decimals (lease and event times); bounded as above."""
    return (_EPOCH + timedelta(microseconds=round(_writable(seconds) * 1e6))).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _writable(seconds: float) -> float:
    if math.isnan(seconds):
        raise InputError("a time is no number")
    return min(max(seconds, 0.0), MAX_EPOCH)
