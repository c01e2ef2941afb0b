"""Replays the history after a restart: whole slots from `history`, as far as Prometheus returns them.

Called by `live` before its first forecast. A Prometheus that does not answer is queried again until the first live slot
is over. Then forecasts start from the known part, and the log reports it. Invariant: slots come in order up to the one
before the open slot, so that the same time of yesterday stays the same time. A missing slot becomes a slot without
records.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

import numpy as np

from cotide_core.events import Pod
from cotide_core.state.cluster_state import ClusterState
from cotide_operator.host_load.history import History, PastSlot, Span
from cotide_operator.host_load.sampler import NodeTable, online_pods
from cotide_operator.usage.sources import SourceDown

_LOG = logging.getLogger(__name__)

RETRY_WALL_SECONDS: Final = 1.0
"""Wall seconds between two attempts (chosen)."""


class HistoryReplay:
    """Replays the history.

    Parameters
    ----------
    history : History. wanted_slots : their number, at least 1.
    """

    def __init__(self, history: History, wanted_slots: int) -> None:
        self._history = history
        self._wanted_slots = wanted_slots

    async def slots(
        self, open_slot: int, table: NodeTable, pods: Mapping[str, Pod], state: ClusterState, *,
        give_up: Callable[[], bool],
    ) -> AsyncIterator[PastSlot]:  # fmt: skip
        """Yield the slots before the open one.

        Parameters
        ----------
        give_up : whether it is too late for another attempt.
        """
        started = time.monotonic()
        online = await online_pods(pods, table, state)
        span = Span.before(open_slot, self._wanted_slots, len(pods))
        if span.last + 1 - span.first < self._wanted_slots:
            _LOG.warning(
                "%d pods: %d slots of their past are rebuilt, not %d", len(pods), span.last + 1 - span.first,
                self._wanted_slots,
            )  # fmt: skip
        known = done = 0
        complaint = ""
        while span.first <= span.last:
            try:
                async for slot in self._history.slots(span, table, online):
                    span = Span(slot.number + 1, span.last, span.at_a_time)
                    done += 1
                    known += int(np.isfinite(slot.online).all(axis=0).any())
                    yield slot
            except SourceDown as error:
                if str(error) != complaint:
                    _LOG.warning("the past can't be read from Prometheus for now: %s", error)
                complaint = str(error)
                if give_up():
                    break
                await asyncio.sleep(RETRY_WALL_SECONDS)
        for number in range(span.first, span.last + 1):
            if done:  # without history there is no calendar to keep
                yield PastSlot(number, np.full((2, len(table.names)), np.nan))
        if known:
            seconds = time.monotonic() - started
            _LOG.info("%d slots of %d nodes were rebuilt from Prometheus in %.1f s", known, len(table.names), seconds)
        else:
            _LOG.info("the past of these pods is unknown: forecasts start from what all nodes have in common")
