"""One placement decision: filter, score, guard, choose.

Called by the capacity of a policy (`reclaiming`) for the pod at the head of the queue, with a `Policy`: an order of the
queue, a rank of the nodes and perhaps a guard. A plain policy takes the best-ranked feasible node. A guarded policy
asks the forecaster about the best `WIDTH` nodes in one call. It widens the set until a node passes or all are refused:
only a full scan decides that no node fits. A latency forecast never keeps an online pod waiting: if the guard refuses
every node, the pod goes to the least risky one. Invariant: same state, same shape, same policy (and generator) -> same
placement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import InputError
from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import NodeVerdict
from cotide_core.kernels.array_types import Booleans, Floats
from cotide_core.kernels.best_rows import best_rows
from cotide_core.kernels.guard_answers import least_risky
from cotide_core.placement.candidates import Candidates
from cotide_core.placement.capacity import Capacity
from cotide_core.placement.exploration import Exploration
from cotide_core.placement.feasibility import FITS, REASONS_KEPT, Feasibility
from cotide_core.placement.plan_rule import PlanRule
from cotide_core.placement.refusal_messages import constraint_verdicts, risk_verdicts
from cotide_core.placement.scoring import Rank
from cotide_core.placement.top_rows import Ties
from cotide_core.qos.qos_guard import Likely, QosGuard
from cotide_core.queueing.ordering import Order
from cotide_core.state.shapes import FitShape, Shape
from cotide_core.state.snapshot import Snapshot

WIDTH: Final = 8
"""Candidates of the first call to the model; each further call takes four times as many (chosen)."""
FEW_ROWS: Final = 5 * WIDTH
"""Number of rows of one call about rows that may still pass (chosen: the size of two calls)."""
LOOKAHEAD: Final = 32
"""Pods of the queue in one call (chosen: a call costs as much as some 100 rows)."""
RISK_STEP: Final = 0.05
"""Probabilities nearer than this count as equal, and the rank decides (chosen: about the model's calibration error)."""
SHAPES_REMEMBERED: Final = 256
"""Fit shapes with kept candidates, the latest used (chosen: 10 bytes a node each, 13 MB at 5,000 nodes)."""
EVALUATED_A_PAIR: Final = 128
"""Nodes that a scan for an unknown fit shape covers in the time of one answer of the forecaster (measured: 5,000 take
0.1 ms).
"""
Upcoming = Callable[[], Sequence[Shape]]
"""Returns the shapes of the next pods of the queue."""


@dataclass(frozen=True, slots=True)
class Policy:
    """An algorithm, composed of an order of pods, a rank of nodes, a guard and the capacity of nodes.

    Every combination of parts is valid except ``lowest_risk`` without a guard. With a plan, batch and gratis pods wait
    for their planned start, and no pod is evicted to make room for them; the monitor evicts as in every policy.

    Attributes
    ----------
    name : as users write it.
    order : order of the queue.
    rank : score of the nodes; among those that slack leaves open it decides only with ``ranks_slack``.
    guard : QoS check; None considers resources only.
    lowest_risk : whether the guard's least risky candidate wins, or the best-ranked that passes.
    capacity : the free amounts for batch and gratis pods.
    ranks_slack : whether ``rank`` orders the nodes with enough slack; otherwise the one with most left is best.
    monitor : whether overloaded nodes are relieved of batch and gratis pods (see `overload_monitor`).
    relieves_latency : whether batch and gratis pods leave a node with a measured break of a latency limit (see
        `latency_relief`).
    follows_run_time : whether a batch or gratis pod is placed by the forecast slack up to its own end (p90), if
        forecasts reach so far, instead of the slack of the coming slot.
    plan : how batch and gratis pods are planned over time (see `planning`); None considers the present only.

    Raises
    ------
    InputError
        For parts that can't be together.
    """

    name: str
    order: Order
    rank: Rank
    guard: QosGuard | None = None
    lowest_risk: bool = False
    capacity: Capacity = Capacity.REQUESTS
    ranks_slack: bool = False
    monitor: bool = False
    relieves_latency: bool = False
    follows_run_time: bool = False
    plan: PlanRule | None = None

    def __post_init__(self) -> None:
        if self.lowest_risk and self.guard is None:
            raise InputError("the least risky node can't be chosen without a guard that computes risks", field="policy")

    @property
    def tells_jobs_apart(self) -> bool:
        """Whether a decision depends on more of a job than where it fits."""
        return self.guard is not None or self.capacity is Capacity.SLACK or self.plan is not None


class Placement(NamedTuple):
    """The outcome of one attempt.

    Attributes
    ----------
    row : the chosen node's row; -1 if no node fits.
    probability : predicted probability of breaking a limit there; None if no service is concerned.
    refused : why other nodes were refused.
    guarded : whether the latency limits were checked.
    why : the choice in one sentence, if the policy adds more than its name.
    basis : the basis of the probability (see `applicability`); 0 if no service is concerned.
    """

    row: int
    probability: float | None
    refused: tuple[NodeVerdict, ...]
    guarded: bool = False
    why: str = ""
    basis: int = 0


class OpenNodes(NamedTuple):
    """The nodes that have enough resources for a pod.

    Attributes
    ----------
    rows : (N,) whether each is open.
    scores : (N,) the higher the better; read only for open rows.
    refused : why the others are closed.
    """

    rows: Booleans
    scores: Floats
    refused: tuple[NodeVerdict, ...]


class Placer:
    """Places shapes by one policy, with the caches that make it fast."""

    def __init__(self, policy: Policy, exploration: Exploration | None = None, seed: int = 0) -> None:
        self.policy = policy
        self._ties = Ties(seed)
        self.exploration = exploration or Exploration(None)
        self.feasibility = Feasibility()
        self._candidates: dict[FitShape, Candidates] = {}
        self._evaluated = 0
        self._cacheable = policy.rank.cacheable

    def candidates(self, snapshot: Snapshot, shape: FitShape) -> Candidates:
        """Return the nodes from the view of a shape, up to date."""
        found = self._candidates.pop(shape, None)
        if found is None:
            found = Candidates(shape, self.feasibility, self.policy.rank, self._ties)
            self._evaluated += snapshot.size
            if len(self._candidates) >= SHAPES_REMEMBERED:
                del self._candidates[next(iter(self._candidates))]
        self._candidates[shape] = found  # at the end: the first is the least recently used
        found.refresh(snapshot)
        return found

    @property
    def effort(self) -> int:
        """Cost of placing so far, in pairs of a pod and a node that were passed to the forecaster."""
        asked = 0 if self.policy.guard is None else self.policy.guard.effort
        return asked + self._evaluated // EVALUATED_A_PAIR

    def known(self, snapshot: Snapshot, shape: FitShape) -> Candidates | None:
        """Return the nodes from the view of a cached shape, up to date; None for another shape."""
        found = self._candidates.get(shape)
        if found is not None:
            found.refresh(snapshot)
        return found

    def forget(self, used: set[Shape]) -> None:
        """Drop the caches of constraints that no waiting pod has."""
        self.feasibility.forget({shape.fit.constraints for shape in used})

    def renew(self) -> None:
        """Begin a cycle: drop prefetched answers, and restart the numbers of reasons once there are many. Between two
        cycles no object holds a code.
        """
        if self.policy.guard is not None:
            self.policy.guard.begin()
        if len(self.feasibility.reasons.messages) > REASONS_KEPT:
            self.feasibility.renew()
            self._candidates.clear()

    def forget_answers(self) -> None:
        """Drop the answers of the QoS forecaster, because it was replaced."""
        if self.policy.guard is not None:
            self.policy.guard.forget()

    def refusals(self, snapshot: Snapshot, shape: FitShape) -> tuple[NodeVerdict, ...]:
        """Return why nodes can't take a shape now."""
        return self.unfit(snapshot, self.candidates(snapshot, shape))

    def place(self, snapshot: Snapshot, shape: Shape, forecaster: QosForecaster, upcoming: Upcoming) -> Placement:
        """Choose a node for a pod of this shape, or return why there is none."""
        candidates = self.candidates(snapshot, shape.fit)
        unfit = self.unfit(snapshot, candidates)
        if not candidates.tally.get(FITS):
            return Placement(-1, None, unfit)
        guard, rank = self.policy.guard, self.policy.rank
        if not self._cacheable:
            scores = candidates.scores + rank.scores(snapshot, shape.fit, slice(0, snapshot.size))
            if guard is None:
                return Placement(int(scores.argmax()), None, unfit)  # a node that does not fit scores -inf
            return self.place_among(OpenNodes(candidates.codes == FITS, scores, unfit), snapshot, shape, forecaster)
        if guard is None:
            return Placement(candidates.draw(), None, unfit)
        row = candidates.draw()
        if not guard.concerns(snapshot, shape, row):
            return Placement(row, None, unfit, guarded=True)
        first = np.array(candidates.best(WIDTH), np.intp)
        probabilities = guard.known(snapshot, shape, first)
        if probabilities is None:
            asked = first
            if candidates.tally[FITS] <= 4 * FEW_ROWS:
                # On a full cluster few rows are left and most refuse: then one call covers all of them.
                open_rows = guard.not_refused(snapshot, shape, candidates.codes == FITS)
                asked = np.union1d(first, open_rows) if len(open_rows) <= FEW_ROWS else first
            self._ask_ahead(snapshot, shape, forecaster, guard, asked, upcoming())
            probabilities = guard.found_probabilities(snapshot, shape, first)
        chosen = self._choose(snapshot, shape, guard, unfit, first, probabilities)
        if chosen is not None:
            return chosen
        among = OpenNodes(candidates.codes == FITS, candidates.scores, unfit)
        return self._widened(among, snapshot, shape, forecaster, guard)

    def place_among(
        self,
        among: OpenNodes,
        snapshot: Snapshot,
        shape: Shape,
        forecaster: QosForecaster,
        likely: Likely | None = None,
    ) -> Placement:
        """Choose one of the open nodes for a pod, the best that the guard admits, or return why there is none.

        Parameters
        ----------
        likely : returns further pairs for a call of the forecaster, if one is needed; None for nothing.
        """
        guard = self.policy.guard
        if guard is None:
            return Placement(self._ties.best(among.scores, among.rows), None, among.refused)
        first = best_rows(among.scores, among.rows, self._ties.order(snapshot.size), WIDTH)
        if not len(first):
            return Placement(-1, None, among.refused)
        row = first.item(0)
        if not guard.concerns(snapshot, shape, row):
            if len(first) > 1 and among.scores.item(first.item(1)) == among.scores.item(row):
                drawn = self._ties.best(among.scores, among.rows)
                row = row if guard.concerns(snapshot, shape, drawn) else drawn
            return Placement(row, None, among.refused, guarded=True)
        if likely is None or shape.online:
            probabilities = guard.probabilities(snapshot, shape, first, forecaster)
        else:
            probabilities = guard.probabilities_with(snapshot, shape, first, forecaster, likely)
        chosen = self._choose(snapshot, shape, guard, among.refused, first, probabilities)
        return self._widened(among, snapshot, shape, forecaster, guard) if chosen is None else chosen

    @property
    def keeps_scores(self) -> bool:
        """Whether the scores of `candidates` are the policy's rank: False for a rank that draws again each time."""
        return self._cacheable

    def fitting(self, snapshot: Snapshot, shape: Shape) -> OpenNodes:
        """Return the nodes that a shape fits on, by rank; a random rank draws again."""
        candidates, rank = self.candidates(snapshot, shape.fit), self.policy.rank
        scores = candidates.scores
        if not rank.cacheable:
            scores = scores + rank.scores(snapshot, shape.fit, slice(0, snapshot.size))
        return OpenNodes(candidates.codes == FITS, scores, self.unfit(snapshot, candidates))

    def probabilities(
        self, snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp], forecaster: QosForecaster
    ) -> Floats:
        """Return (K,) probabilities that a limit on each row would break with the pod there. All are 0 without a guard,
        and where it is not concerned.
        """
        guard, found = self.policy.guard, np.zeros(len(rows))
        if guard is not None and len(rows):
            found = np.where(
                guard.concerned(snapshot, shape, rows), guard.probabilities(snapshot, shape, rows, forecaster), 0.0
            )
        return found

    def basis(self, shape: Shape, row: int) -> int:
        """Return the basis of the guard's latest answer about a row (see `applicability`); 0 without a guard."""
        return 0 if self.policy.guard is None else self.policy.guard.basis(shape, row)

    def at_risk(self, snapshot: Snapshot, shape: Shape, rows: NDArray[np.intp], rest: Placement) -> Placement:
        """Return a refusal that includes the rows which the guard checked and refuses."""
        guard = self.policy.guard
        groups = [] if guard is None else guard.by_service(shape, rows)
        if not groups:
            return rest
        nearest, row = min([group[2:] for group in groups])
        if rest.probability is not None and rest.probability <= nearest:
            nearest, basis = rest.probability, rest.basis
        else:
            basis = self.basis(shape, row)
        verdicts = (*risk_verdicts(snapshot, groups), *rest.refused)
        return Placement(-1, nearest, verdicts, guarded=True, basis=basis)

    @property
    def accepted(self) -> float:
        """The highest accepted probability of breaking a limit; 1 without a guard."""
        return 1.0 if self.policy.guard is None else self.policy.guard.threshold

    def _widened(
        self, among: OpenNodes, snapshot: Snapshot, shape: Shape, forecaster: QosForecaster, guard: QosGuard
    ) -> Placement:
        """Check more and more rows, if the first were refused, until one passes or all are refused."""
        remaining = guard.not_refused(snapshot, shape, among.rows)
        width = WIDTH
        while len(remaining):
            width *= 4
            rows, remaining = _best(among.scores, remaining, width)
            probabilities = guard.probabilities(snapshot, shape, rows, forecaster)
            chosen = self._choose(snapshot, shape, guard, among.refused, rows, probabilities)
            if chosen is not None:
                return chosen
        if shape.online:
            return self._least_risky(among, snapshot, shape, forecaster, guard)
        groups = guard.by_service(shape, np.flatnonzero(among.rows))
        verdicts = (*risk_verdicts(snapshot, groups), *among.refused)
        nearest, row = min([group[2:] for group in groups])
        tried = self._explored(snapshot, shape, forecaster, guard, row, nearest, verdicts)
        if tried is not None:
            return tried
        return Placement(-1, nearest, verdicts, guarded=True, basis=guard.basis(shape, row))

    def _least_risky(
        self, among: OpenNodes, snapshot: Snapshot, shape: Shape, forecaster: QosForecaster, guard: QosGuard
    ) -> Placement:
        """Return the placement of an online pod on the node with the lowest risk, for a guard that refuses every node.
        The risk counts in steps of `RISK_STEP`; of equals the best-ranked wins.
        """
        rows = np.flatnonzero(among.rows)
        rows = rows[np.argsort(-among.scores[rows], kind="stable")]
        probabilities = guard.present_probabilities(snapshot, shape, rows, forecaster)
        chosen = least_risky(probabilities, 1.0, RISK_STEP)
        row, probability = rows.item(chosen), probabilities.item(chosen)
        others = np.delete(rows, chosen)
        risky = others[np.delete(probabilities, chosen) > guard.threshold]
        verdicts = (*risk_verdicts(snapshot, guard.by_service(shape, risky)), *among.refused)
        basis = guard.basis(shape, row)
        if probability <= guard.threshold:
            return Placement(row, probability, verdicts, guarded=True, basis=basis)
        why = (
            f"every node that fits is predicted to break a latency limit; the least risky one has p={probability:.2f},"
            f" above the accepted {guard.threshold:.2f}"
        )
        return Placement(row, probability, verdicts, guarded=True, why=why, basis=basis)

    def _explored(
        self,
        snapshot: Snapshot,
        shape: Shape,
        forecaster: QosForecaster,
        guard: QosGuard,
        row: int,
        nearest: float,
        verdicts: tuple[NodeVerdict, ...],
    ) -> Placement | None:
        """Return a trial on the least risky of the refused nodes, if the budget allows one.

        Computes its probability again: a remembered refusal may belong to an earlier, smaller mix.
        """
        exploration = self.exploration
        if shape.online or not exploration.allows(snapshot, row, nearest):
            return None
        probability = guard.ask(snapshot, [(shape, row)], forecaster)[0]
        if not exploration.allows(snapshot, row, probability):
            return None
        exploration.tried(snapshot, row)
        why = f"tried although p={probability:.2f} is above {guard.threshold:g}: few such trials teach the forecast"
        return Placement(row, probability, verdicts, guarded=True, why=why, basis=guard.basis(shape, row))

    def unfit(self, snapshot: Snapshot, candidates: Candidates) -> tuple[NodeVerdict, ...]:
        """Return why nodes can't take a shape, from up-to-date candidates."""
        if candidates.unfit is None:
            candidates.unfit = tuple(constraint_verdicts(snapshot, candidates, self.feasibility.reasons))
        return candidates.unfit

    def _choose(
        self,
        snapshot: Snapshot,
        shape: Shape,
        guard: QosGuard,
        unfit: tuple[NodeVerdict, ...],
        rows: NDArray[np.intp],
        probabilities: Floats,
    ) -> Placement | None:
        """Return the placement on the best of these rows, which come best-ranked first; None if all are refused."""
        step = RISK_STEP if self.policy.lowest_risk else 0.0
        chosen = least_risky(probabilities, guard.threshold, step)
        if chosen < 0:
            return None
        row, probability = rows.item(chosen), probabilities.item(chosen)
        verdicts = unfit
        if max(probabilities.tolist()) > guard.threshold:  # for the few rows of the first call, faster than an array
            refused = rows[probabilities > guard.threshold]
            verdicts = (*risk_verdicts(snapshot, guard.by_service(shape, refused)), *verdicts)
        if not guard.concerns(snapshot, shape, row):
            return Placement(row, None, verdicts, guarded=True)
        self.exploration.accepted(snapshot, row)
        return Placement(row, probability, verdicts, guarded=True, basis=guard.basis(shape, row))

    def _ask_ahead(
        self,
        snapshot: Snapshot,
        shape: Shape,
        forecaster: QosForecaster,
        guard: QosGuard,
        asked: NDArray[np.intp],
        upcoming: Sequence[Shape],
    ) -> None:
        """Ask about this pod and, in the same call, about the pods after it.

        The pods before it will take some of the best nodes, so the k-th pod probably needs those from rank k on. A
        wrong guess costs a call and leaves decisions correct.
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
