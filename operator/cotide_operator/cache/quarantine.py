"""Objects that made a part of the operator raise: quarantined one by one, so that everything else continues.

The reflectors (undecodable objects), the cache (a listener that raised), translation, the loop (the engine), the
controllers and the reporter of decisions fill it. The reporter reads it and writes the fault on the object; all parts
that must skip the object read it, too. Lives in the operator's own loop.

::

    as any other --a part raises--> quarantined --the object changes, or goes--> as any other

Invariant: an object is quarantined at one version, and a newer version of it is tried again. The entries are bounded,
and so are the lines in the log.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

_LOG = logging.getLogger(__name__)

FAULT_CHARACTERS: Final = 400
"""Longest stored fault; chosen: a sentence or two."""
MOST: Final = 10_000
"""Most entries; chosen: some MB. Beyond that the oldest are dropped, and fail again at the next try."""
LINES_AT_ONCE: Final = 20
LINES_SECONDS: Final = 60.0
"""Wall seconds for the given number of log lines; the log then gives the number of the others. Chosen."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """One quarantined object.

    Attributes
    ----------
    kind, key, uid, version : the object and its version; empty if it is unreadable.
    part : the part that raised.
    fault : its message, for the owner of the object: it reveals no other objects.
    """

    kind: str
    key: str
    uid: str
    version: str
    part: str
    fault: str


Listener = Callable[[SetAside], None]


class Quarantine:
    """The quarantined objects, by kind and key.

    Attributes
    ----------
    total : number of quarantines since the start.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._entries: dict[tuple[str, str], SetAside] = {}
        self._listeners: list[Listener] = []
        self._window, self._lines, self._unlogged = float("-inf"), 0, 0
        self.total = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[SetAside]:
        return iter(self._entries.values())

    def get(self, kind: str, key: str) -> SetAside | None:
        """Return why an object is quarantined, None if it is not."""
        return self._entries.get((kind, key))

    def put(
        self, kind: str, key: str, part: str, error: BaseException | str, *, uid: str = "", version: str = ""
    ) -> None:
        """Quarantine an object until it changes, and call the listeners; a repeat at the same version calls none."""
        known = self._entries.get((kind, key))
        where = "" if isinstance(error, str) else where_raised(error)
        fault = error if isinstance(error, str) else (str(error) or type(error).__name__)
        entry = SetAside(kind, key, uid, version, part, _cut(fault))
        if known is not None and (known.uid, known.version, known.part) == (uid, version, part):
            return
        if known is None and len(self._entries) >= MOST:
            del self._entries[next(iter(self._entries))]
        self._entries[kind, key] = entry
        self.total += 1
        self._log_entry(entry, where)
        for listener in self._listeners:
            listener(entry)

    def forget(self, kind: str, key: str) -> None:
        """Drop a deleted object."""
        self._entries.pop((kind, key), None)

    def changed(self, kind: str, key: str, version: str) -> None:
        """Release an object for a new try if its version differs now."""
        entry = self._entries.get((kind, key))
        if entry is not None and entry.version != version:
            del self._entries[kind, key]

    def subscribe(self, listener: Listener) -> None:
        """Call ``listener(entry)`` for each object that is quarantined, in the loop's own thread; it must not raise."""
        self._listeners.append(listener)

    def _log_entry(self, entry: SetAside, where: str) -> None:
        now = self._monotonic()
        if now - self._window >= LINES_SECONDS:
            if self._unlogged:
                _LOG.error("%d further objects were quarantined", self._unlogged)
            self._window, self._lines, self._unlogged = now, 0, 0
        if self._lines >= LINES_AT_ONCE:
            self._unlogged += 1
            return
        self._lines += 1
        _LOG.error(
            "%s %s is quarantined until it changes: %s%s: %s",
            entry.kind,
            entry.key or "(unnamed)",
            entry.part,
            where,
            entry.fault,
        )


def where_raised(error: BaseException) -> str:
    """Return file, line and function of an error's origin, without its data."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return f" ({type(error).__name__})"
    last = frames[-1]
    return f" ({type(error).__name__} in {last.filename.rpartition('/')[2]}:{last.lineno} {last.name})"


def _cut(text: str) -> str:
    return text if len(text) <= FAULT_CHARACTERS else text[: FAULT_CHARACTERS - 3] + "..."
