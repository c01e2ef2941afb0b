"""Several who forecast beside the engine, as one: run times of jobs, request rates of services.

Made by the assembly for `scheduling_loop`. Invariant: they are asked in the order in which they were given.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotide_core.events import Event
from cotide_core.forecasts import CompletionForecaster
from cotide_core.instructions import Instruction
from cotide_operator.scheduling.scheduling_loop import Foresight


class Foresights:
    """Several, asked one after the other."""

    def __init__(self, *all_of_them: Foresight) -> None:
        self._all = all_of_them

    def ahead(self, events: Sequence[Event], forecaster: CompletionForecaster) -> list[Event]:
        """Return what the engine is to be told by all of them."""
        return [event for one in self._all for event in one.ahead(events, forecaster)]

    def decided(self, instructions: Sequence[Instruction]) -> None:
        """Hand the instructions of a cycle on."""
        for one in self._all:
            one.decided(instructions)

    def begin_anew(self) -> None:
        """Say that a new engine follows."""
        for one in self._all:
            one.begin_anew()
