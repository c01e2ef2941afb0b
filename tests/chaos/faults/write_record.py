"""Every binding and every eviction that was asked for, and who took the lease when: what a right server would hide.

Filled by the fault proxies. A server refuses a second binding, and one whose lease is another's does harm only now and
then; so the cluster's history can't tell whether an operator asked. What must hold of the requests themselves::

    one at a time     no binding of a uid while the same operator waits for the answer to another one of it
    fenced            no binding and no eviction of an operator after another one took the lease that it held
    once              no binding of a uid by an operator that was told 201 for it before
    patient           none by one that was told to come back later (429), before that
    the lease's turn  nobody takes the lease from another operator that renewed it a moment ago and did not give it up

An operator is a process: who is started again has a name of its own. One that met its time limit, or stood still beyond
it, may ask once more for the same node, since it can't have read the answer.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

RECORDED: Final = ("bind", "evict")
CREATED: Final = 201
THROTTLED: Final = 429
RETRY_AFTER_SECONDS: Final = 0.9
"""Proxies say 1 s; a tenth less, since a timer may be early by some milliseconds. Chosen."""
LASTS: Final = 0.9
"""Who takes a lease within this part of its time since the last renewal did not wait for it. Chosen, as above."""
HURRIED: Final = 0.5
"""Who asks again within this part of its time limit has not met that limit. Chosen: half, since a proxy on a busy
machine hears of a request late."""


@dataclass
class Write:
    """One request to bind or to evict; times in monotonic seconds of the proxies' process."""

    sender: str
    kind: str
    path: str
    uid: str
    node: str
    asked: float
    waiting: Callable[[], bool]
    """Whether its sender still keeps the connection."""
    beside: bool = False
    """Whether its sender waited for another answer about the same uid."""
    ended: float | None = None
    status: int = 0
    """What its sender was told; 0 for nothing."""
    later: bool = True
    """Whether a 429 says when to come back; one of a webhook does not."""

    def end(self, now: float, status: int, *, later: bool = True) -> None:
        self.later = later
        self.status = status if self.waiting() else 0
        self.ended = now

    def __str__(self) -> str:
        where = f" to {self.node}" if self.kind == "bind" else ""
        return f"{self.sender} asked to {self.kind} {'/'.join(self.path.split('/')[-4:-1:2])}{where}"


@dataclass
class WriteRecord:
    """What was asked of the server in one run, in the order in which it came."""

    writes: list[Write] = field(default_factory=list)
    takings: list[tuple[float, str]] = field(default_factory=list)
    """When the server had given the lease to another sender than before, and to whom."""
    too_early: list[str] = field(default_factory=list)
    """Takings of a lease that its holder had renewed a moment ago."""
    earlier: list[tuple[list[Write], list[tuple[float, str]]]] = field(default_factory=list)
    """Writes and takings before each time that a backup was restored."""
    _renewed: tuple[float, float] = (float("-inf"), 0.0)
    """When its holder asked last for the lease, and how long it lasts from then on."""
    _open: dict[tuple[str, str], list[Write]] = field(default_factory=lambda: defaultdict(list))

    def begin_anew(self) -> None:
        """Compare nothing of now with anything from now on: a backup was restored."""
        self.earlier.append((self.writes, self.takings))
        self.writes, self.takings = [], []
        self._renewed = (float("-inf"), 0.0)
        self._open.clear()

    def ask(self, kind: str, sender: str, path: str, body: bytes, now: float, waiting: Callable[[], bool]) -> Write:
        """Record a request that has come whole."""
        uid, node = _subject(kind, body)
        write = Write(sender, kind, path, uid or path, node, now, waiting)
        if kind == "bind":
            still = [one for one in self._open[sender, write.uid] if one.ended is None and one.waiting()]
            write.beside = bool(still)
            self._open[sender, write.uid] = [*still, write]
        self.writes.append(write)
        return write

    def lease_written(self, sender: str, body: bytes, now: float, asked: float | None = None) -> None:
        """Record that the server took a write of the lease, which had been asked for a moment before."""
        spec = json.loads(body).get("spec") or {}
        if not spec.get("holderIdentity"):
            self._renewed = (float("-inf"), 0.0)
            return
        if not self.takings or self.takings[-1][1] != sender:
            since, lasts = now - self._renewed[0], self._renewed[1]
            if self.takings and since < lasts * LASTS:
                before = self.takings[-1][1]
                self.too_early.append(f"{sender} took the lease {since:.1f} s after {before} had renewed it")
            self.takings.append((now, sender))
        self._renewed = (now if asked is None else asked, spec.get("leaseDurationSeconds") or 0.0)

    @property
    def evictions(self) -> list[str]:
        """Paths of the evictions that were asked for."""
        every = [*(one for writes, _ in self.earlier for one in writes), *self.writes]
        return [write.path for write in every if write.kind == "evict"]

    def breaches(self, limit_seconds: float) -> list[str]:
        """Return what no operator may ask for; the limit is the time that it waits for an answer."""
        found = list(self.too_early)
        for writes, takings in (*self.earlier, (self.writes, self.takings)):
            found += [f"{write} while its last binding of that pod was unanswered" for write in writes if write.beside]
            found += _unfenced(writes, takings) + _repeated(writes, limit_seconds) + _impatient(writes)
        return found


def _unfenced(writes: list[Write], takings: list[tuple[float, str]]) -> list[str]:
    deposed: dict[str, tuple[float, str]] = {}
    for (_, before), (when, after) in itertools.pairwise(takings):
        deposed.setdefault(before, (when, after))
    found = []
    for write in writes:
        when, successor = deposed.get(write.sender, (float("inf"), ""))
        if write.asked > when:
            found.append(f"{write} {write.asked - when:.3f} s after {successor} had taken the lease")
    return found


def _impatient(writes: list[Write]) -> list[str]:
    until: dict[tuple[str, str], float] = {}
    found = []
    for write in writes:
        if write.kind != "bind":
            continue  # an eviction's 429 is a budget's, and has its own pause
        if write.asked < until.pop((write.sender, write.uid), write.asked):
            found.append(f"{write} before the time that it was told to come back at")
        if write.status == THROTTLED and write.later and write.ended is not None:
            until[write.sender, write.uid] = write.ended + RETRY_AFTER_SECONDS
    return found


def _repeated(writes: list[Write], limit_seconds: float) -> list[str]:
    by_object: dict[tuple[str, str], Write] = {}
    found = []
    for write in writes:
        if write.kind != "bind":
            continue
        first = by_object.get((write.sender, write.uid))
        if first is not None and first.ended is not None and write.asked > first.ended:
            hurried = write.asked - first.asked < limit_seconds * HURRIED
            if hurried or write.node != first.node:
                found.append(f"{write} after it was told 201 for {first.node}")
        elif write.status == CREATED:
            by_object[write.sender, write.uid] = write
    return found


def _subject(kind: str, body: bytes) -> tuple[str, str]:
    """Return the uid and the node that a request names, empty where it names none."""
    try:
        asked: dict[str, Any] = json.loads(body)
    except ValueError:  # who sends this is told by the server
        return "", ""
    if kind == "bind":
        return asked.get("metadata", {}).get("uid", ""), asked.get("target", {}).get("name", "")
    options = asked.get("deleteOptions") or {}
    return (options.get("preconditions") or {}).get("uid", ""), ""
