"""Publishes measurements, forecasts and scores to the loop: as events, a few at a time.

Called by `live`. Ten thousand events in one cycle would hold the loop and the queue behind it for some tenth of a
second, so the publisher waits for the loop between parts. Invariants: only finite numbers are published; an unchanged
sample is published again only as often as it needs to stay fresh.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

import numpy as np

from cotide_core.events import Event, ForecastScored, NodeForecasted, NodeUsageSampled, PeakAhead
from cotide_core.kernels.array_types import Floats
from cotide_operator.host_load.forecasters import NAMES, Flags, Made, SlotScore
from cotide_operator.host_load.sampler import NodeSamples
from cotide_predictors.host_load.scoring import LoadScores

EVENTS_AT_A_TIME: Final = 500
"""Chosen: some 10 ms of a cycle, its ledger line included."""
NEWS_SHARE: Final = 0.01
"""Share of the allocatable amount: a sample that moved less counts as unchanged (chosen: far below the monitor's 10 %
between overloaded and relieved)."""
REPEATS: Final = 4.0
"""How often an unchanged sample is published within the time that a sample holds (chosen: at 60 s each new value of a
metrics-server, which has one every 15 s and publishes it some seconds late)."""


class Loop(Protocol):
    """The live loop."""

    def emit(self, event: Event) -> None:
        """Put an event into the next cycle."""
        ...

    async def caught_up(self) -> None:
        """Wait until all emitted events are handled."""
        ...


class EventPublisher:
    """Publishes events.

    Parameters
    ----------
    stale_seconds : clock seconds for which a sample holds.
    """

    def __init__(self, loop: Loop, stale_seconds: float) -> None:
        self._loop = loop
        self._stale_seconds = stale_seconds
        self._published: dict[str, tuple[float, float, float]] = {}

    def ever_sampled(self, node: str) -> bool:
        """Return whether a sample of this node was published."""
        return node in self._published

    async def samples(self, samples: NodeSamples, at_seconds: Floats) -> None:
        """Publish the changed samples; ``at_seconds`` (N,) are times of the operator's clock."""
        table = samples.table
        for name in [name for name in self._published if name not in table.index]:
            del self._published[name]
        await self._emit(self._sampled(samples, at_seconds))

    async def forecasts(
        self, names: dict[str, int], made: Made, level: str, usable: Flags, physical: Floats, until: float,
        slot_seconds: float,
    ) -> None:  # fmt: skip
        """Publish the forecasts of the nodes with usable rows.

        Parameters
        ----------
        names : rows by node. level : name of the quantile in `HostLoadForecast`. until : the end of the open slot.
        """
        amounts = np.array([getattr(host_load_forecast, level) for host_load_forecast in made.slot]) * np.tile(
            physical, (2, 1)
        )
        usable = usable & np.isfinite(amounts).all(axis=0)
        further = [
            (
                until + (slots - 1) * slot_seconds,
                np.array([getattr(host_load_forecast, level) for host_load_forecast in both]) * physical,
            )
            for slots, *both in made.ahead
        ]

        def events() -> Iterator[Event]:
            for name, row in names.items():
                if row < len(usable) and usable[row]:
                    ahead = tuple(PeakAhead(end, *peak[:, row].tolist()) for end, peak in further)
                    cpu, memory, batch_cpu, batch_memory = amounts[:, row].tolist()
                    yield NodeForecasted(name, until, cpu, memory, batch_cpu, batch_memory, ahead)

        await self._emit(events())

    async def scored(
        self, names: dict[str, int], score: SlotScore, scores: tuple[LoadScores, ...], trusts: Flags, physical: Floats,
        until: float,
    ) -> None:  # fmt: skip
        """Publish the scores of the forecasts of one slot."""

        def events() -> Iterator[Event]:
            for name, row in names.items():
                for index, forecaster in enumerate(NAMES):
                    if row >= score.known.shape[1] or not score.known[index, row]:
                        continue
                    made, window, whole = score.forecasts[index], scores[index], float(physical[index % 2, row])
                    yield ForecastScored(
                        node=name,
                        forecaster=forecaster,
                        until_seconds=until,
                        measured=whole * float(score.measured[index, row]),
                        point=whole * float(made.point[row]),
                        p50=whole * float(made.p50[row]),
                        p90=whole * float(made.p90[row]),
                        p99=whole * float(made.p99[row]),
                        absolute_error_share=float(window.absolute_error[row]),
                        bias_share=float(window.bias[row]),
                        underestimate_share=float(window.underestimates[row]),
                        coverage_p99=float(window.coverage[row, -1]),
                        trusted=bool(trusts[index, row]),
                    )

        await self._emit(events())

    def _sampled(self, samples: NodeSamples, at_seconds: Floats) -> Iterator[Event]:
        table = samples.table
        amounts = (*samples.online.tolist(), *table.physical.tolist())
        for name, at, cpu, memory, most_cpu, most_memory in zip(
            table.names, at_seconds.tolist(), *amounts, strict=True
        ):
            if not (math.isfinite(cpu) and math.isfinite(memory)):
                continue
            last_at, last_cpu, last_memory = self._published.get(name, (float("-inf"), 0.0, 0.0))
            if at <= last_at:
                continue
            moved = abs(cpu - last_cpu) > NEWS_SHARE * most_cpu or abs(memory - last_memory) > NEWS_SHARE * most_memory
            if moved or at - last_at >= self._stale_seconds / REPEATS:
                self._published[name] = (at, cpu, memory)
                yield NodeUsageSampled(name, at, cpu, memory)

    async def _emit(self, events: Iterable[Event]) -> None:
        rest = iter(events)
        while part := list(islice(rest, EVENTS_AT_A_TIME)):
            for event in part:
                self._loop.emit(event)
            await self._loop.caught_up()
