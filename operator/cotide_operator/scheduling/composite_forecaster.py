"""Combines several forecasters of events into one: run times of jobs, request rates of services.

The assembly makes it for `scheduling_loop`. Invariant: each call reaches the forecasters in their given order.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotide_core.events import Event
from cotide_core.forecasts import CompletionForecaster
from cotide_core.instructions import Instruction
from cotide_operator.scheduling.scheduling_loop import EventForecaster


class CompositeForecaster:
    """Calls several forecasters one after the other."""

    def __init__(self, *forecasters: EventForecaster) -> None:
        self._forecasters = forecasters

    def ahead(self, events: Sequence[Event], forecaster: CompletionForecaster) -> list[Event]:
        """Return the events of all forecasters."""
        return [event for each in self._forecasters for event in each.ahead(events, forecaster)]

    def decided(self, instructions: Sequence[Instruction]) -> None:
        """Pass the instructions of a cycle on."""
        for forecaster in self._forecasters:
            forecaster.decided(instructions)

    def begin_anew(self) -> None:
        """Prepare all forecasters for a new engine."""
        for forecaster in self._forecasters:
            forecaster.begin_anew()
