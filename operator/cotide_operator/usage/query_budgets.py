"""Budgets of namespaces at a Prometheus: slow queries of one namespace delay no other.

Called by `prometheus` at each reading. Namespaces take turns and share the queries in flight, as `fair_queue`
describes. Each has a few seconds from its first query on. Namespaces that recently used much time come after all
others. Within a namespace, the queries that were not reached last time come first. Invariant: a reading ends at its
deadline, and queries not sent by then are absent from the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from cotide_operator.cache.fair_queue import FairQueue

Query = TypeVar("Query")
Answer = TypeVar("Answer")

DECAY: Final = 0.5
"""Factor on the used seconds at each reading; chosen: after a few readings old usage no longer counts."""
MUCH: Final = 0.25
"""Share of a namespace's seconds above which its recent usage is high; chosen: half of them in the last reading."""


class QueryBudgets(Generic[Query, Answer]):
    """Runs the queries of many namespaces, each namespace within its budget.

    Parameters
    ----------
    concurrent : queries in flight, all namespaces together.
    per_namespace : queries in flight of one namespace.
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
        """Run as many queries as the budgets allow and return the answers by query.

        Parameters
        ----------
        queries : by namespace; a query belongs to one namespace.
        ask : runs one query within a number of seconds; raises only errors that end the operator.
        deadline : second of the event loop's clock; later no further query is sent.
        """
        loop = asyncio.get_running_loop()
        light, heavy = self._queued(queries)
        ends: dict[str, float] = {}
        flying: dict[asyncio.Task[Answer], tuple[str, Query, float]] = {}
        answers: dict[Query, Answer] = {}
        try:
            while light or heavy or flying:
                now = loop.time()
                while (turn := _turn(light, heavy)) is not None:
                    queue, space = turn
                    query = queue.take(space)
                    left = min(deadline, ends.setdefault(space, now + self._seconds)) - now
                    if left <= 0:
                        self._first.setdefault(space, query)
                        queue.release(space)
                        continue
                    flying[asyncio.ensure_future(_as_coroutine(ask(query, left)))] = (space, query, now)
                if not flying:
                    break
                done, _ = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    space, query, started = flying.pop(task)
                    answers[query] = task.result()
                    self._used[space] += loop.time() - started
                    light.release(space)
        finally:
            for task in flying:
                task.cancel()
        return answers

    def _queued(self, queries: Mapping[str, Sequence[Query]]) -> tuple[FairQueue[Query], FairQueue[Query]]:
        """Return the queries of the namespaces with low recent usage, and of those with high recent usage."""
        self._used = {space: self._used.get(space, 0.0) * DECAY for space in queries}
        light: FairQueue[Query] = FairQueue(slots=self._concurrent, slots_each=self._per_namespace)
        heavy: FairQueue[Query] = FairQueue(shares_with=light)
        for space in sorted(queries, key=lambda space: (self._used[space], space)):
            queue = heavy if self._used[space] > MUCH * self._seconds else light
            own, first = queries[space], self._first.get(space)
            start = own.index(first) if first is not None and first in own else 0
            for query in (*own[start:], *own[:start]):
                queue.add(query, space)
        self._first = {}
        return light, heavy


def _turn(*queues: FairQueue[Query]) -> tuple[FairQueue[Query], str] | None:
    """Return the first queue with a tenant to serve, and that tenant."""
    return next(((queue, tenant) for queue in queues if (tenant := queue.turn()) is not None), None)


async def _as_coroutine(awaited: Awaitable[Answer]) -> Answer:
    return await awaited
