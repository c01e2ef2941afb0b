"""The order of patches: nodes that wait to be patched, the urgent ones first, all of them at a bounded rate.

Used by `publisher` only. Invariants: one worker at a time takes a node; at most ``per_second`` nodes are taken in a
second, however many wait.
"""

from __future__ import annotations

import asyncio
import math
import time

from cotide_operator.reclaimed.node_status import Urgency


class NodePatchQueue:
    """A queue of node names.

    Parameters
    ----------
    per_second : float
        Nodes taken per wall second.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._waiting: dict[Urgency, dict[str, None]] = {Urgency.AT_ONCE: {}, Urgency.DUE: {}}
        self._taken: set[str] = set()
        self._wake = asyncio.Event()
        self._free = -math.inf

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._waiting.values())

    def put(self, name: str, how: Urgency) -> None:
        """Enqueue a node; a waiting one keeps its turn unless its urgency changed."""
        if name not in self._waiting[how]:
            self.drop(name)
            self._waiting[how][name] = None
            self._wake.set()

    def drop(self, name: str) -> None:
        """Remove a node from the queue."""
        for waiting in self._waiting.values():
            waiting.pop(name, None)

    def taken(self, name: str) -> bool:
        """Whether a worker has a node."""
        return name in self._taken

    async def take(self) -> str:
        """Wait for the rate's next instant and for a node, and take it; give it back by `done`."""
        while True:
            while not len(self):
                self._wake.clear()
                await self._wake.wait()
            now = time.monotonic()
            turn = max(now, self._free)
            self._free = turn + 1.0 / self._per_second
            if turn > now:
                await asyncio.sleep(turn - now)
            for waiting in self._waiting.values():
                if waiting:  # the first one after the pause, not the one before it
                    name = next(iter(waiting))
                    del waiting[name]
                    self._taken.add(name)
                    return name

    def done(self, name: str) -> None:
        """Give a node back."""
        self._taken.discard(name)
