"""The annotation of a pod that explains its placement: a `Decision` as short JSON, and back.

The binder writes it (with the Binding's annotations), and so does the annotator of waiting pods; ``cotide explain``,
which has only the API, reads it. Invariant: a note is never longer than `NOTE_LIMIT_BYTES`, since an object's
annotations share 256 KiB, and every watcher pays for each byte. Verdicts that do not fit are counted: the largest
groups of refused nodes stay, the others become ``more``.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson

from cotide_core.errors import InputError
from cotide_core.instructions import NO_FORECAST, Forecast, NodeVerdict, WaitReason
from cotide_core.limits import INT32_MOST, MAX_EPOCH, MAX_SECONDS, NOTE_BYTES
from cotide_core.qos.applicability import NAMES
from cotide_operator.cache.decision_store import Decision

DECISION_ANNOTATION: Final = "cotide.dev/decision"
NOTE_LIMIT_BYTES: Final = 2048
"""Chosen: eight to ten verdicts with their sentences; one screen shows no more."""
NOTE_VERSION: Final = 1

VICTIMS_NAMED: Final = 8
"""Chosen; together no longer than a sentence. With more victims the sentence gives their number."""
_MESSAGE_LIMIT: Final = 400
"""Chosen: longest stored sentence, in bytes of JSON; the event holds the whole one."""


@dataclass(frozen=True, slots=True)
class Note:
    """A decoded note: the decision, and the number of refused nodes and verdicts that did not fit."""

    decision: Decision
    more_verdicts: int = 0
    more_nodes: int = 0


def encode(decision: Decision) -> str:
    """Write a decision as at most `NOTE_LIMIT_BYTES` bytes of ASCII JSON.

    Verdicts are stored from the largest group of nodes down; the rest is counted in ``more``. Times stay on the
    operator's clock, in seconds, rounded to milliseconds; probabilities to four digits. The note is for readers; the
    ledger holds the exact values.
    """
    verdicts = sorted(decision.refused, key=lambda verdict: -verdict.nodes) if decision.refused else []
    kept = len(verdicts)
    while True:
        text = _ascii(_body(decision, verdicts, kept))
        if len(text) <= NOTE_LIMIT_BYTES or kept == 0:
            return text
        kept -= 1


class _Past(msgspec.Struct):
    v: int
    uid: str
    attempts: int = 0
    demotions: int = 0


class _Known(msgspec.Struct):
    v: int
    uid: str
    reason: str
    message: str
    node: str | None = None
    nominated: str = ""


class _Qos(msgspec.Struct, frozen=True):
    p: float | None = None
    model: str = ""
    out: list[str] = []
    n: int | None = None


class _Seconds(msgspec.Struct, frozen=True):
    p50: float | None = None
    p90: float | None = None
    model: str = ""


class _Refused(msgspec.Struct):
    n: int
    m: str
    r: WaitReason
    e: str = ""
    p: float | None = None


class _Body(msgspec.Struct, rename="camel"):
    """The JSON of `_body`; foreign content is no note."""

    v: int
    uid: str
    at: float
    reason: str
    message: str
    attempts: int
    node: str | None = None
    refused: list[_Refused] = []
    more: tuple[int, int] = (0, 0)
    qos: _Qos = _Qos()
    seconds: _Seconds = _Seconds()
    demotions: int = 0
    position: int | None = None
    retry_at: float | None = None
    start_at: float | None = None
    finish_at: float | None = None
    nominated: str = ""
    victims: list[str] = []


_OUTSIDE: Final = tuple(NAMES.values())
_PAST: Final = msgspec.json.Decoder(_Past)
_KNOWN: Final = msgspec.json.Decoder(_Known)
_BODY: Final = msgspec.json.Decoder(_Body)
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, ValueError)
"""Exceptions of the decoder: nesting beyond Python's stack is a RecursionError, a lone surrogate a ValueError."""


def decode_past(text: str) -> tuple[str, int, int] | None:
    """Return uid, attempts and demotions of a note; None for an invalid one. A tenth of the work of `decode`."""
    if len(text) > NOTE_BYTES:
        return None
    try:
        past = _PAST.decode(text)
    except _UNREADABLE:
        return None
    return (past.uid, _count(past.attempts), _count(past.demotions)) if past.v == NOTE_VERSION else None


def decode(text: str, key: str) -> Note:
    """Read a note back; ``key`` is the ``namespace/name`` of the pod that carries it.

    Counts and times are clamped to the range of a counter and a timestamp.

    Raises
    ------
    InputError
        If the text is no note: another program or another version wrote the annotation.
    """
    field = f"annotation {DECISION_ANNOTATION}"
    if len(text) > NOTE_BYTES:
        raise InputError(f"has {len(text)} characters; a decision of Cotide has at most {NOTE_BYTES}", field=field)
    try:
        version = msgspec.json.decode(text, type=_Version).v
        if version != NOTE_VERSION:
            raise InputError(f"is version {version!r} of the note, this command reads {NOTE_VERSION}")
        return _note(_BODY.decode(text), key)
    except _UNREADABLE as error:
        raise InputError("is not a decision of Cotide", field=field) from error


class _Version(msgspec.Struct):
    v: int | str | float


def is_noted(text: str | None, decision: Decision) -> bool:
    """Return whether an annotation is current for a waiting pod, apart from its counters."""
    if text is None or len(text) > NOTE_BYTES:
        return False
    try:
        known = _KNOWN.decode(text)
    except _UNREADABLE:
        return False
    return known == _Known(
        NOTE_VERSION, decision.uid, decision.reason, _shortened(decision.message), nominated=decision.nominated_node
    )


