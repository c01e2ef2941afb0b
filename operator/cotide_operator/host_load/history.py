"""What the present pods of each node used before this operator started, from Prometheus' range queries.

Called by `live` once, before its first forecast. Simulated time runs ``speed`` times as fast as Prometheus' clock:
slots are in seconds of the operator's clock, queries in seconds of the wall, and the steps between samples shrink with
the speed. The law of `node_load` holds for each moment of the past as for the present: a pod that has no sample then
counts as what it asks for, and a node most of whose present pods were not there yet has no record. So a node tells
only of the time since most of its pods came; nothing of what ran there before is made up.

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
"""Moments asked for in each slot, of which the highest counts (chosen: what lies between is seen by the rate's own
window)."""
POINTS_AT_A_TIME: Final = 200_000
"""Values in the answer to one query: some 5 MB of JSON (chosen)."""
MAX_POINTS: Final = 20_000_000
"""Values asked for in all; a larger cluster rebuilds a shorter past (chosen: minutes, not hours)."""


class RangeSource(Protocol):
    """Who knows the past."""

    async def usage_range(self, resource: int, start: float, end: float, step: float) -> list[Series]:
        """Return what pods used, every ``step`` wall seconds; see `prometheus_source.PrometheusSource`."""
        ...


@dataclass(frozen=True, slots=True)
class PastSlot:
    """One whole slot: its number since the epoch of the operator's clock, and (2, N) highest loads, nan for none."""

    number: int
    online: Floats


@dataclass(frozen=True, slots=True)
class Span:
    """Which slots are asked for, and how many at a time."""

    first: int
    last: int
    at_a_time: int

    @classmethod
    def before(cls, slot: int, wanted: int, pods: int) -> Span:
        """Return the ``wanted`` slots before ``slot``, or as many as can be had of so many pods."""
        points = max(1, pods) * SAMPLES_PER_SLOT
        slots = min(wanted, max(1, MAX_POINTS // points))
        return cls(slot - slots, slot - 1, max(1, POINTS_AT_A_TIME // points))


class History:
    """Rebuilds slots.

    Parameters
    ----------
    source : RangeSource. clock : Clock. slot_seconds : of the operator's clock.
    settling_wall_seconds : see `metric_sources.Source`.
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
            When Prometheus does not answer; what was yielded before stands.
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
        # Prometheus cuts steps to whole milliseconds: asked for so, no sample drifts out of its own part of the slot.
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
    """In a thread: from series to what each pod used at each moment, (2, P, moments)."""
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
    """In a thread: from what pods used to the maxima of nodes, (2, N, slots)."""
    usage[~believable(usage, table.physical[:, online.rows, None])] = np.nan
    nodes = len(table.names)
    loads = node_loads(online.rows, usage, online.requests, nodes)
    # Of a node without a pod nobody knows what ran there: that is no idle past.
    loads[:, np.bincount(online.rows, minlength=nodes) == 0] = np.nan
    maxima: Floats = np.fmax.reduce(loads.reshape(2, nodes, -1, SAMPLES_PER_SLOT), axis=3)
    return maxima
