"""Codes and scores of all nodes for one shape, updated for the rows that changed.

Called by `placement` for each decision. Kept by fit shape, so that a pod of a known shape costs one changed row instead
of a scan. Invariant: after `refresh`, ``codes`` and ``scores`` equal a full evaluation (a Hypothesis test compares
them).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.instructions import NodeVerdict
from cotide_core.kernels.array_types import Floats
from cotide_core.placement.constraints.even_groups import EvenGroups
from cotide_core.placement.constraints.image_locality import locality
from cotide_core.placement.constraints.preferences import WEIGHT
from cotide_core.placement.feasibility import FITS, GONE, Codes, Feasibility, NodeMatches, RowCode, Stamp
from cotide_core.placement.scoring import Rank, RowScore
from cotide_core.placement.top_rows import Ranking, Ties
from cotide_core.state.cells import real_cells_of
from cotide_core.state.shapes import FitShape
from cotide_core.state.snapshot import Snapshot

SOFT_TAINT_PENALTY: Final = 1000.0
"""Subtracted from a node's score for each untolerated PreferNoSchedule taint. It exceeds every rank, so such a node is
the last resort, and is never refused (chosen).
"""
FULL_SCAN_SHARE: Final = 8
"""From this number of rows per changed row on, evaluating all rows is cheaper than picking the changed ones (chosen).
"""
ONE_BY_ONE: Final = 8
"""Up to this number of changed rows, plain numbers are faster than arrays (chosen: some 5 microseconds each)."""


class Candidates:
    """The nodes from the view of one fit shape.

    Attributes
    ----------
    codes : (N,) int16; 0 fits, otherwise a reason (see `feasibility.Reasons`).
    tally : code to number of nodes, dead rows left out.
    unfit : the verdicts that `placement` derived from the tally, kept until it may have changed.
    """

    def __init__(self, shape: FitShape, feasibility: Feasibility, rank: Rank, ties: Ties) -> None:
        self._shape = shape
        self._feasibility = feasibility
        self._rank = rank
        self._cached = rank.cacheable
        self._cursor = -1
        self._alone = (shape.peers is None or shape.peers.only_evens) and not shape.images
        self._evens_only = shape.peers is not None and shape.peers.only_evens
        # For online pods a wish keeps its proportion to the whole rank: otherwise the terms of a guarded policy would
        # outweigh every spread. For batch and gratis pods those terms go first.
        self._wish_weight = WEIGHT * rank.span if shape.online else WEIGHT
        self._groups: EvenGroups | None = None
        """Set for a shape that only prefers an even spread. With too many groups it is None, and the rows are evaluated
        again.
        """
        self._grouped_at = -1
        """The clock of the nodes' own fields at the time of grouping."""
        self._stamp: Stamp = (0, (), 0)
        self._local: Floats | None = None
        """(N,) the points of its images, as of the stamp; None: nothing."""
        self._ties = ties
        self._ranking = Ranking(ties)
        self._layout = -1
        self._row_code: RowCode = lambda _row, _matches: FITS
        self._row_score: RowScore = lambda _row: 0.0
        self.codes: Codes = np.zeros(0, np.int16)
        self._scores: Floats = np.zeros(0)
        """Without the scores that `_groups` adds."""
        self._code_cells, self._score_cells = self.codes.data, real_cells_of(self._scores)
        self.tally: dict[int, int] = {}
        self.unfit: tuple[NodeVerdict, ...] | None = None

    def refresh(self, snapshot: Snapshot) -> None:
        """Evaluate the rows that changed since the last call."""
        columns = snapshot.columns
        end = columns.journal_start + len(columns.journal)
        stamp = self._stamp if self._alone else self._feasibility.stamp(self._shape, snapshot)
        if self._cursor == end and len(self.codes) == snapshot.size and stamp == self._stamp:
            return
        behind = self._cursor < columns.journal_start or len(self.codes) != snapshot.size
        # A pod concerns whole domains, and not just its row; so does a node that has an image.
        behind = behind or (self._shape.peers is not None and self._groups is None) or stamp != self._stamp
        behind = behind or (self._groups is not None and self._grouped_at != columns.spec_clock)
        self._stamp = stamp
        if behind or end - self._cursor > snapshot.size // FULL_SCAN_SHARE + 1:
            self._evaluate_all(snapshot)
        else:
            changed = columns.journal[self._cursor - columns.journal_start :]
            rows = sorted(set(changed)) if len(changed) > 1 else changed
            if len(rows) <= ONE_BY_ONE:
                if self._layout != snapshot.layout:
                    self._read_cells(snapshot)
                matches = self._feasibility.matches(self._shape, snapshot)
                for row in rows:
                    self._evaluate_one(row, matches)
            else:
                self._evaluate(snapshot, rows)
        self._cursor = end

    @property
    def scores(self) -> Floats:
        """(N,) -inf where the pod does not fit; for a rank that is not cached, its preferences where it fits."""
        return self._scores if self._groups is None else self._groups.scores(self._scores)

    def best(self, count: int) -> list[int]:
        """Return the rows with the highest scores, best first, only those that fit; for ranks that are cached."""
        if self._groups is not None:
            return self._groups.best(self._scores, count)
        return self._ranking.best(self._scores, count)

    def draw(self) -> int:
        """Return one of the rows with the highest score, for ranks that are cached; one must fit."""
        if self._groups is not None:
            return self._groups.draw(self._scores)
        _, equals = self._ranking.top(self._scores)
        return self._ranking.row(self._ties.pick(equals))

    def _read_cells(self, snapshot: Snapshot) -> None:
        """Read single rows from the cells of a snapshot; valid until the layout changes."""
        self._layout = snapshot.layout
        self._row_code = self._feasibility.row_code(self._shape, snapshot)
        self._row_score = self._rank.row_score(snapshot, self._shape)

    def _evaluate_all(self, snapshot: Snapshot) -> None:
        everything = slice(0, snapshot.size)
        self.unfit = None
        self._local = locality(self._shape, snapshot) if self._shape.images else None
        self.codes = self._feasibility.codes(self._shape, snapshot, everything)
        self._scores = self._scored(snapshot, everything, self.codes)
        if self._evens_only:
            self._group(snapshot)
        if self._shape.peers is not None and self._groups is None:
            self._add_wishes(snapshot)
        self._code_cells, self._score_cells = self.codes.data, real_cells_of(self._scores)
        self._ranking.reset()
        self.tally = {code: n for code, n in enumerate(np.bincount(self.codes).tolist()) if n and code != GONE}

    def _evaluate(self, snapshot: Snapshot, changed: list[int]) -> None:
        self.unfit = None
        rows = np.array(changed, np.intp)
        codes_before, scores_before = self.codes[rows].tolist(), self._scores[rows].tolist()
        codes = self._feasibility.codes(self._shape, snapshot, rows)
        scores = self._scored(snapshot, rows, codes)
        self.codes[rows] = codes
        self._scores[rows] = scores
        for row, old, new in zip(changed, scores_before, scores.tolist(), strict=True):
            self._rank_anew(row, old, new)
        for old_code, new_code in zip(codes_before, codes.tolist(), strict=True):
            if old_code != new_code:
                self._move(old_code, new_code)

    def _evaluate_one(self, row: int, matches: NodeMatches) -> None:
        codes, scores = self._code_cells, self._score_cells
        code_before, before = codes[row], scores[row]
        code = self._row_code(row, matches)
        score = -math.inf
        if code == FITS:
            score = self._row_score(row) if self._cached else 0.0
            if matches.any_soft:
                score -= SOFT_TAINT_PENALTY * matches.soft.item(row)
            if self._local is not None:
                score += self._local.item(row)
        codes[row] = code
        scores[row] = score
        self._rank_anew(row, before, score)
        if code != FITS or code_before != FITS:
            self.unfit = None  # a row that stays refused may hold another node now, which the message names
        if code != code_before:
            self._move(code_before, code)

    def _move(self, old: int, new: int) -> None:
        if old != GONE:
            self.tally[old] -= 1
            if not self.tally[old]:
                del self.tally[old]
        if new != GONE:
            self.tally[new] = self.tally.get(new, 0) + 1

    def _scored(self, snapshot: Snapshot, rows: NDArray[np.intp] | slice, codes: Codes) -> Floats:
        scores = self._rank.scores(snapshot, self._shape, rows) if self._cached else np.zeros(len(codes))
        matches = self._feasibility.matches(self._shape, snapshot)
        if matches.any_soft:
            scores = scores - SOFT_TAINT_PENALTY * matches.soft[rows]
        if self._local is not None:
            scores = scores + self._local[rows]
        scores[codes != FITS] = -np.inf
        return scores

    def _rank_anew(self, row: int, before: float, after: float) -> None:
        """Apply the score of one row, and the other changes on it."""
        if self._groups is None:
            self._ranking.change(row, before, after)
        elif not self._groups.take(row, before, after):
            self._grouped_at = -1  # group all rows again before the next use

    def _group(self, snapshot: Snapshot) -> None:
        groups = self._groups or EvenGroups(self._shape, self._feasibility.index, self._ties, self._wish_weight)
        self._groups = groups if groups.rebuild(snapshot, self._scores) else None
        self._grouped_at = snapshot.columns.spec_clock

    def _add_wishes(self, snapshot: Snapshot) -> None:
        wished = self._feasibility.preferences(self._shape, snapshot, self.codes == FITS, self._wish_weight)
        if wished is not None:
            self._scores = self._scores + wished
