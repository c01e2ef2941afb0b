"""One placement decision: filter, score, guard, choose.

Called by `cycle.Scheduler` for the pod at the head of the queue, with a `Policy`: an order of the queue, a rank of
the nodes and perhaps a guard. A plain policy takes the best-ranked feasible node. A guarded one asks the forecaster
about the best `WIDTH` nodes in one call and widens until one passes or none is left: only a full scan decides that
no node fits. Invariant: same state, same shape, same policy (and generator) -> same placement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.candidates import Candidates
from cotide_core.columns import Floats
from cotide_core.feasibility import FITS, Feasibility
from cotide_core.forecasts import QosForecaster
from cotide_core.guard import QosGuard
from cotide_core.instructions import NodeVerdict
from cotide_core.orders import Order
from cotide_core.scoring import Rank
from cotide_core.shapes import FitShape, Shape
from cotide_core.snapshot import Snapshot
from cotide_core.verdicts import constraint_verdicts, risk_verdicts

WIDTH: Final = 32
"""Candidates in the first call of the model; each further call takes four times as many (chosen)."""
RISK_STEP: Final = 0.05
"""Probabilities nearer than this count as equal, and the rank decides (chosen: about the model's calibration error)."""


@dataclass(frozen=True, slots=True)
class Policy:
    """An algorithm, composed: who is next, which node is better, and which node is refused.

    Attributes
    ----------
    name : as users write it.
    order : order of the queue.
    rank : score of the nodes.
    guard : QoS check; None looks at resources only.
    lowest_risk : whether the guard's least risky candidate wins, or the best-ranked that passes.
    """

    name: str
    order: Order
    rank: Rank
    guard: QosGuard | None = None
    lowest_risk: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """The outcome of one attempt.

    Attributes
    ----------
    row : the chosen node's row; -1 when no node fits.
    probability : predicted probability of breaking a limit there; None when no service is concerned.
    refused : why other nodes were refused.
    guarded : whether the latency limits were looked at.
    """

    row: int
    probability: float | None
    refused: tuple[NodeVerdict, ...]
    guarded: bool = False


class Placer:
    """Places shapes by one policy, with the caches that make it fast."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.feasibility = Feasibility()
        self._candidates: dict[FitShape, Candidates] = {}

    def candidates(self, snapshot: Snapshot, shape: FitShape) -> Candidates:
        """Return the nodes as a shape sees them, up to date."""
        found = self._candidates.get(shape)
        if found is None:
            found = self._candidates[shape] = Candidates(shape, self.feasibility, self.policy.rank)
        found.refresh(snapshot)
        return found

    def forget(self, used: set[Shape]) -> None:
        """Drop what is kept for shapes that no waiting pod has."""
        fits = {shape.fit for shape in used}
        self._candidates = {fit: found for fit, found in self._candidates.items() if fit in fits}
        self.feasibility.forget({fit.constraints for fit in fits})
        if self.policy.guard is not None:
            self.policy.guard.forget(used)

    def forget_answers(self) -> None:
        """Drop what the QoS forecaster said: it is another one now."""
        if self.policy.guard is not None:
            self.policy.guard.forget()

    def place(self, snapshot: Snapshot, shape: Shape, forecaster: QosForecaster) -> Placement:
        """Choose a node for a pod of this shape, or say why there is none."""
        candidates = self.candidates(snapshot, shape.fit)
        if not candidates.tally.get(FITS):
            return Placement(-1, None, tuple(constraint_verdicts(snapshot, candidates, self.feasibility.reasons)))
        scores = candidates.scores
        if not self.policy.rank.cacheable:
            scores = scores + self.policy.rank.scores(snapshot, shape.fit, slice(0, snapshot.size))
        guard = self.policy.guard
        if guard is None:
            return Placement(int(scores.argmax()), None, ())
        return self._guarded(snapshot, shape, forecaster, guard, candidates, scores)

    def _guarded(
        self,
        snapshot: Snapshot,
        shape: Shape,
        forecaster: QosForecaster,
        guard: QosGuard,
        candidates: Candidates,
        scores: Floats,
    ) -> Placement:
        best = int(scores.argmax())
        if not guard.concerned(snapshot, shape, np.array([best], np.intp))[0]:
            return Placement(best, None, (), guarded=True)
        width = WIDTH
        refused: list[tuple[int, float]] = []
        remaining: NDArray[np.intp] = np.flatnonzero(candidates.codes == FITS)
        while len(remaining):
            rows, remaining = _best(scores, remaining, width)
            probabilities = guard.probabilities(snapshot, shape, rows, forecaster)
            passing = np.flatnonzero(probabilities <= guard.threshold)
            refused.extend(
                (int(rows[i]), float(probabilities[i])) for i in np.flatnonzero(probabilities > guard.threshold)
            )
            if len(passing):
                if self.policy.lowest_risk:
                    steps = np.floor(probabilities[passing] / RISK_STEP)
                    passing = passing[steps == steps.min()]
                chosen = int(passing[0])  # rows come best-ranked first
                row = int(rows[chosen])
                concerned = guard.concerned(snapshot, shape, rows[chosen : chosen + 1])[0]
                verdicts = risk_verdicts(snapshot, shape, guard, refused)
                return Placement(row, float(probabilities[chosen]) if concerned else None, tuple(verdicts), True)
            width *= 4
        verdicts = risk_verdicts(snapshot, shape, guard, refused)
        verdicts += constraint_verdicts(snapshot, candidates, self.feasibility.reasons)
        return Placement(-1, min(p for _, p in refused), tuple(verdicts))


def _best(scores: Floats, rows: NDArray[np.intp], count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split rows into the `count` best, best first (ties: lowest row), and the rest."""
    values = -scores[rows]
    if len(rows) <= count:
        return rows[np.argsort(values, kind="stable")], rows[:0]
    cut = np.partition(values, count - 1)[count - 1]
    better = np.flatnonzero(values < cut)
    ties = np.flatnonzero(values == cut)[: count - len(better)]
    taken = np.concatenate([better, ties])
    taken.sort()
    rest = np.ones(len(rows), np.bool_)
    rest[taken] = False
    best = rows[taken]
    return best[np.argsort(values[taken], kind="stable")], rows[rest]
