"""A semaphore whose slots namespaces take in turns, so that the crowd of one holds up nobody.

Used by `phase_resizer` for what it writes: in the order of a semaphore the thousand pods of one tenant would be a
thousand places before another's one. Invariants: at most the given number is held, and of one namespace half of it,
however slowly its holders are answered (by a webhook that hangs, say); within a namespace first come, first served.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from cotide_operator.cache.namespace_turns import NamespaceTurns


class NamespaceSlots:
    """So many slots."""

    def __init__(self, slots: int) -> None:
        self._free, self._most_each = slots, max(1, slots // 2)
        self._held: Counter[str] = Counter()
        """Slots by namespace; no zeros."""
        self._turns: NamespaceTurns[asyncio.Future[None]] = NamespaceTurns()

    @contextlib.asynccontextmanager
    async def slot(self, namespace: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.add(turn, namespace)
        self._hand_out()
        try:
            await turn
            yield
        finally:
            if turn.cancelled():
                self._turns.drop(turn)
            else:
                self._give_back(namespace)

    def _hand_out(self) -> None:
        while self._free and (namespace := self._turns.turn(self._has_room)) is not None:
            turn = self._turns.take(namespace)
            if not turn.cancelled():  # its task may not have heard of that yet
                self._free -= 1
                self._held[namespace] += 1
                turn.set_result(None)

    def _give_back(self, namespace: str) -> None:
        self._free += 1
        self._held[namespace] -= 1
        if not self._held[namespace]:
            del self._held[namespace]
        self._hand_out()

    def _has_room(self, namespace: str) -> bool:
        return self._held[namespace] < self._most_each
