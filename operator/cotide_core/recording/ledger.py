"""The ledger: all inputs and outputs of the engine, one JSON line per call of `handle`.

`LedgerWriter` returns bytes, which the driver appends to ``ledger.jsonl``; `read_ledger` reads the lines. Line 1 holds
the schema version and the configuration with its seed. Every line carries the SHA-256 of the chain so far and of its
own body. A changed byte is therefore found at its line, and an added or removed line at the line after::

    {"chain":"<64 hex digits>","body":{...}}

A crash leaves at most a last line without its newline, which differs from a change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Final

from cotide_core.config import SchedulerConfig
from cotide_core.errors import InputError, LedgerError
from cotide_core.events import EVENT_TYPES, Event
from cotide_core.instructions import INSTRUCTION_TYPES, Instruction
from cotide_core.recording.codec import Json, decode, encode

SCHEMA: Final = 1
"""Raised when a reader of the older schema could misread a line."""
NO_LEDGER: Final = "line 1 is not how a ledger begins: this is none, or its beginning was changed"
_OPEN: Final = b'{"chain":"'
_BODY: Final = b'","body":'
_CLOSE: Final = b"}\n"
_DIGITS: Final = 64
_EVENTS: Final[dict[str, type]] = {cls.__name__: cls for cls in EVENT_TYPES}
_INSTRUCTIONS: Final[dict[str, type]] = {cls.__name__: cls for cls in INSTRUCTION_TYPES}
_CONFIG: Final[dict[str, type]] = {SchedulerConfig.__name__: SchedulerConfig}


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One call of `Scheduler.handle`, as recorded.

    Attributes
    ----------
    line : its line in the ledger, from 1 (which is the header).
    written : each instruction as the JSON text that was recorded.
    """

    line: int
    now: float
    events: tuple[Event, ...]
    instructions: tuple[Instruction, ...]
    written: tuple[str, ...]


class LedgerWriter:
    """Makes the lines of one ledger, in order. Holds only the running hash."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._chain = ""

    def header(self) -> bytes:
        """Return line 1; call it once, first. Defaults are written out, so that they may change later."""
        config = {"kind": SchedulerConfig.__name__, **asdict(self._config)}
        for knobs in (
            "hierarchical",
            "plans",
            "exploration",
            "packs",
            "fair_half_life_seconds",
            "gang_reserve_seconds",
            "effort_per_decision",
            "preempts_by_priority",
        ):
            if not config[knobs]:
                # Headers of other policies stay as they were before these existed.
                del config[knobs]
        return self._line({"ledger": SCHEMA, "config": config})

    def entry(self, now: float, events: Sequence[Event], instructions: Sequence[Instruction]) -> bytes:
        """Return the line of one call of `handle`."""
        return self._line(
            {
                "now": float(now),
                "events": [encode(event) for event in events],
                "instructions": [encode(instruction) for instruction in instructions],
            }
        )

    def _line(self, body: Json) -> bytes:
        raw = as_json(body).encode()
        self._chain = _link(self._chain, raw)
        return _OPEN + self._chain.encode() + _BODY + raw + _CLOSE


class Ledger:
    """A ledger being read: the configuration at once, the entries while iterating.

    Iterating raises `LedgerError` at the first line that is broken, changed or cut short; the message names the line.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)
        self._chain = ""
        self._number = 0
        first = next(self._lines, None)
        if first is None:
            raise LedgerError("the ledger is empty")
        body = self._open(first)
        if body.get("ledger") != SCHEMA:
            raise LedgerError(f"line 1: schema {body.get('ledger')!r}, this version reads schema {SCHEMA}")
        try:
            self.config: SchedulerConfig = decode(body.get("config"), _CONFIG)
        except (LedgerError, InputError) as error:
            raise LedgerError(f"line 1: config: {error}") from error

    def __iter__(self) -> Iterator[LedgerEntry]:
        for line in self._lines:
            yield self._entry(self._open(line))

    def _open(self, line: bytes) -> dict[str, Json]:
        self._number += 1
        number = self._number
        if number == 1 and not line.startswith(_OPEN[: len(line)]):
            raise LedgerError(NO_LEDGER)
        if not line.endswith(b"\n"):
            raise LedgerError(
                f"line {number} is cut short, the writer stopped in the middle of it; the lines before it are intact"
            )
        start = len(_OPEN) + _DIGITS
        body_start = start + len(_BODY)
        if line[: len(_OPEN)] != _OPEN or line[start:body_start] != _BODY or line[-len(_CLOSE) :] != _CLOSE:
            raise LedgerError(f"line {number} was changed: it is no ledger line")
        raw = line[body_start : -len(_CLOSE)]
        chain = _link(self._chain, raw)
        if line[len(_OPEN) : start] != chain.encode():
            raise LedgerError(
                f"line {number} was changed: its hash should be {chain[:12]}..., "
                f"it reads {line[len(_OPEN) : start][:12].decode(errors='replace')}..."
            )
        self._chain = chain
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise LedgerError(f"line {number} is no JSON: {error}") from error
        if not isinstance(body, dict):
            raise LedgerError(f"line {number} holds no object")
        return body

    def _entry(self, body: dict[str, Json]) -> LedgerEntry:
        try:
            return LedgerEntry(
                line=self._number,
                now=float(body["now"]),
                events=tuple(decode(event, _EVENTS) for event in body["events"]),
                instructions=tuple(decode(item, _INSTRUCTIONS) for item in body["instructions"]),
                written=tuple(as_json(item) for item in body["instructions"]),
            )
        except LedgerError as error:
            raise LedgerError(f"line {self._number}: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"line {self._number}: {type(error).__name__}: {error}") from error


def read_ledger(lines: Iterable[bytes]) -> Ledger:
    """Open a ledger from its lines, each with its newline; iterate over the result for the entries.

    Raises
    ------
    LedgerError
        When the header is broken; later lines raise while iterating.
    """
    return Ledger(lines)


def as_json(value: Json) -> str:
    """Return the one JSON text of a value: compact, keys in the order of the fields, non-ASCII as it is."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _link(chain: str, raw: bytes) -> str:
    return sha256(chain.encode() + raw).hexdigest()
