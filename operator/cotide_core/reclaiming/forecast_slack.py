"""The room that the forecasts leave on each node for batch and gratis pods, up to the end of runs of any length.

Owned by `slack_scheduler`. Slack is computed once per cycle and stays fixed within it. What pods hold is subtracted
from it at each question. Where longer horizons than a slot are forecast, a run is judged by the slack up to its own
end. The lengths of earlier questions are kept up to date, so that a node which eases for one of them is noticed.
Invariant: same state, same time and same lengths give the same numbers.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import numpy as np

from cotide_core.config import HierarchicalConfig
from cotide_core.kernels.array_types import Booleans, Floats, Indices, Integers
from cotide_core.kernels.open_rows import BOTH, COUNT, EXPECTED, FIRST, HELD, open_rows, rows_with_slack
from cotide_core.placement.feasibility import Codes
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.host_load import ONLINE_RANK, slack
from cotide_core.state.shapes import Shape

ENOUGH_ROOM: Final = -1e-6
"""Forecasts are floats: a shortage of a millionth of a millicore does not count."""
LENGTHS_REMEMBERED: Final = 64
"""Run times with up-to-date slack (chosen: with two a doubling, from a second to a hundred years)."""
_TAKEN: Final = {"held": HELD, "highest": EXPECTED, "both": BOTH}


class OpenRows(NamedTuple):
    """The nodes that have room for a pod, among those that it fits on.

    Attributes
    ----------
    rows : (N,)
    tally : (4, 2) how many nodes are open, cordoned, short and short until its end, and the first of each; see
        `kernels.open_rows`.
    """

    rows: Booleans
    tally: Integers

    def of(self, kind: int) -> tuple[int, int]:
        """Return the number of nodes of a kind, and their lowest row."""
        return self.tally.item(kind, COUNT), self.tally.item(kind, FIRST)


class Claims(NamedTuple):
    """The part of the nodes that a pod may not take, whatever the forecasts are: cordoned nodes, and claims of others.

    Attributes
    ----------
    cordoned, denied : (N,) nodes that take no batch or gratis pod, and those where others' claims leave no room.
    reserved : millicores and bytes that are reserved.
    """

    cordoned: Booleans
    denied: Booleans
    reserved: Floats


@cache
def _compile() -> None:
    """Compile the code of placements before the first one needs it, since that must not wait for seconds."""
    none, pair, rows = np.zeros(0, np.bool_), np.zeros((2, 0)), np.zeros(0, np.int64)
    held = np.zeros((3, 2, 0), np.int64)
    open_rows(np.zeros(0, np.int16), none, none, pair, pair, held, pair, pair, HELD, 0.0, 0.0, 0.0)
    rows_with_slack(rows, rows, pair, held, 0.0, 0.0, 0.0)


class ForecastSlack:
    """Slack of all nodes of one engine.

    Attributes
    ----------
    slot : millicores and bytes next to the predicted peak of the coming slot, whatever batch pods hold.
    """

    def __init__(self, config: HierarchicalConfig, state: ClusterState) -> None:
        _compile()
        self._config = config
        self._state = state
        self._now = 0.0
        self.slot: Floats = np.zeros((2, 0))
        self._load: Floats = np.zeros((2, 0))
        self._until: dict[float, Floats] = {}
        """The same as `slot` up to the end of runs of so many seconds from now."""
        self._nothing: Floats = np.zeros((2, 0))

    def refresh(self, now: float) -> Indices:
        """Compute the forecasts for ``now``; returns the rows with more room than before."""
        self._now = now
        load, config = self._state.host_load, self._config
        physical = load.physical()
        peak, believed = load.online_peak(now, config.usage_stale_seconds)
        room = slack(physical, peak, believed, config.capacity_share)
        batch = load.batch_load(now)
        known = min(self.slot.shape[1], room.shape[1])
        eased = (room[:, :known] > self.slot[:, :known]) | (batch[:, :known] < self._load[:, :known])
        for seconds, before in self._until.items():
            up_to = load.further_peak(peak, believed, now + seconds, now)
            further = room if up_to is peak else slack(physical, up_to, believed, config.capacity_share)
            self._until[seconds] = further
            if further is not room or before is not self.slot:
                eased |= further[:, :known] > before[:, :known]
        self.slot, self._load = room, batch
        return np.flatnonzero(eased.any(axis=0))

    def up_to_end(self, shape: Shape) -> Floats:
        """Return (2, N) slack up to the end of a run of a shape's length; from now on it is kept up to date."""
        if not shape.seconds:
            return self.slot
        found = self._until.get(shape.seconds)
        if found is None:
            if len(self._until) >= LENGTHS_REMEMBERED:
                self._until.clear()
            load, config = self._state.host_load, self._config
            peak, believed = load.peak_until(self._now + shape.seconds, self._now, config.usage_stale_seconds)
            found = self._until[shape.seconds] = slack(load.physical(), peak, believed, config.capacity_share)
        return found

    def room(self, shape: Shape) -> Floats:
        """Return (2, N) what pods of a shape find until their end, claims not counted."""
        taken, expected = self._taken(shape)
        held: Floats = self.held().astype(np.float64)
        if taken != HELD:
            held = held + expected if taken == BOTH else expected
        return np.asarray(self.up_to_end(shape) - held)

    def room_on(self, shape: Shape, row: int) -> float:
        """Return the millicores of `room` on one row."""
        taken, expected = self._taken(shape)
        gratis, batch, _ = self._state.columns.cells().held
        held = float(gratis[0][row] + batch[0][row])
        if taken != HELD:
            held = held + expected.item(0, row) if taken == BOTH else expected.item(0, row)
        return self.up_to_end(shape).item(0, row) - held

    def open_to(self, shape: Shape, fits: Codes, claims: Claims, asked: tuple[int, int]) -> OpenRows:
        """Return the nodes that have room for a pod of a shape.

        Parameters
        ----------
        fits : (N,) 0 where it fits, as in `placement.candidates`.
        asked : millicores and bytes.
        """
        taken, expected = self._taken(shape)
        ends = self.up_to_end(shape)
        held, (cpu, memory) = self._state.columns.held, asked
        rows, tally = open_rows(
            fits,
            claims.cordoned,
            claims.denied,
            ends,
            self.slot,
            held,
            expected,
            claims.reserved,
            taken,
            float(cpu),
            float(memory),
            ENOUGH_ROOM,
        )
        return OpenRows(rows, tally)

    def likely_open(self, shape: Shape, rows: Integers, asked: tuple[int, int]) -> Integers:
        """Return the rows with a service that have room for a pod of a shape. It uses the length known already and
        ignores claims: a guess, which changes nothing.
        """
        ends, columns = self._until.get(shape.seconds, self.slot), self._state.columns
        cpu, memory = asked
        return rows_with_slack(rows, columns.service_counts, ends, columns.held, float(cpu), float(memory), ENOUGH_ROOM)

    def held(self) -> Integers:
        """Return (2, N) what batch and gratis pods hold."""
        return np.asarray(self._state.columns.held[:ONLINE_RANK, :, : self._state.columns.size].sum(axis=0))

    def _taken(self, shape: Shape) -> tuple[int, Floats]:
        """Return the amount to subtract from the slack for a shape. The second value is (2, N) what batch and gratis
        pods are expected to hold, where that is read.
        """
        taken = _TAKEN[self._config.gratis_subtracts] if shape.gratis else HELD
        if taken != HELD:
            return taken, self._state.host_load.batch_load(self._now)
        if self._nothing.shape[1] != self._state.columns.size:
            self._nothing = np.zeros((2, self._state.columns.size))
        return taken, self._nothing
