"""Usage of the present pods of each node before this operator started, from Prometheus' range queries.

Called by `live` once, before its first forecast. Simulated time runs ``speed`` times as fast as Prometheus' clock.
Slots are in seconds of the operator's clock, queries in seconds of the wall, and the steps between samples shrink with
the speed. The rule of `node_load` holds for the past as for the present: a pod without a sample at a moment counts with
its requests. A node has no record while most of its present pods did not exist. So the history of a node covers only
the time since most of its pods came; the load of earlier pods is not invented.

Invariant: slots come in order, each once, and only whole ones.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_operator.clock import Clock
from cotide_operator.host_load.node_load import believable, node_loads
from cotide_operator.host_load.sampler import NodeTable, OnlinePods
from cotide_operator.usage.prometheus import Series
from cotide_operator.usage.sources import CPU, MEMORY

SAMPLES_PER_SLOT: Final = 4
"""Queried moments in each slot; the highest value counts (chosen: the rate's own window covers the time between)."""
POINTS_AT_A_TIME: Final = 200_000
"""Values in the answer to one query: some 5 MB of JSON (chosen)."""
MAX_POINTS: Final = 20_000_000
"""Queried values in total; a larger cluster rebuilds a shorter history (chosen: minutes, not hours)."""


class RangeSource(Protocol):
    """A source of history."""

    async def usage_range(self, resource: int, start: float, end: float, step: float) -> list[Series]:
        """Return the usage of pods, every ``step`` wall seconds; see `usage.prometheus.PrometheusSource`."""
        ...


@dataclass(frozen=True, slots=True)
class PastSlot:
    """One whole slot: its number since the epoch of the operator's clock, and (2, N) highest loads, nan for none."""

    number: int
    online: Floats


@dataclass(frozen=True, slots=True)
class Span:
    """The queried slots, and their number per query."""

    first: int
    last: int
    at_a_time: int

    @classmethod
    def before(cls, slot: int, wanted: int, pods: int) -> Span:
        """Return the ``wanted`` slots before ``slot``, or as many as the limits allow for the number of pods."""
        points = max(1, pods) * SAMPLES_PER_SLOT
        slots = min(wanted, max(1, MAX_POINTS // points))
        return cls(slot - slots, slot - 1, max(1, POINTS_AT_A_TIME // points))


class History:
    """Rebuilds slots.

    Parameters
    ----------
    source : RangeSource. clock : Clock. slot_seconds : of the operator's clock.
    settling_wall_seconds : see `usage.sources.Source`.
    """

    def __init__(
        self, source: RangeSource, clock: Clock, slot_seconds: float, *, settling_wall_seconds: float = 0.0
    ) -> None:
        self._settling_wall_seconds = settling_wall_seconds
        self._source = source
        self._clock = clock
        self._slot_seconds = slot_seconds

    async def slots(self, span: Span, table: NodeTable, online: OnlinePods) -> AsyncIterator[PastSlot]:
        """Yield the slots of a span.

        Raises
        ------
        SourceDown
            When Prometheus does not answer; earlier slots stay valid.
        """
        for first in range(span.first, span.last + 1, span.at_a_time):
            count = min(span.at_a_time, span.last + 1 - first)
            maxima = await self._piece(first, count, table, online)
            for index in range(count):
                yield PastSlot(first + index, maxima[:, :, index])

    async def _piece(self, first: int, count: int, table: NodeTable, online: OnlinePods) -> Floats:
        """Return (2, N, count) maxima of the slots from ``first`` on."""
        moments = count * SAMPLES_PER_SLOT
        origin = self._clock.to_wall(first * self._slot_seconds)
        step = self._slot_seconds / SAMPLES_PER_SLOT / self._clock.speed
        # Prometheus cuts steps to whole milliseconds: with whole steps, each sample stays in its own part of the slot.
        asked = max(0.001, math.floor(step * 1000) / 1000)
        start, end = origin + step / 2, origin + (moments - 0.01) * step
        both = await asyncio.gather(
            *(self._source.usage_range(resource, start, end, asked) for resource in (CPU, MEMORY))
        )
        started = [math.nan if pod.started_seconds is None else self._clock.to_wall(pod.started_seconds)
                   for pod in online.pods]  # fmt: skip
        settled = np.array(started) + self._settling_wall_seconds
        usage = await asyncio.to_thread(_usage, both, origin, step, moments, online)
        usage[:, settled[:, None] > origin + step * (np.arange(moments) + 0.5)] = np.nan
        return await asyncio.to_thread(_maxima, usage, table, online)


def _usage(both: list[list[Series]], origin: float, step: float, moments: int, online: OnlinePods) -> Floats:
    """In a thread: convert series to the usage of each pod at each moment, (2, P, moments)."""
    index_of = {pod.key: row for row, pod in enumerate(online.pods)}
    usage = np.full((2, len(online.pods), moments), np.nan)
    for resource, series in enumerate(both):
        for one in series:
            row = index_of.get(one.pod)
            if row is None:
                continue
            steps = np.floor((np.array(one.moments) - origin) / step).astype(np.intp)
            inside = (steps >= 0) & (steps < moments)
            np.fmax.at(usage[resource, row], steps[inside], np.array(one.values)[inside])
    return usage


def _maxima(usage: Floats, table: NodeTable, online: OnlinePods) -> Floats:
    """In a thread: convert the usage of pods to the maxima of nodes, (2, N, slots)."""
    usage[~believable(usage, table.physical[:, online.rows, None])] = np.nan
    nodes = len(table.names)
    loads = node_loads(online.rows, usage, online.requests, nodes)
    # The past of a node without a pod is unknown: it does not count as idle.
    loads[:, np.bincount(online.rows, minlength=nodes) == 0] = np.nan
    maxima: Floats = np.fmax.reduce(loads.reshape(2, nodes, -1, SAMPLES_PER_SLOT), axis=3)
    return maxima
