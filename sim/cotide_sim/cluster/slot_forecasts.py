"""The events of a usage feed and a forecaster in virtual time: samples, forecasts of a slot, published slack.

Called by `world` at each measurement when the policy plans by slack. The live operator does the same from a metrics
page or a Prometheus; both use `cotide_predictors.host_load` (slots, models), which has no clock. The flow is:
measurements -> NodeUsageSampled, NodeForecasted, NodeUpserted -> `Scheduler.handle`.

The offer to batch and gratis pods as ``cotide.dev/reclaimed-*`` comes from the formula that the engine plans with
(`cotide_core.state.host_load.offered`). Until the first slot has ended there is no forecast, and the requests of online
pods replace the peak. Invariants: offers lie between nothing and the node; the same measurements give the same events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from cotide_core.events import Event, Node, NodeForecasted, NodeUpserted, NodeUsageSampled, PeakAhead
from cotide_core.forecasts import HostLoadForecast
from cotide_core.kernels.array_types import Floats
from cotide_core.state.host_load import offered
from cotide_core.units import RECLAIMED_CPU, RECLAIMED_MEMORY
from cotide_predictors.host_load.forecaster import ALLOCATED, HostLoadModel
from cotide_predictors.host_load.slots import SlotClock

Quantile = Literal["p50", "p90", "p99"]
RESOURCES: Final = 2
AHEAD_SLOTS: Final = (2, 4, 8, 16)
"""Slots of the longer horizons: up to 400 s, the longest of the run times in the traced plans (chosen)."""


@dataclass(frozen=True, slots=True)
class PeakRule:
    """The rule for the planned peak of a node's online pods.

    Attributes
    ----------
    quantile : of the forecast.
    horizon_slots : slots ahead that the forecast peak covers.
    ahead_slots : longer horizons with forecasts of their own, for policies that look as far as a job runs.
    ahead_quantile : of the longer horizons; None for the quantile of the coming slot.
    reserve_share : of a node that stays free above the present usage, without any forecast; None to forecast.
    """

    quantile: Quantile = "p90"
    horizon_slots: int = 1
    ahead_slots: tuple[int, ...] = ()
    reserve_share: float | None = None
    ahead_quantile: Quantile | None = None


@dataclass(frozen=True, slots=True)
class NodeLoads:
    """Measured at one moment, (2, N) each: cpu in millicores, memory in bytes.

    Attributes
    ----------
    used : real use of online pods.
    asked : requests of online pods.
    held : allocated to batch and gratis pods.
    """

    used: Floats
    asked: Floats
    held: Floats


class SlotForecasts:
    """Forecasts of nodes of the same kind.

    Parameters
    ----------
    nodes : without their reclaimed capacity.
    capacity : (2,) millicores and bytes of each node.
    slot_seconds : length of a slot, a multiple of the measuring period.
    rule : of the planned peak.
    capacity_share : of a node that may be planned with.
    """

    def __init__(
        self, nodes: list[Node], capacity: Floats, *, slot_seconds: float, rule: PeakRule, capacity_share: float
    ) -> None:
        self._nodes = nodes
        self._capacity = capacity.reshape(RESOURCES, 1)
        self._slot_seconds = slot_seconds
        self._rule = rule
        self._share = capacity_share
        count, horizons = len(nodes), (rule.horizon_slots,)
        self._online = [
            (
                SlotClock(count, slot_seconds=slot_seconds),
                HostLoadModel(count, horizons=(*horizons, *rule.ahead_slots)),
            )
            for _ in range(RESOURCES)
        ]
        self._batch = [
            (
                SlotClock(count, slot_seconds=slot_seconds),
                HostLoadModel(count, centre=ALLOCATED, horizons=horizons),
            )
            for _ in range(RESOURCES)
        ]
        self._rows = np.arange(count)
        self._forecast: Floats | None = None
        """Of the online pods' peaks."""

    def measure(self, loads: NodeLoads, now: float) -> list[Event]:
        """Return the events of a measurement."""
        reserve = self._rule.reserve_share
        closed = self._take(loads, now) if reserve is None else True
        events: list[Event] = [
            NodeUsageSampled(node.name, now, *loads.used[:, row].tolist()) for row, node in enumerate(self._nodes)
        ]
        if closed:
            if reserve is None:
                online, batch = self._peaks(self._online), np.maximum(self._peaks(self._batch), loads.held)
            else:
                online, batch = np.minimum(loads.used + reserve * self._capacity, self._capacity), loads.held
            self._forecast = online
            until = now + self._slot_seconds
            ahead = () if reserve is not None else self._rule.ahead_slots
            further = [self._peaks(self._online, slots) for slots in ahead]
            ends = [now + slots * self._slot_seconds for slots in ahead]
            for row, node in enumerate(self._nodes):
                (cpu, memory), (batch_cpu, batch_memory) = online[:, row].tolist(), batch[:, row].tolist()
                peaks = tuple(PeakAhead(end, *peak[:, row].tolist()) for end, peak in zip(ends, further, strict=True))
                events.append(NodeForecasted(node.name, until, cpu, memory, batch_cpu, batch_memory, peaks))
        if closed or self._forecast is None:
            events += self._published(loads)
        return events

    def _take(self, loads: NodeLoads, now: float) -> bool:
        """Note the measurement; return whether it ended a slot."""
        ended = False
        for clocks, values in ((self._online, loads.used), (self._batch, loads.held)):
            for (clock, model), shares in zip(clocks, values / self._capacity, strict=True):
                for maxima in clock.take(now, self._rows, shares):
                    model.record(maxima)
                    ended = True
        return ended

    def _peaks(self, clocks: list[tuple[SlotClock, HostLoadModel]], slots: int = 0) -> Floats:
        slots = slots or self._rule.horizon_slots
        further = slots != self._rule.horizon_slots and self._rule.ahead_quantile is not None
        quantile = self._rule.ahead_quantile if further and self._rule.ahead_quantile else self._rule.quantile
        shares = [_at(model.forecast(slots), quantile) for _, model in clocks]
        return np.stack(shares) * self._capacity

    def _published(self, loads: NodeLoads) -> list[Event]:
        believed = np.full(len(self._nodes), self._forecast is not None)
        peak = np.maximum(loads.used, loads.asked if self._forecast is None else self._forecast)
        physical = np.broadcast_to(self._capacity, peak.shape)
        amounts = offered(physical, np.minimum(peak, physical), believed, self._share)
        return [
            NodeUpserted(
                Node(
                    node.name,
                    tuple(sorted((*node.allocatable, (RECLAIMED_CPU, cpu), (RECLAIMED_MEMORY, memory)))),
                )
            )
            for node, cpu, memory in zip(self._nodes, *amounts.tolist(), strict=True)
        ]


def _at(forecast: HostLoadForecast, quantile: Quantile) -> Floats:
    match quantile:
        case "p50":
            return forecast.p50
        case "p90":
            return forecast.p90
        case _:
            return forecast.p99
