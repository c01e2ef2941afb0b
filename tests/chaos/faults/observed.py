"""Up to which version an operator has been shown objects by the lists and watches that its cache stands on.

Used by `fault_proxy` where a backup is restored in a run: an operator that was shown nothing later than it knows
of nothing that never was, and may go on. Versions of lists and bookmarks are no objects.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass

import msgspec

from cotide_kube.reflector import PAGE_LIMIT


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = "0"


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Page(msgspec.Struct):
    items: list[_Object] = []


class _Line(msgspec.Struct):
    type: str
    object: _Object


@dataclass
class Observed:
    """What one process was shown."""

    version: int = 0

    def page(self, query: str, body: bytes, encoding: str = "") -> None:
        """Take the answer to a list; only those of reflectors count, which name their limit."""
        if f"limit={PAGE_LIMIT}" not in query.split("&"):
            return
        for item in msgspec.json.decode(gzip.decompress(body) if encoding == "gzip" else body, type=_Page).items:
            self._shown(item)

    def watch(self, query: str) -> Lines:
        """Return what takes the chunks of a watch; kopf's own watches have no time limit and do not count."""
        return Lines(self, counts="timeoutSeconds=" in query)

    def line(self, line: bytes) -> None:
        """Take one line of a watch."""
        event = msgspec.json.decode(line, type=_Line)
        if event.type in ("ADDED", "MODIFIED", "DELETED"):
            self._shown(event.object)

    def _shown(self, one: _Object) -> None:
        self.version = max(self.version, int(one.metadata.resource_version))


@dataclass
class Lines:
    """The lines of one watch, from its chunks."""

    observed: Observed
    counts: bool
    _rest: bytes = b""

    def take(self, chunk: bytes) -> None:
        if self.counts:
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in filter(None, lines):
                self.observed.line(line)
