"""Fair turns of namespaces at a Prometheus: nobody's slow queries hold up another's.

Called by `prometheus` at each reading. A namespace has a few queries in flight and a few seconds from its first one;
whoever used the least time lately is next, and within a namespace those that were not reached last time come first.
Invariant: a reading ends at its deadline, and what was not asked by then is absent from the result.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

Query = TypeVar("Query")
Answer = TypeVar("Answer")

DECAY: Final = 0.5
"""Of the seconds used, at each reading; chosen: a few readings later nobody is blamed any more."""
TURN_SECONDS: Final = 0.001
"""Counted for a query as it starts, so that namespaces of equal use take turns; chosen: less than any query takes."""


class QueryTurns(Generic[Query, Answer]):
    """Asks the queries of many namespaces.

    Parameters
    ----------
    concurrent : queries in flight, all namespaces together.
    per_namespace : of one.
    seconds : wall seconds that a namespace has from its first query on.
    """

    def __init__(self, *, concurrent: int, per_namespace: int, seconds: float) -> None:
        self._concurrent = concurrent
        self._per_namespace = per_namespace
        self._seconds = seconds
        self._used: dict[str, float] = {}
        self._first: dict[str, Query] = {}
        """The first query of a namespace that was not reached last time."""

    async def run(
        self,
        queries: Mapping[str, Sequence[Query]],
        ask: Callable[[Query, float], Awaitable[Answer]],
        deadline: float,
    ) -> dict[Query, Answer]:
        """Ask what can be asked and return the answers by query.

        Parameters
        ----------
        queries : by namespace.
        ask : asks one within so many seconds; raises nothing but what ends the operator.
        deadline : second of the event loop's clock at which no query is asked any more.
        """
        loop = asyncio.get_running_loop()
        self._used = {space: self._used.get(space, 0.0) * DECAY for space in queries}
        waiting = {space: self._in_turn(space, each) for space, each in queries.items() if each}
        self._first = {}
        turns = [(self._used[space], space) for space in sorted(waiting)]
        heapq.heapify(turns)
        ends: dict[str, float] = {}
        flying: dict[asyncio.Task[Answer], tuple[str, Query, float]] = {}
        counts: dict[str, int] = dict.fromkeys(waiting, 0)
        answers: dict[Query, Answer] = {}
        try:
            while turns or flying:
                now = loop.time()
                while turns and len(flying) < self._concurrent:
                    _, space = heapq.heappop(turns)
                    left = min(deadline, ends.setdefault(space, now + self._seconds)) - now
                    if left <= 0:
                        self._first[space] = waiting[space][0]
                        continue
                    query = waiting[space].popleft()
                    flying[asyncio.ensure_future(_as_coroutine(ask(query, left)))] = (space, query, now)
                    self._used[space] += TURN_SECONDS
                    counts[space] += 1
                    if waiting[space] and counts[space] < self._per_namespace:
                        heapq.heappush(turns, (self._used[space], space))
                if not flying:
                    break
                done, _ = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    space, query, started = flying.pop(task)
                    answers[query] = task.result()
                    self._used[space] += loop.time() - started
                    counts[space] -= 1
                    # One that flies at its limit is not among the turns; one below it is there already.
                    if waiting[space] and counts[space] == self._per_namespace - 1:
                        heapq.heappush(turns, (self._used[space], space))
        finally:
            for task in flying:
                task.cancel()
        return answers

    def _in_turn(self, space: str, queries: Sequence[Query]) -> deque[Query]:
        """Return the queries, from the one on that was not reached last time."""
        turned = deque(queries)
        first = self._first.get(space)
        if first is not None and first in turned:
            turned.rotate(-turned.index(first))
        return turned


async def _as_coroutine(awaited: Awaitable[Answer]) -> Answer:
    return await awaited