def _count(value: int) -> int:
    return min(INT32_MOST, max(0, value))


def _moment(value: float | None) -> float | None:
    return None if value is None else min(float(MAX_EPOCH), max(0.0, value))


def _probability(value: float | None) -> float | None:
    return None if value is None else min(1.0, max(0.0, value))


def _ascii(body: dict[str, Any]) -> str:
    """Write JSON in ASCII; orjson is ten times as fast, but has no escapes beyond ASCII."""
    text = orjson.dumps(body).decode()
    return text if text.isascii() else json.dumps(body, separators=(",", ":"))


def _body(decision: Decision, verdicts: list[NodeVerdict], kept: int) -> dict[str, Any]:
    """Return the content of the note; empty fields are left out: each byte is parsed, stored and sent to every
    watcher."""
    forecast = decision.forecast
    body: dict[str, Any] = {
        "v": NOTE_VERSION,
        "uid": decision.uid,
        "at": _rounded(decision.decided_seconds),
        "node": decision.node,
        "reason": decision.reason,
        "message": _shortened(decision.message),
    }
    if verdicts:
        body["refused"] = [_verdict(verdict) for verdict in verdicts[:kept]]
        if kept < len(verdicts):
            body["more"] = [len(verdicts) - kept, sum(verdict.nodes for verdict in verdicts[kept:])]
    if forecast is not NO_FORECAST:
        qos: dict[str, Any] = _present(
            p=_rounded(forecast.qos_violation_probability, 4), model=forecast.qos_model, n=forecast.qos_evidence
        )
        if forecast.qos_outside:
            qos["out"] = list(forecast.qos_outside)
        body["qos"] = qos or None
        seconds = _present(
            p50=_rounded(forecast.seconds_p50), p90=_rounded(forecast.seconds_p90), model=forecast.completion_model
        )
        body["seconds"] = seconds or None
    body["attempts"] = decision.attempts
    body["demotions"] = decision.demotions or None
    body["position"] = decision.queue_position
    body["retryAt"] = _rounded(decision.retry_at_seconds)
    body["startAt"] = _rounded(decision.predicted_start_seconds)
    body["finishAt"] = _rounded(decision.predicted_finish_seconds)
    body["nominated"] = decision.nominated_node or None
    body["victims"] = _named(decision.victims) or None
    return {name: value for name, value in body.items() if value is not None}


def _present(**values: float | str | None) -> dict[str, float | str]:
    return {name: value for name, value in values.items() if value is not None and value != ""}


def _named(victims: tuple[str, ...]) -> list[str]:
    named: list[str] = []
    for key in victims[:VICTIMS_NAMED]:
        if len(json.dumps([*named, key])) > _MESSAGE_LIMIT:
            break
        named.append(key)
    return named


def _verdict(verdict: NodeVerdict) -> dict[str, Any]:
    body: dict[str, Any] = {
        "n": verdict.nodes,
        "m": _shortened(verdict.message),
        "r": verdict.reason.value,
        "e": verdict.example or None,
        "p": _rounded(verdict.probability, 4),
    }
    return {name: value for name, value in body.items() if value is not None}


def _note(body: _Body, key: str) -> Note:
    decision = Decision(
        key=key,
        uid=body.uid,
        decided_seconds=_moment(body.at) or 0.0,
        node=body.node,
        reason=body.reason,
        message=body.message,
        refused=tuple(
            NodeVerdict(
                nodes=_count(verdict.n),
                message=verdict.m,
                reason=verdict.r,
                example=verdict.e,
                probability=_probability(verdict.p),
            )
            for verdict in body.refused
        ),
        forecast=Forecast(
            qos_violation_probability=_probability(body.qos.p),
            seconds_p50=_duration(body.seconds.p50),
            seconds_p90=_duration(body.seconds.p90),
            qos_model=body.qos.model,
            completion_model=body.seconds.model,
            qos_outside=tuple(name for name in _OUTSIDE if name in body.qos.out),
            qos_evidence=None if body.qos.n is None else _count(body.qos.n),
        ),
        attempts=_count(body.attempts),
        demotions=_count(body.demotions),
        queue_position=None if body.position is None else _count(body.position),
        retry_at_seconds=_moment(body.retry_at),
        predicted_start_seconds=_moment(body.start_at),
        predicted_finish_seconds=_moment(body.finish_at),
        nominated_node=body.nominated,
        victims=tuple(body.victims),
    )
    return Note(decision, *map(_count, body.more))


def _duration(value: float | None) -> float | None:
    return None if value is None else min(float(MAX_SECONDS), max(0.0, value))


def _shortened(message: str) -> str:
    """Cut a sentence by its length in JSON: an escaped letter takes six bytes."""
    plain = message.isascii() and message.isprintable() and not ('"' in message or "\\" in message)
    if (len(message) if plain else len(json.dumps(message)) - 2) <= _MESSAGE_LIMIT - 2:
        return message
    words = message[: _MESSAGE_LIMIT - 5]
    while len(json.dumps(words)) > _MESSAGE_LIMIT - 3:
        words = words[:-1]
    return words + "..."


def _rounded(value: float | None, digits: int = 3) -> float | None:
    """Round for the note; a value that JSON can't carry (nan, inf) becomes None."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), digits)
