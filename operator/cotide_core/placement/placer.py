"""One placement decision: filter, score, guard, choose.

Called by `cycle.Scheduler` for the pod at the head of the queue, with a `Policy`: an order of the queue, a rank of
the nodes and perhaps a guard. A plain policy takes the best-ranked feasible node. A guarded one asks the forecaster
about the best `WIDTH` nodes in one call and widens until one passes or none is left: only a full scan decides that
no node fits. Invariant: same state, same shape, same policy (and generator) -> same placement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import NodeVerdict
from cotide_core.kernels.array_types import Floats
from cotide_core.kernels.guard_answers import least_risky
from cotide_core.placement.candidates import Candidates
from cotide_core.placement.feasibility import FITS, REASONS_KEPT, Feasibility
from cotide_core.placement.plan_rule import PlanRule
from cotide_core.placement.refusal_messages import constraint_verdicts, risk_verdicts
from cotide_core.placement.scoring import Rank
from cotide_core.qos.qos_guard import QosGuard
from cotide_core.queueing.ordering import Order
from cotide_core.state.shapes import FitShape, Shape
from cotide_core.state.snapshot import Snapshot

WIDTH: Final = 8
"""Candidates that the model is asked about first; each further call takes four times as many (chosen)."""
FEW_ROWS: Final = 5 * WIDTH
"""So many rows that may still pass are asked about at once (chosen: what two calls would ask about)."""
LOOKAHEAD: Final = 32
"""Pods of the queue for which a call asks at once (chosen: a call costs as much as some 100 rows)."""
RISK_STEP: Final = 0.05
"""Probabilities nearer than this count as equal, and the rank decides (chosen: about the model's calibration error)."""
SHAPES_REMEMBERED: Final = 256
"""Fit shapes whose candidates are kept, the latest used (chosen: 10 bytes a node each, 13 MB at 5,000 nodes)."""
Upcoming = Callable[[], Sequence[Shape]]
"""Tells the shapes of the next pods of the queue."""


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
    by_slack : whether batch and gratis pods go where the predicted load leaves most room (see `hierarchy`).
    plan : how batch and gratis pods are planned over time (see `planning`); None looks at the present only.
    """

    name: str
    order: Order
    rank: Rank
    guard: QosGuard | None = None
    lowest_risk: bool = False
    by_slack: bool = False
    plan: PlanRule | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The outcome of one attempt.

    Attributes
    ----------
    row : the chosen node's row; -1 when no node fits.
    probability : predicted probability of breaking a limit there; None when no service is concerned.
    refused : why other nodes were refused.
    guarded : whether the latency limits were looked at.
    why : the choice in one sentence, where the policy has more to say than its name.
    basis : what the probability rests on (see `applicability`); 0 where no service is concerned.
    """

    row: int
    probability: float | None
    refused: tuple[NodeVerdict, ...]
    guarded: bool = False
    why: str = ""
    basis: int = 0


class Placer:
    """Places shapes by one policy, with the caches that make it fast."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.feasibility = Feasibility()
        self._candidates: dict[FitShape, Candidates] = {}

    def candidates(self, snapshot: Snapshot, shape: FitShape) -> Candidates:
        """Return the nodes as a shape sees them, up to date."""
        found = self._candidates.pop(shape, None)
        if found is None:
            found = Candidates(shape, self.feasibility, self.policy.rank)
            if len(self._candidates) >= SHAPES_REMEMBERED:
                del self._candidates[next(iter(self._candidates))]
        self._candidates[shape] = found  # at the end: the first is the one that was not used for longest
        found.refresh(snapshot)
        return found

    def known(self, snapshot: Snapshot, shape: FitShape) -> Candidates | None:
        """Return the nodes as a shape that is remembered sees them, up to date; None for another shape."""
        found = self._candidates.get(shape)
        if found is not None:
            found.refresh(snapshot)
        return found

    def forget(self, used: set[Shape]) -> None:
        """Drop what is kept for constraints that no waiting pod has."""
        self.feasibility.forget({shape.fit.constraints for shape in used})

    def renew(self) -> None:
        """Begin anew with the numbers of reasons once there are many: between two cycles, when nobody holds a code."""
        if len(self.feasibility.reasons.messages) > REASONS_KEPT:
            self.feasibility.renew()
            self._candidates.clear()

    def forget_answers(self) -> None:
        """Drop what the QoS forecaster said: it is another one now."""
        if self.policy.guard is not None:
            self.policy.guard.forget()

    def refusals(self, snapshot: Snapshot, shape: FitShape) -> tuple[NodeVerdict, ...]:
        """Return why nodes can't take a shape now."""
        return self._unfit(snapshot, self.candidates(snapshot, shape))

    def place(self, snapshot: Snapshot, shape: Shape, forecaster: QosForecaster, upcoming: Upcoming) -> Placement:
        """Choose a node for a pod of this shape, or say why there is none."""
        candidates = self.candidates(snapshot, shape.fit)
        if not candidates.tally.get(FITS):
            return Placement(-1, None, self._unfit(snapshot, candidates))
        guard = self.policy.guard
        if not self.policy.rank.cacheable:
            drawn = candidates.scores + self.policy.rank.scores(snapshot, shape.fit, slice(0, snapshot.size))
            if guard is None:
                return Placement(int(drawn.argmax()), None, self._unfit(snapshot, candidates))
            fitting = np.flatnonzero(candidates.codes == FITS)
            first = _best(drawn, fitting, WIDTH)[0]
            return self._guarded(snapshot, shape, forecaster, guard, candidates, drawn, first, None)
        if guard is None:
            return Placement(candidates.best(1)[0], None, self._unfit(snapshot, candidates))
        first = np.array(candidates.best(WIDTH), np.intp)
        return self._guarded(snapshot, shape, forecaster, guard, candidates, candidates.scores, first, upcoming)

    def _guarded(
        self,
        snapshot: Snapshot,
        shape: Shape,
        forecaster: QosForecaster,
        guard: QosGuard,
        candidates: Candidates,
        scores: Floats,
        first: NDArray[np.intp],
        upcoming: Upcoming | None,
    ) -> Placement:
        if not guard.concerns(snapshot, shape, int(first[0])):
            return Placement(int(first[0]), None, self._unfit(snapshot, candidates), guarded=True)
        fits = candidates.codes == FITS
        if upcoming is not None and not guard.knows(snapshot, shape, first):
            asked = first
            if candidates.tally[FITS] <= 4 * FEW_ROWS:
                # On a full cluster few rows are left and most refuse: then one call asks about all of them.
                open_rows = guard.not_refused(snapshot, shape, fits)
                asked = np.union1d(first, open_rows) if len(open_rows) <= FEW_ROWS else first
            self._ask_ahead(snapshot, shape, forecaster, guard, asked, upcoming())
        if upcoming is not None:
            probabilities = guard.known(snapshot, shape, first)
        else:
            probabilities = guard.probabilities(snapshot, shape, first, forecaster)
        chosen = self._choose(snapshot, shape, guard, candidates, first, probabilities)
        if chosen is not None:
            return chosen
        remaining = guard.not_refused(snapshot, shape, fits)
        width = WIDTH
        while len(remaining):
            width *= 4
            rows, remaining = _best(scores, remaining, width)
            probabilities = guard.probabilities(snapshot, shape, rows, forecaster)
            chosen = self._choose(snapshot, shape, guard, candidates, rows, probabilities)
            if chosen is not None:
                return chosen
        refused = np.flatnonzero(fits)
        groups = guard.by_service(shape, refused)
        verdicts = (*risk_verdicts(snapshot, groups), *self._unfit(snapshot, candidates))
        nearest, row = min([group[2:] for group in groups])
        return Placement(-1, nearest, verdicts, guarded=True, basis=guard.basis(shape, row))

    def _unfit(self, snapshot: Snapshot, candidates: Candidates) -> tuple[NodeVerdict, ...]:
        if candidates.unfit is None:
            candidates.unfit = tuple(constraint_verdicts(snapshot, candidates, self.feasibility.reasons))
        return candidates.unfit

    def _choose(
        self,
        snapshot: Snapshot,
        shape: Shape,
        guard: QosGuard,
        candidates: Candidates,
        rows: NDArray[np.intp],
        probabilities: Floats,
    ) -> Placement | None:
        """Return the placement on the best of these rows, which come best-ranked first; None when all are refused."""
        step = RISK_STEP if self.policy.lowest_risk else 0.0
        chosen = least_risky(probabilities, guard.threshold, step)
        if chosen < 0:
            return None
        row = int(rows[chosen])
        refused = rows[probabilities > guard.threshold]
        verdicts = self._unfit(snapshot, candidates)
        if len(refused):
            verdicts = (*risk_verdicts(snapshot, guard.by_service(shape, refused)), *verdicts)
        if not guard.concerns(snapshot, shape, row):
            return Placement(row, None, verdicts, guarded=True)
        return Placement(row, float(probabilities[chosen]), verdicts, guarded=True, basis=guard.basis(shape, row))

    def _ask_ahead(
        self,
        snapshot: Snapshot,
        shape: Shape,
        forecaster: QosForecaster,
        guard: QosGuard,
        asked: NDArray[np.intp],
        upcoming: Sequence[Shape],
    ) -> None:
        """Ask about this pod and, in the same call, about those after it.

        The pods before it will take some of the best nodes, so the k-th is expected to look at those from rank k on.
        A wrong guess costs a call, never a wrong decision.
        """
        shapes, ends, rows = [shape], [len(asked)], asked.tolist()
        relief, online = snapshot.columns.relief_clock, shape.online
        ranked: dict[FitShape, list[int]] = {}
        for index, other in enumerate(upcoming, start=1):
            if other.online is not online or other.failed_at == relief:
                continue
            best = ranked.get(other.fit)
            if best is None:
                best = ranked[other.fit] = self.candidates(snapshot, other.fit).best(LOOKAHEAD + WIDTH)
            if index < len(best):
                rows.extend(best[index : index + WIDTH])
                shapes.append(other)
                ends.append(len(rows))
        guard.find_out(snapshot, shapes, ends, np.array(rows, np.intp), forecaster)


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
