"""Makes the published outlook of each node from the engine's state and the scores.

Called by `live` after its events were handled, so that an outlook equals the input of the engine's placements: the same
peaks, the same formula (`cotide_core.state.host_load.offered`), the same clock. Invariant: a node without trusted
forecasts offers allocatable - requests, and never zero unless its requests leave nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.array_types import Booleans
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.host_load import offered
from cotide_core.units import counted
from cotide_operator.host_load.forecasters import NAMES
from cotide_operator.host_load.node_rows import NodeRows
from cotide_operator.reclaimed.node_outlook import (
    CALIBRATED,
    COVERAGE_TOO_LOW,
    NO_FORECAST,
    STALE_FEED,
    TOO_FEW_RECORDS,
    NodeOutlook,
    Outlooks,
)
from cotide_predictors.host_load.scoring import LoadScores, TrustBand

NEWS_SHARE: Final = 0.01
"""Share of the allocatable amount: within a slot an offer that moved less is not published again (chosen)."""
NODES_AT_A_TIME: Final = 1_000
"""Outlooks published before the loop gets its turn: some 10 ms (chosen)."""
_BAND: Final = TrustBand()


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """State of the forecasts of the roster's rows, as of the last slot.

    Attributes
    ----------
    fallen_back : (n,) whether they are unused. scores : of each forecaster.
    worse : (n,) the worse covered one of cpu and memory, which messages name.
    contest : a sentence on champion and challenger, or an empty string.
    """

    fallen_back: Booleans
    scores: Sequence[LoadScores]
    worse: NDArray[np.intp]
    contest: str = ""

    @classmethod
    def of(cls, fallen_back: Booleans, scores: Sequence[LoadScores], contest: str = "") -> Standing:
        """Return the standing that follows from these scores."""
        coverage = np.array([score.coverage[:, -1] for score in scores[:2]])
        return cls(fallen_back, scores, np.nan_to_num(coverage, nan=1.0).argmin(axis=0), contest)


class OutlookMaker:
    """Makes outlooks and publishes the changed ones.

    Parameters
    ----------
    state, roster : read only.
    stale_seconds : clock seconds for which a measurement holds.
    ever_sampled : whether a node was measured since the start.

    Attributes
    ----------
    outlooks : receives the outlooks.
    """

    def __init__(
        self, state: ClusterState, roster: NodeRows, outlooks: Outlooks, *, slot_seconds: float, stale_seconds: float,
        capacity_share: float, ever_sampled: Callable[[str], bool],
    ) -> None:  # fmt: skip
        self._state = state
        self._roster = roster
        self.outlooks = outlooks
        self._slot_seconds = slot_seconds
        self._stale_seconds = stale_seconds
        self._capacity_share = capacity_share
        self._ever_sampled = ever_sampled
        self._putting = asyncio.Lock()

    async def put(self, standing: Standing, now: float, *, everything: bool) -> dict[str, int]:
        """Publish the changed outlooks, or all of them; return the number of nodes by reason."""
        async with self._putting:  # an older view must not overtake a newer one
            return await self._put(standing, now, everything=everything)

    async def _put(self, standing: Standing, now: float, *, everything: bool) -> dict[str, int]:
        until = (now // self._slot_seconds + 1) * self._slot_seconds
        views = self._views(standing, now)
        reasons: dict[str, int] = {}
        for start in range(0, len(views), NODES_AT_A_TIME):
            if start:
                await asyncio.sleep(0)
            news = []
            for view in views[start : start + NODES_AT_A_TIME]:
                reasons[view.reason] = reasons.get(view.reason, 0) + 1
                before = self.outlooks.get(view.node)
                if everything or before is None or view.is_news_after(before):
                    news.append(view.outlook(until, standing))
            self.outlooks.put(news)
        self.outlooks.keep_only(self._state.columns.row_of)
        return reasons

    def _views(self, standing: Standing, now: float) -> list[_View]:
        columns, load = self._state.columns, self._state.host_load
        names = list(columns.row_of)
        if not names:
            return []
        rows = np.array([columns.row_of[name] for name in names], np.intp)
        positions = np.array([self._roster.row_of.get(name, -1) for name in names], np.intp)
        positions[positions >= len(standing.fallen_back)] = -1  # joined since the last slot
        fallen = standing.fallen_back[positions] & (positions >= 0)
        records = np.where(positions >= 0, standing.scores[0].records[positions], 0.0)
        peak, believed = load.online_peak(now, self._stale_seconds)
        used, fresh = load.used(now, self._stale_seconds)
        physical = load.physical()
        trusted = believed.copy()
        trusted[rows[fallen]] = False
        # The engine keeps the last forecast of a node that has just fallen back until it runs out; the outlook drops
        # it.
        peak = np.where(trusted | ~believed, peak, np.minimum(np.maximum(used, load.asked()), physical))
        amounts = offered(physical, peak, trusted, self._capacity_share)
        reasons = [
            self._reason(name, trusted=is_trusted, fresh=is_fresh, fallen=has_fallen, records=scored)
            for name, is_trusted, is_fresh, has_fallen, scored in zip(
                names, trusted[rows].tolist(), fresh[rows].tolist(), fallen.tolist(), records.tolist(), strict=True
            )
        ]
        columns_of = (positions, trusted[rows], *peak[:, rows], *amounts[:, rows], *physical[:, rows])
        values = zip(names, reasons, *(column.tolist() for column in columns_of), strict=True)
        return [_View(*value) for value in values]

    def _reason(self, name: str, *, trusted: bool, fresh: bool, fallen: bool, records: float) -> str:
        if trusted:
            return CALIBRATED if records >= _BAND.records_min else TOO_FEW_RECORDS
        if not fresh and self._ever_sampled(name):
            return STALE_FEED
        return COVERAGE_TOO_LOW if fallen else NO_FORECAST


class _View(NamedTuple):
    """One node at one moment, before the comparison with its last outlook."""

    node: str
    reason: str
    row: int
    trusted: bool
    online_millicores: float
    online_memory_bytes: float
    offered_millicores: int
    offered_memory_bytes: int
    physical_millicores: float
    physical_memory_bytes: float

    def is_news_after(self, before: NodeOutlook) -> bool:
        return (
            before.reason != self.reason
            or abs(self.offered_millicores - before.offered_millicores) > NEWS_SHARE * self.physical_millicores
            or abs(self.offered_memory_bytes - before.offered_memory_bytes) > NEWS_SHARE * self.physical_memory_bytes
        )

    def outlook(self, until: float, standing: Standing) -> NodeOutlook:
        scores = _Scores.of(standing, self.row)
        return NodeOutlook(
            node=self.node,
            until_seconds=until,
            online_millicores=self.online_millicores,
            online_memory_bytes=self.online_memory_bytes,
            offered_millicores=self.offered_millicores,
            offered_memory_bytes=self.offered_memory_bytes,
            trusted=self.trusted,
            reason=self.reason,
            message=_message(self.reason, scores) + standing.contest,
            coverage_p99=scores.coverage,
            absolute_error_share=scores.error,
            bias_share=scores.bias,
            underestimate_share=scores.under,
        )


@dataclass(frozen=True, slots=True)
class _Scores:
    """Scores of the worse covered one of a node's cpu and memory."""

    resource: str = ""
    records: int = 0
    coverage: float | None = None
    error: float | None = None
    bias: float | None = None
    under: float | None = None

    @classmethod
    def of(cls, standing: Standing, row: int) -> _Scores:
        if row < 0 or not standing.scores[0].records[row]:
            return cls()
        worse = int(standing.worse[row])
        one = standing.scores[worse]
        return cls(
            NAMES[worse].removeprefix("online-"),
            int(one.records[row]),
            float(one.coverage[row, -1]),
            float(one.absolute_error[row]),
            float(one.bias[row]),
            float(one.underestimates[row]),
        )


def _message(reason: str, scores: _Scores) -> str:
    if scores.coverage is None or scores.error is None:
        figures = "none of its forecasts was scored yet"
    else:
        figures = (
            f"the p99 forecast of its {scores.resource} covered {100 * scores.coverage:.1f} % of the last"
            f" {counted(scores.records, 'slot')}, with a mean error of {100 * scores.error:.1f} % of the node"
        )
    if reason == CALIBRATED:
        return f"{figures[0].upper()}{figures[1:]}."
    if reason == TOO_FEW_RECORDS:
        return f"Forecast from what all nodes have in common: {figures}."
    requests = "what is not requested by online pods is offered"
    if reason == COVERAGE_TOO_LOW:
        return f"Forecasts are not trusted for now, {requests}: {figures}."
    if reason == STALE_FEED:
        return f"No fresh usage of most of its online pods, {requests}; {figures}."
    return f"There is no forecast yet, {requests}; {figures}."
